//! The last 48 bytes of a table.

use crate::varint::{self, Cursor};
use weightlift_core::{ByteRange, Error, Result};

/// Where a block lies, its five trailing bytes not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handle {
    /// First byte in the file.
    pub offset: u64,
    /// Stored bytes.
    pub size: u64,
}

impl Handle {
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Handle> {
        Ok(Handle { offset: cursor.varint()?, size: cursor.varint()? })
    }

    /// A handle as the value of an index entry; bytes after it are of no concern.
    ///
    /// # Errors
    /// `Malformed` when a number is cut off.
    pub fn parse(value: &[u8]) -> Result<Handle> {
        Handle::read(&mut Cursor::new(value))
    }

    /// Appends the two numbers.
    pub fn put(self, out: &mut Vec<u8>) {
        varint::put(out, self.offset);
        varint::put(out, self.size);
    }

    /// The block with its trailer, checked to lie in the first `len` bytes.
    ///
    /// # Errors
    /// `Malformed` with the offset when it does not.
    pub fn range(self, len: u64) -> Result<ByteRange> {
        let beyond = || {
            let Handle { offset, size } = self;
            Error::malformed(format!("a block of {size} bytes at offset {offset} ends beyond byte {len}"))
        };
        let size = self.size.checked_add(super::TRAILER as u64).ok_or_else(beyond)?;
        ByteRange::new(self.offset, size).and_then(|range| range.within(len)).map_err(|_| beyond())
    }
}

/// The end of a table: where its two directories lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The block that names other blocks; TensorFlow writes an empty one.
    pub metaindex: Handle,
    /// The block that finds the data blocks.
    pub index: Handle,
}

impl Footer {
    /// Length in bytes.
    pub const LEN: usize = 48;
    /// The last eight bytes.
    pub const MAGIC: [u8; 8] = [0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb];

    /// Whether the end of a file is that of a table.
    pub fn is_at_end_of(tail: &[u8]) -> bool {
        tail.len() >= Footer::LEN && tail.ends_with(&Footer::MAGIC)
    }

    /// Reads the last 48 bytes of a file; `tail` may have more before them.
    ///
    /// # Errors
    /// `Malformed` for a file that is too short or has another magic number.
    pub fn parse(tail: &[u8]) -> Result<Footer> {
        let Some((_, footer)) = tail.split_last_chunk::<{ Footer::LEN }>() else {
            let len = tail.len();
            return Err(Error::malformed(format!("{len} bytes are too few for a table, which ends in a footer of 48")));
        };
        if !Footer::is_at_end_of(footer) {
            let (found, wanted) = (hex(&footer[40..]), hex(&Footer::MAGIC));
            let message = format!("no table of TensorFlow: the last 8 bytes are {found}, not {wanted}");
            return Err(Error::malformed(message));
        }
        let mut cursor = Cursor::new(&footer[..40]);
        let metaindex = Handle::read(&mut cursor)?;
        let index = Handle::read(&mut cursor)?;
        Ok(Footer { metaindex, index })
    }

    /// The 48 bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Footer::LEN);
        self.metaindex.put(&mut out);
        self.index.put(&mut out);
        out.resize(40, 0);
        out.extend_from_slice(&Footer::MAGIC);
        out
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footer_survives_and_bad_ones_are_refused() {
        let footer =
            Footer { metaindex: Handle { offset: 92, size: 8 }, index: Handle { offset: u64::MAX, size: 1 << 40 } };
        let bytes = footer.to_bytes();
        assert_eq!(bytes.len(), Footer::LEN);
        assert_eq!(Footer::parse(&bytes).unwrap(), footer);
        assert!(Footer::parse(&bytes[1..]).unwrap_err().message().contains("too few"));
        for at in 40..48 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(Footer::parse(&bytes).unwrap_err().message().contains("last 8 bytes"));
        }
        let mut endless = vec![0xff; 40];
        endless.extend(Footer::MAGIC);
        assert!(Footer::parse(&endless).is_err());
    }

    #[test]
    fn handles_must_lie_in_the_file() {
        let range = |offset, size| Handle { offset, size }.range(100);
        assert_eq!(range(10, 85).unwrap(), ByteRange::new(10, 90).unwrap());
        assert!(range(10, 86).is_err());
        assert!(range(u64::MAX, 1).is_err());
        assert!(range(0, u64::MAX).is_err());
        assert!(range(1 << 63, 0).is_err());
    }
}
