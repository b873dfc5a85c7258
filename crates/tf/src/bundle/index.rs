//! The index of a bundle: the header and an entry for every tensor and slice.

use crate::proto::{BundleEntry, BundleHeader, TensorShape, VersionDef};
use crate::table;
use prost::Message;
use weightlift_core::{ByteOrder, Error, Limits, Result, Shape};

/// The version of the format that is read here and written.
pub(crate) const VERSION: i32 = 1;

/// What holds for the whole bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The number after `-of-` in the names of the data files.
    pub num_shards: u32,
    /// Byte order of all elements.
    pub order: ByteOrder,
}

/// A parsed index.
#[derive(Debug, Clone, PartialEq)]
pub struct Index {
    /// What holds for all.
    pub header: Header,
    /// Keys and entries in key order, without the header's empty key.
    pub entries: Vec<(Vec<u8>, BundleEntry)>,
}

impl Index {
    /// Reads the bytes of an index file.
    ///
    /// # Errors
    /// `Malformed`, `Checksum` with the offset; `Unsupported` for a bundle made for later readers; `Limit`.
    pub fn parse(file: &[u8], limits: &Limits) -> Result<Index> {
        Index::parse_around(file, limits, Err)
    }

    /// The same, but hands a damaged block to `damaged` and goes on without its entries where that answers `Ok`. The
    /// block with the header must be whole.
    ///
    /// # Errors
    /// As [`Index::parse`], and what `damaged` answers.
    pub fn parse_around(file: &[u8], limits: &Limits, damaged: impl FnMut(Error) -> Result<()>) -> Result<Index> {
        let mut header = None;
        let mut entries = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            if header.is_none() {
                header = Some(Header::parse(key, value)?);
                return Ok(());
            }
            if entries.len() as u64 >= limits.tensors {
                return Err(Error::limit(format!("more than {} tensors", limits.tensors)));
            }
            entries.push((key.to_vec(), parse_entry(key, value)?));
            Ok(())
        };
        table::read_around(file, limits, visit, damaged)?;
        match header {
            Some(header) => Ok(Index { header, entries }),
            None => Err(Error::malformed("the table is empty: no index of a TensorFlow bundle")),
        }
    }

    /// The entry of a key.
    pub fn get(&self, key: &[u8]) -> Option<&BundleEntry> {
        let at = self.entries.binary_search_by(|(other, _)| other.as_slice().cmp(key)).ok()?;
        Some(&self.entries.get(at)?.1)
    }
}

impl Header {
    /// Reads the first entry of an index.
    fn parse(key: &[u8], value: &[u8]) -> Result<Header> {
        if !key.is_empty() {
            let message = format!("has no header: its first key is {:?}", String::from_utf8_lossy(key));
            return Err(Error::malformed(message));
        }
        let broken = |error| Error::malformed("the header is no protocol buffer").caused_by(error);
        let header = BundleHeader::decode(value).map_err(broken)?;
        check_version(&header.version.unwrap_or_default())?;
        let order = match header.endianness {
            0 => ByteOrder::Little,
            1 => ByteOrder::Big,
            other => return Err(Error::malformed(format!("byte order {other} is neither 0 nor 1"))),
        };
        let num_shards = u32::try_from(header.num_shards)
            .map_err(|_| Error::malformed(format!("claims {} data files", header.num_shards)))?;
        Ok(Header { num_shards, order })
    }
}

/// Whether a file is for this reader.
///
/// # Errors
/// `Unsupported` when it is not.
pub(crate) fn check_version(version: &VersionDef) -> Result<()> {
    if version.min_consumer > VERSION || version.bad_consumers.contains(&VERSION) {
        let message = format!("is for readers of version {}, not {VERSION}", version.min_consumer);
        return Err(Error::unsupported(message));
    }
    Ok(())
}

fn parse_entry(key: &[u8], value: &[u8]) -> Result<BundleEntry> {
    BundleEntry::decode(value).map_err(|error| {
        let name = String::from_utf8_lossy(key);
        Error::malformed("the index entry is no protocol buffer").in_tensor(name).caused_by(error)
    })
}

