//! The values of one slice: numbers as they stand in memory, strings as a record of a bundle.
//!
//! A table's value is `SavedTensorSlices { 2 data: SavedSlice { 3 data: TensorProto } }`. The TensorProto has only the
//! field that its data type calls for, packed or one by one.

use super::wire::{Payload, Wire, bad};
use crate::record::add_length;
use crate::varint;
use std::io::{self, Read};
use weightlift_core::DType;
use weightlift_kernels::checksum::mask_crc32c;

/// About how much is decoded at a time.
const PIECE: usize = 1 << 16;
/// Fields on the way to the values.
const SAVED_SLICE: u64 = 2;
const TENSOR: u64 = 3;
const STRINGS: u64 = 8;

/// How numbers of a dtype are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Coding {
    /// The field of the TensorProto.
    field: u64,
    unit: Unit,
    /// Units in an element.
    per_element: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// So many bytes, as they are.
    Fixed(usize),
    /// A number of which the lowest bytes count.
    Varint(usize),
    Bool,
}

/// How a dtype is stored, where version 1 has it.
pub(super) fn coding(dtype: DType) -> Option<Coding> {
    let (field, unit, per_element) = match dtype {
        DType::F32 => (5, Unit::Fixed(4), 1),
        DType::F64 => (6, Unit::Fixed(8), 1),
        DType::I32 | DType::Qi32 => (7, Unit::Varint(4), 1),
        DType::I16 | DType::U16 => (7, Unit::Varint(2), 1),
        DType::U8 | DType::I8 | DType::Qi8 | DType::Qu8 => (7, Unit::Varint(1), 1),
        DType::C64 => (9, Unit::Fixed(4), 2),
        DType::I64 => (10, Unit::Varint(8), 1),
        DType::Bool => (11, Unit::Bool, 1),
        DType::C128 => (12, Unit::Fixed(8), 2),
        DType::F16 => (13, Unit::Varint(2), 1),
        _ => return None,
    };
    Some(Coding { field, unit, per_element })
}

/// The occurrences of one field of the TensorProto.
#[derive(Debug)]
struct Fields<R> {
    wire: Wire<R>,
    field: u64,
    len: u64,
    /// Where the TensorProto ends, once it is found.
    end: Option<u64>,
}

impl<R: Read> Fields<R> {
    fn new(source: R, len: u64, field: u64) -> Fields<R> {
        Fields { wire: Wire::new(source), field, len, end: None }
    }

    /// The payload of the next occurrence.
    fn next(&mut self) -> io::Result<Option<Payload>> {
        let end = match self.end {
            Some(end) => end,
            None => {
                let slice = self.wire.enter(SAVED_SLICE, self.len)?;
                let slice = slice.ok_or_else(|| bad("the value holds no slice"))?;
                // A slice without values may have no TensorProto.
                let end = self.wire.enter(TENSOR, slice)?.unwrap_or(slice);
                *self.end.insert(end)
            }
        };
        while let Some((number, payload)) = self.wire.field(end)? {
            if number == self.field {
                return Ok(Some(payload));
            }
            self.wire.skip(payload, end)?;
        }
        Ok(None)
    }

    fn end(&self) -> u64 {
        self.end.unwrap_or(self.len)
    }
}

/// Reads the numbers of a slice, little-endian.
#[derive(Debug)]
pub(super) struct Numbers<R> {
    fields: Fields<R>,
    unit: Unit,
    /// Units still to come.
    left: u64,
    /// Where the packed field that is being read ends.
    packed: Option<u64>,
    ready: Ready,
    done: bool,
}

impl<R: Read> Numbers<R> {
    /// A value of `len` bytes that should hold this many elements.
    pub(super) fn new(source: R, len: u64, coding: Coding, elements: u64) -> Numbers<R> {
        let left = elements.saturating_mul(coding.per_element);
        let fields = Fields::new(source, len, coding.field);
        Numbers { fields, unit: coding.unit, left, packed: None, ready: Ready::default(), done: false }
    }

    /// Decodes a piece; nothing is ready afterwards only at the end.
    fn prepare(&mut self) -> io::Result<()> {
        while self.ready.bytes.len() < PIECE && !self.done {
            match self.packed {
                Some(end) if self.fields.wire.position() == end => self.packed = None,
                Some(end) => self.packed_piece(end)?,
                None => self.next_field()?,
            }
        }
        Ok(())
    }

    fn next_field(&mut self) -> io::Result<()> {
        match (self.fields.next()?, self.unit) {
            (None, _) if self.left == 0 => self.done = true,
            (None, _) => return Err(bad(format!("{} numbers are missing", self.left))),
            (Some(Payload::Bytes(len)), _) => self.packed = Some(self.fields.wire.position() + len),
            (Some(Payload::Varint), Unit::Varint(_) | Unit::Bool) => self.number(self.fields.end())?,
            (Some(Payload::Fixed32), Unit::Fixed(4)) | (Some(Payload::Fixed64), Unit::Fixed(8)) => {
                self.number(self.fields.end())?;
            }
            (Some(payload), unit) => return Err(bad(format!("{payload:?} where numbers are {unit:?}"))),
        }
        Ok(())
    }

