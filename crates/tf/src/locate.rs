//! From whatever path a user has at hand to the checkpoint it belongs to.

use crate::names::{self, folder, index_path, shown};
use crate::state::{FILE_NAME, StateFile};
use crate::table::Footer;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use weightlift_core::{ByteRange, Error, FileKind, Files, Result, Stat};
use weightlift_io::FileSource;

/// The longest state file that is read.
const STATE_LIMIT: u64 = 64 << 20;
/// Where a SavedModel has its bundle.
const SAVED_MODEL: [&str; 2] = ["variables", "variables"];

/// Which kind of checkpoint it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// Index and data files with one prefix.
    Bundle,
    /// A table that holds everything, or several of them.
    V1,
}

/// A checkpoint that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Located {
    /// The prefix; in version 1 the file or the pattern of its files.
    pub(crate) path: PathBuf,
    /// Which kind.
    pub(crate) version: Version,
    /// Whether a magic number says so.
    pub(crate) by_content: bool,
}

/// Finds the checkpoint of a path: a prefix, any of its files, a folder, a state file, a SavedModel, a pattern.
///
/// # Errors
/// `Request` for a folder with several checkpoints; `Malformed` for a broken state file; `Io`.
pub(crate) fn locate(files: &dyn Files, path: &Path) -> Result<Option<Located>> {
    match stat(files, path)?.map(|stat| stat.kind) {
        Some(FileKind::Dir) => match in_folder(files, path)? {
            Some(found) => Ok(Some(found)),
            None => by_prefix(files, path),
        },
        Some(FileKind::File) => by_file(files, path),
        Some(FileKind::Other) => Ok(None),
        None => by_prefix(files, path),
    }
}

/// What a path names; `None` for nothing.
pub(crate) fn stat(files: &dyn Files, path: &Path) -> Result<Option<Stat>> {
    match files.stat(path) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(Error::io("cannot stat", path, error)),
    }
}

fn is_file(files: &dyn Files, path: &Path) -> Result<bool> {
    Ok(stat(files, path)?.is_some_and(|stat| stat.kind == FileKind::File))
}

/// Whether the end of a file is that of a table.
fn is_table(files: &dyn Files, path: &Path) -> Result<bool> {
    let source = FileSource::open(files, path)?;
    let Some(start) = source.len().checked_sub(Footer::LEN as u64) else { return Ok(false) };
    let mut tail = [0; Footer::LEN];
    source.read_exact_at(&mut tail, start)?;
    Ok(Footer::is_at_end_of(&tail))
}

/// Whether a path names a file that is a table itself: a checkpoint of version 1.
pub(crate) fn is_table_file(files: &dyn Files, path: &Path) -> Result<bool> {
    Ok(is_file(files, path)? && is_table(files, path)?)
}

fn bundle(files: &dyn Files, prefix: PathBuf) -> Result<Located> {
    let index = index_path(&prefix);
    let by_content = is_file(files, &index)? && is_table(files, &index)?;
    Ok(Located { path: prefix, version: Version::Bundle, by_content })
}

fn by_file(files: &dyn Files, path: &Path) -> Result<Option<Located>> {
    let head = FileSource::open(files, path)?.head(64)?;
    if StateFile::looks_like(&head) {
        return by_state(files, path).map(Some);
    }
    if let Some(prefix) = names::without_suffix(path, ".index") {
        return bundle(files, prefix).map(Some);
    }
    if let Some(prefix) = names::prefix_of_data(path) {
        return bundle(files, prefix).map(Some);
    }
    if is_file(files, &index_path(path))? {
        return bundle(files, path.to_path_buf()).map(|found| Some(Located { by_content: false, ..found }));
    }
    if let Some(prefix) = names::without_suffix(path, ".meta") {
        let named = is_file(files, &index_path(&prefix))?;
        return if named { bundle(files, prefix).map(Some) } else { Ok(None) };
    }
    let by_content = is_table(files, path)?;
    if by_content || is_table_start(&head) {
        return Ok(Some(Located { path: pattern_of(path), version: Version::V1, by_content }));
    }
    Ok(None)
}

/// Whether a file begins like an index or a version 1 file whose end may be missing: an entry with an empty key and
/// a value that begins with field 1.
fn is_table_start(head: &[u8]) -> bool {
    match head {
        [0, 0, rest @ ..] => {
            let len = rest.iter().take(10).position(|&byte| byte < 0x80);
            matches!(len.and_then(|len| rest.get(len + 1)), Some(0x08 | 0x0a))
        }
        _ => false,
    }
}

/// For one file of a sharded version 1 checkpoint the pattern of all of them.
fn pattern_of(path: &Path) -> PathBuf {
    let name = path.file_name().and_then(|name| name.to_str());
    match name.and_then(names::parse_shard) {
        Some((stem, shard, of)) => path.with_file_name(format!("{stem}-{}-of-{of}", "?".repeat(shard.len()))),
        None => path.to_path_buf(),
    }
}

