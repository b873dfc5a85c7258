//! What the fuzz targets run. Each opens its input through the public API as a file in memory and reads every tensor.
//!
//! Errors are what damaged files are answered with. A panic, a run of many seconds, and memory beyond what the size of
//! the input explains ([`limit`]) are found.

#![warn(missing_docs)]

pub mod limit;
pub mod memory;
pub mod names;
pub mod npy;
pub mod safetensors;
pub mod seeds;
pub mod tf;
pub mod torch;

mod pairs;
mod tables;
mod walk;
mod zip;

pub use libfuzzer_sys;

/// A fuzz target.
pub struct Target {
    /// The inputs to begin with.
    pub seeds: seeds::Seeds,
    /// What is done with an input.
    pub run: fn(&[u8]),
}

/// Makes a program of a [`Target`].
#[macro_export]
macro_rules! target {
    ($target:path) => {
        $crate::libfuzzer_sys::fuzz_target!(
            init: $crate::seeds::write_where_asked(&$target.seeds),
            |data: &[u8]| $crate::limit::within(data.len(), || ($target.run)(data))
        );
    };
}
