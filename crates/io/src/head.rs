//! New first bytes for a file, put where the old ones lie: the rest of the file is neither read nor copied.
//!
//! The old bytes are saved beside the file, and are on the disk, before the first new one is written. A run killed in
//! between leaves the saved file, from which [`restore_head`] puts the old bytes back; the next run that opens the file
//! or writes into its folder does so.

use crate::FileSource;
use crate::commit::split;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{ByteRange, Error, Files, Result, WriteAt};

/// What the name of a saved file ends with.
const SAVED: &str = ".weightlift-saved";
/// What it ends with while it is written.
const DRAFT: &str = ".weightlift-saved-draft";
const MAGIC: &[u8; 24] = b"weightlift saved head 1\n";
/// Longer heads are not saved.
const LIMIT: u64 = 2 << 30;

/// Puts `head` in the place of as many first bytes of a file.
///
/// # Errors
/// `Request` where the file has several names (hard links), which would all change, or another run changes it; `Io`.
/// Where it stops half-way, the error says so, and [`restore_head`] puts the old bytes back.
pub fn rewrite_head(files: &dyn Files, path: &Path, head: &[u8]) -> Result<()> {
    let failed = |doing: &str, error| Error::io(doing, path, error);
    let place = Place::of(files, path).map_err(|error| failed("cannot resolve", error))?;
    let names = files.names(&place.file).map_err(|error| failed("cannot stat", error))?;
    if names > 1 {
        let error = Error::request(format!("the file has {names} names (hard links), and all of them would change"));
        return Err(error.in_file(path).help("write to another name"));
    }
    let file = modify(files, &place.file, path)?;
    let old = FileSource::open(files, &place.file)?;
    let saved =
        Saved { len: old.len(), old: old.read_vec(ByteRange::new(0, head.len() as u64)?, LIMIT)?, new: head.to_vec() };
    let _lock = place.save(files, &saved).map_err(|error| {
        let _ = files.remove(&place.draft());
        let _ = files.remove(&place.saved());
        failed("cannot save the old header beside the file", error)
    })?;
    let written = place.put(files, file.as_ref(), head);
    written.map_err(|error| failed("cannot write the new header", error).help("the next run puts the old one back"))
}

/// Puts the first bytes of a file back that a killed [`rewrite_head`] saved; answers whether there were any. A saved
/// file that is not of this file as it is now, because somebody has replaced it since, is left alone.
///
/// # Errors
/// `Request` where the other run is still at work; `Malformed` for a damaged saved file; `Io`.
pub fn restore_head(files: &dyn Files, path: &Path) -> Result<bool> {
    let Ok(place) = Place::of(files, path) else { return Ok(false) };
    place.tidy(files);
    if files.stat(&place.saved()).is_err() {
        return Ok(false);
    }
    if !files.is_abandoned(&place.saved()).unwrap_or(true) {
        return Err(busy(path));
    }
    let saved = Saved::read(files, &place.saved())?;
    let current = FileSource::open(files, &place.file)?;
    if current.len() != saved.len || saved.old.len() as u64 > current.len() {
        return Ok(false);
    }
    let head = current.read_vec(ByteRange::new(0, saved.old.len() as u64)?, LIMIT)?;
    if !saved.could_be(&head) {
        return Ok(false);
    }
    let file = modify(files, &place.file, path)?;
    let put = place.put(files, file.as_ref(), &saved.old);
    put.map_err(|error| Error::io("cannot put back the header that an interrupted run saved", path, error))?;
    Ok(true)
}

/// Puts back whatever killed runs saved in a folder; answers how many.
pub(crate) fn restore_in(files: &dyn Files, dir: &Path, names: &[OsString]) -> Result<usize> {
    let of = |name: &OsString| {
        let name = name.to_str()?.strip_prefix('.')?;
        Some(dir.join(name.strip_suffix(SAVED).or_else(|| name.strip_suffix(DRAFT))?))
    };
    let mut restored = 0;
    for path in names.iter().filter_map(of) {
        let place = Place { file: path.clone() };
        place.tidy(files);
        // Whoever holds it is at work on another file than the one to be written here, or its owner sees to it.
        if files.is_abandoned(&place.saved()).unwrap_or(false) {
            restored += usize::from(restore_head(files, &path)?);
        }
    }
    Ok(restored)
}

