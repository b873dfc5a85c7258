//! A set of files that appears as a whole or not at all.
//!
//! Every file is written under a temporary name beside its own. [`Commit::commit`] waits until all of them are on the
//! disk and then renames them. One file is one rename, which is atomic. For several files a journal is written first;
//! the index of a set being replaced is renamed aside, the data files take their names, the index comes last. A run
//! killed in between leaves no index, so nothing opens that is half old and half new, and [`crate::recover`]
//! finishes it from the journal.

use crate::FileSink;
use crate::journal::{self, Journal};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weightlift_core::{Error, FileKind, Files, Result};

const TEMPORARY: &str = ".weightlift-tmp";
static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A set of files under way. Dropped without [`Commit::commit`], it removes what it wrote.
#[derive(Debug)]
pub struct Commit {
    files: Arc<dyn Files>,
    replace: bool,
    staged: Vec<Staged>,
    stale: Vec<PathBuf>,
}

#[derive(Debug)]
struct Staged {
    temporary: PathBuf,
    target: PathBuf,
    /// As it was asked for.
    path: PathBuf,
    /// None where the file is another one's second name.
    sink: Option<Arc<FileSink>>,
}

impl Commit {
    /// An empty set; `replace` allows existing files to be replaced.
    pub fn new(files: Arc<dyn Files>, replace: bool) -> Commit {
        Commit { files, replace, staged: Vec::new(), stale: Vec::new() }
    }

    /// Starts a file of the set. Where `path` is a link, the file it leads to is the one replaced.
    ///
    /// # Errors
    /// `Request` where the file exists and may not be replaced, or is a folder; `Io`.
    pub fn create(&mut self, path: &Path) -> Result<Arc<FileSink>> {
        let target = self.target_of(path, self.replace)?;
        self.create_for(path, target)
    }

    /// The same for a file that may always be replaced, since what it said is kept.
    ///
    /// # Errors
    /// `Request` where the path is a folder; `Io`.
    pub fn update(&mut self, path: &Path) -> Result<Arc<FileSink>> {
        let target = self.target_of(path, true)?;
        self.create_for(path, target)
    }

    /// Makes a file of the set a clone of another that shares its bytes; `false`, and nothing is begun, where the file
    /// system cannot.
    ///
    /// # Errors
    /// As [`Commit::create`].
    pub fn reflink(&mut self, source: &Path, path: &Path) -> Result<bool> {
        let cloned = self.create(path)?.reflink(source);
        if !matches!(cloned, Ok(true)) {
            self.forget_last();
        }
        cloned
    }

    /// Makes a file of the set a second name of another; `false`, and nothing is begun, where the file system cannot.
    ///
    /// # Errors
    /// As [`Commit::create`].
    pub fn hard_link(&mut self, source: &Path, path: &Path) -> Result<bool> {
        let target = self.target_of(path, self.replace)?;
        let temporary = self.temporary_of(&target)?;
        // A link leads to what it names, not to itself.
        let source = self.files.resolve(source).map_err(|error| Error::io("cannot resolve", source, error))?;
        match self.files.hard_link(&source, &temporary) {
            Ok(()) => {
                self.staged.push(Staged { temporary, target, path: path.to_path_buf(), sink: None });
                Ok(true)
            }
            Err(error) if is_refusal(&error) => Ok(false),
            Err(error) => Err(Error::io("cannot link", path, error)),
        }
    }

    /// Takes back what was begun last, several files at once.
    pub fn take_back(&mut self, count: usize) {
        (0..count).for_each(|_| self.forget_last());
    }

    fn forget_last(&mut self) {
        if let Some(staged) = self.staged.pop() {
            let _ = self.files.remove(&staged.temporary);
        }
    }

    /// A free name beside a file, once what earlier runs left there is gone.
    fn temporary_of(&self, target: &Path) -> Result<PathBuf> {
        let (dir, name) = split(target)?;
        recover_before_writing(self.files.as_ref(), &dir)?;
        remove_abandoned(self.files.as_ref(), &dir, &name);
        Ok(dir.join(temporary_name(&name)))
    }

