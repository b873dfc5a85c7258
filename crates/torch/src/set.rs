//! Sharded sets: several files beside `pytorch_model.bin.index.json`.

use crate::checkpoint::TorchCheckpoint;
use crate::recognise;
use crate::source::Spaces;
use foldhash::HashSet;
use std::path::{Path, PathBuf};
use weightlift_core::{Entry, Files, OpenOptions, Result};
use weightlift_io::FileSource;
use weightlift_shards::{Census, Set, base_of};

/// The extension of the files of a set.
const EXTENSION: &str = "bin";

/// Whether a path is named as the index of a set.
pub(crate) fn is_index(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.ends_with(&format!(".{EXTENSION}.index.json")))
}

/// The one index of a folder, or its one file of weights.
pub(crate) fn in_folder(files: &dyn Files, folder: &Path) -> Option<PathBuf> {
    let names = files.list(folder).unwrap_or_default();
    let mut names: Vec<String> = names.into_iter().filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    let indexes: Vec<&String> = names.iter().filter(|name| is_index(Path::new(name))).collect();
    let usual = |name: &&String| base_of(name, EXTENSION) == Some("pytorch_model");
    match indexes[..] {
        [one] => Some(folder.join(one)),
        [] => names.iter().find(usual).map(|name| folder.join(name)),
        _ => None,
    }
}

/// Opens a set by its index. Tensors come in the order of the files, each only where the index has it.
pub(crate) fn open(files: &dyn Files, path: &Path, options: &OpenOptions) -> Result<TorchCheckpoint> {
    let set = Set::open(files, path, EXTENSION, &options.limits)?;
    let mut census = Census::new(&set, EXTENSION);
    let (mut spaces, mut entries) = (Spaces::default(), Vec::new());
    let (mut beside, mut warnings) = (Vec::new(), Vec::new());
    for (name, path) in set.files() {
        let file = spaces.add_file(FileSource::open(files, &path)?);
        let objects = recognise::load(&mut spaces, file, options)?;
        warnings.extend(objects.warnings);
        beside.extend(objects.listing.beside);
        entries.extend(objects.listing.entries.into_iter().filter(|entry| census.counts(&entry.name, name)));
    }
    warnings.extend(census.finish(files, &totals(&entries), options)?);
    let description = format!("PyTorch set of {} files", set.index.files().len());
    let checkpoint = TorchCheckpoint::flat(description, spaces, &options.limits, entries, beside);
    Ok(checkpoint.warning(warnings).with_file(path.to_path_buf()))
}

/// The sizes that writers give a set: every name's own bytes, and each storage once.
fn totals(entries: &[Entry]) -> [u64; 2] {
    let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0, u64::saturating_add);
    let extents = entries.iter().filter_map(|entry| entry.extents().ok()).flatten();
    let storages: HashSet<_> = extents.map(|extent| (extent.source, extent.bytes)).collect();
    [sum(&mut entries.iter().map(|entry| entry.bytes)), sum(&mut storages.into_iter().map(|(_, bytes)| bytes.len()))]
}
