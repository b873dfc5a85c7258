//! The header: what it says, read ([`parse`]), checked against the file ([`in_order_of_bytes`]) and written ([`render`]).

mod offsets;
mod parse;
mod render;

pub(crate) use offsets::{in_order_of_bytes, truncated};
pub(crate) use parse::parse;
pub(crate) use render::{padded, render};

use crate::Metadata;
use weightlift_core::{DType, Shape};

/// Bytes of the header's length, a little-endian u64 at the start of the file.
pub(crate) const LENGTH_BYTES: u64 = 8;

/// Longer headers are refused by the reference reader.
pub(crate) const READABLE_HEADER: u64 = 100_000_000;

/// One tensor of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    /// Its name.
    pub(crate) name: String,
    /// Its element type.
    pub(crate) dtype: DType,
    /// Its dimensions, in elements for types narrower than a byte too.
    pub(crate) shape: Shape,
    /// Its first byte, counted from the end of the header.
    pub(crate) begin: u64,
    /// The byte after its last.
    pub(crate) end: u64,
}

/// A whole header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Header {
    /// The metadata.
    pub(crate) metadata: Metadata,
    /// The tensors, in the order of the JSON text.
    pub(crate) tensors: Vec<Tensor>,
}
