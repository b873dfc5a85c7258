alias From = u32;

fn load(at: u32) -> From {
    return (source[at >> 2u] >> ((at & 3u) * 8u)) & 0xffu;
}