    fn packed_piece(&mut self, end: u64) -> io::Result<()> {
        let Unit::Fixed(width) = self.unit else { return self.number(end) };
        let rest = end - self.fields.wire.position();
        let len = rest.min(PIECE as u64) as usize;
        if !len.is_multiple_of(width) {
            return Err(bad(format!("{rest} bytes are no whole numbers of {width} bytes")));
        }
        self.count((len / width) as u64)?;
        let start = self.ready.bytes.len();
        self.ready.bytes.resize(start + len, 0);
        self.fields.wire.read(&mut self.ready.bytes[start..])
    }

    /// Reads one number that ends before `end`.
    fn number(&mut self, end: u64) -> io::Result<()> {
        self.count(1)?;
        let wire = &mut self.fields.wire;
        match self.unit {
            Unit::Fixed(width) => {
                let mut bytes = [0; 8];
                wire.read(&mut bytes[..width])?;
                self.ready.bytes.extend_from_slice(&bytes[..width]);
            }
            Unit::Varint(width) => self.ready.bytes.extend_from_slice(&wire.varint(end)?.to_le_bytes()[..width]),
            Unit::Bool => self.ready.bytes.push(u8::from(wire.varint(end)? != 0)),
        }
        Ok(())
    }

    fn count(&mut self, units: u64) -> io::Result<()> {
        self.left = self.left.checked_sub(units).ok_or_else(|| bad("there are more numbers than the shape has"))?;
        Ok(())
    }
}

impl<R: Read> Read for Numbers<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.ready.is_empty() {
            self.ready.clear();
            self.prepare()?;
        }
        Ok(self.ready.give(buf))
    }
}

/// The bytes that a slice of strings has as a record of a bundle.
pub(super) fn strings_len(source: impl Read, len: u64, elements: u64) -> io::Result<u64> {
    let mut fields = Fields::new(source, len, STRINGS);
    let (mut count, mut bytes) = (0, 4);
    while let Some(payload) = fields.next()? {
        let len = string_len(payload)?;
        let end = fields.end();
        fields.wire.skip(payload, end)?;
        bytes += varint::len(len) + len;
        count += 1;
    }
    if count != elements {
        return Err(bad(format!("holds {count} strings, but its shape has {elements}")));
    }
    Ok(bytes)
}

fn string_len(payload: Payload) -> io::Result<u64> {
    match payload {
        Payload::Bytes(len) => Ok(len),
        other => Err(bad(format!("{other:?} where strings are expected"))),
    }
}

/// Reads the strings of a slice as a record: once for the lengths, once for the bytes.
#[derive(Debug)]
pub(super) struct Strings<R> {
    lengths: Option<Fields<R>>,
    bytes: Fields<R>,
    /// Bytes left of the string that is being read.
    left: u64,
    crc: u32,
    ready: Ready,
    done: bool,
}

impl<R: Read> Strings<R> {
    /// Two readers of the same value of `len` bytes.
    pub(super) fn new(first: R, second: R, len: u64) -> Strings<R> {
        let [lengths, bytes] = [first, second].map(|source| Fields::new(source, len, STRINGS));
        Strings { lengths: Some(lengths), bytes, left: 0, crc: 0, ready: Ready::default(), done: false }
    }

    fn prepare(&mut self) -> io::Result<()> {
        while self.ready.bytes.len() < PIECE && !self.done {
            match &mut self.lengths {
                Some(fields) => match fields.next()? {
                    Some(payload) => {
                        let len = string_len(payload)?;
                        let end = fields.end();
                        fields.wire.skip(payload, end)?;
                        self.crc = add_length(self.crc, len);
                        varint::put(&mut self.ready.bytes, len);
                    }
                    None => {
                        self.ready.bytes.extend(mask_crc32c(self.crc).to_le_bytes());
                        self.lengths = None;
                    }
                },
                None => self.string_piece()?,
            }
        }
        Ok(())
    }

    fn string_piece(&mut self) -> io::Result<()> {
        if self.left == 0 {
            match self.bytes.next()? {
                Some(payload) => self.left = string_len(payload)?,
                None => self.done = true,
            }
        }
        let len = self.left.min(PIECE as u64) as usize;
        let start = self.ready.bytes.len();
        self.ready.bytes.resize(start + len, 0);
        self.left -= len as u64;
        self.bytes.wire.read(&mut self.ready.bytes[start..])
    }
}

impl<R: Read> Read for Strings<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.ready.is_empty() {
            self.ready.clear();
            self.prepare()?;
        }
        Ok(self.ready.give(buf))
    }
}

