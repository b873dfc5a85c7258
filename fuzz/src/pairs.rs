//! Keys and values in one run of bytes: the length of a key (one byte), that of its value (two bytes), both of them.

/// The pairs of an input; a length that runs beyond its end means: to the end.
pub(crate) fn split(data: &[u8]) -> Vec<(&[u8], &[u8])> {
    let (mut pairs, mut rest) = (Vec::new(), data);
    while let Some(([key_len, value_len @ ..], after)) = rest.split_first_chunk::<3>() {
        let (key, after) = after.split_at(usize::from(*key_len).min(after.len()));
        let value_len = usize::from(u16::from_le_bytes(*value_len));
        let (value, after) = after.split_at(value_len.min(after.len()));
        pairs.push((key, value));
        rest = after;
    }
    pairs
}

/// Appends a pair. Those that are too long are left away.
pub(crate) fn put(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let (Ok(key_len), Ok(value_len)) = (u8::try_from(key.len()), u16::try_from(value.len())) else { return };
    out.push(key_len);
    out.extend(value_len.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}
