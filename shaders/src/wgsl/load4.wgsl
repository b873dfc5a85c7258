alias From = u32;

fn load(at: u32) -> From {
    if SWAP {
        return swapped(source[at]);
    }
    return source[at];
}
