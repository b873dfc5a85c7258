// From a format of at most 16 bits, given by FROM_*.
fn widen(code: From) -> Wide {
    let sign = ((code >> FROM_SIGN_AT) & 1u) << 31u;
    let magnitude = code & ((1u << FROM_SIGN_AT) - 1u);
    let fraction = magnitude & ((1u << FROM_FRACTION) - 1u);
    let up = 23u - FROM_FRACTION;
    if FROM_INFINITY != 0u {
        if magnitude > FROM_INFINITY {
            return Wide(sign | INFINITY | QUIET | (fraction << up), false);
        }
        if magnitude == FROM_INFINITY {
            return Wide(sign | INFINITY, false);
        }
    }
    if code == FROM_NAN || code == FROM_NEGATIVE_NAN {
        return Wide(sign | INFINITY | QUIET, false);
    }
    if magnitude == 0u {
        return Wide(sign, false);
    }
    if magnitude != fraction {
        return Wide(sign | ((magnitude + ((127u - FROM_BIAS) << FROM_FRACTION)) << up), false);
    }
    if FROM_BIAS == 127u {
        return Wide(sign | (magnitude << up), true);
    }
    // The leading one to its place; it counts as one in the exponent field, which is why that is one lower.
    let places = countLeadingZeros(fraction) - (31u - FROM_FRACTION);
    return Wide(sign | (((127u - FROM_BIAS - places) << 23u) + (fraction << (places + up))), true);
}
