// One segment: every granule is full but the last.
fn segment(granule: u32) -> u32 {
    return 0u;
}

fn held(granule: u32) -> u32 {
    let before = granule * GRANULE;
    return select(0u, min(GRANULE, params.elements - before), before < params.elements);
}
