// From f64, rounded to odd: the last bit says that something was cut off, so that one more rounding, to a format with
// at least two bits less, is as good as the first.
fn widen(code: From) -> Wide {
    let sign = code.y & 0x80000000u;
    let magnitude = code.y & 0x7fffffffu;
    let top = ((magnitude & 0xfffffu) << 3u) | (code.x >> 29u);
    if magnitude > 0x7ff00000u || (magnitude == 0x7ff00000u && code.x != 0u) {
        return Wide(sign | INFINITY | QUIET | top, false);
    }
    if magnitude == 0x7ff00000u {
        return Wide(sign | INFINITY, false);
    }
    if (magnitude | code.x) == 0u {
        return Wide(sign, false);
    }
    let subnormal = magnitude < 0x00100000u;
    let exponent = i32(magnitude >> 20u) - 896;
    let digits = 0x00800000u | top | u32((code.x & 0x1fffffffu) != 0u);
    if exponent >= 255 {
        return Wide(sign | 0x7f7fffffu, false);
    }
    if exponent >= 1 {
        return Wide(sign | ((u32(exponent - 1) << 23u) + digits), false);
    }
    let shift = u32(1 - exponent);
    if shift > 24u {
        return Wide(sign | 1u, subnormal);
    }
    let rest = digits & ((1u << shift) - 1u);
    return Wide(sign | (digits >> shift) | u32(rest != 0u), false);
}
