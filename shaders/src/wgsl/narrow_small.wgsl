// To a format of at most 16 bits, given by TO_*.
alias To = u32;

fn too_large(sign: u32) -> u32 {
    if TO_OVERFLOW_HAS_SIGN {
        return sign | TO_OVERFLOW;
    }
    return TO_OVERFLOW;
}

fn encode(wide: Wide) -> Coded {
    let sign = (wide.word >> 31u) << TO_SIGN_AT;
    let magnitude = wide.word & 0x7fffffffu;
    let down = 23u - TO_FRACTION;
    if magnitude > INFINITY {
        if TO_INFINITY != 0u {
            return Coded(sign | TO_INFINITY | ((magnitude & 0x7fffffu) >> down), NAN);
        }
        return Coded(select(TO_NAN, sign | TO_NAN, TO_NAN_HAS_SIGN), NAN);
    }
    if magnitude == INFINITY {
        if TO_INFINITY != 0u {
            return Coded(sign | TO_INFINITY, NOTHING);
        }
        return Coded(too_large(sign), OVERFLOW);
    }
    // The exponent field that the target's least normal number has in f32.
    let least = 128u - TO_BIAS;
    let exponent = magnitude >> 23u;
    var code: u32;
    if exponent >= least {
        code = nearest(magnitude - ((least - 1u) << 23u), down);
    } else {
        let digits = (magnitude & 0x7fffffu) | select(0u, 0x800000u, exponent > 0u);
        let shift = down + least - max(exponent, 1u);
        code = select(0u, nearest(digits, min(shift, 25u)), shift <= 25u);
    }
    if code > TO_MAX {
        return Coded(too_large(sign), OVERFLOW);
    }
    if code == 0u {
        return Coded(select(0u, sign, TO_NEGATIVE_ZERO), select(TO_ZERO, NOTHING, magnitude == 0u));
    }
    if code < (1u << TO_FRACTION) && !wide.subnormal {
        return Coded(sign | code, SUBNORMAL);
    }
    return Coded(sign | code, NOTHING);
}

fn convert(code: From) -> Coded {
    return encode(widen(code));
}
