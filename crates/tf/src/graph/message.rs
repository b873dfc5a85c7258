//! Protocol buffers in memory, field by field, each with its bytes as they stand.

use crate::varint::{self, Cursor};
use weightlift_core::{Error, Result};

/// The fields of a message.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    cursor: Cursor<'a>,
    /// Where the message begins in the whole.
    base: u64,
}

/// One field.
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) number: u64,
    /// All its bytes, the tag included.
    pub(super) raw: &'a [u8],
    payload: Payload<'a>,
    at: u64,
}

#[derive(Debug)]
enum Payload<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8], base: u64) -> Fields<'a> {
        Fields { bytes, cursor: Cursor::new(bytes), base }
    }

    pub(super) fn next_field(&mut self) -> Result<Option<Field<'a>>> {
        if self.cursor.is_empty() {
            return Ok(None);
        }
        let start = self.cursor.position();
        let at = self.base + start as u64;
        let (number, payload) = self.payload().map_err(|error| error.at(at))?;
        let raw = self.bytes.get(start..self.cursor.position()).unwrap_or_default();
        Ok(Some(Field { number, raw, payload, at }))
    }

    fn payload(&mut self) -> Result<(u64, Payload<'a>)> {
        let tag = self.cursor.varint()?;
        let payload = match tag & 7 {
            0 => Payload::Varint(self.cursor.varint()?),
            1 => self.cursor.take(8).map(|_| Payload::Fixed)?,
            2 => {
                let len = self.cursor.varint()?;
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                Payload::Bytes(self.cursor.take(len)?)
            }
            5 => self.cursor.take(4).map(|_| Payload::Fixed)?,
            other => return Err(Error::malformed(format!("a field of the object graph has the wire type {other}"))),
        };
        Ok((tag >> 3, payload))
    }
}

impl<'a> Field<'a> {
    /// The field as a message.
    pub(super) fn message(&self) -> Result<Fields<'a>> {
        let Payload::Bytes(bytes) = self.payload else { return Err(self.unexpected("a message")) };
        Ok(Fields::new(bytes, self.at + (self.raw.len() - bytes.len()) as u64))
    }

    /// The field as text.
    pub(super) fn text(&self) -> Result<String> {
        let Payload::Bytes(bytes) = self.payload else { return Err(self.unexpected("text")) };
        String::from_utf8(bytes.to_vec()).map_err(|_| self.unexpected("UTF-8"))
    }

    /// The field as the number of an object.
    pub(super) fn id(&self) -> Result<u32> {
        let Payload::Varint(number) = self.payload else { return Err(self.unexpected("a number")) };
        let id = u32::try_from(number).ok().filter(|&id| id <= i32::MAX as u32);
        id.ok_or_else(|| Error::malformed(format!("{number} is no number of an object")).at(self.at))
    }

    fn unexpected(&self, wanted: &str) -> Error {
        Error::malformed(format!("field {} of the object graph is no {wanted}", self.number)).at(self.at)
    }
}

/// Appends a field of bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    varint::put(out, u64::from(number) << 3 | 2);
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a number, unless it is 0.
pub(super) fn put_varint_field(out: &mut Vec<u8>, number: u32, value: u32) {
    if value != 0 {
        varint::put(out, u64::from(number) << 3);
        varint::put(out, u64::from(value));
    }
}