fn modify(files: &dyn Files, file: &Path, named: &Path) -> Result<Arc<dyn WriteAt>> {
    files.modify(file).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => busy(named),
        _ => Error::io("cannot open for changing", named, error),
    })
}

fn busy(path: &Path) -> Error {
    Error::request("another run is changing the file").in_file(path).help("wait until it has finished")
}

/// A file, by its own path, and the names beside it.
struct Place {
    file: PathBuf,
}

impl Place {
    fn of(files: &dyn Files, path: &Path) -> io::Result<Place> {
        Ok(Place { file: files.resolve(path)? })
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(self.file.file_name().unwrap_or_default());
        name.push(suffix);
        self.file.with_file_name(name)
    }

    fn saved(&self) -> PathBuf {
        self.beside(SAVED)
    }

    fn draft(&self) -> PathBuf {
        self.beside(DRAFT)
    }

    /// Removes what a run killed before it changed anything left.
    fn tidy(&self, files: &dyn Files) {
        if files.stat(&self.draft()).is_ok() {
            let _ = files.remove_if_abandoned(&self.draft());
        }
    }

    fn sync_dir(&self, files: &dyn Files) -> io::Result<()> {
        let dir = split(&self.file).map_err(io::Error::other)?.0;
        files.sync_dir(&dir)
    }

    /// Puts the saved bytes on the disk. The answer holds them locked against other runs.
    fn save(&self, files: &dyn Files, saved: &Saved) -> io::Result<Arc<dyn WriteAt>> {
        self.tidy(files);
        let file = files.create(&self.draft())?;
        write_all(file.as_ref(), &saved.to_bytes())?;
        file.sync()?;
        files.rename(&self.draft(), &self.saved())?;
        self.sync_dir(files)?;
        Ok(file)
    }

    /// Writes the first bytes and forgets what was saved.
    fn put(&self, files: &dyn Files, file: &dyn WriteAt, head: &[u8]) -> io::Result<()> {
        write_all(file, head)?;
        file.sync()?;
        files.remove(&self.saved())?;
        self.sync_dir(files)
    }
}

fn write_all(file: &dyn WriteAt, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], done as u64) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What is saved: the length of the whole file, its first bytes, and those that were to take their place.
#[derive(Debug, PartialEq, Eq)]
struct Saved {
    len: u64,
    old: Vec<u8>,
    new: Vec<u8>,
}

impl Saved {
    fn to_bytes(&self) -> Vec<u8> {
        let count = self.old.len() as u64;
        [&MAGIC[..], &self.len.to_le_bytes(), &count.to_le_bytes(), &self.old, &self.new].concat()
    }

    fn read(files: &dyn Files, path: &Path) -> Result<Saved> {
        let source = FileSource::open(files, path)?;
        let bytes = source.read_vec(ByteRange::new(0, source.len())?, 2 * LIMIT)?;
        Saved::from_bytes(&bytes).ok_or_else(|| {
            let error = Error::malformed("is a damaged copy of a header, saved by an interrupted run").in_file(path);
            error.help("remove it; the file beside it may have half a header")
        })
    }

    fn from_bytes(bytes: &[u8]) -> Option<Saved> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (len, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
        let (old, new) = rest.split_at_checked(count)?;
        (new.len() == count).then(|| Saved { len: u64::from_le_bytes(*len), old: old.to_vec(), new: new.to_vec() })
    }

    /// Whether a file that begins so was left by the run that saved this: every byte is the old or the new one.
    fn could_be(&self, head: &[u8]) -> bool {
        let pairs = self.old.iter().zip(&self.new);
        head.len() == self.old.len() && head.iter().zip(pairs).all(|(byte, (old, new))| byte == old || byte == new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_read_back_and_nothing_shorter() {
        let saved = Saved { len: 9, old: vec![1, 2, 3], new: vec![4, 2, 6] };
        let bytes = saved.to_bytes();
        assert_eq!(Saved::from_bytes(&bytes), Some(Saved { len: 9, old: vec![1, 2, 3], new: vec![4, 2, 6] }));
        assert!((0..bytes.len()).all(|len| Saved::from_bytes(&bytes[..len]).is_none()));
        assert_eq!(Saved::from_bytes(&[&bytes[..], &[0]].concat()), None);
        assert!(saved.could_be(&[1, 2, 6]) && saved.could_be(&[4, 2, 3]));
        assert!(!saved.could_be(&[1, 9, 3]) && !saved.could_be(&[1, 2]));
    }
}
