// From f8e8m0fnu: 2^(code - 127), all ones is NaN.
fn widen(code: From) -> Wide {
    if code == 0xffu {
        return Wide(INFINITY | QUIET, false);
    }
    if code == 0u {
        return Wide(QUIET, false);
    }
    return Wide(code << 23u, false);
}
