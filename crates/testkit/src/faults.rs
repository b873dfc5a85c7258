//! A file system that fails on demand: the k-th operation and everything after it, or short reads and writes.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weightlift_core::{Files, ReadAt, Stat, WriteAt};

/// Passes everything on to another file system, but counts operations that change something and fails from the k-th
/// on, as if the process had been killed there; and moves at most so many bytes a call.
#[derive(Debug, Clone)]
pub struct FaultyFiles {
    inner: Arc<dyn Files>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    changes: AtomicU64,
    fail_from: u64,
    most_bytes: usize,
    error: io::ErrorKind,
}

impl State {
    fn change(&self) -> io::Result<()> {
        match self.changes.fetch_add(1, Ordering::SeqCst) >= self.fail_from {
            true => Err(self.error.into()),
            false => Ok(()),
        }
    }
}

impl FaultyFiles {
    /// Fails every operation that changes something from the `k`-th (from 0) on, with `error`.
    pub fn failing_from(inner: Arc<dyn Files>, k: u64, error: io::ErrorKind) -> FaultyFiles {
        let state = State { changes: AtomicU64::new(0), fail_from: k, most_bytes: usize::MAX, error };
        FaultyFiles { inner, state: Arc::new(state) }
    }

    /// The same, reading and writing at most `most_bytes` a call, so that it also fails in the middle of a write.
    #[must_use]
    pub fn in_pieces_of(self, most_bytes: usize) -> FaultyFiles {
        let State { fail_from, error, .. } = *self.state;
        let state = State { changes: AtomicU64::new(0), fail_from, most_bytes, error };
        FaultyFiles { inner: self.inner, state: Arc::new(state) }
    }

    /// Never fails, but reads and writes at most `most_bytes` a call.
    pub fn short(inner: Arc<dyn Files>, most_bytes: usize) -> FaultyFiles {
        let error = io::ErrorKind::Other;
        let state = State { changes: AtomicU64::new(0), fail_from: u64::MAX, most_bytes, error };
        FaultyFiles { inner, state: Arc::new(state) }
    }

    /// How many operations that change something were asked for.
    pub fn changes(&self) -> u64 {
        self.state.changes.load(Ordering::SeqCst)
    }
}

impl Files for FaultyFiles {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.inner.stat(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.inner.list(dir)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.resolve(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(FaultyRead { inner: self.inner.open(path)?, state: self.state.clone() }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn WriteAt>> {
        self.state.change()?;
        Ok(Arc::new(FaultyWrite { inner: self.inner.create(path)?, state: self.state.clone() }))
    }

    fn modify(&self, path: &Path) -> io::Result<Arc<dyn WriteAt>> {
        self.state.change()?;
        Ok(Arc::new(FaultyWrite { inner: self.inner.modify(path)?, state: self.state.clone() }))
    }

    fn names(&self, path: &Path) -> io::Result<u64> {
        self.inner.names(path)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.state.change()?;
        self.inner.create_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.state.change()?;
        self.inner.remove_dir(dir)
    }

    fn is_abandoned(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_abandoned(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state.change()?;
        self.inner.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state.change()?;
        self.inner.hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state.change()?;
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.state.change()?;
        self.inner.sync_dir(dir)
    }

    fn free_space(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.inner.free_space(dir)
    }
}

#[derive(Debug)]
struct FaultyRead {
    inner: Arc<dyn ReadAt>,
    state: Arc<State>,
}

impl ReadAt for FaultyRead {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = buf.len().min(self.state.most_bytes);
        self.inner.read_at(&mut buf[..most], offset)
    }
}

#[derive(Debug)]
struct FaultyWrite {
    inner: Arc<dyn WriteAt>,
    state: Arc<State>,
}

impl WriteAt for FaultyWrite {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.state.change()?;
        self.inner.write_at(&bytes[..bytes.len().min(self.state.most_bytes)], offset)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.state.change()?;
        self.inner.reserve(len)
    }

    fn copy_from(&self, _: u64, _: &dyn ReadAt, _: u64, _: u64) -> io::Result<u64> {
        Ok(0)
    }

    fn sync(&self) -> io::Result<()> {
        self.state.change()?;
        self.inner.sync()
    }
}
