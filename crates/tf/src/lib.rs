//! TensorFlow checkpoints, read and written without TensorFlow.
//!
//! | what | read | written |
//! |---|---|---|
//! | bundles (`Saver` since TensorFlow 1.0, `tf.train.Checkpoint`, Keras weights, SavedModel variables) | yes | yes, byte by byte as TensorFlow does |
//! | several data files, partitioned tensors, every numeric dtype, strings, variants | yes | yes |
//! | big-endian bundles, compressed indexes, alignment gaps | yes | little-endian, uncompressed, dense |
//! | checkpoints of version 1 (`Saver` up to 0.11) | yes | no |
//! | the object graph of TensorFlow 2 | yes | follows renamed, added and left-out tensors; or made for tensors without |
//! | the state file `checkpoint` | yes | where that is asked for |
//!
//! A bundle is an index and one or more data files with a common prefix:
//!
//! ```text
//! PREFIX.index                    a sorted table: "" -> header, name -> entry, slice key -> entry
//! PREFIX.data-00000-of-00002      tensor bytes, row-major, without headers or gaps
//! PREFIX.data-00001-of-00002
//! checkpoint                      text that names the latest prefix; not needed
//!
//! header  number of data files, byte order, versions
//! entry   dtype, shape, data file, offset, size, masked CRC-32C; or the slices of a partitioned tensor
//! ```
//!
//! [`table`] describes the index, [`record`] the bytes of strings.
//!
//! ```
//! use weightlift_core::{DType, EntryId, Format, Manifest, OpenOptions, Shape, WriteOptions};
//! use weightlift_tf::TensorFlow;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let prefix = dir.path().join("model.ckpt");
//! let files = weightlift_io::real();
//! let mut manifest = Manifest::default();
//! let kernel = manifest.add_tensor("dense/kernel", DType::F32, Shape::new([2, 2])?);
//! let writer = TensorFlow.create(files.clone(), &prefix, manifest, &WriteOptions::default())?;
//! writer.write_at(kernel, 0, &[0; 16])?;
//! writer.finish()?;
//!
//! let checkpoint = TensorFlow.open(files.clone(), &prefix, &OpenOptions::default())?;
//! for entry in &checkpoint.catalog().entries {
//!     println!("{} {} {}", entry.name, entry.dtype, entry.shape); // dense/kernel f32 [2, 2]
//! }
//! assert_eq!(weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), EntryId(0))?, [0; 16]);
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod bundle;
mod capabilities;
mod carried;
mod dtype;
mod format;
pub mod graph;
mod locate;
mod names;
mod ordered;
pub mod proto;
pub mod record;
mod slices;
pub mod state;
pub mod table;
mod v1;
mod varint;
mod writer;

pub use bundle::{Header, Index};
pub use format::TensorFlow;
pub use ordered::slice_key;

/// The word of this format.
pub(crate) const ID: &str = "tf";
