//! The checksum of a record of strings whose bytes pass by in pieces.

use super::{CRC, add_length, expect};
use crate::varint::MAX_LEN;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use weightlift_core::{Error, Result};
use weightlift_kernels::checksum::mask_crc32c;

/// Reads the lengths at the front of a record as they pass by; the rest of the checksum follows from that of all
/// bytes. Pieces come in any order from many threads, but those that reach beyond the lengths are not kept.
#[derive(Debug)]
pub(crate) struct StringSum(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Elements whose lengths have not passed yet.
    left: u64,
    /// Bytes that lengths and their checksum can have at most.
    reach: u64,
    /// Where the next byte is due.
    at: u64,
    /// Pieces that came too early.
    early: BTreeMap<u64, Vec<u8>>,
    /// The length under way, and how many of its bytes were seen.
    value: u64,
    seen: usize,
    /// Checksum of the lengths as numbers, and as they are stored.
    lengths: u32,
    stored_lengths: u32,
    /// Bytes of the lengths, and what they add up to.
    lengths_end: u64,
    total: u64,
    /// The stored checksum of the lengths, as far as it has passed.
    sum: Vec<u8>,
    broken: bool,
}

impl StringSum {
    /// For a tensor of this many strings.
    pub(crate) fn new(elements: u64) -> StringSum {
        StringSum(Mutex::new(State {
            left: elements,
            reach: elements.saturating_mul(MAX_LEN as u64).saturating_add(4),
            at: 0,
            early: BTreeMap::new(),
            value: 0,
            seen: 0,
            lengths: 0,
            stored_lengths: 0,
            lengths_end: 0,
            total: 0,
            sum: Vec::new(),
            broken: false,
        }))
    }

    /// Takes the bytes from `offset` on.
    pub(crate) fn add(&self, offset: u64, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(offset, bytes);
    }

    /// The checksum of the record, unmasked, once all its `size` bytes have passed, whose plain checksum is `whole`.
    ///
    /// # Errors
    /// `Malformed` or `Checksum` when the bytes are no record of strings.
    pub(crate) fn finish(&self, whole: u32, size: u64) -> Result<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish(whole, size)
    }
}

impl State {
    fn add(&mut self, offset: u64, bytes: &[u8]) {
        if self.is_done() || offset >= self.reach {
            return;
        }
        let within = usize::try_from(self.reach - offset).unwrap_or(usize::MAX).min(bytes.len());
        if offset != self.at {
            self.early.insert(offset, bytes[..within].to_vec());
            return;
        }
        self.pass(bytes);
        while let Some(next) = self.early.remove(&self.at) {
            self.pass(&next);
        }
        if self.is_done() {
            self.early.clear();
        }
    }

    fn is_done(&self) -> bool {
        self.broken || self.sum.len() == 4
    }

    fn pass(&mut self, bytes: &[u8]) {
        let start = self.at;
        for (at, &byte) in (start..).zip(bytes) {
            if self.is_done() {
                break;
            }
            if self.left == 0 {
                self.sum.push(byte);
            } else {
                self.pass_length(at, byte);
            }
        }
        self.at = start + bytes.len() as u64;
        let lengths = usize::try_from(self.lengths_end.saturating_sub(start)).unwrap_or(0).min(bytes.len());
        self.stored_lengths = CRC.extend(self.stored_lengths, &bytes[..lengths]);
    }

    fn pass_length(&mut self, at: u64, byte: u8) {
        self.lengths_end = at + 1;
        if self.seen == MAX_LEN || self.seen == MAX_LEN - 1 && byte > 1 {
            self.broken = true;
            return;
        }
        self.value |= u64::from(byte & 0x7f) << (7 * self.seen);
        self.seen += 1;
        if byte < 0x80 {
            self.lengths = add_length(self.lengths, self.value);
            self.total = self.total.saturating_add(self.value);
            self.left -= 1;
            (self.value, self.seen) = (0, 0);
        }
    }

    fn finish(&self, whole: u32, size: u64) -> Result<u32> {
        if size == 0 && self.left == 0 {
            return Ok(0);
        }
        let (Ok(sum), false) = (<[u8; 4]>::try_from(self.sum.as_slice()), self.broken) else {
            return Err(Error::malformed("the bytes are no record of strings: their lengths do not end"));
        };
        expect(u32::from_le_bytes(sum), mask_crc32c(self.lengths), "checksum of the string lengths")?;
        let rest = size.saturating_sub(self.lengths_end);
        if self.total.checked_add(4) != Some(rest) {
            let (total, strings) = (self.total, rest.saturating_sub(4));
            let message = format!("strings of {total} bytes in all, but {strings} bytes follow their lengths");
            return Err(Error::malformed(message));
        }
        // Of the sum of everything, the stored lengths are taken away and the lengths as numbers put in their place.
        let advance = |crc| CRC.combine(crc, 0, rest);
        Ok(whole ^ advance(self.stored_lengths) ^ advance(self.lengths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::check_strings;

    fn record(lengths: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut crc = 0;
        for &len in lengths {
            crate::varint::put(&mut bytes, len);
            crc = add_length(crc, len);
        }
        bytes.extend(mask_crc32c(crc).to_le_bytes());
        bytes.extend((0..lengths.iter().sum::<u64>()).map(|n| n as u8));
        bytes
    }

    fn sum(bytes: &[u8], elements: u64, piece: usize, step: usize) -> Result<u32> {
        let sum = StringSum::new(elements);
        let pieces: Vec<_> = bytes.chunks(piece).enumerate().collect();
        for n in 0..pieces.len() {
            let (at, piece_bytes) = pieces[n * step % pieces.len()];
            sum.add((at * piece) as u64, piece_bytes);
        }
        sum.finish(CRC.of(bytes), bytes.len() as u64)
    }

    #[test]
    fn pieces_in_any_order_give_the_checksum() {
        for lengths in [&[3][..], &[], &[0, 0], &[300, 0, 1, 20_000], &[130; 40]] {
            let bytes = record(lengths);
            let elements = lengths.len() as u64;
            let wanted = check_strings(&*bytes, elements, bytes.len() as u64).unwrap();
            for piece in [1, 2, 3, 7, 64, 100_000] {
                assert_eq!(sum(&bytes, elements, piece, 1).unwrap(), wanted, "{lengths:?} by {piece}");
                let pieces = bytes.len().div_ceil(piece);
                assert_eq!(sum(&bytes, elements, piece, pieces.max(2) - 1).unwrap(), wanted, "{lengths:?} backwards");
            }
        }
        assert_eq!(sum(&[], 0, 1, 1).unwrap(), 0);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let bytes = record(&[300, 2]);
        for at in 0..7 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(sum(&flipped, 2, 5, 1).is_err(), "byte {at}");
        }
        assert!(sum(&bytes[..bytes.len() - 1], 2, 5, 1).is_err());
        assert!(sum(&bytes[..5], 2, 5, 1).is_err());
        assert!(sum(&[0xff; 40], 2, 5, 1).is_err());
        assert!(sum(&bytes, 1, 5, 1).is_err());
        assert!(sum(&[], 1, 5, 1).is_err());
    }

    #[test]
    fn early_pieces_beyond_the_lengths_are_not_kept() {
        let sum = StringSum::new(1);
        sum.add(14, &[0; 1000]);
        sum.add(13, &[0; 1000]);
        assert_eq!(sum.0.lock().unwrap().early.values().map(Vec::len).sum::<usize>(), 1);
    }
}
