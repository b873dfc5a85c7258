//! The format against real files, damaged files, and the reference reader.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]

mod damage;
mod fixtures;
mod hand_made;
mod header_order;
mod in_place;
mod lenient;
mod round_trip;
mod set_writing;
mod sets;
mod support;
mod ties;
