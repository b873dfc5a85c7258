alias To = vec2<u32>;

fn convert(code: From) -> Coded {
    let word = widen(code).word;
    let sign = word & 0x80000000u;
    let magnitude = word & 0x7fffffffu;
    let low = magnitude << 29u;
    if magnitude >= INFINITY {
        return Coded(vec2<u32>(low, sign | 0x7ff00000u | ((magnitude & 0x7fffffu) >> 3u)), select(NOTHING, NAN, magnitude > INFINITY));
    }
    if magnitude == 0u {
        return Coded(vec2<u32>(0u, sign), NOTHING);
    }
    if magnitude >= 0x00800000u {
        return Coded(vec2<u32>(low, sign | ((magnitude >> 3u) + (896u << 20u))), NOTHING);
    }
    // A subnormal f32 is a normal f64: the leading one to its place.
    let places = countLeadingZeros(magnitude) - 8u;
    let digits = magnitude << places;
    return Coded(vec2<u32>(digits << 29u, sign | ((digits >> 3u) + ((896u - places) << 20u))), NOTHING);
}