    fn create_for(&mut self, path: &Path, target: PathBuf) -> Result<Arc<FileSink>> {
        let temporary = self.temporary_of(&target)?;
        let file = self.files.create(&temporary).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::io("cannot write: its folder does not exist", path, error),
            _ => Error::io("cannot write", path, error),
        })?;
        if self.files.stat(&target).is_ok() {
            // Weights that were private stay so; a file system without permissions has nothing to keep.
            let _ = self.files.copy_permissions(&target, &temporary);
        }
        let sink = Arc::new(FileSink::new(self.files.clone(), file, path.to_path_buf()));
        self.staged.push(Staged { temporary, target, path: path.to_path_buf(), sink: Some(sink.clone()) });
        Ok(sink)
    }

    /// Marks a file of the replaced set that the new one no longer has.
    pub fn remove_on_commit(&mut self, path: PathBuf) {
        self.stale.push(self.in_real_folder(&path).unwrap_or(path));
    }

    /// Gives all files their names, `index` last. Answers the paths and lengths, index first.
    ///
    /// # Errors
    /// `Io`; then either nothing was replaced, or [`crate::recover`] finishes.
    pub fn commit(mut self, index: Option<&Path>) -> Result<Vec<(PathBuf, u64)>> {
        for sink in self.staged.iter().filter_map(|staged| staged.sink.as_ref()) {
            sink.sync()?;
        }
        if let Some(at) = self.staged.iter().position(|staged| Some(staged.path.as_path()) == index) {
            let index = self.staged.remove(at);
            self.staged.push(index);
        }
        match self.staged.as_slice() {
            [] => {}
            [only] if self.stale.is_empty() => {
                self.rename(&only.temporary, &only.target)?;
                self.sync_dir(&only.target)?;
            }
            _ => self.commit_set()?,
        }
        let written = self.staged.iter().rev().map(|staged| {
            let path = staged.path.clone();
            let stat = self.files.stat(&path).map_err(|error| Error::io("cannot stat", &path, error))?;
            Ok((path, stat.len))
        });
        let written = written.collect::<Result<Vec<_>>>();
        self.staged.clear();
        written
    }

    fn commit_set(&mut self) -> Result<()> {
        for staged in &self.staged {
            // A set is begun only with all its files at hand: a missing one must not pass for one that has its name.
            let path = &staged.path;
            self.files.stat(&staged.temporary).map_err(|error| Error::io("lost its temporary file", path, error))?;
        }
        let renames = self.staged.iter().map(|staged| (staged.temporary.clone(), staged.target.clone())).collect();
        let stale = std::mem::take(&mut self.stale);
        let journal = Journal::new(renames, stale)?;
        let _lock = journal.write(self.files.as_ref())?;
        // From here on the journal owns the temporary files: a failure leaves them for `recover`.
        let staged = std::mem::take(&mut self.staged);
        journal.carry_out(self.files.as_ref())?;
        self.staged = staged;
        Ok(())
    }

    fn target_of(&self, path: &Path, replace: bool) -> Result<PathBuf> {
        match self.files.stat(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.in_real_folder(path),
            Err(error) => Err(Error::io("cannot write", path, error)),
            Ok(stat) if stat.kind != FileKind::File => {
                Err(Error::request("is not a regular file: it is not replaced").in_file(path))
            }
            Ok(_) if !replace => Err(Error::request("exists already").in_file(path).help("--force replaces it")),
            Ok(_) => self.files.resolve(path).map_err(|error| Error::io("cannot resolve", path, error)),
        }
    }

    /// The same file by its folder's real path, so that the files of a set are seen to lie in one folder however
    /// they are reached.
    fn in_real_folder(&self, path: &Path) -> Result<PathBuf> {
        let (dir, name) = split(path)?;
        match self.files.resolve(&dir) {
            Ok(dir) => Ok(dir.join(name)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(Error::io("cannot write: its folder does not exist", path, error))
            }
            Err(error) => Err(Error::io("cannot write", path, error)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.rename(from, to).map_err(|error| Error::io("cannot rename the finished file to", to, error))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let (dir, _) = split(path)?;
        self.files.sync_dir(&dir).map_err(|error| Error::io("cannot sync", dir, error))
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        for staged in &self.staged {
            let _ = self.files.remove(&staged.temporary);
        }
    }
}

/// Whether an error says that the file system does not make such links, or not between these folders.
fn is_refusal(error: &std::io::Error) -> bool {
    let kinds =
        [ErrorKind::Unsupported, ErrorKind::CrossesDevices, ErrorKind::TooManyLinks, ErrorKind::PermissionDenied];
    kinds.contains(&error.kind())
}

/// The folder and the name of a file.
pub(crate) fn split(path: &Path) -> Result<(PathBuf, OsString)> {
    let name = path.file_name().ok_or_else(|| Error::request("names no file").in_file(path))?;
    Ok((folder_of(path).to_path_buf(), name.to_os_string()))
}

/// The folder of a path; the current one for a bare name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn temporary_name(name: &OsString) -> OsString {
    let mut temporary = temporary_prefix(name);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!("{}-{number}{TEMPORARY}", std::process::id()));
    temporary
}

/// What the temporary names of a file begin with. Long names are cut: a name has at most 255 bytes.
fn temporary_prefix(name: &OsString) -> OsString {
    const LONGEST: usize = 180;
    let mut prefix = OsString::from(".");
    match name.len() <= LONGEST {
        true => prefix.push(name),
        false => prefix.push(name.to_string_lossy().chars().take(LONGEST / 4).collect::<String>()),
    }
    prefix.push(".");
    prefix
}

/// Whether `name` is a temporary name of the file `of`.
pub(crate) fn is_temporary(name: &OsString, of: &OsString) -> bool {
    let (name, prefix) = (name.as_encoded_bytes(), temporary_prefix(of));
    let middle = name.strip_prefix(prefix.as_encoded_bytes()).and_then(|rest| rest.strip_suffix(TEMPORARY.as_bytes()));
    middle.is_some_and(|middle| !middle.is_empty() && middle.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-'))
}

/// Removes temporary files of earlier runs that were killed while they wrote `name`.
fn remove_abandoned(files: &dyn Files, dir: &Path, name: &OsString) {
    for other in files.list(dir).unwrap_or_default() {
        let path = dir.join(&other);
        if is_temporary(&other, name) {
            let _ = files.remove_if_abandoned(&path);
        }
    }
}

fn recover_before_writing(files: &dyn Files, dir: &Path) -> Result<()> {
    match files.stat(dir) {
        Ok(_) => journal::recover(files, dir).map(drop),
        Err(_) => Ok(()),
    }
}
