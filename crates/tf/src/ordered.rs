//! Ordered code: byte strings that sort like the values they stand for. Slices of partitioned tensors have keys in it.
//!
//! A slice key is unsigned 0, the name, the rank and, for each dimension, start and length; a whole dimension is
//! start 0, length -1.

use crate::proto::{Extent, TensorSlice};

/// Appends an unsigned number: its length in bytes, then the bytes, high one first.
fn put_unsigned(out: &mut Vec<u8>, value: u64) {
    let len = 8 - value.leading_zeros() as usize / 8;
    out.push(len as u8);
    out.extend_from_slice(&value.to_be_bytes()[8 - len..]);
}

/// Appends a string, its end marked by `00 01`.
fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            0x00 => out.extend_from_slice(&[0x00, 0xff]),
            0xff => out.extend_from_slice(&[0xff, 0x00]),
            _ => out.push(byte),
        }
    }
    out.extend_from_slice(&[0x00, 0x01]);
}

/// Appends a signed number in the fewest bytes: two's complement with the length in unary before it, the leading
/// bits inverted for numbers that are not negative.
fn put_signed(out: &mut Vec<u8>, value: i64) {
    let magnitude_bits = 64 - (value ^ (value >> 63)).leading_zeros() as usize;
    let len = magnitude_bits / 7 + 1;
    let wide = i128::from(value).to_be_bytes();
    let start = out.len();
    out.extend_from_slice(&wide[wide.len() - len..]);
    let header = 0xffff_u32 << (16 - len) & 0xffff;
    let header = (header as u16).to_be_bytes();
    for (byte, mark) in out[start..].iter_mut().zip(header) {
        *byte ^= mark;
    }
}

/// The key under which a slice of the tensor `name` is stored. The slice is encoded as it stands: an extent that
/// spells out a whole dimension gives another key than one that leaves the length away.
pub fn slice_key(name: &[u8], slice: &TensorSlice) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 6 + 4 * slice.extent.len());
    put_unsigned(&mut key, 0);
    put_string(&mut key, name);
    put_unsigned(&mut key, slice.extent.len() as u64);
    for &Extent { start, length } in &slice.extent {
        put_signed(&mut key, start);
        put_signed(&mut key, length.unwrap_or(-1));
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        put_signed(&mut out, value);
        out
    }

    #[test]
    fn signed_numbers() {
        let cases: &[(i64, &[u8])] = &[
            (0, &[0x80]),
            (1, &[0x81]),
            (63, &[0xbf]),
            (64, &[0xc0, 0x40]),
            (8191, &[0xdf, 0xff]),
            (8192, &[0xe0, 0x20, 0x00]),
            (1 << 20, &[0xf0, 0x10, 0, 0]),
            (1 << 27, &[0xf8, 0x08, 0, 0, 0]),
            (1 << 34, &[0xfc, 0x04, 0, 0, 0, 0]),
            (1 << 41, &[0xfe, 0x02, 0, 0, 0, 0, 0]),
            (1 << 48, &[0xff, 0x01, 0, 0, 0, 0, 0, 0]),
            (1 << 55, &[0xff, 0x80, 0x80, 0, 0, 0, 0, 0, 0]),
            (-1, &[0x7f]),
            (-64, &[0x40]),
            (-65, &[0x3f, 0xbf]),
            (i64::MAX, &[0xff, 0xc0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (i64::MIN, &[0x00, 0x3f, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (value, bytes) in cases {
            assert_eq!(signed(*value), *bytes, "{value}");
        }
    }

    #[test]
    fn codes_sort_like_their_values() {
        let mut values: Vec<i64> = (0..63).flat_map(|n| [1 << n, (1 << n) - 1, -(1 << n)]).collect();
        values.extend([i64::MIN, i64::MAX]);
        values.sort_unstable();
        values.dedup();
        assert!(values.windows(2).all(|pair| signed(pair[0]) < signed(pair[1])));
    }

    #[test]
    fn unsigned_numbers_and_strings() {
        let encoded = |value| {
            let mut out = Vec::new();
            put_unsigned(&mut out, value);
            out
        };
        assert_eq!(encoded(0), [0]);
        assert_eq!(encoded(2), [1, 2]);
        assert_eq!(encoded(0x1234), [2, 0x12, 0x34]);
        assert_eq!(encoded(u64::MAX), [8, 255, 255, 255, 255, 255, 255, 255, 255]);
        let mut out = Vec::new();
        put_string(&mut out, &[1, 0, 0xff, 2]);
        assert_eq!(out, [1, 0, 0xff, 0xff, 0, 2, 0, 1]);
    }

    #[test]
    fn keys_of_slices() {
        let whole = Extent { start: 0, length: None };
        let rows = TensorSlice { extent: vec![Extent { start: 0, length: Some(2) }, whole] };
        assert_eq!(slice_key(b"w", &rows), [0x00, 0x77, 0x00, 0x01, 0x01, 0x02, 0x80, 0x82, 0x80, 0x7f]);
        let explicit = TensorSlice { extent: vec![Extent { start: 0, length: Some(6) }] };
        assert_eq!(slice_key(b"w", &explicit), [0x00, 0x77, 0x00, 0x01, 0x01, 0x01, 0x80, 0x86]);
        assert_eq!(slice_key(b"s", &TensorSlice::default()), [0x00, 0x73, 0x00, 0x01, 0x00]);
    }
}
