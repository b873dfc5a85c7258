//! Sharded sets, and folders.

use crate::read::{Opened, add_file};
use crate::{EXTENSION, ID, Metadata};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use weightlift_core::{Catalog, Entry, Error, Files, Limits, Recognised, Result};
use weightlift_shards::{Set, TOTAL_SIZE, index_name, list};

/// The set that is meant where a folder has several.
const USUAL_BASE: &str = "model";

/// Whether a path is named as the index of a set.
pub(crate) fn is_index(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.ends_with(&format!(".{EXTENSION}.index.json")))
}

/// A folder with an index or with safetensors files.
pub(crate) fn recognise(files: &dyn Files, folder: &Path) -> Result<Option<Recognised>> {
    let path = match &candidates(files, folder)[..] {
        [] => return Ok(None),
        [one] => folder.join(one),
        _ => folder.to_path_buf(),
    };
    Ok(Some(Recognised { path, by_content: false }))
}

/// The one index or file that a folder has.
///
/// # Errors
/// `Request` with the candidates where there are several, or none.
pub(crate) fn only_one(files: &dyn Files, folder: &Path) -> Result<PathBuf> {
    match &candidates(files, folder)[..] {
        [one] => Ok(folder.join(one)),
        [] => Err(Error::request("a folder without safetensors files").in_file(folder)),
        several => {
            let message = format!("a folder with several safetensors files and no index: {}", list(several));
            Err(Error::request(message).in_file(folder).help("name one of them"))
        }
    }
}

/// What a folder can be opened by: the usual index, else any index, else any file.
fn candidates(files: &dyn Files, folder: &Path) -> Vec<String> {
    let names = files.list(folder).unwrap_or_default();
    let mut names: Vec<String> = names.into_iter().filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    let usual = index_name(USUAL_BASE, EXTENSION);
    if names.contains(&usual) {
        return vec![usual];
    }
    let indexes: Vec<String> = names.iter().filter(|name| is_index(Path::new(name))).cloned().collect();
    if !indexes.is_empty() {
        return indexes;
    }
    names.retain(|name| Path::new(name).extension().is_some_and(|extension| extension == EXTENSION));
    names
}

/// Opens a set by its index.
pub(crate) fn open(files: &dyn Files, path: &Path, limits: &Limits) -> Result<Opened> {
    let set = Set::open(files, path, EXTENSION, limits)?;
    let mut reader = Reader::new(&set);
    for (name, path) in set.files() {
        reader.add(files, name, &path, limits)?;
    }
    reader.all_found().map_err(|error| error.in_file(path))?;
    let Reader { mut catalog, mut metadata, .. } = reader;
    let strays = set.strays(files, EXTENSION);
    if !strays.is_empty() {
        catalog.warnings.push(format!("{} left aside: the index does not name it", list(&strays)));
    }
    let bytes = catalog.entries.iter().map(|entry| entry.bytes).fold(0, u64::saturating_add);
    if let Some(claimed) = set.index.total_size().filter(|_| !set.index.has_total_size(bytes)) {
        catalog.warnings.push(format!("the index says total_size {claimed}, but its tensors have {bytes} bytes"));
    }
    metadata.index = set.index.metadata.clone();
    metadata.index.shift_remove(TOTAL_SIZE);
    let members = set.files().into_iter().map(|(_, path)| path);
    let members = members.chain([path.to_path_buf()]).collect();
    Ok(Opened::new(catalog, metadata, members))
}

/// Collects the tensors of a set.
struct Reader<'a> {
    /// For each tensor of the index its file.
    wanted: HashMap<&'a str, &'a str>,
    /// Tensors seen in a file that the index does not name for them, with that file.
    elsewhere: HashMap<String, String>,
    catalog: Catalog,
    metadata: Metadata,
}

impl<'a> Reader<'a> {
    fn new(set: &'a Set) -> Reader<'a> {
        let wanted: HashMap<&str, &str> = set.index.weight_map.iter().map(|(t, f)| (t.as_str(), f.as_str())).collect();
        let catalog = Catalog::new(ID, format!("safetensors set of {} files", set.index.files().len()));
        Reader { wanted, elsewhere: HashMap::new(), catalog, metadata: Metadata::absent() }
    }

    /// Adds those tensors of a file that the index names it for.
    fn add(&mut self, files: &dyn Files, name: &str, path: &Path, limits: &Limits) -> Result<()> {
        let before = self.catalog.entries.len();
        let theirs = add_file(files, path, limits, &mut self.catalog)?;
        for key in self.metadata.join(&theirs) {
            let warning = format!("metadata {key:?} of {name} differs from an earlier file's and is left aside");
            self.catalog.warnings.push(warning);
        }
        for entry in self.catalog.entries.split_off(before) {
            self.take(entry, name);
        }
        Ok(())
    }

    fn take(&mut self, entry: Entry, file: &str) {
        match self.wanted.get(entry.name.as_str()) {
            Some(wanted) if *wanted == file => self.catalog.entries.push(entry),
            Some(_) => drop(self.elsewhere.insert(entry.name, file.to_owned())),
            None => {
                let warning = format!("tensor {:?} of {file} left aside: the index does not name it", entry.name);
                self.catalog.warnings.push(warning);
            }
        }
    }

    /// Every tensor of the index was in its file.
    fn all_found(&self) -> Result<()> {
        if self.catalog.entries.len() == self.wanted.len() {
            return Ok(());
        }
        let mut missing = self.wanted.clone();
        for entry in &self.catalog.entries {
            missing.remove(entry.name.as_str());
        }
        let place = |(name, file): (&str, &str)| match self.elsewhere.get(name) {
            Some(other) => format!("{name} ({file}; it is in {other})"),
            None => format!("{name} ({file})"),
        };
        let mut places: Vec<String> = missing.into_iter().map(place).collect();
        places.sort();
        let (count, places) = (places.len(), list(&places));
        let message = format!("tensors that the index names are not in their files, {count}: {places}");
        Err(Error::malformed(message).help("the index belongs to other files"))
    }
}
