//! Zip archives as checkpoints use them: read by their directory, written at known offsets from many threads.
//!
//! ```text
//! [local header, name, extra] data (data descriptor)     per member
//! ...
//! central directory: a header per member
//! (zip64 end record, locator)   end record, comment
//! ```
//!
//! *Reading.* Only the central directory is trusted for names, sizes and checksums; the local header gives the place
//! of the data, for its extra field differs from the directory's. Members may be stored or deflated. Members that
//! overlap or leave the file are refused; a member in another method or encrypted is an error only where it is read.
//!
//! *Writing.* All names and lengths are known first, so [`Layout`] fixes every byte but the checksums before the first
//! one is written. Members are stored. Headers carry real sizes and CRCs, UTF-8 names, and zip64 fields where a size
//! or an offset needs more than 32 bits. With an alignment, an extra field `FB` in the local header pads the data of
//! every member to a multiple of it.
//!
//! ```
//! use weightlift_archive::{Layout, NewMember};
//! let members = vec![NewMember { name: "archive/data/0".into(), bytes: 8 }];
//! let layout = Layout::new(members, 64).unwrap();
//! assert_eq!(layout.data(0).start() % 64, 0);
//! ```

mod inflate;
mod layout;
mod member;
mod read;
mod record;
mod truncated;
mod writer;

pub use inflate::{open_member, read_member};
pub use layout::{Layout, NewMember};
pub use member::{Member, Method};
pub use read::Archive;
pub use writer::ArchiveWriter;
