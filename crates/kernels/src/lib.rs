//! What a number means: casts, byte order, strided copies and checksums, exact on every processor.
//!
//! Every kernel takes plain bytes, little-endian and dense, at any alignment, and gives the same bits on every
//! processor. None does input or output, none starts threads: callers cut the work and call from as many threads as
//! they like.

pub mod average;
pub mod cast;
pub mod checksum;
pub mod device;
pub mod pack;
pub mod strided;
pub mod summary;
pub mod swap;
