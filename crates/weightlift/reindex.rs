//! The index of a sharded set, made anew from its files.

use crate::open::open;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use weightlift_core::{ByteRange, Catalog, DType, Error, FileKind, Files, Limits, Result};
use weightlift_io::{Commit, FileSource, folder_of};
use weightlift_shards::{Index, Members, list};

/// The key of an index's metadata that holds the number of elements.
const TOTAL_PARAMETERS: &str = "total_parameters";

/// An index that fits the files of a set.
#[derive(Debug, Clone)]
pub struct Reindexed {
    /// Where it belongs.
    pub path: PathBuf,
    /// The files of the set, by name.
    pub files: Vec<String>,
    /// How many tensors they hold.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
    /// What it says otherwise than the index that is there, a line each; nothing where there is none.
    pub changes: Vec<String>,
    index: Index,
}

/// Reads the headers of the files of a set, named by its folder, by its index, which need not exist, or by one of the
/// files.
///
/// # Errors
/// `Request` where there is no set, or several; `Malformed` where files are missing by their numbers, with the list, and
/// where two files hold a tensor of one name; what opening a damaged file says.
pub fn reindex(path: impl AsRef<Path>) -> Result<Reindexed> {
    let files = weightlift_io::real();
    let path = path.as_ref();
    let is_folder = files.stat(path).is_ok_and(|stat| stat.kind == FileKind::Dir);
    let folder = if is_folder { path } else { folder_of(path) };
    let name = path.file_name().and_then(|name| name.to_str()).filter(|_| !is_folder);
    let members = Members::find(files.as_ref(), folder, name)?;
    let path = folder.join(members.index());
    let old = read(files.as_ref(), &path, members.extension());
    let mut made = Made::default();
    for name in members.names() {
        let opened = open(folder.join(name))?;
        made.add(name, opened.catalog()).map_err(|error| error.in_file(folder.join(name)))?;
    }
    let bytes = made.bytes;
    let index = made.index(old.as_ref());
    let changes = old.as_ref().map_or_else(Vec::new, |old| changes(old, &index));
    let (files, tensors) = (members.names().to_vec(), index.weight_map.len());
    Ok(Reindexed { path, files, tensors, bytes, changes, index })
}

impl Reindexed {
    /// Writes it; an existing one only where it may be replaced.
    ///
    /// # Errors
    /// `Request` where there is one; `Io`.
    pub fn write(&self, replace: bool) -> Result<()> {
        let mut commit = Commit::new(weightlift_io::real(), replace);
        commit.create(&self.path)?.write_all_at(self.index.render().0.as_bytes(), 0)?;
        commit.commit(None).map(drop)
    }
}

/// The index that is there; one that cannot be read has nothing to say.
fn read(files: &dyn Files, path: &Path, extension: &str) -> Option<Index> {
    let source = FileSource::open(files, path).ok()?;
    let limits = Limits::default();
    let bytes = source.read_vec(ByteRange::new(0, source.len()).ok()?, limits.header_bytes).ok()?;
    Index::parse(&bytes, extension, &limits).ok()
}

/// What the files hold.
#[derive(Default)]
struct Made {
    weight_map: Vec<(String, String)>,
    files: HashMap<String, String>,
    /// Second names that the files themselves record.
    ties: Map<String, Value>,
    bytes: u64,
    elements: u64,
}

impl Made {
    fn add(&mut self, file: &str, catalog: &Catalog) -> Result<()> {
        let mut storages = HashMap::new();
        for entry in &catalog.entries {
            let extents = entry.extents()?;
            let first =
                extents.first().map(|extent| (extent.source, extent.bytes)).filter(|(_, bytes)| bytes.len() > 0);
            let owner = first.and_then(|storage| storages.insert(storage, entry.name.clone()));
            // A name that is only recorded belongs to no file; in other formats tied names are tensors of the file.
            if let Some(owner) = owner.as_ref().filter(|_| catalog.format == "safetensors") {
                self.ties.insert(entry.name.clone(), Value::from(owner.as_str()));
                continue;
            }
            if owner.is_none() {
                let stored: HashSet<_> = extents.iter().map(|extent| (extent.source, extent.bytes)).collect();
                self.bytes = stored.iter().fold(self.bytes, |sum, (_, bytes)| sum.saturating_add(bytes.len()));
                self.elements = self.elements.saturating_add(elements(entry.dtype, entry.shape.elements()));
            }
            if let Some(other) = self.files.insert(entry.name.clone(), file.to_owned()) {
                return Err(Error::malformed(format!("{other} has a tensor of this name too")).in_tensor(&entry.name));
            }
            self.weight_map.push((entry.name.clone(), file.to_owned()));
        }
        Ok(())
    }

    /// The index, with what the old one says beside tensors.
    fn index(self, old: Option<&Index>) -> Index {
        let mut metadata = old.map(|old| old.metadata.clone()).unwrap_or_default();
        metadata.extend(self.ties);
        let mut index = Index { metadata, weight_map: self.weight_map };
        index.set_total_size(self.bytes);
        if let Some(count) = index.metadata.get_mut(TOTAL_PARAMETERS) {
            *count = Value::from(self.elements);
        }
        index
    }
}

/// Elements that are parameters.
fn elements(dtype: DType, elements: u64) -> u64 {
    if dtype.is_opaque() { 0 } else { elements }
}

/// What a new index says otherwise.
fn changes(old: &Index, new: &Index) -> Vec<String> {
    let map = |index: &'_ Index| -> HashMap<String, String> { index.weight_map.iter().cloned().collect() };
    let (before, after) = (map(old), map(new));
    let mut lines = Vec::new();
    let mut say = |what: &str, mut names: Vec<String>| {
        names.sort();
        if !names.is_empty() {
            lines.push(format!("{what} {}: {}", names.len(), list(&names)));
        }
    };
    let in_file = |(tensor, file): (&String, &String)| format!("{tensor} ({file})");
    say("added", after.iter().filter(|(tensor, _)| !before.contains_key(*tensor)).map(in_file).collect());
    say("gone", before.iter().filter(|(tensor, _)| !after.contains_key(*tensor)).map(in_file).collect());
    let moved = |(tensor, file): (&String, &String)| before.get(tensor).is_some_and(|old| old != file);
    say("moved", after.iter().filter(|pair| moved(*pair)).map(in_file).collect());
    if old.total_size() != new.total_size() {
        let size = |index: &Index| index.total_size().map_or("none".to_owned(), |size| size.to_string());
        lines.push(format!("total_size {} instead of {}", size(new), size(old)));
    }
    lines
}
