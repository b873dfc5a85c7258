//! An index beside the files it names.

use crate::{Index, base_of};
use std::path::{Path, PathBuf};
use weightlift_core::{ByteRange, Error, FileKind, Files, Limits, Result};
use weightlift_io::FileSource;

/// At most so many names stand in a message.
const SHOWN: usize = 10;

/// An index, read, all of whose files exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// The path of the index.
    pub path: PathBuf,
    /// What it says.
    pub index: Index,
}

impl Set {
    /// Reads the index at `path` and looks for its files, which have the extension `extension`.
    ///
    /// # Errors
    /// `Malformed` where a file is missing, with the list of those that are, and as [`Index::parse`] says; `Limit`,
    /// `Io`.
    pub fn open(files: &dyn Files, path: &Path, extension: &str, limits: &Limits) -> Result<Set> {
        let source = FileSource::open(files, path)?;
        let bytes = source.read_vec(ByteRange::new(0, source.len())?, limits.header_bytes)?;
        let index = Index::parse(&bytes, extension, limits).map_err(|error| error.in_file(path))?;
        let set = Set { path: path.to_path_buf(), index };
        set.check_files(files)?;
        Ok(set)
    }

    fn check_files(&self, files: &dyn Files) -> Result<()> {
        let all = self.index.files();
        let is_there =
            |name: &&str| files.stat(&self.folder().join(name)).is_ok_and(|stat| stat.kind == FileKind::File);
        let missing: Vec<&str> = all.iter().copied().filter(|name| !is_there(name)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let message =
            format!("{} of the {} files of the set are missing: {}", missing.len(), all.len(), list(&missing));
        Err(Error::malformed(message).in_file(&self.path).help("fetch them, or write the index of the others: reindex"))
    }

    /// The folder of the index and of its files.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// The paths of the files with the names the index has for them, by name.
    pub fn files(&self) -> Vec<(&str, PathBuf)> {
        self.index.files().into_iter().map(|name| (name, self.folder().join(name))).collect()
    }

    /// Files in the folder that look as if they belonged to the set, but are not in its index.
    pub fn strays(&self, files: &dyn Files, extension: &str) -> Vec<String> {
        let known = self.index.files();
        let index = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let base = index.strip_suffix(".index.json").and_then(|name| base_of(name, extension));
        let names = files.list(self.folder_to_list()).unwrap_or_default();
        let mut strays: Vec<String> = names.into_iter().filter_map(|name| name.into_string().ok()).collect();
        strays.retain(|name| base_of(name, extension).is_some_and(|found| Some(found) == base));
        strays.retain(|name| !known.contains(&name.as_str()));
        strays.sort();
        strays
    }

    fn folder_to_list(&self) -> &Path {
        match self.folder() {
            folder if folder.as_os_str().is_empty() => Path::new("."),
            folder => folder,
        }
    }
}

/// Names in a message, the first few of many.
pub fn list<S: AsRef<str>>(names: &[S]) -> String {
    let shown: Vec<&str> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
