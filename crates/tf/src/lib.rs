//! TensorFlow checkpoints, read and written without TensorFlow.
#![forbid(unsafe_code)]

mod bundle;
mod capabilities;
mod dtype;
mod format;
mod locate;
mod names;
mod ordered;
pub mod proto;
pub mod record;
mod slices;
mod spelling;
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
