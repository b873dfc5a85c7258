//! Protocol buffers read in order from a stream, without holding them.

use crate::varint;
use std::io::{self, Read};
use weightlift_core::Error;

/// What follows the tag of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    Varint,
    Fixed32,
    Fixed64,
    /// So many bytes.
    Bytes(u64),
}

/// A stream of fields that counts where it is.
#[derive(Debug)]
pub(super) struct Wire<R> {
    source: R,
    at: u64,
}

impl<R: Read> Wire<R> {
    pub(super) fn new(source: R) -> Wire<R> {
        Wire { source, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    /// Fills `buf`.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> io::Result<()> {
        self.source.read_exact(buf)?;
        self.at += buf.len() as u64;
        Ok(())
    }

    /// A number that ends before the position `end`.
    pub(super) fn varint(&mut self, end: u64) -> io::Result<u64> {
        let mut bytes = [0; varint::MAX_LEN];
        for count in 1..=bytes.len() {
            if self.at >= end {
                return Err(bad("a number runs beyond the end of its message"));
            }
            self.read(&mut bytes[count - 1..count])?;
            if bytes[count - 1] < 0x80 || count == bytes.len() {
                return varint::Cursor::new(&bytes[..count]).varint().map_err(|error| bad(error.message()));
            }
        }
        Err(bad("a number is longer than 64 bits"))
    }

    /// The number and payload of the next field of a message that ends at `end`; `None` at its end.
    pub(super) fn field(&mut self, end: u64) -> io::Result<Option<(u64, Payload)>> {
        if self.at == end {
            return Ok(None);
        }
        let tag = self.varint(end)?;
        let payload = match tag & 7 {
            0 => Payload::Varint,
            1 => Payload::Fixed64,
            2 => Payload::Bytes(self.varint(end)?),
            5 => Payload::Fixed32,
            other => return Err(bad(format!("a field has the wire type {other}"))),
        };
        let len = match payload {
            Payload::Varint => 1,
            Payload::Fixed32 => 4,
            Payload::Fixed64 => 8,
            Payload::Bytes(len) => len,
        };
        if self.at.checked_add(len).is_none_or(|field_end| field_end > end) {
            return Err(bad(format!("a field of {len} bytes runs beyond the end of its message")));
        }
        Ok(Some((tag >> 3, payload)))
    }

    /// Skips a payload of a message that ends at `end`.
    pub(super) fn skip(&mut self, payload: Payload, end: u64) -> io::Result<()> {
        let len = match payload {
            Payload::Varint => return self.varint(end).map(drop),
            Payload::Fixed32 => 4,
            Payload::Fixed64 => 8,
            Payload::Bytes(len) => len,
        };
        let skipped = io::copy(&mut self.source.by_ref().take(len), &mut io::sink())?;
        self.at += skipped;
        if skipped == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Goes on to the next field `number` of a message that ends at `end`, which must be a message; answers its end.
    pub(super) fn enter(&mut self, number: u64, end: u64) -> io::Result<Option<u64>> {
        while let Some((found, payload)) = self.field(end)? {
            match payload {
                Payload::Bytes(len) if found == number => return Ok(Some(self.at + len)),
                _ => self.skip(payload, end)?,
            }
        }
        Ok(None)
    }
}

/// A broken stream, as an error of reading.
pub(super) fn bad(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Error::malformed(message))
}
