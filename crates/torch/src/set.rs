//! Sharded sets: several files beside `pytorch_model.bin.index.json`.

use crate::checkpoint::TorchCheckpoint;
use crate::recognise;
use crate::source::Spaces;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use weightlift_core::{Entry, Error, Files, Limits, Result};
use weightlift_io::FileSource;
use weightlift_shards::{Set, base_of, list};

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
pub(crate) fn open(files: &dyn Files, path: &Path, limits: &Limits) -> Result<TorchCheckpoint> {
    let set = Set::open(files, path, EXTENSION, limits)?;
    let mut wanted: HashMap<&str, &str> =
        set.index.weight_map.iter().map(|(tensor, file)| (tensor.as_str(), file.as_str())).collect();
    let (mut spaces, mut entries) = (Spaces::default(), Vec::new());
    let (mut beside, mut warnings) = (Vec::new(), Vec::new());
    for (name, path) in set.files() {
        let file = spaces.add_file(FileSource::open(files, &path)?);
        let objects = recognise::load(&mut spaces, file, limits)?;
        warnings.extend(objects.warnings);
        beside.extend(objects.listing.beside);
        for entry in objects.listing.entries {
            match wanted.get(entry.name.as_str()) {
                Some(&file) if file == name => {
                    wanted.remove(entry.name.as_str());
                    entries.push(entry);
                }
                _ => warnings.push(left_aside(&entry, name)),
            }
        }
    }
    if !wanted.is_empty() {
        let mut missing: Vec<String> = wanted.iter().map(|(tensor, file)| format!("{tensor} ({file})")).collect();
        missing.sort();
        let message = format!("tensors that the index names are not in their files: {}", list(&missing));
        return Err(Error::malformed(message).in_file(path).help("the index belongs to other files"));
    }
    let strays = set.strays(files, EXTENSION);
    if !strays.is_empty() {
        warnings.push(format!("{} left aside: the index does not name it", list(&strays)));
    }
    let description = format!("PyTorch set of {} files", set.index.files().len());
    let checkpoint = TorchCheckpoint::flat(description, spaces, limits, entries, beside);
    Ok(checkpoint.warning(warnings).with_file(path.to_path_buf()))
}

fn left_aside(entry: &Entry, file: &str) -> String {
    format!("tensor {:?} of {file} left aside: the index does not name it there", entry.name)
}
