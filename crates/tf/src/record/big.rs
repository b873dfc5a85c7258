//! Strings of a big-endian bundle as a record of a little-endian one.

use super::CRC;
use crate::varint;
use std::io::{self, Read};
use weightlift_core::Error;
use weightlift_kernels::checksum::mask_crc32c;

const PIECE: usize = 1 << 16;

/// Reads a record of strings whose checksums are big-endian and answers the same record with little-endian ones. The
/// checksums are verified on the way; the last read fails where they differ.
#[derive(Debug)]
pub(crate) struct BigStrings<R> {
    source: R,
    stage: Stage,
    /// Bytes of the source that are left.
    left: u64,
    /// The checksum of the whole as it should be, masked.
    stored: u32,
    /// Checksums of the lengths, or of the whole, in both orders.
    big: u32,
    little: u32,
    /// Bytes of all strings.
    total: u64,
    ready: Vec<u8>,
    given: usize,
}

#[derive(Debug, PartialEq)]
enum Stage {
    Lengths(u64),
    Sum,
    Strings,
    End,
}

impl<R: Read> BigStrings<R> {
    /// A record of `size` bytes whose entry in the index has the checksum `stored`.
    pub(crate) fn new(source: R, elements: u64, size: u64, stored: u32) -> BigStrings<R> {
        let stage = if size == 0 { Stage::End } else { Stage::Lengths(elements) };
        BigStrings { source, stage, left: size, stored, big: 0, little: 0, total: 0, ready: Vec::new(), given: 0 }
    }

    fn take(&mut self, buf: &mut [u8]) -> io::Result<()> {
        self.left = self.left.checked_sub(buf.len() as u64).ok_or_else(|| bad("the tensor ends early"))?;
        self.source.read_exact(buf)
    }

    fn prepare(&mut self) -> io::Result<()> {
        self.ready.clear();
        self.given = 0;
        while self.ready.is_empty() && self.stage != Stage::End {
            match self.stage {
                Stage::Lengths(0) => self.stage = Stage::Sum,
                Stage::Lengths(left) => self.length(left)?,
                Stage::Sum => self.sum()?,
                Stage::Strings => self.strings()?,
                Stage::End => {}
            }
        }
        Ok(())
    }

    fn length(&mut self, left: u64) -> io::Result<()> {
        let mut bytes = [0; varint::MAX_LEN];
        let mut count = 0;
        while count == 0 || bytes[count - 1] >= 0x80 && count < bytes.len() {
            let mut byte = [0];
            self.take(&mut byte)?;
            bytes[count] = byte[0];
            count += 1;
        }
        let len = varint::Cursor::new(&bytes[..count]).varint().map_err(io::Error::other)?;
        (self.big, self.little) = match u32::try_from(len) {
            Ok(len) => (CRC.extend(self.big, &len.to_be_bytes()), CRC.extend(self.little, &len.to_le_bytes())),
            Err(_) => (CRC.extend(self.big, &len.to_be_bytes()), CRC.extend(self.little, &len.to_le_bytes())),
        };
        self.total = self.total.checked_add(len).ok_or_else(|| bad("the string lengths add up to more than 2^64"))?;
        self.ready.extend_from_slice(&bytes[..count]);
        self.stage = Stage::Lengths(left - 1);
        Ok(())
    }

    fn sum(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4];
        self.take(&mut bytes)?;
        check("of the string lengths", u32::from_be_bytes(bytes), self.big)?;
        if self.total != self.left {
            return Err(bad("the string lengths do not add up to the bytes that follow"));
        }
        self.big = CRC.extend(self.big, &bytes);
        self.ready.extend(mask_crc32c(self.little).to_le_bytes());
        self.stage = Stage::Strings;
        Ok(())
    }

    fn strings(&mut self) -> io::Result<()> {
        let len = self.left.min(PIECE as u64) as usize;
        let mut piece = std::mem::take(&mut self.ready);
        piece.resize(len, 0);
        self.take(&mut piece)?;
        self.big = CRC.extend(self.big, &piece);
        self.ready = piece;
        if self.left == 0 {
            check("of the tensor", self.stored, self.big)?;
            self.stage = Stage::End;
        }
        Ok(())
    }
}

fn check(what: &str, stored: u32, computed: u32) -> io::Result<()> {
    let computed = mask_crc32c(computed);
    if stored == computed {
        return Ok(());
    }
    Err(bad(format!("checksum {what} differs: stored {stored:08x}, computed {computed:08x}")))
}

fn bad(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Error::malformed(message))
}

impl<R: Read> Read for BigStrings<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.given == self.ready.len() {
            self.prepare()?;
        }
        let rest = &self.ready[self.given..];
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        self.given += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::check_strings;

    /// The record of two strings in big-endian order, and the checksum in its index entry.
    fn record() -> (Vec<u8>, u32) {
        let lengths = CRC.of(&[300u32.to_be_bytes(), 1u32.to_be_bytes()].concat());
        let mut bytes = vec![0xac, 0x02, 0x01];
        bytes.extend(mask_crc32c(lengths).to_be_bytes());
        bytes.extend([7; 301]);
        let whole = CRC.extend(lengths, &bytes[3..]);
        (bytes, mask_crc32c(whole))
    }

    fn convert(bytes: &[u8], stored: u32) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        BigStrings::new(bytes, 2, bytes.len() as u64, stored).read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn a_record_changes_its_order() {
        let (bytes, stored) = record();
        let little = convert(&bytes, stored).unwrap();
        assert_eq!(little.len(), bytes.len());
        assert!(check_strings(&*little, 2, little.len() as u64).is_ok());
        assert!(check_strings(&*bytes, 2, bytes.len() as u64).is_err());
        let mut nothing = Vec::new();
        BigStrings::new(&[][..], 0, 0, 1).read_to_end(&mut nothing).unwrap();
        assert!(nothing.is_empty());
    }

    #[test]
    fn every_cut_and_flip_is_seen() {
        let (bytes, stored) = record();
        for len in 1..bytes.len() {
            assert!(convert(&bytes[..len], stored).is_err(), "cut to {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(convert(&flipped, stored).is_err(), "bit {bit}");
        }
        assert!(convert(&bytes, stored ^ 1).is_err());
        assert!(convert(&[0xff; 30], stored).is_err());
    }
}
