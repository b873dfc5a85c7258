fn widen(code: From) -> Wide {
    let magnitude = code & 0x7fffffffu;
    if magnitude > INFINITY {
        return Wide(code | QUIET, false);
    }
    return Wide(code, magnitude != 0u && magnitude < 0x00800000u);
}
