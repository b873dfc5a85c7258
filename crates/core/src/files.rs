//! The file system as the formats see it.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Dir,
    /// A pipe, a device, a socket.
    Other,
}

/// Names one file whatever path leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The device.
    pub device: u64,
    /// The file on it.
    pub inode: u64,
}

/// What is known of a path without opening it; links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Length in bytes.
    pub len: u64,
    /// Which file it is.
    pub id: FileId,
}

/// A file open for reading at any position, from many threads.
pub trait ReadAt: Send + Sync + Debug {
    /// Length in bytes.
    ///
    /// # Errors
    /// As the operating system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether there is nothing to read.
    ///
    /// # Errors
    /// As the operating system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads at most `buf.len()` bytes from `offset`; 0 at the end. May read fewer.
    ///
    /// # Errors
    /// As the operating system says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// The file behind it, where copies made by the operating system are possible.
    fn file(&self) -> Option<&File> {
        None
    }
}

/// A file open for writing at any position, from many threads.
pub trait WriteAt: Send + Sync + Debug {
    /// Writes at most `bytes.len()` bytes at `offset`. May write fewer.
    ///
    /// # Errors
    /// As the operating system says.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes the file `len` bytes long and, where the system can, reserves the room so that a full disk shows now.
    ///
    /// # Errors
    /// As the operating system says.
    fn reserve(&self, len: u64) -> io::Result<()>;

    /// Lets the operating system copy at most `len` bytes. 0 means: it cannot, send the bytes instead.
    ///
    /// # Errors
    /// As the operating system says.
    fn copy_from(&self, offset: u64, source: &dyn ReadAt, from: u64, len: u64) -> io::Result<u64>;

    /// Makes the file a clone of another that shares its bytes until either changes; `false` where the file system
    /// cannot.
    ///
    /// # Errors
    /// As the operating system says.
    fn reflink(&self, source: &dyn ReadAt) -> io::Result<bool> {
        let _ = source;
        Ok(false)
    }

    /// Waits until the bytes are on the disk.
    ///
    /// # Errors
    /// As the operating system says.
    fn sync(&self) -> io::Result<()>;
}

/// A file system. Everything that opens or writes a checkpoint takes one.
pub trait Files: Send + Sync + Debug {
    /// What a path names, links followed.
    ///
    /// # Errors
    /// `NotFound` where nothing is there; otherwise as the operating system says.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// The names in a folder, in no order.
    ///
    /// # Errors
    /// As the operating system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// The path with all links followed.
    ///
    /// # Errors
    /// As the operating system says.
    fn resolve(&self, path: &Path) -> io::Result<std::path::PathBuf>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As the operating system says.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>>;

    /// Creates a file that must not exist, and holds it locked against [`Files::is_abandoned`] until it is dropped.
    ///
    /// # Errors
    /// `AlreadyExists` where it does; otherwise as the operating system says.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn WriteAt>>;

    /// Opens a file that exists, to change bytes of it where they lie, and holds it locked as [`Files::create`] does.
    ///
    /// # Errors
    /// `WouldBlock` where somebody else holds it, `Unsupported` where files are only written anew; otherwise as the
    /// operating system says.
    fn modify(&self, path: &Path) -> io::Result<Arc<dyn WriteAt>> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// How many names a file has: what changes under one of them changes under all.
    ///
    /// # Errors
    /// As the operating system says.
    fn names(&self, path: &Path) -> io::Result<u64> {
        let _ = path;
        Ok(1)
    }

    /// Creates a folder in one that exists.
    ///
    /// # Errors
    /// `AlreadyExists` where something bears the name; otherwise as the operating system says.
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let _ = dir;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a folder, which must be empty.
    ///
    /// # Errors
    /// As the operating system says.
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let _ = dir;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether nobody writes this file any more: a left-over of a run that was killed.
    ///
    /// # Errors
    /// As the operating system says.
    fn is_abandoned(&self, path: &Path) -> io::Result<bool>;

    /// Removes a file that [`Files::is_abandoned`]; answers whether it did. Nobody can take the file up in between.
    ///
    /// # Errors
    /// As the operating system says.
    fn remove_if_abandoned(&self, path: &Path) -> io::Result<bool> {
        let abandoned = self.is_abandoned(path)?;
        if abandoned {
            self.remove(path)?;
        }
        Ok(abandoned)
    }

    /// Renames a file, replacing what bears the new name.
    ///
    /// # Errors
    /// As the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which must be free.
    ///
    /// # Errors
    /// `Unsupported` or `CrossesDevices` where the file system cannot; otherwise as the operating system says.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives a new file the permissions of the one that it will replace.
    ///
    /// # Errors
    /// As the operating system says.
    fn copy_permissions(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Ok(())
    }

    /// Removes a file.
    ///
    /// # Errors
    /// As the operating system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Waits until renames and removals in a folder are on the disk.
    ///
    /// # Errors
    /// As the operating system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Bytes that can still be written below a folder; `None` where nobody knows.
    ///
    /// # Errors
    /// As the operating system says.
    fn free_space(&self, dir: &Path) -> io::Result<Option<u64>>;
}
