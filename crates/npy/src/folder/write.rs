//! Writing a folder: every array goes into a hidden folder beside it, which takes its name at the end.
//!
//! A folder that is replaced is first moved aside; a run killed in between leaves no folder of the name, and the next
//! one that looks for it moves the old one back ([`restore`]). Arrays are opened when their first byte comes and closed
//! with their last, since there may be more of them than files that may be open.

use super::names::file_names;
use super::{EXTENSION, LIST, LOCK, List, Listed};
use crate::output::{Planned, plan};
use crate::record::Record;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weightlift_core::{
    BlobId, CheckpointWriter, Error, FileKind, FileRange, Files, Manifest, Result, WriteAt, WriteOptions, Written,
};
use weightlift_io::{FileSink, folder_of};

const TEMPORARY: &str = ".weightlift-tmp";
const ASIDE: &str = ".weightlift-old";
static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A folder under way.
#[derive(Debug)]
struct Writer {
    files: Arc<dyn Files>,
    target: PathBuf,
    staging: PathBuf,
    /// Tells other runs that this one is at work.
    lock: Option<Arc<dyn WriteAt>>,
    arrays: Vec<Array>,
    /// For each blob its array.
    blobs: Vec<usize>,
    list: String,
}

/// One array under way.
#[derive(Debug)]
struct Array {
    file: String,
    planned: Planned,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Arc<FileSink>>,
    begun: bool,
    written: u64,
}

/// Starts a folder of arrays.
pub(crate) fn create(
    files: Arc<dyn Files>,
    path: &Path,
    manifest: &Manifest,
    options: &WriteOptions,
) -> Result<Box<dyn CheckpointWriter>> {
    let (arrays, blobs) = plan(manifest, options).map_err(|error| error.in_file(path))?;
    restore(files.as_ref(), path);
    let target = place(files.as_ref(), path, options.replace)?;
    tidy(files.as_ref(), &target);
    let names = file_names(manifest.tensors.iter().map(|output| output.name.as_str()));
    let listed = names.iter().zip(&arrays).zip(&manifest.tensors).map(|((file, array), output)| {
        let (mut dtype, mut was) = (None, None);
        match array.record {
            Some(Record::Is(known)) => dtype = Some(known.to_string()),
            Some(Record::Was(known)) => was = Some(known.to_string()),
            None => {}
        }
        Listed { name: output.name.clone(), file: file.clone(), dtype, was }
    });
    let list = List { arrays: listed.collect() };
    let list = serde_json::to_string_pretty(&list).map_err(|error| Error::request("no list").caused_by(error))?;
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let staging = beside(&target, &format!(".{}-{number}{TEMPORARY}", std::process::id()));
    let make = |(file, planned)| Array { file, planned, state: Mutex::default() };
    let arrays = names.into_iter().zip(arrays).map(make).collect();
    let failed = |error| Error::io("cannot write", path, error);
    files.create_dir(&staging).map_err(failed)?;
    let mut writer = Writer { files, target, staging, lock: None, arrays, blobs, list };
    writer.lock = Some(writer.files.create(&writer.staging.join(LOCK)).map_err(failed)?);
    Ok(Box::new(writer))
}

/// The real path of a folder that may be made or replaced.
fn place(files: &dyn Files, path: &Path, replace: bool) -> Result<PathBuf> {
    let request = |message: &str| Error::request(message).in_file(path);
    match files.stat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or_else(|| request("names no folder"))?;
            let parent = files.resolve(folder_of(path));
            Ok(parent.map_err(|error| Error::io("cannot write: its folder does not exist", path, error))?.join(name))
        }
        Err(error) => Err(Error::io("cannot write", path, error)),
        Ok(stat) if stat.kind != FileKind::Dir => {
            Err(request("is a file: arrays are written into a folder").help("name another one"))
        }
        Ok(_) => {
            let names = files.list(path).map_err(|error| Error::io("cannot list", path, error))?;
            let foreign = names.iter().find(|name| !is_ours(name));
            if let Some(name) = foreign {
                let message = format!("a folder that holds more than arrays: {}", name.display());
                return Err(request(&message).help("name another one"));
            }
            if !names.is_empty() && !replace {
                return Err(request("exists already").help("--force replaces it"));
            }
            files.resolve(path).map_err(|error| Error::io("cannot resolve", path, error))
        }
    }
}

/// Whether a file can be one of a folder of arrays.
fn is_ours(name: &OsString) -> bool {
    name == LIST || name == LOCK || Path::new(name).extension().is_some_and(|extension| extension == EXTENSION)
}

/// A hidden name beside a folder.
fn beside(target: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(suffix);
    target.with_file_name(name)
}

