//! LEB128 numbers: seven bits a byte, low group first.

use weightlift_core::{Error, Result};

/// Longest encoding of 64 bits.
pub(crate) const MAX_LEN: usize = 10;

/// Reads numbers and runs of bytes from the front of a slice, remembering the position for messages.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte.
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Whether everything is read.
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..len) else {
            return Err(Error::malformed(format!("needs {len} more bytes, but only {} are left", rest.len())));
        };
        self.at += len;
        Ok(taken)
    }

    /// A number of up to 64 bits.
    pub(crate) fn varint(&mut self) -> Result<u64> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (value, len) = decode(rest)?;
        self.at += len;
        Ok(value)
    }

    /// A number of up to 32 bits.
    pub(crate) fn varint32(&mut self) -> Result<u32> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| Error::malformed(format!("number {value} does not fit into 32 bits")))
    }
}

/// The number at the front of `bytes` and its length.
fn decode(bytes: &[u8]) -> Result<(u64, usize)> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().take(MAX_LEN).enumerate() {
        if index == MAX_LEN - 1 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, index + 1));
        }
    }
    if bytes.len() < MAX_LEN {
        return Err(Error::malformed("a number is cut off"));
    }
    Err(Error::malformed("a number is longer than 64 bits"))
}

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bytes [`put`] appends.
pub(crate) fn len(value: u64) -> u64 {
    u64::from((64 - (value | 1).leading_zeros()).div_ceil(7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_and_bad_ones_are_refused() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, !0 >> shift] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                assert_eq!(bytes.len() as u64, len(value));
                assert_eq!(decode(&bytes).unwrap(), (value, bytes.len()));
                assert!(decode(&bytes[..bytes.len() - 1]).is_err());
            }
        }
        let mut long = [0xff; 11];
        assert!(decode(&long).is_err());
        long[9] = 1;
        assert_eq!(decode(&long).unwrap(), (u64::MAX, 10));
        long[9] = 2;
        assert!(decode(&long).is_err(), "a 65th bit");
        assert!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint32().is_err());
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).varint32().unwrap(), u32::MAX);
    }

    #[test]
    fn a_cursor_stops_at_the_end() {
        let mut cursor = Cursor::new(&[1, 2, 3]);
        assert_eq!(cursor.take(2).unwrap(), [1, 2]);
        assert!(cursor.take(2).is_err());
        assert!(cursor.take(usize::MAX).is_err());
        assert_eq!((cursor.position(), cursor.is_empty()), (2, false));
        assert_eq!(cursor.take(1).unwrap(), [3]);
        assert!(cursor.is_empty());
    }
}
