//! The format against real files, damaged files, and the reference reader.

mod damage;
mod fixtures;
mod hand_made;
mod round_trip;
mod support;
