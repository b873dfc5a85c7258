//! weightlift converts and edits model checkpoints: TensorFlow bundles, PyTorch files, safetensors, any to any, with
//! dtype casts and renames, for files of many gigabytes, with nothing of TensorFlow or PyTorch installed.
//!
//! ```no_run
//! use weightlift::{CastRule, DType, Pattern, Plan, Rename, SaveOptions};
//!
//! # fn main() -> weightlift::Result<()> {
//! let checkpoint = weightlift::open("bert_model.ckpt")?;
//! for entry in &checkpoint.catalog().entries {
//!     println!("{} {} {}", entry.name, entry.dtype, entry.shape);
//! }
//! let plan = Plan::new()
//!     .exclude([Pattern::new("**/adam_{m,v}")?])
//!     .rename(Rename::new("/", ".")?)
//!     .cast(CastRule::floats_to(DType::F16));
//! let report = checkpoint.save(&plan, "half.pt", &SaveOptions::default())?;
//! println!("{} tensors, {} bytes", report.tensors, report.bytes_written());
//! # Ok(()) }
//! ```
//!
//! Each format is a crate of its own that can be used without the rest: `weightlift-tf`, `weightlift-torch`,
//! `weightlift-safetensors`, `weightlift-npy`.
#![forbid(unsafe_code)]

mod device;
mod numpy;
mod open;
mod preset;
pub mod rates;
mod recipe;
mod reindex;
mod save;
mod stats;
mod tensor;
mod words;

pub use device::DeviceChoice;
pub use numpy::NpyRaw;
pub use open::{Opened, formats, open, open_in, open_with};
pub use preset::{PRESETS, about as about_preset, parse_preset};
pub use recipe::{parse_recipe, restate_recipe, write_recipe};
pub use reindex::{Reindexed, reindex};
pub use save::{SaveOptions, choose_format};
pub use tensor::{Element, Tensor};
pub use weightlift_convert::{Accelerator, Chosen, DeviceReport, Rates as DeviceRates, When};
pub use weightlift_convert::{
    Add, Agreement, Array, Average, CastReport, CastRule, Change, CopyRows, Expected, Fill, Join, JoinAxis, JoinInputs,
    KeyChoice, LeftOut, LineColumn, NameMap, OnOverflow, Options, OutputSpec, Pattern, Plan, Preset, Progress, Rename,
    Report, Reshape, ResizeRows, Resolved, RowPairs, Set, Slice, Split, Squeeze, Step, Survey, Told, Transpose, Value,
    Weights, planned_memory,
};
pub use weightlift_core::{
    Carried, Catalog, Checkpoint, DType, Data, Entry, EntryId, Error, Extent, Files, Format, Key, KeyPath, Kind, Names,
    OpenOptions, Region, Result, Shape, Share, Source, Ties, WriteOptions,
};
pub use weightlift_kernels::cast::{Deviation, Like, Tally};
pub use weightlift_kernels::summary::Summary;

/// Compute devices, to be opened once and shared by conversions.
#[cfg(feature = "gpu")]
pub use weightlift_gpu as gpu;

pub use words::Words;

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
