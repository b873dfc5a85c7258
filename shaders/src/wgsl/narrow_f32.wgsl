alias To = u32;

fn convert(code: From) -> Coded {
    let wide = widen(code);
    let magnitude = wide.word & 0x7fffffffu;
    if magnitude > INFINITY {
        return Coded(wide.word, NAN);
    }
    if magnitude != 0u && magnitude < 0x00800000u && !wide.subnormal {
        return Coded(wide.word, SUBNORMAL);
    }
    return Coded(wide.word, NOTHING);
}
