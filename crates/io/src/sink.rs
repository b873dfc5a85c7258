//! A file written at any position, with errors that name it.

use crate::FileSource;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{Error, FileRange, Files, Result, WriteAt};

/// A file under way. It bears a temporary name; messages use the name it will have.
#[derive(Debug)]
pub struct FileSink {
    file: Arc<dyn WriteAt>,
    files: Arc<dyn Files>,
    path: PathBuf,
}

impl FileSink {
    /// A file that was created, by the path it will have.
    pub fn new(files: Arc<dyn Files>, file: Arc<dyn WriteAt>, path: PathBuf) -> FileSink {
        FileSink { file, files, path }
    }

    /// The path the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// `Io` with file and offset.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.write_at(&bytes[done..], offset + done as u64) {
                Ok(0) => return Err(self.failed("cannot write", io::ErrorKind::WriteZero.into())),
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("cannot write", error).at(offset)),
            }
        }
        Ok(())
    }

    /// Makes the file `len` bytes long; a full disk shows now rather than half-way.
    ///
    /// # Errors
    /// `Io`.
    pub fn reserve(&self, len: u64) -> Result<()> {
        self.file.reserve(len).map_err(|error| self.failed(&format!("cannot reserve {len} bytes"), error))
    }

    /// Lets the operating system copy a whole range; `false` (nothing copied) where it cannot.
    ///
    /// # Errors
    /// `Io`, also when the system stops half-way.
    pub fn copy_from(&self, offset: u64, range: &FileRange) -> Result<bool> {
        let source = FileSource::open(self.files.as_ref(), &range.path)?;
        let (start, len) = (range.bytes.start(), range.bytes.len());
        let mut done = 0;
        while done < len {
            match self.file.copy_from(offset + done, source.file(), start + done, len - done) {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => return Err(self.failed("copy stopped early", io::ErrorKind::UnexpectedEof.into())),
                Ok(copied) => done += copied,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("cannot copy", error)),
            }
        }
        Ok(true)
    }

    /// Makes the file a clone of another that shares its bytes; `false` where the file system cannot.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn reflink(&self, source: &Path) -> Result<bool> {
        let source = FileSource::open(self.files.as_ref(), source)?;
        self.file.reflink(source.file()).map_err(|error| self.failed("cannot reflink", error))
    }

    /// Waits until the bytes are on the disk.
    ///
    /// # Errors
    /// `Io`.
    pub fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|error| self.failed("cannot sync", error))
    }

    fn failed(&self, doing: &str, error: io::Error) -> Error {
        let full = error.kind() == io::ErrorKind::StorageFull;
        let error = Error::io(doing, &self.path, error);
        if full { error.help("free some room or write to another disk; nothing was replaced") } else { error }
    }
}
