//! A file read at any position, with errors that name it.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{ByteRange, Error, Files, ReadAt, Result};

/// A file open for reading; its length is the one it had when it was opened.
#[derive(Debug, Clone)]
pub struct FileSource {
    file: Arc<dyn ReadAt>,
    path: PathBuf,
    len: u64,
}

impl FileSource {
    /// Opens a file.
    ///
    /// # Errors
    /// `Io` with the path.
    pub fn open(files: &dyn Files, path: &Path) -> Result<FileSource> {
        let open = || {
            let file = files.open(path)?;
            let len = file.len()?;
            Ok((file, len))
        };
        let (file, len) = open().map_err(|error| Error::io("cannot open", path, error))?;
        Ok(FileSource { file, path: path.to_path_buf(), len })
    }

    /// A source over anything that reads at a position; `path` is for messages.
    pub fn from_parts(file: Arc<dyn ReadAt>, path: PathBuf, len: u64) -> FileSource {
        FileSource { file, path, len }
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty file is an ordinary one")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The open file.
    pub fn file(&self) -> &dyn ReadAt {
        self.file.as_ref()
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `Malformed` where the file ends before, `Io`; both name file and offset.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let wanted = buf.len();
        let mut done = 0;
        while done < wanted {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => {
                    let end = offset + done as u64;
                    let message = format!("needs {wanted} bytes at offset {offset}, but the file ends at {end}");
                    return Err(Error::malformed(message).in_file(&self.path).at(offset));
                }
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("cannot read", &self.path, error).at(offset)),
            }
        }
        Ok(())
    }

    /// Reads a range into memory; nothing is allocated before it is known to lie in the file and below `limit`.
    ///
    /// # Errors
    /// `Malformed` for a range beyond the end, `Limit`, `Io`.
    pub fn read_vec(&self, range: ByteRange, limit: u64) -> Result<Vec<u8>> {
        let range = range.within(self.len).map_err(|error| error.in_file(&self.path))?;
        if range.len() > limit {
            let message = format!("{} bytes are more than the limit of {limit}", range.len());
            return Err(Error::limit(message).in_file(&self.path).at(range.start()));
        }
        let mut bytes = vec![0; range.len() as usize];
        self.read_exact_at(&mut bytes, range.start())?;
        Ok(bytes)
    }

    /// The first bytes, at most `most`.
    ///
    /// # Errors
    /// `Io`.
    pub fn head(&self, most: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len.min(most) as usize];
        self.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Reads a range in order, buffered.
    pub fn reader(&self, range: ByteRange) -> impl Read + Send + use<> {
        let end = range.end().min(self.len);
        BufReader::with_capacity(1 << 16, RangeReader { file: self.file.clone(), at: range.start().min(end), end })
    }
}

struct RangeReader {
    file: Arc<dyn ReadAt>,
    at: u64,
    end: u64,
}

impl Read for RangeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buf.len());
        let read = self.file.read_at(&mut buf[..most], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
