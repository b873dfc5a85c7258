//! Sharded sets: a checkpoint in several files beside a JSON index, as Hugging Face libraries keep large models.
//!
//! ```text
//! model.safetensors.index.json          {"metadata": {"total_size": 28, …},
//! model-00001-of-00002.safetensors       "weight_map": {"a": "model-00001-of-00002.safetensors",
//! model-00002-of-00002.safetensors                      "b": "model-00002-of-00002.safetensors"}}
//! ```
//!
//! Every file is a checkpoint of its own; the index says which tensor is in which file. The twin for PyTorch is
//! `pytorch_model.bin.index.json`. A set of one file has no index.
//!
//! [`Index`] reads, checks and writes the index; [`Set`] finds the files beside it; [`Census`] counts the tensors of the
//! files against it; [`Members`] finds the files without an index; [`split`] decides which tensor
//! goes into which file; [`Target`] names the files of an output. Reading the files is for the formats.
#![forbid(unsafe_code)]

mod census;
mod index;
mod members;
mod name;
mod set;
mod split;
mod target;

pub use census::Census;
pub use index::{Index, TOTAL_SIZE};
pub use members::Members;
pub use name::{base_of, index_name, shard_name};
pub use set::{Set, list};
pub use split::split;
pub use target::Target;
