//! Sharded sets, and folders.

use crate::read::{Opened, add_file};
use crate::{EXTENSION, ID, Metadata};
use std::path::{Path, PathBuf};
use weightlift_core::{Catalog, Error, Files, OpenOptions, Recognised, Result};
use weightlift_shards::{Census, Set, TOTAL_SIZE, index_name, list};

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
pub(crate) fn open(files: &dyn Files, path: &Path, options: &OpenOptions) -> Result<Opened> {
    let set = Set::open(files, path, EXTENSION, &options.limits)?;
    let mut census = Census::new(&set, EXTENSION);
    let mut catalog = Catalog::new(ID, format!("safetensors set of {} files", set.index.files().len()));
    let (mut metadata, mut order) = (Metadata::absent(), Vec::new());
    for (name, path) in set.files() {
        let before = catalog.entries.len();
        let theirs = add_file(files, &path, options, &mut catalog)?;
        for key in metadata.join(&theirs) {
            let warning = format!("metadata {key:?} of {name} differs from an earlier file's and is left aside");
            catalog.warnings.push(warning);
        }
        for (at, entry) in catalog.entries.split_off(before).into_iter().enumerate() {
            if census.counts(&entry.name, name) {
                let place = theirs.order.get(at).map_or(at, |&place| place as usize);
                order.push((before + place) as u32);
                catalog.entries.push(entry);
            }
        }
    }
    let bytes = catalog.entries.iter().map(|entry| entry.bytes).fold(0, u64::saturating_add);
    catalog.warnings.extend(census.finish(files, &[bytes], options)?);
    metadata.index = set.index.metadata.clone();
    metadata.index.shift_remove(TOTAL_SIZE);
    if !order.is_sorted() {
        metadata.order = order;
    }
    let members = set.files().into_iter().map(|(_, path)| path);
    let members = members.chain([path.to_path_buf()]).collect();
    Ok(Opened::new(catalog, metadata, members))
}
