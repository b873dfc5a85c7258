// A box of strided storage in row-major order.
fn place(element: u32) -> u32 {
    var rest = element;
    var at = params.offset;
    for (var axis = params.rank; axis > 0u; axis -= 1u) {
        let slot = (axis - 1u) >> 2u;
        let lane = (axis - 1u) & 3u;
        let extent = params.dims[slot][lane];
        at += (rest % extent) * params.strides[slot][lane];
        rest /= extent;
    }
    return at;
}
