alias From = u32;

fn load(at: u32) -> From {
    let code = (source[at >> 1u] >> ((at & 1u) * 16u)) & 0xffffu;
    if SWAP {
        return (code >> 8u) | ((code & 0xffu) << 8u);
    }
    return code;
}