/// Moves a folder back that a run killed while it replaced it had moved aside.
pub(crate) fn restore(files: &dyn Files, path: &Path) {
    let aside = beside(path, ASIDE);
    let missing = |path: &Path| files.stat(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    if missing(path) && !missing(&aside) {
        let _ = files.rename(&aside, path);
        let _ = files.sync_dir(folder_of(path));
    }
}

/// Removes what killed runs left beside a folder.
fn tidy(files: &dyn Files, target: &Path) {
    let prefix = beside(target, ".").file_name().map(OsString::from).unwrap_or_default();
    for name in files.list(folder_of(target)).unwrap_or_default() {
        let bytes = name.as_encoded_bytes();
        let ours = bytes.starts_with(prefix.as_encoded_bytes()) && bytes.ends_with(TEMPORARY.as_bytes());
        let folder = target.with_file_name(&name);
        match files.is_abandoned(&folder.join(LOCK)) {
            Ok(true) if ours => remove(files, &folder),
            // Killed before it had a lock, or after: an empty folder is nobody's.
            Err(_) if ours => drop(files.remove_dir(&folder)),
            _ => {}
        }
    }
    remove(files, &beside(target, ASIDE));
}

/// Removes a folder of arrays; what is none stays, and the folder with it.
fn remove(files: &dyn Files, folder: &Path) {
    let names = files.list(folder).unwrap_or_default();
    for name in names.iter().filter(|name| is_ours(name) && *name != LOCK) {
        let _ = files.remove(&folder.join(name));
    }
    // The lock goes last: without it nobody would know whose folder this is.
    let _ = files.remove(&folder.join(LOCK));
    let _ = files.remove_dir(folder);
}

impl Array {
    /// The open file, begun with its header.
    fn sink(&self, writer: &Writer) -> Result<Arc<FileSink>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sink) = &state.open {
            return Ok(sink.clone());
        }
        if state.begun {
            return Err(Error::request("more bytes than promised").in_file(writer.target.join(&self.file)));
        }
        let named = writer.target.join(&self.file);
        let file = writer.files.create(&writer.staging.join(&self.file));
        let file = file.map_err(|error| Error::io("cannot write", &named, error))?;
        let sink = Arc::new(FileSink::new(writer.files.clone(), file, named));
        sink.reserve(self.planned.header.len() as u64 + self.planned.bytes)?;
        sink.write_all_at(&self.planned.header, 0)?;
        state.begun = true;
        Ok(state.open.insert(sink).clone())
    }

    /// Counts what came; the last byte closes the file.
    fn count(&self, bytes: u64) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.written = state.written.saturating_add(bytes);
        if state.written < self.planned.bytes {
            return Ok(());
        }
        state.open.take().map_or(Ok(()), |sink| sink.sync())
    }

    fn finish(&self, writer: &Writer) -> Result<()> {
        if self.planned.bytes == 0 {
            self.sink(writer)?;
            self.count(0)?;
        }
        let written = self.state.lock().unwrap_or_else(PoisonError::into_inner).written;
        let wanted = self.planned.bytes;
        match written == wanted {
            true => Ok(()),
            false => {
                let error = Error::request(format!("{written} of its {wanted} bytes were written"));
                Err(error.in_file(writer.target.join(&self.file)))
            }
        }
    }
}

impl Writer {
    /// The array of a blob, and the place in its file of `len` bytes at `offset`.
    fn array(&self, blob: BlobId, offset: u64, len: u64) -> Result<(&Array, u64)> {
        let array = self.blobs.get(blob.0 as usize).and_then(|&at| self.arrays.get(at));
        let array = array.ok_or_else(|| Error::request(format!("blob {} does not exist", blob.0)))?;
        let room = array.planned.bytes;
        if offset.checked_add(len).is_none_or(|end| end > room) {
            return Err(Error::request(format!("{len} bytes at {offset} of blob {}, which has {room}", blob.0)));
        }
        Ok((array, array.planned.header.len() as u64 + offset))
    }

    fn write_list(&self) -> Result<()> {
        let path = self.target.join(LIST);
        let file = self.files.create(&self.staging.join(LIST));
        let file = file.map_err(|error| Error::io("cannot write", &path, error))?;
        let sink = FileSink::new(self.files.clone(), file, path);
        sink.write_all_at(self.list.as_bytes(), 0)?;
        sink.sync()
    }

    /// Gives the folder its name.
    fn commit(&mut self) -> io::Result<()> {
        let (files, parent, aside) = (&self.files, folder_of(&self.target), beside(&self.target, ASIDE));
        files.sync_dir(&self.staging)?;
        let replaces = files.stat(&self.target).is_ok();
        if replaces {
            files.rename(&self.target, &aside)?;
        }
        if let Err(error) = files.rename(&self.staging, &self.target) {
            let _ = files.rename(&aside, &self.target);
            return Err(error);
        }
        self.staging = self.target.clone();
        files.sync_dir(parent)?;
        self.lock = None;
        let _ = files.remove(&self.target.join(LOCK));
        if replaces {
            remove(files.as_ref(), &aside);
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.staging != self.target {
            self.arrays.clear();
            self.lock = None;
            remove(self.files.as_ref(), &self.staging);
        }
    }
}

impl CheckpointWriter for Writer {
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        let (array, place) = self.array(blob, offset, len)?;
        if len > 0 {
            array.sink(self)?.write_all_at(bytes, place)?;
            array.count(len)?;
        }
        Ok(())
    }

    fn copy_from(&self, blob: BlobId, offset: u64, range: &FileRange) -> Result<bool> {
        let len = range.bytes.len();
        let (array, place) = self.array(blob, offset, len)?;
        if len == 0 {
            return Ok(true);
        }
        let copied = array.sink(self)?.copy_from(place, range)?;
        if copied {
            array.count(len)?;
        }
        Ok(copied)
    }

    fn finish(mut self: Box<Self>) -> Result<Written> {
        self.arrays.iter().try_for_each(|array| array.finish(&self))?;
        self.write_list()?;
        self.commit().map_err(|error| Error::io("cannot finish the output", &self.target, error))?;
        let list = (self.target.join(LIST), self.list.len() as u64);
        let size = |array: &Array| array.planned.header.len() as u64 + array.planned.bytes;
        let arrays = self.arrays.iter().map(|array| (self.target.join(&array.file), size(array)));
        Ok(Written { files: std::iter::once(list).chain(arrays).collect(), notes: Vec::new(), carried: None })
    }
}
