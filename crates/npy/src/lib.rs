//! NumPy arrays: `.npy` files, folders and `.npz` archives of them, read and written.
//!
//! ```text
//! 0            6       8          10 or 12
//! ┌────────────┬───────┬──────────┬───────────────────────────────────────────────┬──────┐
//! │ 93 "NUMPY" │ major │ length   │ {'descr': '<f4', 'fortran_order': False,      │ data │
//! │            │ minor │ u16, u32 │  'shape': (2, 3), }, spaces, a line feed      │      │
//! └────────────┴───────┴──────────┴───────────────────────────────────────────────┴──────┘
//! ```
//!
//! The length has two bytes in version 1.0 and four in 2.0 and 3.0; versions differ in nothing else that matters
//! here. The header is the text of a Python dictionary with exactly these keys. `fortran_order` says that the first
//! index runs fastest; the catalog has it as a strided layout. Both byte orders are read.
//!
//! Long doubles (`<f16`, `<c32`) are taken for those of x86. NumPy saves types that are not its own (bfloat16, float8
//! and int4 of `ml_dtypes`) as raw bytes of that size, without their name: they are listed as `raw`, like texts and
//! dates. Arrays of Python objects and of records are refused; in an archive they are listed without values.
//!
//! An archive is a zip with a member `NAME.npy` for each array. Stored and deflated members are read. Those written are
//! stored, with their data at a multiple of 64 bytes. Raw arrays of an archive are written back with their own type.
//!
//! A folder of arrays has a `.npy` file for each tensor, named after it as far as file systems allow, and a list
//! `arrays.json`, `{"arrays": [{"name": …, "file": …}, …]}`, which keeps names and order. Without a list the arrays come
//! by name. The folder appears whole: it is written under a hidden name beside its own.
//!
//! Numbers that NumPy has no type for (bf16, the 8-bit floats, half complex) are written only where
//! [`weightlift_core::WriteOptions::nameless`] says how: as unsigned integers of the same bits, or as raw bytes (`<V2`),
//! the way `ml_dtypes` does it. What they are is recorded where NumPy does not look, in the remark of the zip's member
//! or in the list, and they are read back as what they were.
//!
//! ```
//! # fn main() -> weightlift_core::Result<()> {
//! # let dir = tempfile::tempdir().map_err(|error| weightlift_core::Error::io("no folder", "", error))?;
//! # let path = &dir.path().join("w.npy");
//! use weightlift_core::{DType, EntryId, Format, OpenOptions, Shape};
//! use weightlift_npy::{Npy, header};
//!
//! let mut array = header(DType::U16, &Shape::new([2])?)?;
//! array.extend([1, 0, 2, 0]);
//! std::fs::write(path, array).map_err(|error| weightlift_core::Error::io("cannot write", path, error))?;
//!
//! let files = weightlift_io::real();
//! let checkpoint = Npy.open(files.clone(), path, &OpenOptions::default())?;
//! assert_eq!(checkpoint.catalog().entries[0].name, "w");
//! let values = weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), EntryId(0))?;
//! assert_eq!(values, [1, 0, 2, 0]);
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod descr;
mod folder;
mod format;
mod header;
mod literal;
mod npz;
mod output;
mod read;
mod record;
mod single;

pub use format::Npy;
pub use header::header;
pub use npz::Npz;
pub use output::holds_nameless;

/// The word for this format.
const ID: &str = "npy";
