//! One member of an archive, up to its data.

use crate::header::{Header, MAGIC, PREFIX_BYTES, Prefix, truncated};
use std::io::{self, Read};
use weightlift_archive::{Member, open_member};
use weightlift_core::{ByteRange, Checksum, Error, Limits, Result};
use weightlift_io::FileSource;
use weightlift_kernels::checksum::Algorithm;

/// An array of an archive.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) header: Header,
    /// Everything after the header, counted from the start of the decoded member: the data, and what may follow.
    pub(crate) rest: ByteRange,
    /// Bytes of the data.
    pub(crate) data_bytes: u64,
    /// The checksum of `rest`, where the archive has one.
    pub(crate) checksum: Option<Checksum>,
}

impl Array {
    /// Reads the start of a member; `None` where it is no array.
    ///
    /// # Errors
    /// `Unsupported` for other kinds of compression and versions, `Malformed`, `Limit`, `Io`.
    pub(crate) fn read(source: &FileSource, member: &Member, limits: &Limits) -> Result<Option<Array>> {
        let mut bytes = Bytes::new(source, member, limits)?;
        let mut start = bytes.next(member.len.min(PREFIX_BYTES as u64))?;
        if !start.starts_with(MAGIC) {
            return Ok(None);
        }
        let prefix = Prefix::parse(&start)?;
        if prefix.end() > member.len {
            return Err(truncated(prefix.end(), member.len));
        }
        if prefix.len > limits.header_bytes {
            let (found, most) = (prefix.len, limits.header_bytes);
            return Err(Error::limit(format!("a header of {found} bytes, where {most} are allowed")));
        }
        start.extend(bytes.next(prefix.end().saturating_sub(start.len() as u64))?);
        let before_data = start.get(..prefix.end() as usize).unwrap_or_default();
        let text = before_data.get(prefix.start as usize..).unwrap_or_default();
        let header = Header::parse(text, bytes.origin() + prefix.start, limits)?;
        let (data_bytes, rest) = (header.data_bytes()?, member.len - prefix.end());
        if data_bytes > rest {
            return Err(truncated(prefix.end().saturating_add(data_bytes), member.len));
        }
        if data_bytes == 0 || data_bytes < rest {
            bytes.verify()?;
        }
        // The checksum covers the header too. Sums of pieces are combined by exclusive or, which undoes itself.
        let whole = member.crc.filter(|_| member.plain().is_some());
        let of_rest = |whole| Algorithm::Crc32.combine(Algorithm::Crc32.of(before_data), whole, rest);
        let checksum = whole.map(|whole| Checksum::Crc32(of_rest(whole)));
        Ok(Some(Array { header, rest: ByteRange::new(prefix.end(), rest)?, data_bytes, checksum }))
    }
}

/// The error of a member that cannot be decoded: the decoder's own where it is one of ours.
fn undecodable(name: &str, error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(ours) => ours,
        Err(error) => Error::malformed(format!("member {name:?} cannot be decoded: {error}")),
    }
}

/// The bytes of a member from its start.
enum Bytes<'a> {
    Plain { source: &'a FileSource, range: ByteRange, at: u64 },
    Decoded { name: &'a str, reader: Box<dyn Read + Send> },
}

impl<'a> Bytes<'a> {
    fn new(source: &'a FileSource, member: &'a Member, limits: &Limits) -> Result<Bytes<'a>> {
        member.check_method()?;
        Ok(match member.plain() {
            Some(range) => Bytes::Plain { source, range, at: 0 },
            None => Bytes::Decoded { name: &member.name, reader: open_member(source, member, limits)? },
        })
    }

    /// The next `len` bytes, which the member is known to have.
    fn next(&mut self, len: u64) -> Result<Vec<u8>> {
        match self {
            Bytes::Plain { source, range, at } => {
                let piece = range.slice(*at, len).ok_or_else(|| truncated(at.saturating_add(len), range.len()))?;
                *at += len;
                source.read_vec(piece, len)
            }
            Bytes::Decoded { name, reader } => {
                let mut bytes = Vec::new();
                reader.take(len).read_to_end(&mut bytes).map_err(|error| undecodable(name, error))?;
                if bytes.len() as u64 == len { Ok(bytes) } else { Err(truncated(len, bytes.len() as u64)) }
            }
        }
    }

    /// Decodes the rest for its checksum, where decoding checks it: nobody else will read that far.
    fn verify(&mut self) -> Result<()> {
        let Bytes::Decoded { name, reader } = self else { return Ok(()) };
        let decoded = io::copy(reader, &mut io::sink());
        decoded.map(drop).map_err(|error| undecodable(name, error))
    }

    /// Where the member starts in the file, for messages.
    fn origin(&self) -> u64 {
        match self {
            Bytes::Plain { range, .. } => range.start(),
            Bytes::Decoded { .. } => 0,
        }
    }
}
