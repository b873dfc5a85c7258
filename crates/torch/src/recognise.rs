//! Which files are PyTorch's.

use crate::checkpoint::Objects;
use crate::source::Spaces;
use crate::{export, legacy, tar, zip};
use std::path::Path;
use weightlift_archive::Archive;
use weightlift_core::{Error, Files, Kind, Limits, OpenOptions, Result, SourceId, sniff};
use weightlift_io::FileSource;

/// What a file is, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Container {
    /// A zip archive, sound or cut short.
    Zip,
    /// A stream of pickles with the storages behind.
    Legacy,
    /// A tar archive of pickles.
    Tar,
    /// A pickle that torch.save did not write.
    Pickle,
}

/// The number that opens a legacy stream, as LONG1.
const MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
/// The same in digits, as protocols 0 and 1 write it.
const MAGIC_TEXT: &[u8] = b"L119547037146038801333356L\n.";

/// The container whose first bytes these are.
pub(crate) fn container(head: &[u8]) -> Option<Container> {
    let protocol = match head {
        [0x80, protocol @ 2..=5, ..] => Some(*protocol),
        _ => None,
    };
    // Protocol 4 puts a frame before.
    let framed = head.get(2..).unwrap_or_default();
    let framed = if framed.first() == Some(&0x95) { framed.get(9..).unwrap_or_default() } else { framed };
    match protocol {
        _ if head.starts_with(b"PK\x03\x04") => Some(Container::Zip),
        _ if head.starts_with(MAGIC_TEXT) => Some(Container::Legacy),
        Some(_) if framed.starts_with(MAGIC) => Some(Container::Legacy),
        None if tar::is_tar(head) => Some(Container::Tar),
        Some(_) => Some(Container::Pickle),
        None => None,
    }
}

/// Whether a zip is PyTorch's. One that was cut short counts, unless its first member says that it is NumPy's.
pub(crate) fn is_torch_zip(files: &dyn Files, path: &Path, head: &[u8]) -> Result<bool> {
    let name_len = head.get(26..28).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
    let first = head.get(30..30 + name_len).unwrap_or_default();
    if first.ends_with(b"/data.pkl") {
        return Ok(true);
    }
    let source = FileSource::open(files, path)?;
    match Archive::read(&source, &Limits::default()) {
        Ok(archive) => Ok(zip::root(&archive).is_some() || export::kind(&archive).is_some()),
        Err(error) if error.kind() == Kind::Io => Err(error),
        Err(_) => Ok(!first.ends_with(b".npy")),
    }
}

/// Reads one file of whatever kind.
///
/// # Errors
/// Says what the file is where it is none of them.
pub(crate) fn load(spaces: &mut Spaces, file: SourceId, options: &OpenOptions) -> Result<Objects> {
    let source = spaces.file(file)?;
    let (head, len, path) = (source.head(4096)?, source.len(), source.path().to_path_buf());
    match container(&head) {
        Some(Container::Zip) => zip::load(spaces, file, options),
        Some(Container::Legacy) => legacy::load(spaces, file, options),
        Some(Container::Tar) => tar::load(spaces, file, options),
        Some(Container::Pickle) => {
            Err(Error::unsupported("a plain pickle, which torch.save did not write").in_file(path))
        }
        None => {
            let what = sniff::describe(&head, len).unwrap_or_else(|| "no PyTorch checkpoint".into());
            Err(Error::malformed(what).in_file(path))
        }
    }
}
