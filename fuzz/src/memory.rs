//! A folder in memory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{FileId, FileKind, Files, ReadAt, Stat, WriteAt};

/// The one folder that there is.
pub const FOLDER: &str = "/folder";

/// Files of one folder, read only.
#[derive(Debug, Clone, Default)]
pub struct Folder(BTreeMap<PathBuf, Content>);

#[derive(Debug, Clone)]
struct Content(Arc<[u8]>);

impl Folder {
    /// A folder of one file.
    pub fn of(name: &str, bytes: &[u8]) -> Folder {
        Folder::default().with(name, bytes)
    }

    /// The same with a file more.
    #[must_use]
    pub fn with(mut self, name: &str, bytes: &[u8]) -> Folder {
        self.0.insert(path(name), Content(bytes.into()));
        self
    }

    fn get(&self, path: &Path) -> Result<&Content> {
        self.0.get(path).ok_or_else(|| ErrorKind::NotFound.into())
    }
}

/// The path of a file in the folder.
pub fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn read_only<T>() -> Result<T> {
    Err(Error::from(ErrorKind::ReadOnlyFilesystem))
}

impl Files for Folder {
    fn stat(&self, path: &Path) -> Result<Stat> {
        if path == Path::new(FOLDER) {
            return Ok(Stat { kind: FileKind::Dir, len: 0, id: FileId { device: 0, inode: 0 } });
        }
        let len = self.get(path)?.0.len() as u64;
        let inode = self.0.keys().take_while(|known| *known != path).count() as u64 + 1;
        Ok(Stat { kind: FileKind::File, len, id: FileId { device: 0, inode } })
    }

    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        match dir == Path::new(FOLDER) {
            true => Ok(self.0.keys().filter_map(|path| path.file_name()).map(OsString::from).collect()),
            false => Err(ErrorKind::NotFound.into()),
        }
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        self.stat(path).map(|_| path.to_path_buf())
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(self.get(path)?.clone()))
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

impl ReadAt for Content {
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
