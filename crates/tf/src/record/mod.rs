//! The bytes of string and variant tensors, and the checksums inside them. Everything is read in order and in
//! bounded memory, whatever the lengths claim.
//!
//! ```text
//! strings   length of each, varints │ masked checksum of the lengths, u32 │ all bytes
//! variants  for each: length, varint │ message │ masked checksum so far, u32
//! ```
//!
//! The checksum of string lengths takes each as a u32 (a u64 above 2^32-1), not the varints; the checksum of the whole
//! goes on from there over the four stored bytes and the strings. That of variants takes lengths as u64 and goes on
//! through all elements.

mod big;
mod sum;

pub(crate) use big::BigStrings;
pub(crate) use sum::StringSum;

use crate::varint;
use std::io::{ErrorKind, Read};
use weightlift_core::{Error, Kind, Result};
use weightlift_kernels::checksum::{Algorithm, mask_crc32c};

const CRC: Algorithm = Algorithm::Crc32c;
const BUFFER: usize = 1 << 16;

/// Reads a record of strings and answers its checksum, unmasked. A tensor without elements may have no bytes at all.
///
/// # Errors
/// `Malformed` when lengths and `size` do not fit together or the source ends early, `Checksum` when the lengths are
/// not those written, `Io`.
pub fn check_strings(source: impl Read, elements: u64, size: u64) -> Result<u32> {
    if elements == 0 && size == 0 {
        return Ok(0);
    }
    let mut record = Record::new(source, size);
    let mut lengths = 0;
    let mut total = 0u64;
    for _ in 0..elements {
        let len = record.varint()?;
        lengths = add_length(lengths, len);
        total = total.checked_add(len).filter(|&total| total <= size).ok_or_else(|| too_long(len, size))?;
    }
    let stored = record.checksum()?;
    expect(stored, mask_crc32c(lengths), "checksum of the string lengths")?;
    if total != record.left {
        let message = format!("strings of {total} bytes in all, but {} bytes follow their lengths", record.left);
        return Err(Error::malformed(message));
    }
    let crc = CRC.extend(lengths, &stored.to_le_bytes());
    record.extend(crc, total)
}

/// The record of `count` equal strings.
pub(crate) fn same_strings(text: &str, count: u64) -> Vec<u8> {
    let (mut record, mut lengths, len) = (Vec::new(), 0, text.len() as u64);
    for _ in 0..count {
        varint::put(&mut record, len);
        lengths = add_length(lengths, len);
    }
    record.extend(mask_crc32c(lengths).to_le_bytes());
    (0..count).for_each(|_| record.extend(text.as_bytes()));
    record
}

/// Adds the length of one string to the checksum of all.
pub(crate) fn add_length(crc: u32, len: u64) -> u32 {
    match u32::try_from(len) {
        Ok(len) => CRC.extend(crc, &len.to_le_bytes()),
        Err(_) => CRC.extend(crc, &len.to_le_bytes()),
    }
}

/// Reads a record of variants and answers its checksum, unmasked.
///
/// # Errors
/// As [`check_strings`].
pub fn check_variants(source: impl Read, elements: u64, size: u64) -> Result<u32> {
    let mut record = Record::new(source, size);
    let mut crc = 0;
    for _ in 0..elements {
        let len = record.varint()?;
        crc = record.extend(CRC.extend(crc, &len.to_le_bytes()), len)?;
        let stored = record.checksum()?;
        expect(stored, mask_crc32c(crc), "checksum of a variant")?;
        crc = CRC.extend(crc, &stored.to_le_bytes());
    }
    if record.left > 0 {
        return Err(Error::malformed(format!("{} bytes follow the last variant", record.left)));
    }
    Ok(crc)
}

fn expect(stored: u32, computed: u32, what: &str) -> Result<()> {
    if stored == computed {
        return Ok(());
    }
    Err(Error::checksum(format!("{what} differs: stored {stored:08x}, computed {computed:08x}")))
}

fn too_long(len: u64, size: u64) -> Error {
    Error::malformed(format!("an element of {len} bytes does not fit into the {size} bytes of its tensor"))
}

/// What is left to read of a record.
struct Record<R> {
    source: R,
    left: u64,
    size: u64,
}

