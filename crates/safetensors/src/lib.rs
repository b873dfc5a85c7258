//! safetensors files, read and written with order and metadata kept.
//!
//! ```text
//! 0     8                     8 + N                                              end
//! ┌─────┬─────────────────────┬────────────────┬────────────────┬───┬────────────────┐
//! │  N  │ header: JSON, UTF-8 │ bytes of one   │ bytes of the   │ … │ bytes of the   │
//! │ u64 │ object of N bytes   │ tensor         │ next           │   │ last           │
//! └─────┴─────────────────────┴────────────────┴────────────────┴───┴────────────────┘
//!        {"__metadata__": {"format": "pt"},
//!         "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …}
//! ```
//!
//! Numbers are little-endian, tensors row-major and dense. Offsets count from the end of the header. Sorted by their
//! offsets, the tensors cover the rest of the file without gaps or overlap; there is no room for padding.
//!
//! # Reading
//! The catalog lists tensors in the order of their bytes; where the header has another, that is kept for writing it
//! back. Whatever the reference reader takes is taken (blanks before the JSON text and after it, members in any order, unknown fields),
//! with one exception: a name that stands twice is refused, because readers disagree about which tensor counts.
//! The shape of a 4-bit or 6-bit tensor counts elements; together they must fill whole bytes.
//! [`weightlift_core::OpenOptions::lenient`] also reads headers padded with NUL bytes, metadata that are no texts,
//! bytes after the last tensor, and headers of more than 100,000,000 bytes, each with a warning.
//!
//! A sharded set is opened by its index (`model.safetensors.index.json`) or its folder. Every tensor of the index must
//! be in the file that the index names. Tensors and files that the index does not name are left aside with a warning;
//! [`weightlift_core::OpenOptions::strict`] refuses them.
//!
//! Tensors of several names are written once by many savers, and the other names recorded in the metadata
//! (`{"dropped": "kept"}`), or in the index of a set. Such a name is listed as a tensor of its own over the same
//! bytes, after the others: a file of one tensor and one second name lists two tensors, where the reference reader,
//! which leaves such names to the model, lists one.
//!
//! # Writing
//! The header lists tensors in the order of the manifest, the data lie in the order of its blobs. The data begin at a
//! multiple of 8 bytes. Tensors over one blob are written once under the first name, and the others recorded, or left
//! out ([`weightlift_core::Ties`]).
//!
//! [`weightlift_core::WriteOptions::in_place`] changes the header of the file alone, where the new one fits into the room
//! of the old one and every tensor stays where it is; the old header is saved beside the file until the new one is on
//! the disk, and put back by the next reader after a crash.
//!
//! With a shard size, tensors are divided in that order over `NAME-00001-of-0000N.safetensors` and an index, and
//! second names are recorded in the index; what fits into one file is written as one. A set of that name that is
//! replaced goes away whole.
//! Since the format has no room between tensors, a tensor begins at a multiple of its element size only where the
//! lengths of those before it allow; ordering tensors by falling element size, as the reference writer does, gives
//! that always.
//!
//! Metadata of a safetensors input are written back, and where there are any they say `format`, because loaders
//! refuse a file whose metadata lack it; a file made from other formats gets `{"format": "pt"}`. See [`Metadata`].
//! [`weightlift_core::WriteOptions::metadata`] sets and removes keys.
//!
//! ```
//! # fn main() -> weightlift_core::Result<()> {
//! # let dir = tempfile::tempdir().map_err(|error| weightlift_core::Error::io("no folder", "", error))?;
//! # let path = &dir.path().join("model.safetensors");
//! use weightlift_core::{DType, EntryId, Format, Manifest, OpenOptions, Shape, WriteOptions};
//! use weightlift_safetensors::Safetensors;
//!
//! let files = weightlift_io::real();
//! let mut manifest = Manifest::default();
//! let blob = manifest.add_tensor("w", DType::F32, Shape::new([2])?);
//! let writer = Safetensors.create(files.clone(), path, manifest, &WriteOptions::default())?;
//! writer.write_at(blob, 0, &[0, 0, 128, 63, 0, 0, 0, 64])?;
//! writer.finish()?;
//!
//! let checkpoint = Safetensors.open(files.clone(), path, &OpenOptions::default())?;
//! assert_eq!(checkpoint.catalog().entries[0].name, "w");
//! let values = weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), EntryId(0))?;
//! assert_eq!(values, [0, 0, 128, 63, 0, 0, 0, 64]);
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod dtype;
mod format;
mod header;
mod in_place;
mod layout;
mod metadata;
mod read;
mod set;
mod ties;
mod write;

pub use format::Safetensors;
pub use metadata::{METADATA_KEY, Metadata};

/// The word for this format.
const ID: &str = "safetensors";

/// The extension of its files.
const EXTENSION: &str = "safetensors";