/// The dimensions of an entry; a missing message is a scalar.
///
/// # Errors
/// `Malformed` for sizes below zero or a product that does not fit, `Limit` for too many dimensions.
pub(crate) fn shape(shape: Option<&TensorShape>, limits: &Limits) -> Result<Shape> {
    let Some(shape) = shape else { return Ok(Shape::scalar()) };
    if shape.unknown_rank {
        return Err(Error::malformed("the shape is of unknown rank"));
    }
    if shape.dim.len() > limits.rank {
        return Err(Error::limit(format!("{} dimensions are more than {}", shape.dim.len(), limits.rank)));
    }
    let dim = |dim: &crate::proto::Dim| {
        u64::try_from(dim.size).map_err(|_| Error::malformed(format!("a dimension of the shape is {}", dim.size)))
    };
    Shape::new(shape.dim.iter().map(dim).collect::<Result<Vec<u64>>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Dim;
    use crate::table::TableWriter;

    fn index(header: &BundleHeader, entries: &[(&str, &[u8])]) -> Result<Index> {
        let mut table = TableWriter::new();
        table.add(b"", &header.encode_to_vec());
        entries.iter().for_each(|(key, value)| table.add(key.as_bytes(), value));
        Index::parse(&table.finish(), &Limits::default())
    }

    fn header(num_shards: i32, endianness: i32, version: Option<VersionDef>) -> BundleHeader {
        BundleHeader { num_shards, endianness, version }
    }

    #[test]
    fn versions_and_byte_orders() {
        let read = |endianness, producer, min_consumer, bad: &[i32]| {
            let version = VersionDef { producer, min_consumer, bad_consumers: bad.to_vec() };
            index(&header(2, endianness, Some(version)), &[]).map(|index| index.header)
        };
        assert_eq!(read(0, 1, 0, &[]).unwrap(), Header { num_shards: 2, order: ByteOrder::Little });
        assert_eq!(read(1, 99, 1, &[2]).unwrap().order, ByteOrder::Big);
        assert!(read(0, 1, 2, &[]).is_err());
        assert!(read(0, 1, 0, &[3, 1]).is_err());
        assert!(read(2, 1, 0, &[]).is_err());
        assert!(index(&header(1, 0, None), &[]).is_ok(), "no version is version 0");
        assert!(index(&header(-1, 0, None), &[]).is_err());
    }

    #[test]
    fn broken_entries_are_named() {
        let error = index(&header(1, 0, None), &[("w", &[0xff, 0xff])]).unwrap_err();
        assert_eq!(error.place().tensor.as_deref(), Some("w"));
        let mut table = TableWriter::new();
        table.add(b"a", &[]);
        assert!(Index::parse(&table.finish(), &Limits::default()).unwrap_err().message().contains("no header"));
        assert!(Index::parse(&TableWriter::new().finish(), &Limits::default()).is_err());
    }

    #[test]
    fn shapes_and_limits() {
        let read = |sizes: &[i64], limits: &Limits| {
            let dim = sizes.iter().map(|&size| Dim { size }).collect();
            shape(Some(&TensorShape { dim, unknown_rank: false }), limits)
        };
        let limits = Limits::default();
        assert_eq!(shape(None, &limits).unwrap(), Shape::scalar());
        assert_eq!(read(&[2, 0], &limits).unwrap().dims(), [2, 0]);
        assert!(read(&[2, -1], &limits).is_err());
        assert!(read(&[i64::MAX, 2], &limits).is_err());
        assert!(read(&[1; 65], &limits).is_err());
        assert!(shape(Some(&TensorShape { dim: vec![], unknown_rank: true }), &limits).is_err());
        let mut few = Limits::default();
        few.tensors = 1;
        let mut table = TableWriter::new();
        table.add(b"", &header(1, 0, None).encode_to_vec());
        table.add(b"a", &[]);
        assert!(Index::parse(&table.finish(), &few).is_ok());
        table = TableWriter::new();
        table.add(b"", &header(1, 0, None).encode_to_vec());
        table.add(b"a", &[]);
        table.add(b"b", &[]);
        assert_eq!(Index::parse(&table.finish(), &few).unwrap_err().kind(), weightlift_core::Kind::Limit);
    }
}
