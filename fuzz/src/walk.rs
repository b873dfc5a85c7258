//! Everything that a reader does with a file: recognise, open, look at the catalog, read the tensors.

use crate::memory::{Folder, path};
use std::path::Path;
use std::sync::Arc;
use weightlift_core::{Catalog, Checkpoint, Data, Entry, Files, Format, OpenOptions};
use weightlift_io::{FileSource, read_entry};

/// Larger tensors are not read; nor is more in all.
const LARGEST: u64 = 1 << 20;
const IN_ALL: u64 = 8 << 20;

/// Opens a file of a folder and reads what it holds. Errors are welcome; what is not an error must hold together.
pub fn walk(format: &dyn Format, folder: Folder, name: &str) {
    walk_with(format, folder, name, &OpenOptions::default());
}

/// The same twice, the second time with harmless faults let pass: what is read without that is read with it.
pub fn walk_both(format: &dyn Format, folder: Folder, name: &str) {
    let mut lenient = OpenOptions::default();
    lenient.lenient = true;
    let strictly = walk_with(format, folder.clone(), name, &OpenOptions::default());
    let leniently = walk_with(format, folder, name, &lenient);
    assert!(leniently >= strictly, "{strictly:?} entries, but leniently {leniently:?}");
}

/// The same twice, the second time with what is damaged listed as such: what is read without that is read with it.
pub fn walk_salvaging(format: &dyn Format, folder: Folder, name: &str) {
    let mut salvaging = OpenOptions::default();
    salvaging.salvage = true;
    let strictly = walk_with(format, folder.clone(), name, &OpenOptions::default());
    let salvaged = walk_with(format, folder, name, &salvaging);
    assert!(salvaged >= strictly, "{strictly:?} entries, but salvaged {salvaged:?}");
}

/// Answers the number of entries, where it opens.
fn walk_with(format: &dyn Format, folder: Folder, name: &str, options: &OpenOptions) -> Option<usize> {
    let files: Arc<dyn Files> = Arc::new(folder);
    let path = path(name);
    match recognise(format, files.as_ref(), &path).and_then(|path| format.open(files.clone(), &path, options)) {
        Ok(checkpoint) => {
            look_at(files.as_ref(), checkpoint.as_ref());
            Some(checkpoint.catalog().entries.len())
        }
        Err(error) => {
            drop(error.to_string());
            None
        }
    }
}

/// The path that the format answers, or the same where it says no: a user may name the format.
fn recognise(format: &dyn Format, files: &dyn Files, path: &Path) -> weightlift_core::Result<std::path::PathBuf> {
    let head = FileSource::open(files, path).and_then(|source| source.head(4096)).ok();
    let found = format.recognise(files, path, head.as_deref())?;
    Ok(found.map_or_else(|| path.to_path_buf(), |found| found.path))
}

fn look_at(files: &dyn Files, checkpoint: &dyn Checkpoint) {
    let catalog = checkpoint.catalog();
    let mut left = IN_ALL;
    for (id, entry) in catalog.iter() {
        check(catalog, entry);
        if entry.bytes > LARGEST.min(left) {
            continue;
        }
        match read_entry(files, checkpoint, id) {
            Ok(values) => {
                assert_eq!(values.len() as u64, entry.bytes, "{entry:?}");
                left -= entry.bytes;
            }
            Err(error) => drop(error.to_string()),
        }
    }
    assert!(!checkpoint.files().is_empty());
}

/// An entry keeps what [`Entry`] promises.
fn check(catalog: &Catalog, entry: &Entry) {
    assert_eq!(entry.name, entry.path.joined());
    let Data::Extents(extents) = &entry.data else { return };
    for extent in extents {
        assert!(extent.bytes.end() <= catalog.source(extent.source).len(), "{entry:?} leaves its source");
        assert_eq!(extent.region.size.rank(), entry.shape.rank(), "{entry:?}");
        let ends = extent.region.start.iter().zip(extent.region.size.dims()).map(|(start, len)| start + len);
        assert!(ends.zip(entry.shape.dims()).all(|(end, &dim)| end <= dim), "{entry:?} has a box outside of it");
    }
}