impl<R: Read> Record<R> {
    fn new(source: R, size: u64) -> Record<R> {
        Record { source, left: size, size }
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        let wanted = buf.len() as u64;
        self.left = self.left.checked_sub(wanted).ok_or_else(|| {
            Error::malformed(format!("the {} bytes of the tensor end before its last element", self.size))
        })?;
        self.source.read_exact(buf).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Error::malformed("the file ends within the tensor"),
            _ => Error::new(Kind::Io, format!("cannot read: {error}")).caused_by(error),
        })
    }

    fn varint(&mut self) -> Result<u64> {
        let mut bytes = [0; varint::MAX_LEN];
        for at in 0..bytes.len() {
            let (read, rest) = bytes.split_at_mut(at + 1);
            self.fill(&mut read[at..])?;
            if read[at] < 0x80 || rest.is_empty() {
                return varint::Cursor::new(read).varint();
            }
        }
        Err(Error::malformed("a number is longer than 64 bits"))
    }

    fn checksum(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Continues a checksum over the next `len` bytes.
    fn extend(&mut self, mut crc: u32, len: u64) -> Result<u32> {
        if len > self.left {
            return Err(too_long(len, self.size));
        }
        let mut buffer = vec![0; (len as usize).min(BUFFER)];
        let mut rest = len;
        while rest > 0 {
            let piece = &mut buffer[..(rest as usize).min(BUFFER)];
            self.fill(piece)?;
            crc = CRC.extend(crc, piece);
            rest -= piece.len() as u64;
        }
        Ok(crc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(bytes: &[u8], elements: u64) -> Result<u32> {
        check_strings(bytes, elements, bytes.len() as u64).map(mask_crc32c)
    }

    #[test]
    fn known_records() {
        let xyz = [0x03, 0x63, 0x3f, 0x7f, 0x28, 0x78, 0x79, 0x7a];
        assert_eq!(strings(&xyz, 1).unwrap().to_le_bytes(), [0x13, 0xab, 0xf6, 0x7b]);
        assert_eq!(strings(&[0xd8, 0xea, 0x82, 0xa2], 0).unwrap().to_le_bytes(), [0xf6, 0xc1, 0x0c, 0x64]);
        assert_eq!(strings(&[], 0).unwrap().to_le_bytes(), [0xd8, 0xea, 0x82, 0xa2]);
        assert!(strings(&[], 1).is_err());
        assert_eq!(same_strings("xyz", 1), xyz);
        for (text, count) in [("", 0), ("", 3), ("weights", 2), (&*"x".repeat(300), 5)] {
            assert!(strings(&same_strings(text, count), count).is_ok(), "{count} of {text:?}");
        }
        let two = [0x01, 0x02, 0xbf, 0xdf, 0xdb, 0x7a, 0x78, 0x79, 0x79];
        assert_eq!(strings(&two, 2).unwrap().to_le_bytes(), [0x38, 0xe5, 0xc2, 0x4d]);
    }

    fn variants() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut crc = 0;
        for text in [&b"one"[..], b"", &[9; 200]] {
            varint::put(&mut bytes, text.len() as u64);
            bytes.extend_from_slice(text);
            crc = CRC.extend(CRC.extend(crc, &(text.len() as u64).to_le_bytes()), text);
            let sum = mask_crc32c(crc).to_le_bytes();
            bytes.extend(sum);
            crc = CRC.extend(crc, &sum);
        }
        bytes
    }

    #[test]
    fn every_cut_and_flip_is_seen() {
        let two = [0x01, 0x02, 0xbf, 0xdf, 0xdb, 0x7a, 0x78, 0x79, 0x79];
        let variants = variants();
        let variant = |bytes: &[u8]| check_variants(bytes, 3, bytes.len() as u64);
        let good = [strings(&two, 2).unwrap(), variant(&variants).unwrap()];
        for len in 0..two.len() {
            assert!(strings(&two[..len], 2).is_err());
            assert!(check_strings(&two[..len], 2, 9).is_err());
        }
        for len in 0..variants.len() {
            assert!(variant(&variants[..len]).is_err());
            assert!(check_variants(&variants[..len], 3, variants.len() as u64).is_err());
        }
        for bit in 0..two.len() * 8 {
            let mut flipped = two;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(strings(&flipped, 2).map_or(true, |crc| crc != good[0]), "bit {bit}");
        }
        for bit in 0..variants.len() * 8 {
            let mut flipped = variants.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(variant(&flipped).map_or(true, |crc| crc != good[1]), "bit {bit}");
        }
    }

    #[test]
    fn absurd_lengths_allocate_nothing() {
        let mut bytes = vec![0xff; 9];
        bytes.push(1);
        bytes.extend([0; 20]);
        assert!(strings(&bytes, 1).unwrap_err().message().contains("does not fit"));
        assert!(check_variants(&*bytes, 1, bytes.len() as u64).is_err());
        assert!(strings(&[0; 20], u64::MAX).is_err());
        let mut lengths = vec![0x80; 11];
        lengths.push(0);
        assert!(strings(&lengths, 1).is_err());
    }
}