/// A path that names no file: a prefix, or a pattern.
fn by_prefix(files: &dyn Files, path: &Path) -> Result<Option<Located>> {
    if is_file(files, &index_path(path))? {
        return bundle(files, path.to_path_buf()).map(Some);
    }
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    if name.contains(['?', '*']) {
        let first = matching(files, path)?.into_iter().next();
        let by_content = match &first {
            Some(first) => is_table(files, first)?,
            None => return Ok(None),
        };
        return Ok(Some(Located { path: path.to_path_buf(), version: Version::V1, by_content }));
    }
    let data = format!("{name}.data");
    let has_data = list(files, folder(path))?.iter().any(|other| other.starts_with(&data));
    let found = Located { path: path.to_path_buf(), version: Version::Bundle, by_content: false };
    Ok(has_data.then_some(found))
}

/// The files that fit a pattern in their folder, in order; a path without `?` and `*` fits itself.
pub(crate) fn matching(files: &dyn Files, pattern: &Path) -> Result<Vec<PathBuf>> {
    if is_file(files, pattern)? {
        return Ok(vec![pattern.to_path_buf()]);
    }
    let Some(name) = pattern.file_name().and_then(|name| name.to_str()) else { return Ok(Vec::new()) };
    let mut names: Vec<String> = list(files, folder(pattern))?;
    names.retain(|other| names::fits(name, other));
    names.sort_unstable();
    Ok(names.iter().map(|name| pattern.with_file_name(name)).collect())
}

/// The names in a folder, none if it does not exist. Names that are no text belong to no checkpoint.
pub(crate) fn list(files: &dyn Files, dir: &Path) -> Result<Vec<String>> {
    match files.list(dir) {
        Ok(names) => Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(Error::io("cannot list", dir, error)),
    }
}

fn in_folder(files: &dyn Files, dir: &Path) -> Result<Option<Located>> {
    let saved_model = SAVED_MODEL.iter().fold(dir.to_path_buf(), |path, part| path.join(part));
    if is_file(files, &index_path(&saved_model))? {
        return bundle(files, saved_model).map(Some);
    }
    let state = dir.join(FILE_NAME);
    if is_file(files, &state)? && StateFile::looks_like(&FileSource::open(files, &state)?.head(64)?) {
        return by_state(files, &state).map(Some);
    }
    let mut prefixes: Vec<PathBuf> = Vec::new();
    for name in list(files, dir)? {
        let path = dir.join(name);
        if let Some(prefix) = names::without_suffix(&path, ".index")
            && is_file(files, &path)?
            && is_table(files, &path)?
        {
            prefixes.push(prefix);
        }
    }
    prefixes.sort_unstable();
    match prefixes.as_slice() {
        [] => Ok(None),
        [prefix] => bundle(files, prefix.clone()).map(Some),
        several => {
            let names = several.iter().map(|prefix| shown(prefix)).collect::<Vec<_>>().join(", ");
            let message = format!("has {} checkpoints and no state file that names one: {names}", several.len());
            Err(Error::request(message).in_file(dir).help("give the prefix of one"))
        }
    }
}

/// Reads a state file.
pub(crate) fn read_state(files: &dyn Files, path: &Path) -> Result<StateFile> {
    let source = FileSource::open(files, path)?;
    let text = source.read_vec(ByteRange::new(0, source.len())?, STATE_LIMIT)?;
    StateFile::parse(&text).map_err(|error| error.in_file(path))
}

/// Follows a state file; where the folder was moved, to the file of the same name beside it.
fn by_state(files: &dyn Files, path: &Path) -> Result<Located> {
    let state = read_state(files, path)?;
    let dir = folder(path);
    let named = dir.join(&state.latest);
    let beside = named.file_name().map(|name| dir.join(name));
    for prefix in [Some(&named), beside.as_ref()].into_iter().flatten() {
        if is_file(files, &index_path(prefix))? {
            return bundle(files, prefix.clone());
        }
        if let Some(first) = matching(files, prefix)?.first() {
            let by_content = is_table(files, first)?;
            return Ok(Located { path: prefix.clone(), version: Version::V1, by_content });
        }
    }
    let message = format!("names the checkpoint {:?}, which is neither there nor in this folder", state.latest);
    Err(Error::request(message).in_file(path).help("give the prefix of a checkpoint that exists"))
}

/// What to tell of a state file beside a checkpoint: that it names this one by a path that is gone.
pub(crate) fn stale_state(files: &dyn Files, opened: &Path) -> Option<String> {
    let dir = folder(opened);
    let path = dir.join(FILE_NAME);
    let state = is_file(files, &path).ok()?.then(|| read_state(files, &path).ok())??;
    let named = dir.join(&state.latest);
    let same_name = named.file_name() == opened.file_name() && named != opened;
    let gone = !is_file(files, &index_path(&named)).ok()? && matching(files, &named).ok()?.is_empty();
    (same_name && gone).then(|| {
        let (state_file, latest, opened) = (path.display(), &state.latest, shown(opened));
        format!("{state_file} names {latest:?}, which is gone; {opened} beside it was opened")
    })
}
