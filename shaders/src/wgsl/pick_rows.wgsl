// Row r of the result is row table[r] of the source.
fn place(element: u32) -> u32 {
    return table[element / params.row] * params.row + element % params.row;
}
