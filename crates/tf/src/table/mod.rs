//! The sorted table of keys and values that holds an index and, in version 1, everything (LevelDB's layout).
//!
//! ```text
//! data block …  metaindex block  index block  footer (48 bytes)
//!
//! block    entries │ restart offsets, u32 each │ restart count, u32 ║ type, 1 byte │ masked CRC-32C, u32
//! entry    shared │ unshared │ value length (varints) │ unshared key bytes │ value
//! footer   metaindex handle │ index handle │ zeros up to byte 40 │ magic 57 fb 80 8b 24 75 47 db
//! handle   offset │ size without the five bytes after it (varints)
//! ```
//!
//! The index block maps a key not below the last one of each data block to that block's handle. Keys rise strictly;
//! they are compared byte by byte.

mod block;
mod footer;
mod read;
mod write;

pub use block::{Block, Entries};
pub use footer::{Footer, Handle};
pub use read::{check_metaindex, contents, read, read_around};
pub use write::TableWriter;

/// Bytes after each block: its type and its checksum.
pub const TRAILER: usize = 5;
