// The low word first.
alias From = vec2<u32>;

fn load(at: u32) -> From {
    let words = vec2<u32>(source[2u * at], source[2u * at + 1u]);
    if SWAP {
        return vec2<u32>(swapped(words.y), swapped(words.x));
    }
    return words;
}
