//! Opening a folder.

use super::{EXTENSION, LIST, List, Listed, restore};
use crate::ID;
use crate::read::{Opened, add_file};
use crate::record::Record;
use std::collections::HashSet;
use std::path::Path;
use weightlift_core::{ByteRange, Catalog, DType, Error, FileKind, Files, OpenOptions, Result};
use weightlift_io::FileSource;

/// At most so many names stand in a message.
const SHOWN: usize = 10;

/// Whether a path is a folder of arrays.
pub(crate) fn is_folder(files: &dyn Files, path: &Path) -> bool {
    restore(files, path);
    files.stat(path).is_ok_and(|stat| stat.kind == FileKind::Dir) && !arrays(files, path).is_empty()
}

/// The names in a folder that arrays have, and that of the list.
fn arrays(files: &dyn Files, folder: &Path) -> Vec<String> {
    let names = files.list(folder).unwrap_or_default();
    let mut names: Vec<String> = names.into_iter().filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name == LIST || (is_array(name) && !name.starts_with('.')));
    names.sort();
    names
}

fn is_array(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case(EXTENSION))
}

/// Opens a folder: the arrays that its list names, in that order; without a list all of them by name.
pub(crate) fn open(files: &dyn Files, folder: &Path, options: &OpenOptions) -> Result<Opened> {
    let there = arrays(files, folder);
    let has_list = there.iter().any(|name| name == LIST);
    let listed =
        if has_list { read_list(files, folder, options)? } else { there.iter().map(|name| bare(name)).collect() };
    let limits = &options.limits;
    if listed.len() as u64 > limits.tensors {
        let (found, most) = (listed.len(), limits.tensors);
        return Err(Error::limit(format!("{found} arrays, where {most} are allowed")).in_file(folder));
    }
    let count = if listed.len() == 1 { "1 file".to_owned() } else { format!("{} files", listed.len()) };
    let mut opened = Opened::new(Catalog::new(ID, format!("NumPy arrays, {count}")));
    if has_list {
        refuse_gaps(&listed, &there).map_err(|error| error.in_file(folder.join(LIST)))?;
        opened.files.push(folder.join(LIST));
        let known: HashSet<&str> = listed.iter().map(|array| array.file.as_str()).collect();
        let strays: Vec<&String> =
            there.iter().filter(|name| *name != LIST && !known.contains(name.as_str())).collect();
        if !strays.is_empty() {
            let message = format!("{} left aside: {LIST} does not name it", some(&strays));
            if options.strict {
                return Err(Error::malformed(message).in_file(folder.join(LIST)));
            }
            opened.catalog.warnings.push(message);
        }
    }
    for array in listed {
        if array.name.len() > limits.name_bytes {
            let (found, most) = (array.name.len(), limits.name_bytes);
            return Err(Error::limit(format!("a name of {found} bytes, where {most} are allowed")).in_file(folder));
        }
        let path = folder.join(&array.file);
        let record = array.record();
        add_file(files, &path, &array.name, record, limits, &mut opened).map_err(|error| error.in_file(&path))?;
        opened.files.push(path);
    }
    Ok(opened.with_codes())
}

/// An array that no list names.
fn bare(file: &str) -> Listed {
    let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Listed { name, file: file.to_owned(), dtype: None, was: None }
}

impl Listed {
    /// What makes no sense: a file outside of the folder, or an element type that would be passed over in silence.
    fn problem(&self) -> Option<String> {
        if !is_array(&self.file) || self.file.contains(['/', '\\', ':', '\0']) {
            return Some(format!("{:?} is no name of an array in this folder", self.file));
        }
        let unknown = [&self.dtype, &self.was].into_iter().flatten().find(|name| name.parse::<DType>().is_err());
        unknown.map(|name| format!("unknown dtype {name:?}"))
    }

    fn record(&self) -> Option<Record> {
        let is = self.dtype.as_deref().and_then(|dtype| dtype.parse().ok()).map(Record::Is);
        is.or_else(|| self.was.as_deref().and_then(|dtype| dtype.parse().ok()).map(Record::Was))
    }
}

fn read_list(files: &dyn Files, folder: &Path, options: &OpenOptions) -> Result<Vec<Listed>> {
    let path = folder.join(LIST);
    let source = FileSource::open(files, &path)?;
    let bytes = source.read_vec(ByteRange::new(0, source.len())?, options.limits.header_bytes)?;
    let list: List = serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("no list of arrays: {error}");
        Error::malformed(message).in_file(&path).help("without this file the arrays are named after their files")
    })?;
    let mut names = HashSet::new();
    for array in &list.arrays {
        let twice = || (!names.insert(array.name.as_str())).then(|| "the name stands twice".to_owned());
        if let Some(problem) = array.problem().or_else(twice) {
            return Err(Error::malformed(problem).in_tensor(&array.name).in_file(&path));
        }
    }
    Ok(list.arrays)
}

/// Every array of the list is there.
fn refuse_gaps(listed: &[Listed], there: &[String]) -> Result<()> {
    let there: HashSet<&str> = there.iter().map(String::as_str).collect();
    let missing: Vec<&String> =
        listed.iter().map(|array| &array.file).filter(|file| !there.contains(file.as_str())).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!("{} of the {} arrays are missing: {}", missing.len(), listed.len(), some(&missing));
    Err(Error::malformed(message).help("fetch them; without this file the others are read alone"))
}

/// The first few of many names.
fn some(names: &[&String]) -> String {
    let shown = names.iter().take(SHOWN).map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
