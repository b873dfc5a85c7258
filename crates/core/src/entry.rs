//! One tensor of a checkpoint: its name, its type and where its values lie.

use crate::{ByteOrder, ByteRange, DType, Error, Layout, Packing, Region, Result, Shape, SourceId};
use std::fmt;

/// The position of an entry in its catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub u32);

/// One step from a container to what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A text key of a dictionary or an attribute.
    Text(String),
    /// An integer key of a dictionary.
    Int(i64),
    /// A position in a list or tuple.
    Index(u64),
    /// Any other key, shown in words and never made anew.
    Other(String),
}

impl Key {
    /// How many bytes the key takes in a joined path.
    pub fn joined_len(&self) -> usize {
        match self {
            Key::Text(text) | Key::Other(text) => text.len(),
            Key::Int(_) | Key::Index(_) => self.to_string().len(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Text(text) | Key::Other(text) => f.write_str(text),
            Key::Int(int) => write!(f, "{int}"),
            Key::Index(index) => write!(f, "{index}"),
        }
    }
}

/// The keys from the root of a checkpoint to a tensor. Flat formats have paths of one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct KeyPath(pub Vec<Key>);

impl KeyPath {
    /// A path of one text key.
    pub fn flat(name: impl Into<String>) -> KeyPath {
        KeyPath(vec![Key::Text(name.into())])
    }

    /// The keys joined by `.`: the name under which a tensor is listed.
    pub fn joined(&self) -> String {
        let mut name = String::with_capacity(self.joined_len());
        for (at, key) in self.0.iter().enumerate() {
            if at > 0 {
                name.push('.');
            }
            match key {
                Key::Text(text) | Key::Other(text) => name.push_str(text),
                Key::Int(_) | Key::Index(_) => name.push_str(&key.to_string()),
            }
        }
        name
    }

    /// How many bytes the joined keys have.
    pub fn joined_len(&self) -> usize {
        let keys = self.0.iter().map(Key::joined_len).sum::<usize>();
        keys + self.0.len().saturating_sub(1)
    }
}

/// A checksum stored in the file, over the bytes of an extent's range as they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// CRC-32 of zip and gzip (IEEE 802.3).
    Crc32(u32),
    /// CRC-32C (Castagnoli), unmasked.
    Crc32c(u32),
    /// A sum by the format's own rule, checked by [`crate::Checkpoint::verify`] and carried along with a verbatim
    /// copy into the same format.
    OfFormat(u32),
}

/// Where a box of a tensor lies: a range of a source and the strided layout over it.
///
/// ```
/// use weightlift_core::*;
/// let shape = Shape::new([2, 3]).unwrap();
/// let whole = Extent::contiguous(SourceId(0), ByteRange::new(128, 24).unwrap(), DType::F32, &shape).unwrap();
/// assert!(whole.region.is_whole(&shape));
/// assert!(Extent::contiguous(SourceId(0), ByteRange::new(128, 20).unwrap(), DType::F32, &shape).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The byte space.
    pub source: SourceId,
    /// The bytes that `layout` addresses and `checksum` covers: a torch storage, a slice, a tensor's own bytes.
    pub bytes: ByteRange,
    /// Where the elements of `region` lie in `bytes`.
    pub layout: Layout,
    /// The box of the tensor that this extent fills.
    pub region: Region,
    /// Byte order of the elements.
    pub order: ByteOrder,
    /// How elements narrower than a byte are stored.
    pub packing: Packing,
    /// The stored checksum of `bytes`.
    pub checksum: Option<Checksum>,
}

impl Extent {
    /// A whole tensor stored row-major, little-endian and dense in exactly `bytes`.
    ///
    /// # Errors
    /// `Malformed` when the length of `bytes` is not that of the tensor.
    pub fn contiguous(source: SourceId, bytes: ByteRange, dtype: DType, shape: &Shape) -> Result<Extent> {
        Extent::packed(source, bytes, dtype, shape, Packing::Dense)
    }

    /// The same with a packing.
    ///
    /// # Errors
    /// `Malformed` when the length of `bytes` is not that of the tensor.
    pub fn packed(source: SourceId, bytes: ByteRange, dtype: DType, shape: &Shape, packing: Packing) -> Result<Extent> {
        let wanted = dtype.bytes(shape.elements(), packing);
        if wanted != Some(bytes.len()) {
            let wanted = wanted.map_or("more than 2^63".to_owned(), |n| n.to_string());
            let message = format!("{dtype} of shape {shape} has {wanted} bytes, but {} are stored", bytes.len());
            return Err(Error::malformed(message).at(bytes.start()));
        }
        let (layout, region) = (Layout::contiguous(shape), Region::whole(shape));
        Ok(Extent { source, bytes, layout, region, order: ByteOrder::Little, packing, checksum: None })
    }

    /// A whole tensor as a strided view of `bytes`.
    ///
    /// # Errors
    /// `Malformed` when the view leaves `bytes` or dtype elements are no whole bytes.
    pub fn strided(source: SourceId, bytes: ByteRange, dtype: DType, shape: &Shape, layout: Layout) -> Result<Extent> {
        let reach = layout.reach(shape)?;
        let needed = dtype.bytes(reach, Packing::Dense).unwrap_or(u64::MAX);
        if needed > bytes.len() {
            let message = format!(
                "a view of shape {shape}, strides {:?}, offset {} needs a storage of {needed} bytes, \
                 but it has {}",
                layout.strides,
                layout.offset,
                bytes.len()
            );
            return Err(Error::malformed(message).at(bytes.start()));
        }
        let region = Region::whole(shape);
        let packing = Packing::Dense;
        Ok(Extent { source, bytes, layout, region, order: ByteOrder::Little, packing, checksum: None })
    }

