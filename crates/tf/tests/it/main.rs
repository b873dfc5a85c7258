//! The codec against real files, damaged files and files of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect by panicking")]

mod edits;
mod fixtures;
mod golden;
mod hostile;
mod located;
mod objects;
mod random;
mod rewrite;
mod share;
mod support;
mod version1;
