//! The list of renames of a commit under way, on disk, so that the next run can finish it.

use crate::commit::{is_temporary, split};
use crate::{FileSource, head};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{ByteRange, Error, Files, Result, WriteAt};

const JOURNAL: &str = ".weightlift-journal";
const ASIDE: &str = ".weightlift-old";
const MAGIC: &str = "weightlift journal 1";
const LIMIT: u64 = 64 << 20;

/// What a commit will do: renames in order, the index last, then removals. All in one folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    dir: PathBuf,
    renames: Vec<(OsString, OsString)>,
    stale: Vec<OsString>,
}

impl Journal {
    pub(crate) fn new(renames: Vec<(PathBuf, PathBuf)>, stale: Vec<PathBuf>) -> Result<Journal> {
        let dir = match renames.last() {
            Some((_, index)) => split(index)?.0,
            None => return Err(Error::request("a set without files")),
        };
        let name = |path: &PathBuf| match split(path)? {
            (folder, name) if folder == dir => Ok(name),
            _ => Err(Error::request("lies in another folder than the rest of its set").in_file(path)),
        };
        let pairs = renames.iter().map(|(from, to)| Ok((name(from)?, name(to)?))).collect::<Result<_>>()?;
        let stale = stale.iter().map(name).collect::<Result<_>>()?;
        Ok(Journal { renames: pairs, stale, dir })
    }

    fn index(&self) -> OsString {
        self.renames.last().map(|(_, index)| index.clone()).unwrap_or_default()
    }

    fn hidden(&self, suffix: &str) -> PathBuf {
        self.dir.join(hidden(&self.index(), suffix))
    }

    /// Puts the journal on the disk. The answer holds it locked against other runs.
    pub(crate) fn write(&self, files: &dyn Files) -> Result<Arc<dyn WriteAt>> {
        let path = self.hidden(JOURNAL);
        let draft = self.hidden(".weightlift-journal-draft");
        for begun in [&draft, &path] {
            if exists(files, begun) && !files.is_abandoned(begun).unwrap_or(true) {
                return Err(Error::request("another run is writing there").in_file(self.dir.join(self.index())));
            }
        }
        let _ = files.remove_if_abandoned(&draft);
        let file = files.create(&draft).map_err(|error| Error::io("cannot write the journal", &path, error))?;
        // Whoever has the draft is the only one to go on; what went on before has its journal.
        if exists(files, &path) {
            let _ = files.remove(&draft);
            return Err(Error::request("another run is writing there").in_file(self.dir.join(self.index())));
        }
        let write = || {
            let text = self.to_text();
            let mut done = 0;
            while done < text.len() {
                match file.write_at(&text.as_bytes()[done..], done as u64)? {
                    0 => return Err(ErrorKind::WriteZero.into()),
                    written => done += written,
                }
            }
            file.sync()?;
            files.rename(&draft, &path)?;
            files.sync_dir(&self.dir)?;
            Ok(())
        };
        match write() {
            Ok(()) => Ok(file),
            Err(error) => {
                let _ = files.remove(&draft);
                Err(Error::io("cannot write the journal", &path, error))
            }
        }
    }

    /// Does what is left to do; doing it twice is the same as doing it once.
    pub(crate) fn carry_out(&self, files: &dyn Files) -> Result<()> {
        let failed = |path: &Path, error| {
            Error::io("cannot finish the output", path, error).help("the next run on this folder will finish it")
        };
        let (index_from, index) = match self.renames.last() {
            Some((from, to)) => (self.dir.join(from), self.dir.join(to)),
            None => return Ok(()),
        };
        if exists(files, &index_from) && exists(files, &index) {
            files.rename(&index, &self.hidden(ASIDE)).map_err(|error| failed(&index, error))?;
            files.sync_dir(&self.dir).map_err(|error| failed(&self.dir, error))?;
        }
        for (number, (from, to)) in self.renames.iter().enumerate() {
            let (from, to) = (self.dir.join(from), self.dir.join(to));
            if number + 1 == self.renames.len() {
                files.sync_dir(&self.dir).map_err(|error| failed(&self.dir, error))?;
            }
            match files.rename(&from, &to) {
                Err(error) if error.kind() == ErrorKind::NotFound && exists(files, &to) => {}
                other => other.map_err(|error| failed(&to, error))?,
            }
        }
        files.sync_dir(&self.dir).map_err(|error| failed(&self.dir, error))?;
        for name in &self.stale {
            let _ = files.remove(&self.dir.join(name));
        }
        let _ = files.remove(&self.hidden(ASIDE));
        match files.remove(&self.hidden(JOURNAL)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&index, error)),
            _ => Ok(()),
        }
    }

    /// Whether a journal found in a folder can be one that a commit wrote: it bears its index's name, renames only
    /// temporary files to their own names, and removes only files of the same set. A folder may come from a stranger.
    fn is_ours(&self, path: &Path) -> bool {
        let index = self.index().to_string_lossy().into_owned();
        let stem = index.strip_suffix(".index").or_else(|| index.strip_suffix(".index.json")).unwrap_or(&index);
        let base = stem.rsplit_once('.').map_or(stem, |(base, _)| base);
        let shard = |name: &str, of: &str| {
            let rest = name.strip_prefix(of).unwrap_or_default();
            rest.starts_with(".data-")
                || rest == ".index.json"
                || (rest.starts_with('-') && rest.contains("-of-"))
                || name == stem
        };
        let of_set = |name: &OsString| {
            let name = name.to_string_lossy();
            shard(&name, stem) || shard(&name, base)
        };
        *path == self.hidden(JOURNAL)
            && self.renames.iter().all(|(from, to)| is_temporary(from, to))
            && self.stale.iter().all(of_set)
    }

    fn to_text(&self) -> String {
        let renames = self.renames.iter().map(|(from, to)| format!("rename {} {}\n", escape(from), escape(to)));
        let stale = self.stale.iter().map(|name| format!("remove {}\n", escape(name)));
        format!("{MAGIC}\n{}{}end\n", renames.collect::<String>(), stale.collect::<String>())
    }

    fn from_text(dir: &Path, text: &str) -> Option<Journal> {
        let mut journal = Journal { dir: dir.to_path_buf(), renames: Vec::new(), stale: Vec::new() };
        let mut lines = text.lines();
        if lines.next() != Some(MAGIC) {
            return None;
        }
        loop {
            match lines.next()?.split(' ').collect::<Vec<_>>().as_slice() {
                ["rename", from, to] => journal.renames.push((unescape(from)?, unescape(to)?)),
                ["remove", name] => journal.stale.push(unescape(name)?),
                ["end"] => return Some(journal),
                _ => return None,
            }
        }
    }
}