    /// Bytes that nobody looks into, for opaque entries.
    pub fn opaque(source: SourceId, bytes: ByteRange, shape: &Shape) -> Extent {
        let (layout, region) = (Layout::contiguous(shape), Region::whole(shape));
        let (order, packing) = (ByteOrder::Little, Packing::Dense);
        Extent { source, bytes, layout, region, order, packing, checksum: None }
    }

    /// The same extent with a stored checksum.
    #[must_use]
    pub fn with_checksum(self, checksum: Checksum) -> Extent {
        Extent { checksum: Some(checksum), ..self }
    }

    /// The same extent in another byte order.
    #[must_use]
    pub fn with_order(self, order: ByteOrder) -> Extent {
        Extent { order, ..self }
    }

    /// The same extent as a part of a larger tensor.
    #[must_use]
    pub fn filling(self, region: Region) -> Extent {
        Extent { region, ..self }
    }
}

/// What there is of a tensor's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// Boxes that fill the tensor exactly once.
    Extents(Vec<Extent>),
    /// The checkpoint has no values for it, and why: a tensor on the meta device, an object that is no array.
    Absent(String),
    /// It should have values but they cannot be read, and why: a missing slice, a file cut short. What is not asked
    /// for stays readable.
    Broken(String),
}

/// One tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The keys to it.
    pub path: KeyPath,
    /// The joined path; need not be unique.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The dimensions.
    pub shape: Shape,
    /// Where the values lie.
    pub data: Data,
    /// The length of the values in bytes as they are stored, for opaque entries; that of the dense tensor otherwise.
    pub bytes: u64,
    /// Remarks for a listing, such as `view`, `scale=0.5`, `requires_grad`.
    pub remarks: Vec<String>,
    /// Whether it is the format's own, about the other tensors: it follows them, and steps pass it by unless they give
    /// its whole name.
    pub of_format: bool,
}

impl Entry {
    /// An entry over extents.
    ///
    /// # Errors
    /// `Malformed` when the dense tensor would have 2^63 bytes or more.
    pub fn new(path: KeyPath, dtype: DType, shape: Shape, extents: Vec<Extent>) -> Result<Entry> {
        let name = path.joined();
        let stored = || extents.iter().map(|extent| extent.bytes.len()).sum();
        let packing = extents.first().map_or(Packing::Dense, |extent| extent.packing);
        let bytes = if dtype.is_opaque() { Some(stored()) } else { dtype.bytes(shape.elements(), packing) };
        let Some(bytes) = bytes else {
            return Err(Error::malformed(format!("{dtype} of shape {shape} has more than 2^63 bytes")).in_tensor(name));
        };
        Ok(Entry {
            path,
            name,
            dtype,
            shape,
            data: Data::Extents(extents),
            bytes,
            remarks: Vec::new(),
            of_format: false,
        })
    }

    /// An entry without readable values.
    pub fn absent(path: KeyPath, dtype: DType, shape: Shape, why: impl Into<String>) -> Entry {
        let bytes = dtype.bytes(shape.elements(), Packing::Dense).unwrap_or(0);
        let name = path.joined();
        Entry { path, name, dtype, shape, data: Data::Absent(why.into()), bytes, remarks: Vec::new(), of_format: false }
    }

    /// An entry whose values are damaged.
    pub fn broken(path: KeyPath, dtype: DType, shape: Shape, why: impl Into<String>) -> Entry {
        let entry = Entry::absent(path, dtype, shape, "");
        Entry { data: Data::Broken(why.into()), ..entry }
    }

    /// The extents.
    ///
    /// # Errors
    /// `Unsupported` where there are no values, `Malformed` where they cannot be read, with the reason.
    pub fn extents(&self) -> Result<&[Extent]> {
        match &self.data {
            Data::Extents(extents) => Ok(extents),
            Data::Absent(why) => Err(Error::unsupported(format!("has no values: {why}")).in_tensor(&self.name)),
            Data::Broken(why) => Err(Error::malformed(why.clone()).in_tensor(&self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_must_stay_in_their_storage() {
        let storage = ByteRange::new(64, 40).unwrap();
        let shape = Shape::new([2, 3]).unwrap();
        let view = |offset, strides: [u64; 2]| {
            let layout = Layout { offset, strides: strides.to_vec() };
            Extent::strided(SourceId(0), storage, DType::F32, &shape, layout)
        };
        assert!(view(0, [5, 1]).is_ok());
        assert!(view(3, [4, 1]).is_ok());
        assert!(view(4, [4, 1]).is_err());
        assert!(view(u64::MAX, [1, 1]).is_err());
        assert!(view(0, [u64::MAX, 1]).is_err());
    }

    #[test]
    fn sizes_of_entries() {
        let shape = Shape::new([3]).unwrap();
        let opaque = Extent::opaque(SourceId(0), ByteRange::new(0, 17).unwrap(), &shape);
        let entry = Entry::new(KeyPath::flat("s"), DType::Str, shape.clone(), vec![opaque]).unwrap();
        assert_eq!(entry.bytes, 17);
        let huge = Shape::new([1 << 62]).unwrap();
        assert!(Entry::new(KeyPath::flat("w"), DType::F32, huge, vec![]).is_err());
        let path = KeyPath(vec![Key::Text("opt".into()), Key::Int(0), Key::Index(2)]);
        assert_eq!(Entry::absent(path, DType::F32, shape, "meta").name, "opt.0.2");
    }
}
