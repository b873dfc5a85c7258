// To f8e8m0fnu: half way and above goes up; whatever is above the least power but below the next goes up to that; the
// least stands for all below it. Zero and negative numbers are beyond the format, on its lower side.
alias To = u32;

fn convert(given: From) -> Coded {
    let word = widen(given).word;
    let magnitude = word & 0x7fffffffu;
    if magnitude > INFINITY {
        return Coded(0xffu, NAN);
    }
    if magnitude == 0u || word > 0x7fffffffu {
        return Coded(select(0u, 0xffu, TO_SPECIAL_ON_OVERFLOW), OVERFLOW);
    }
    let exponent = magnitude >> 23u;
    let code = select(
        exponent + u32((magnitude & 0x7fffffu) >= 0x400000u),
        u32(magnitude > 0x400000u),
        exponent == 0u,
    );
    if code >= 0xffu {
        return Coded(select(0xfeu, 0xffu, TO_SPECIAL_ON_OVERFLOW), OVERFLOW);
    }
    return Coded(code, NOTHING);
}
