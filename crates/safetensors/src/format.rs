//! The format as the rest sees it.

use crate::{EXTENSION, ID, dtype, in_place, layout, read, set, write};
use std::path::Path;
use std::sync::Arc;
use weightlift_core::{
    Capabilities, Checkpoint, CheckpointWriter, FileKind, Files, Format, Manifest, OpenOptions, Recognised, Result,
    WriteOptions,
};

/// Longer headers are taken for the first bytes of something else.
const PLAUSIBLE_HEADER: u64 = 1 << 40;

/// safetensors files and sharded sets of them, read and written.
#[derive(Debug, Clone, Copy, Default)]
pub struct Safetensors;

impl Format for Safetensors {
    fn id(&self) -> &'static str {
        ID
    }

    fn name(&self) -> &'static str {
        "safetensors"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[EXTENSION]
    }

    fn recognise(&self, files: &dyn Files, path: &Path, head: Option<&[u8]>) -> Result<Option<Recognised>> {
        let by_content = head.is_some_and(|head| begins_header(head) || (set::is_index(path) && begins_object(head)));
        let named = || path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(EXTENSION));
        let ours = match files.stat(path) {
            Ok(stat) if stat.kind == FileKind::Dir => return set::recognise(files, path),
            Ok(_) => by_content || named() || set::is_index(path),
            Err(_) => by_content,
        };
        Ok(ours.then(|| Recognised { path: path.to_path_buf(), by_content }))
    }

    fn open(&self, files: Arc<dyn Files>, path: &Path, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
        Ok(Box::new(read::open(files.as_ref(), path, options)?))
    }

    fn capabilities(&self) -> Option<Capabilities> {
        let (holds, name_problem) = (dtype::packing, layout::name_problem);
        Some(Capabilities {
            holds,
            name_problem,
            nests: false,
            shares_storage: true,
            strides: false,
            prunes_extras: false,
            joins_pieces: None,
            name_hint: Capabilities::NO_HINT,
            texts: None,
        })
    }

    fn create(
        &self,
        files: Arc<dyn Files>,
        path: &Path,
        manifest: Manifest,
        options: &WriteOptions,
    ) -> Result<Box<dyn CheckpointWriter>> {
        match options.in_place {
            true => in_place::create(files, path, &manifest, options),
            false => write::create(files, path, &manifest, options),
        }
    }
}

/// Whether a file begins with the length of a header and the first characters of a JSON object. The file may end
/// earlier than that length promises: it is still this format's to refuse.
fn begins_header(head: &[u8]) -> bool {
    let Some((length, text)) = head.split_first_chunk() else { return false };
    let length = u64::from_le_bytes(*length);
    let Some((b'{', inside)) = text.trim_ascii_start().split_first() else { return false };
    let first = inside.trim_ascii_start().first();
    (2..=PLAUSIBLE_HEADER).contains(&length) && matches!(first, None | Some(b'"' | b'}'))
}

/// Whether a file begins like a JSON object.
fn begins_object(head: &[u8]) -> bool {
    head.trim_ascii_start().starts_with(b"{")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_recognised_also_when_cut_short() {
        assert!(begins_header(b"\x08\0\0\0\0\0\0\0{}      "));
        assert!(begins_header(b"\x38\0\0\0\0\0\0\0 {"));
        assert!(begins_header(b"\x38\0\0\0\0\0\0\0{\"x"));
        assert!(!begins_header(b"\x38\0\0\0\0\0\0\0{3"));
        assert!(!begins_header(b"\x38\0\0\0\0\0\0\0"));
        assert!(!begins_header(b"\0\0\0\0\0\0\0\0{}"));
        assert!(!begins_header(b"{\"a\": 1}{\"b\": 2}"));
        assert!(!begins_header(b"\x38\0\0\0\0\0\0\0[\"x\""));
        assert!(!begins_header(b""));
    }
}
