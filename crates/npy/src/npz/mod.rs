//! Archives of arrays.

mod member;
mod read;
mod write;

use crate::output::capabilities;
use std::path::Path;
use std::sync::Arc;
use weightlift_core::{
    Capabilities, Checkpoint, CheckpointWriter, FileKind, Files, Format, Manifest, OpenOptions, Recognised, Result,
    WriteOptions,
};

/// The word for archives, and their extension.
const ID: &str = "npz";

/// What is added to the name of an array for the name of its member.
const SUFFIX: &str = ".npy";

/// NumPy `.npz` archives, read and written.
#[derive(Debug, Clone, Copy, Default)]
pub struct Npz;

impl Format for Npz {
    fn id(&self) -> &'static str {
        ID
    }

    fn name(&self) -> &'static str {
        "NumPy archive"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[ID]
    }

    fn recognise(&self, files: &dyn Files, path: &Path, head: Option<&[u8]>) -> Result<Option<Recognised>> {
        let by_content = head.is_some_and(begins_with_array);
        let named = || path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ID));
        let by_name = || named() && files.stat(path).is_ok_and(|stat| stat.kind != FileKind::Dir);
        Ok((by_content || by_name()).then(|| Recognised { path: path.to_path_buf(), by_content }))
    }

    fn open(&self, files: Arc<dyn Files>, path: &Path, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
        let opened = read::open(files.as_ref(), path, &options.limits);
        Ok(Box::new(opened.map_err(|error| error.in_file(path))?))
    }

    fn capabilities(&self) -> Option<Capabilities> {
        Some(capabilities(name_problem))
    }

    fn create(
        &self,
        files: Arc<dyn Files>,
        path: &Path,
        manifest: Manifest,
        options: &WriteOptions,
    ) -> Result<Box<dyn CheckpointWriter>> {
        let writer = write::create(files, path, &manifest, options);
        Ok(Box::new(writer.map_err(|error| error.in_file(path))?))
    }
}

fn name_problem(name: &str) -> Option<String> {
    let most = usize::from(u16::MAX) - SUFFIX.len();
    match name {
        _ if name.contains('\0') => Some("has a NUL character, at which NumPy cuts names of an archive".to_owned()),
        _ if name.len() > most => Some(format!("has more than the {most} bytes that an archive can hold")),
        _ => None,
    }
}

/// Whether a file begins with a zip member that is named as an array.
fn begins_with_array(head: &[u8]) -> bool {
    let name = || {
        let length = u16::from_le_bytes(*head.get(26..)?.first_chunk()?);
        head.get(30..30 + usize::from(length))
    };
    head.starts_with(b"PK\x03\x04") && name().is_some_and(|name| name.ends_with(SUFFIX.as_bytes()))
}
