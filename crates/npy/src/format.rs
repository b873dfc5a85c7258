//! The format of single arrays as the rest sees it.

use crate::header::MAGIC;
use crate::output::capabilities;
use crate::{ID, folder, read, single};
use std::path::Path;
use std::sync::Arc;
use weightlift_core::{
    Capabilities, Checkpoint, CheckpointWriter, FileKind, Files, Format, Manifest, OpenOptions, Recognised, Result,
    WriteOptions,
};

/// NumPy `.npy` files and folders of them, read and written.
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
        if folder::is_folder(files, path) {
            return Ok(Some(Recognised { path: path.to_path_buf(), by_content: false }));
        }
        let by_content = head.is_some_and(|head| head.starts_with(MAGIC));
        let named = || path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"));
        let by_name = || named() && files.stat(path).is_ok_and(|stat| stat.kind != FileKind::Dir);
        Ok((by_content || by_name()).then(|| Recognised { path: path.to_path_buf(), by_content }))
    }

    fn open(&self, files: Arc<dyn Files>, path: &Path, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
        match files.stat(path) {
            Ok(stat) if stat.kind == FileKind::Dir => Ok(Box::new(folder::open(files.as_ref(), path, options)?)),
            _ => Ok(Box::new(read::open(files.as_ref(), path, &options.limits)?)),
        }
    }

    fn capabilities(&self) -> Option<Capabilities> {
        Some(capabilities(|_| None))
    }

    /// A path that ends in `.npy` is a file of one array, any other a folder.
    fn create(
        &self,
        files: Arc<dyn Files>,
        path: &Path,
        manifest: Manifest,
        options: &WriteOptions,
    ) -> Result<Box<dyn CheckpointWriter>> {
        match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy")) {
            true => single::create(files, path, &manifest, options),
            false => folder::create(files, path, &manifest, options),
        }
    }
}
