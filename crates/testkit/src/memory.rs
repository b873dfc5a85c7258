//! A file system of one file that lies in memory: sweeps over thousands of damaged files need no disk.

use std::ffi::OsString;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{FileId, FileKind, Files, ReadAt, Stat, WriteAt};

/// One file, read only, whatever path asks for it; no hidden file stands beside it.
#[derive(Debug, Clone, Default)]
pub struct OneFile(Arc<[u8]>);

impl OneFile {
    /// A file of these bytes.
    pub fn new(bytes: &[u8]) -> OneFile {
        OneFile(bytes.into())
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::from(ErrorKind::ReadOnlyFilesystem))
}

impl Files for OneFile {
    fn stat(&self, path: &Path) -> Result<Stat> {
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(Stat { kind: FileKind::File, len: self.0.len() as u64, id: FileId { device: 0, inode: 0 } })
    }

    fn list(&self, _: &Path) -> Result<Vec<OsString>> {
        Ok(Vec::new())
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    fn open(&self, _: &Path) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(self.clone()))
    }

    fn create(&self, _: &Path) -> Result<Arc<dyn WriteAt>> {
        read_only()
    }

    fn is_abandoned(&self, _: &Path) -> Result<bool> {
        Ok(false)
    }

    fn rename(&self, _: &Path, _: &Path) -> Result<()> {
        read_only()
    }

    fn remove(&self, _: &Path) -> Result<()> {
        read_only()
    }

    fn sync_dir(&self, _: &Path) -> Result<()> {
        read_only()
    }

    fn free_space(&self, _: &Path) -> Result<Option<u64>> {
        Ok(None)
    }
}

impl ReadAt for OneFile {
    fn len(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}
