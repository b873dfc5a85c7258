//! Byte ranges whose end is known to exist.

use crate::{Error, Result};
use std::path::PathBuf;

/// `start .. start + len` in bytes; the end is known to fit into 63 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    start: u64,
    len: u64,
}

impl ByteRange {
    /// Checks the end.
    ///
    /// # Errors
    /// `Malformed` when `start + len` does not fit into 63 bits.
    pub fn new(start: u64, len: u64) -> Result<ByteRange> {
        match start.checked_add(len) {
            Some(end) if end <= i64::MAX as u64 => Ok(ByteRange { start, len }),
            _ => Err(Error::malformed(format!("{len} bytes at offset {start} end beyond 2^63"))),
        }
    }

    /// First byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty range is an ordinary one")]
    pub fn len(self) -> u64 {
        self.len
    }

    /// First byte after the range.
    pub fn end(self) -> u64 {
        self.start + self.len
    }

    /// The part `offset .. offset + len` of this range, if it lies within.
    pub fn slice(self, offset: u64, len: u64) -> Option<ByteRange> {
        let inside = offset.checked_add(len)? <= self.len;
        inside.then(|| ByteRange { start: self.start + offset, len })
    }

    /// The same range, checked to end within `len` bytes.
    ///
    /// # Errors
    /// `Malformed`, naming both ends, when it does not.
    pub fn within(self, len: u64) -> Result<ByteRange> {
        if self.end() <= len {
            return Ok(self);
        }
        let (start, wanted) = (self.start, self.len);
        Err(Error::malformed(format!("needs {wanted} bytes at offset {start}, but the file ends at {len}")).at(start))
    }
}

/// A byte range of a file, for copies made by the operating system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub path: PathBuf,
    /// The bytes in it.
    pub bytes: ByteRange,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_checked() {
        assert!(ByteRange::new(u64::MAX, 1).is_err());
        assert!(ByteRange::new(1 << 62, 1 << 62).is_err());
        let range = ByteRange::new(10, 5).unwrap();
        assert_eq!(range.slice(2, 3).unwrap(), ByteRange::new(12, 3).unwrap());
        assert_eq!(range.slice(2, 4), None);
        assert_eq!(range.slice(u64::MAX, 4), None);
        assert!(range.within(15).is_ok());
        assert!(range.within(14).is_err());
    }
}
