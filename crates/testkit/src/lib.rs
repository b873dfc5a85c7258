//! What the tests of weightlift share: the fixtures with their manifest, and a file system that fails on demand.

mod faults;
mod fixtures;

pub use faults::FaultyFiles;
pub use fixtures::{Expected, Fixture, fixture, fixtures, manifest_dtype, sha256_hex};
