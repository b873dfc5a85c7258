// One element after the other. Each granule belongs to one segment and has so many elements of it.
fn segment(granule: u32) -> u32 {
    return table[2u * granule];
}

fn held(granule: u32) -> u32 {
    return table[2u * granule + 1u];
}

fn place(element: u32) -> u32 {
    return element;
}
