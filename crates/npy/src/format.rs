//! The format of single arrays as the rest sees it.

use crate::header::MAGIC;
use crate::{ID, read};
use std::path::Path;
use std::sync::Arc;
use weightlift_core::{
    Capabilities, Checkpoint, CheckpointWriter, Error, FileKind, Files, Format, Manifest, OpenOptions, Recognised,
    Result, WriteOptions,
};

/// NumPy `.npy` files, read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Npy;

impl Format for Npy {
    fn id(&self) -> &'static str {
        ID
    }

    fn name(&self) -> &'static str {
        "NumPy array"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    fn recognise(&self, files: &dyn Files, path: &Path, head: Option<&[u8]>) -> Result<Option<Recognised>> {
        let by_content = head.is_some_and(|head| head.starts_with(MAGIC));
        let named = || path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"));
        let by_name = || named() && files.stat(path).is_ok_and(|stat| stat.kind != FileKind::Dir);
        Ok((by_content || by_name()).then(|| Recognised { path: path.to_path_buf(), by_content }))
    }

    fn open(&self, files: Arc<dyn Files>, path: &Path, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
        Ok(Box::new(read::open(files.as_ref(), path, &options.limits)?))
    }

    fn capabilities(&self) -> Option<Capabilities> {
        None
    }

    fn create(
        &self,
        _files: Arc<dyn Files>,
        path: &Path,
        _manifest: Manifest,
        _options: &WriteOptions,
    ) -> Result<Box<dyn CheckpointWriter>> {
        Err(Error::request("checkpoints are not written as NumPy arrays").in_file(path))
    }
}
