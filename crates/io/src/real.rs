//! The file system of the machine.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{FileId, FileKind, Files, ReadAt, Stat, WriteAt};

/// The file system of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

/// The file system of the machine, as everything that opens or writes takes it.
pub fn real() -> Arc<dyn Files> {
    Arc::new(RealFiles)
}

#[derive(Debug)]
struct RealFile(File);

impl Files for RealFiles {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let meta = fs::metadata(path)?;
        let kind = match meta.file_type() {
            t if t.is_file() => FileKind::File,
            t if t.is_dir() => FileKind::Dir,
            _ => FileKind::Other,
        };
        Ok(Stat { kind, len: meta.len(), id: identity(path, &meta)? })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(RealFile(File::open(path)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn WriteAt>> {
        loop {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
            // A file system without locks only loses the tidying up after a killed run.
            let locked = file.lock().is_ok();
            // Another run may have taken the new file for an abandoned one before it was locked.
            if !locked || is_still_there(path, &file)? {
                return Ok(Arc::new(RealFile(file)));
            }
        }
    }

    fn modify(&self, path: &Path) -> io::Result<Arc<dyn WriteAt>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            // A file system without locks cannot tell whether somebody else is at work.
            _ => Ok(Arc::new(RealFile(file))),
        }
    }

    fn names(&self, path: &Path) -> io::Result<u64> {
        links(&fs::metadata(path)?)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn is_abandoned(&self, path: &Path) -> io::Result<bool> {
        // Opening a pipe would wait for its other end.
        if !fs::symlink_metadata(path)?.is_file() {
            return Ok(false);
        }
        match File::open(path)?.try_lock() {
            Ok(()) => Ok(true),
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn remove_if_abandoned(&self, path: &Path) -> io::Result<bool> {
        if !fs::symlink_metadata(path)?.is_file() {
            return Ok(false);
        }
        let file = File::open(path)?;
        let locked = file.try_lock().is_ok();
        if locked {
            fs::remove_file(path)?;
        }
        Ok(locked)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn copy_permissions(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::set_permissions(to, fs::metadata(from)?.permissions())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
    }

    fn free_space(&self, dir: &Path) -> io::Result<Option<u64>> {
        free_space(dir)
    }
}

impl ReadAt for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        read_at(&self.0, buf, offset)
    }

    fn file(&self) -> Option<&File> {
        Some(&self.0)
    }
}

impl WriteAt for RealFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        write_at(&self.0, bytes, offset)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        reserve(&self.0, len)
    }

    fn copy_from(&self, offset: u64, source: &dyn ReadAt, from: u64, len: u64) -> io::Result<u64> {
        match source.file() {
            Some(source) => system_copy(source, from, &self.0, offset, len),
            None => Ok(0),
        }
    }

    fn reflink(&self, source: &dyn ReadAt) -> io::Result<bool> {
        source.file().map_or(Ok(false), |source| reflink(source, &self.0))
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// Whether the path still leads to this open file.
fn is_still_there(path: &Path, file: &File) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(there) => Ok(identity(path, &there)? == identity(path, &file.metadata()?)?),
    }
}

#[cfg(unix)]
fn identity(_: &Path, meta: &fs::Metadata) -> io::Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    Ok(FileId { device: meta.dev(), inode: meta.ino() })
}

#[cfg(unix)]
fn links(meta: &fs::Metadata) -> io::Result<u64> {
    Ok(std::os::unix::fs::MetadataExt::nlink(meta))
}

#[cfg(not(unix))]
fn links(_: &fs::Metadata) -> io::Result<u64> {
    Ok(1)
}

#[cfg(not(unix))]
fn identity(path: &Path, _: &fs::Metadata) -> io::Result<FileId> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    fs::canonicalize(path)?.hash(&mut hasher);
    Ok(FileId { device: 0, inode: hasher.finish() })
}

#[cfg(unix)]
use std::os::unix::fs::FileExt;

#[cfg(unix)]
fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buf, offset)
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buf, offset)
}

#[cfg(windows)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

#[cfg(target_os = "linux")]
fn reserve(file: &File, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    if len == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => file.set_len(len),
        other => Ok(other?),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len)
}

#[cfg(target_os = "linux")]
fn reflink(source: &File, target: &File) -> io::Result<bool> {
    use rustix::io::Errno;
    match rustix::fs::ioctl_ficlone(target, source) {
        Ok(()) => Ok(true),
        // Everything that says no to this pair of files, and nothing of a disk that fails.
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::NOTTY | Errno::OPNOTSUPP | Errno::PERM) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn reflink(_: &File, _: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(target_os = "linux")]
fn system_copy(source: &File, from: u64, target: &File, to: u64, len: u64) -> io::Result<u64> {
    use rustix::fs::copy_file_range;
    use rustix::io::Errno;
    let (mut from, mut to) = (from, to);
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(1 << 30);
    match copy_file_range(source, Some(&mut from), target, Some(&mut to), len) {
        Ok(copied) => Ok(copied as u64),
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn system_copy(_: &File, _: u64, _: &File, _: u64, _: u64) -> io::Result<u64> {
    Ok(0)
}

#[cfg(unix)]
fn free_space(dir: &Path) -> io::Result<Option<u64>> {
    let space = rustix::fs::statvfs(dir)?;
    Ok(space.f_bavail.checked_mul(space.f_frsize))
}

#[cfg(not(unix))]
fn free_space(_: &Path) -> io::Result<Option<u64>> {
    Ok(None)
}