/// Decoded bytes that nobody has taken yet.
#[derive(Debug, Default)]
struct Ready {
    bytes: Vec<u8>,
    given: usize,
}

impl Ready {
    fn is_empty(&self) -> bool {
        self.given == self.bytes.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.given = 0;
    }

    fn give(&mut self, buf: &mut [u8]) -> usize {
        let rest = &self.bytes[self.given..];
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        self.given += len;
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::check_strings;

    fn message(number: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        varint::put(&mut out, body.len() as u64);
        out.extend_from_slice(body);
        out
    }

    /// A value around a TensorProto, with a name before and unknown fields around.
    fn value(tensor: &[u8]) -> Vec<u8> {
        let slice = [message(1, b"w"), message(2, &[]), message(3, tensor), vec![0x78, 0x05]].concat();
        [vec![0x7d, 1, 2, 3, 4], message(2, &slice), message(9, b"more")].concat()
    }

    fn numbers(dtype: DType, tensor: &[u8], elements: u64) -> io::Result<Vec<u8>> {
        let value = value(tensor);
        let mut out = Vec::new();
        let coding = coding(dtype).unwrap();
        Numbers::new(&*value, value.len() as u64, coding, elements).read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn numbers_of_every_kind() {
        let floats = [1.5f32.to_le_bytes(), (-2f32).to_le_bytes()].concat();
        assert_eq!(numbers(DType::F32, &message(5, &floats), 2).unwrap(), floats);
        let one_by_one = [&[0x2d][..], &floats[..4], &[0x2d], &floats[4..]].concat();
        assert_eq!(numbers(DType::F32, &one_by_one, 2).unwrap(), floats);
        assert_eq!(numbers(DType::C64, &message(9, &floats), 1).unwrap(), floats);
        let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(numbers(DType::I8, &message(7, &minus_one), 1).unwrap(), [0xff]);
        assert_eq!(numbers(DType::I64, &message(10, &minus_one), 1).unwrap(), [0xff; 8]);
        let halves = message(13, &[0x80, 0x78, 0x80, 0x80, 0x03]);
        assert_eq!(numbers(DType::F16, &halves, 2).unwrap(), [0x00, 0x3c, 0x00, 0xc0]);
        assert_eq!(numbers(DType::Bool, &[0x58, 2, 0x58, 0], 2).unwrap(), [1, 0]);
        assert_eq!(numbers(DType::F64, &[], 0).unwrap(), b"");
        let many: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(numbers(DType::F32, &message(5, &many), 100_000).unwrap(), many);
        assert!(coding(DType::Bf16).is_none() && coding(DType::U32).is_none() && coding(DType::Str).is_none());
    }

    #[test]
    fn wrong_counts_and_types_are_refused() {
        let floats = [0; 8];
        assert!(numbers(DType::F32, &message(5, &floats), 1).is_err(), "too many");
        assert!(numbers(DType::F32, &message(5, &floats), 3).is_err(), "too few");
        assert!(numbers(DType::F32, &message(5, &floats[1..]), 2).is_err(), "no whole numbers");
        assert!(numbers(DType::F32, &[0x28, 1], 1).is_err(), "a varint");
        assert!(numbers(DType::I32, &message(7, &[0x80]), 1).is_err(), "cut");
        assert!(numbers(DType::I32, &[0x3b], 1).is_err(), "a group");
    }

    #[test]
    fn strings_become_a_record() {
        let texts: [&[u8]; 3] = [b"", b"yy", &[7; 70_000]];
        let value = value(&texts.map(|text| message(8, text)).concat());
        let len = value.len() as u64;
        let mut record = Vec::new();
        Strings::new(&*value, &*value, len).read_to_end(&mut record).unwrap();
        assert_eq!(strings_len(&*value, len, 3).unwrap(), record.len() as u64);
        assert!(check_strings(&*record, 3, record.len() as u64).is_ok());
        assert!(record.ends_with(&[&b"yy"[..], texts[2]].concat()));
        assert!(strings_len(&*value, len, 2).is_err());
    }

    #[test]
    fn cuts_and_flips_never_panic() {
        let value = value(&message(7, &[1, 2, 0x80, 1, 3]));
        let read = |bytes: &[u8]| {
            let mut out = Vec::new();
            Numbers::new(bytes, value.len() as u64, coding(DType::I32).unwrap(), 4).read_to_end(&mut out).map(|_| out)
        };
        let strings = |bytes: &[u8]| Strings::new(bytes, bytes, value.len() as u64).read_to_end(&mut Vec::new());
        assert_eq!(read(&value).unwrap().len(), 16);
        let tensor_end = value.len() - 8;
        for len in 0..value.len() {
            assert!(len >= tensor_end || read(&value[..len]).is_err(), "cut to {len}");
            let _ = strings(&value[..len]);
        }
        for bit in 0..value.len() * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = (read(&flipped), strings(&flipped));
        }
    }
}
