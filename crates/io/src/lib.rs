//! Files of the operating system and what is built on the [`weightlift_core::Files`] trait: positional sources and
//! sinks with errors that name the file, commits of whole sets of files, and verified reads of tensors.
//!
//! No other crate opens a file.
//!
//! ```no_run
//! use std::path::Path;
//! use weightlift_core::{EntryId, Format, OpenOptions};
//! # fn demo(format: &dyn Format) -> weightlift_core::Result<()> {
//! let files = weightlift_io::real();
//! let checkpoint = format.open(files.clone(), Path::new("model.safetensors"), &OpenOptions::default())?;
//! for entry in &checkpoint.catalog().entries {
//!     println!("{} {} {}", entry.name, entry.dtype, entry.shape);
//! }
//! let values = weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), EntryId(0))?;
//! # let _ = values; Ok(()) }
//! ```

mod buffer;
mod commit;
mod head;
mod journal;
mod read;
mod real;
mod sink;
mod source;
mod sources;

pub use buffer::AlignedBuffer;
pub use commit::{Commit, folder_of};
pub use head::{restore_head, rewrite_head};
pub use journal::{is_unfinished, recover};
pub use read::{Scratch, mismatch, place, read_box, read_entry, run_of, verify_range};
pub use real::{RealFiles, real};
pub use sink::FileSink;
pub use source::FileSource;
pub use sources::Sources;
