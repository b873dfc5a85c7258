//! What will be written: every length known before the first byte.

use crate::{Checksum, DType, EntryId, Extras, FileRange, KeyPath, Layout, Packing, Region, Shape};
use std::collections::BTreeMap;

/// The position of a blob in its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobId(pub u32);

/// A run of bytes of the output: a tensor's values, or a storage that several tensors share. The order of blobs is
/// the order in which they are laid out where the format leaves that open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Length in bytes.
    pub bytes: u64,
    /// The checksum stored with the source, where the blob is a verbatim copy of an extent's whole range.
    pub checksum: Option<Checksum>,
}

/// Where a box of an output tensor lies in a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The blob.
    pub blob: BlobId,
    /// The strided layout over it, in elements.
    pub layout: Layout,
    /// The box of the tensor.
    pub region: Region,
}

/// The entry of an input that an output tensor comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Position of the input among the inputs of the job.
    pub input: u32,
    /// The entry in its catalog.
    pub entry: EntryId,
}

/// A tensor to write. Elements are little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The keys to it; formats without nesting use the joined name.
    pub path: KeyPath,
    /// The joined path.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// How elements narrower than a byte are stored: what [`crate::Capabilities::holds`] answered.
    pub packing: Packing,
    /// The dimensions.
    pub shape: Shape,
    /// Boxes that fill the tensor exactly once.
    pub parts: Vec<Part>,
    /// Where it comes from, for formats that carry more than values with a tensor.
    pub origin: Option<Origin>,
}

impl Output {
    /// The one blob whose bytes are the tensor, row-major and dense from its start; `None` for a view or several parts.
    pub fn dense_blob(&self) -> Option<BlobId> {
        match &self.parts[..] {
            [Part { blob, layout, region }]
                if region.is_whole(&self.shape) && layout.offset == 0 && layout.is_contiguous(&self.shape) =>
            {
                Some(*blob)
            }
            _ => None,
        }
    }
}

/// Everything a writer is told before the first byte.
#[derive(Debug, Clone, Default)]
pub struct Manifest {
    /// The runs of bytes.
    pub blobs: Vec<Blob>,
    /// The tensors, in the order they are to be listed.
    pub tensors: Vec<Output>,
    /// What each input had beside tensors, by input position.
    pub extras: Vec<(u32, Extras)>,
    /// Containers of the first input that lost all their tensors on purpose: writers that carry the objects around
    /// tensors leave them out too.
    pub emptied: Vec<KeyPath>,
    /// The blobs that are verbatim copies, and of what.
    pub verbatim: BTreeMap<BlobId, FileRange>,
}

impl Manifest {
    /// Adds a run of bytes.
    pub fn add_blob(&mut self, bytes: u64, checksum: Option<Checksum>) -> BlobId {
        self.blobs.push(Blob { bytes, checksum });
        BlobId(self.blobs.len() as u32 - 1)
    }

    /// Adds a dense tensor with a blob of its own, for programs that write a format directly.
    ///
    /// ```
    /// use weightlift_core::{DType, Manifest, Shape};
    /// let mut manifest = Manifest::default();
    /// let blob = manifest.add_tensor("w", DType::F32, Shape::new([2, 3]).unwrap());
    /// assert_eq!(manifest.blobs[blob.0 as usize].bytes, 24);
    /// ```
    pub fn add_tensor(&mut self, name: &str, dtype: DType, shape: Shape) -> BlobId {
        let blob = self.add_blob(dtype.bytes(shape.elements(), Packing::Dense).unwrap_or(0), None);
        let part = Part { blob, layout: Layout::contiguous(&shape), region: Region::whole(&shape) };
        let path = KeyPath::flat(name);
        let (name, packing, parts) = (name.to_owned(), Packing::Dense, vec![part]);
        self.tensors.push(Output { path, name, dtype, packing, shape, parts, origin: None });
        blob
    }

    /// Bytes of all blobs.
    pub fn bytes(&self) -> u64 {
        self.blobs.iter().fold(0, |sum, blob| sum.saturating_add(blob.bytes))
    }
}
