// f64 to f32, where rounding to odd first would not do.
alias To = u32;

fn convert(code: From) -> Coded {
    let sign = code.y & 0x80000000u;
    let magnitude = code.y & 0x7fffffffu;
    if magnitude > 0x7ff00000u || (magnitude == 0x7ff00000u && code.x != 0u) {
        return Coded(sign | INFINITY | QUIET | ((magnitude & 0xfffffu) << 3u) | (code.x >> 29u), NAN);
    }
    if magnitude == 0x7ff00000u {
        return Coded(sign | INFINITY, NOTHING);
    }
    if (magnitude | code.x) == 0u {
        return Coded(sign, NOTHING);
    }
    // 26 digits, the last of which says that something was cut off.
    let exponent = i32(magnitude >> 20u) - 896;
    let digits = ((0x00100000u | (magnitude & 0xfffffu)) << 5u) | (code.x >> 27u) | u32((code.x & 0x7ffffffu) != 0u);
    if exponent >= 1 {
        let rounded = (u32(min(exponent, 255) - 1) << 23u) + nearest(digits, 2u);
        if rounded >= INFINITY {
            return Coded(sign | TO_OVERFLOW, OVERFLOW);
        }
        return Coded(sign | rounded, NOTHING);
    }
    let shift = u32(3 - exponent);
    let rounded = select(0u, nearest(digits, min(shift, 27u)), shift <= 27u && magnitude >= 0x00100000u);
    if rounded == 0u {
        return Coded(sign, TO_ZERO);
    }
    return Coded(sign | rounded, select(SUBNORMAL, NOTHING, rounded >= 0x00800000u));
}