/// Finishes the commits that killed runs left in a folder, and puts back the headers that they were changing in place;
/// answers how many.
///
/// # Errors
/// `Io` where a rename fails, `Malformed` for a damaged journal.
pub fn recover(files: &dyn Files, dir: &Path) -> Result<usize> {
    let names = files.list(dir).map_err(|error| Error::io("cannot list", dir, error))?;
    let journals = names.iter().filter(|name| name.as_encoded_bytes().ends_with(JOURNAL.as_bytes()));
    let mut finished = head::restore_in(files, dir, &names)?;
    for path in journals.map(|name| dir.join(name)) {
        if files.is_abandoned(&path).unwrap_or(false) {
            read(files, dir, &path)?.carry_out(files)?;
            finished += 1;
        }
    }
    Ok(finished)
}

/// Whether a commit of the set of this index was begun and not finished: between the old index and the new one there is
/// none, and the next run that writes there finishes it.
#[must_use]
pub fn is_unfinished(files: &dyn Files, index: &Path) -> bool {
    split(index).is_ok_and(|(dir, name)| exists(files, &dir.join(hidden(&name, JOURNAL))))
}

fn hidden(index: &OsStr, suffix: &str) -> OsString {
    let mut name = OsString::from(".");
    name.push(index);
    name.push(suffix);
    name
}

fn read(files: &dyn Files, dir: &Path, path: &Path) -> Result<Journal> {
    let source = FileSource::open(files, path)?;
    let text = source.read_vec(ByteRange::new(0, source.len())?, LIMIT)?;
    let journal = std::str::from_utf8(&text).ok().and_then(|text| Journal::from_text(dir, text));
    journal.filter(|journal| journal.is_ours(path)).ok_or_else(|| {
        let error = Error::malformed("is a damaged journal of an interrupted output").in_file(path);
        error.help("remove it together with the unfinished output")
    })
}

fn exists(files: &dyn Files, path: &Path) -> bool {
    files.stat(path).is_ok()
}

/// File names as one word of printable ASCII.
fn escape(name: &OsString) -> String {
    let byte = |&byte: &u8| match byte {
        b'!'..=b'$' | b'&'..=b'~' => (byte as char).to_string(),
        _ => format!("%{byte:02x}"),
    };
    name.as_encoded_bytes().iter().map(byte).collect()
}

fn unescape(word: &str) -> Option<OsString> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        bytes.push(first);
        if first == b'%' {
            let (code, tail) = rest.split_at_checked(2)?;
            *bytes.last_mut()? = u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?;
            rest = tail;
        }
    }
    // A journal names files of its own folder only.
    if bytes.is_empty() || bytes.contains(&b'/') || bytes == b".." {
        return None;
    }
    name_from_bytes(bytes)
}

#[cfg(unix)]
fn name_from_bytes(bytes: Vec<u8>) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt;
    Some(OsString::from_vec(bytes))
}

#[cfg(not(unix))]
fn name_from_bytes(bytes: Vec<u8>) -> Option<OsString> {
    String::from_utf8(bytes).ok().map(OsString::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_survive_odd_names() {
        let pair = |from: &str, to: &str| (PathBuf::from("d").join(from), PathBuf::from("d").join(to));
        let renames = vec![pair(".a b%\n.tmp", "a b%\n"), pair(".é", "é")];
        let journal = Journal::new(renames, vec![PathBuf::from("d/old one")]).unwrap();
        let text = journal.to_text();
        assert_eq!(Journal::from_text(Path::new("d"), &text).unwrap(), journal);
        for end in 0..text.len() - 1 {
            assert_eq!(Journal::from_text(Path::new("d"), &text[..end]), None, "cut at {end}");
        }
        let outside = "weightlift journal 1\nrename ../x y\nend\n";
        assert_eq!(Journal::from_text(Path::new("d"), outside), None);
    }

    #[test]
    fn sets_lie_in_one_folder() {
        let renames = vec![(PathBuf::from("a/x"), PathBuf::from("b/y")), (PathBuf::from("b/x"), PathBuf::from("b/z"))];
        assert!(Journal::new(renames, vec![]).is_err());
    }
}
