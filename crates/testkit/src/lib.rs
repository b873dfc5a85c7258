//! What the tests of weightlift share: the fixtures with their manifest, a file system that fails on demand,
//! and one of a single file in memory.

mod faults;
mod fixtures;
mod memory;

pub use faults::FaultyFiles;
pub use fixtures::{Expected, Fixture, fixture, fixtures, manifest_dtype, sha256_hex};
pub use memory::OneFile;
