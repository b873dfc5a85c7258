//! The bytes of a member, decoded and checked.

use crate::{Member, Method};
use flate2::read::DeflateDecoder;
use std::io::{self, Read};
use weightlift_core::{Error, Limits, Result};
use weightlift_io::FileSource;
use weightlift_kernels::checksum::Algorithm;

/// Reads a member in order. A member that decodes to another length than the directory says, or to other bytes than
/// its CRC covers, ends in an error; the CRC is checked with the last byte.
///
/// # Errors
/// `Unsupported` for other methods; `Limit` where the member claims to be more than [`Limits::expansion`] times
/// larger than it is stored.
pub fn open_member(source: &FileSource, member: &Member, limits: &Limits) -> Result<Box<dyn Read + Send>> {
    let named = |error: Error| error.in_file(source.path());
    member.check_method().map_err(named)?;
    let stored = source.reader(member.stored);
    let inner: Box<dyn Read + Send> = match member.method {
        Method::Stored => Box::new(stored),
        _ => {
            let most = member.stored.len().saturating_mul(limits.expansion);
            if member.len > most {
                let (name, len, stored) = (&member.name, member.len, member.stored.len());
                let message = format!("member {name:?} of the zip claims {len} bytes out of {stored} stored ones");
                return Err(named(Error::limit(message)));
            }
            Box::new(DeflateDecoder::new(stored))
        }
    };
    Ok(Box::new(Checked { inner, left: member.len, crc: 0, expected: member.crc, name: member.name.clone() }))
}

/// A whole member, if it has at most `limit` bytes.
///
/// # Errors
/// `Limit`, and as [`open_member`]; `Checksum` where the CRC differs.
pub fn read_member(source: &FileSource, member: &Member, limits: &Limits, limit: u64) -> Result<Vec<u8>> {
    let named = |error: Error| error.in_file(source.path());
    if member.len > limit {
        let (name, len) = (&member.name, member.len);
        return Err(named(Error::limit(format!("member {name:?} of the zip has {len} bytes; the limit is {limit}"))));
    }
    let mut reader = open_member(source, member, limits)?;
    // What is stored is as long as it says: the directory was checked. What is deflated may say anything.
    let room = if member.method == Method::Stored { member.len as usize } else { 0 };
    let mut bytes = Vec::with_capacity(room);
    match reader.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(named(
            match error.downcast::<Error>() {
                Ok(inner) => inner,
                Err(error) => Error::malformed(format!("member {:?} of the zip: {error}", member.name)),
            }
            .at(member.stored.start()),
        )),
    }
}

/// Counts and checks what a decoder gives.
struct Checked {
    inner: Box<dyn Read + Send>,
    left: u64,
    crc: u32,
    expected: Option<u32>,
    name: String,
}

impl Checked {
    fn finish(&mut self) -> io::Result<()> {
        let mut beyond = [0];
        if self.inner.read(&mut beyond)? != 0 {
            return Err(
                self.fail(Error::malformed(format!("member {:?} of the zip is longer than it says", self.name)))
            );
        }
        match self.expected.take() {
            Some(expected) if expected != self.crc => {
                let message = format!(
                    "member {:?} of the zip has CRC-32 {:08x}, its directory says {expected:08x}",
                    self.name, self.crc
                );
                Err(self.fail(Error::checksum(message)))
            }
            _ => Ok(()),
        }
    }

    fn fail(&self, error: Error) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

impl Read for Checked {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        if most == 0 {
            if self.left == 0 && !buf.is_empty() {
                self.finish()?;
            }
            return Ok(0);
        }
        let read = self.inner.read(&mut buf[..most])?;
        if read == 0 {
            let message = format!("member {:?} of the zip ends {} bytes early", self.name, self.left);
            return Err(self.fail(Error::malformed(message)));
        }
        self.crc = Algorithm::Crc32.extend(self.crc, &buf[..read]);
        self.left -= read as u64;
        if self.left == 0 {
            self.finish()?;
        }
        Ok(read)
    }
}
