//! Arrays against real files and damaged ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]

mod archives;
mod arrays;
mod folder_lists;
mod folders;
