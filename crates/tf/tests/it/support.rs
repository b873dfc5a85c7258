//! What several tests need.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{
    BlobId, ByteOrder, Catalog, Checkpoint, DType, EntryId, Extent, FileRange, Files, Format, Layout, Limits, Manifest,
    Names, OpenOptions, Origin, Output, Part, Result, Share, Source, WriteOptions, Written,
};
use weightlift_io::{read_entry, real};
use weightlift_testkit::{Fixture, fixtures};
use weightlift_tf::TensorFlow;
use weightlift_tf::graph::{KEY, ObjectGraph};

pub(crate) fn open(path: impl AsRef<Path>) -> Result<Box<dyn Checkpoint>> {
    TensorFlow.open(real(), path.as_ref(), &OpenOptions::default())
}

pub(crate) fn message(path: impl AsRef<Path>) -> String {
    match open(path) {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn read(checkpoint: &dyn Checkpoint, name: &str) -> Result<Vec<u8>> {
    let (id, _) = checkpoint.catalog().named(name).next().unwrap_or_else(|| panic!("no {name}"));
    read_entry(real().as_ref(), checkpoint, id)
}

/// Fixtures of this format.
pub(crate) fn of_kinds(kinds: &[&str]) -> Vec<Fixture> {
    let all = fixtures().into_iter().filter(|fixture| kinds.contains(&fixture.kind.as_str()));
    all.filter(|fixture| fixture.name.starts_with("tf/")).collect()
}

pub(crate) const BUNDLES: &[&str] = &["tf-bundle-v2", "tf-object-based", "tf-saved-model"];

/// Copies the files of a fixture into a folder, under their own names.
pub(crate) fn copy_into(fixture: &Fixture, dir: &Path) -> PathBuf {
    for file in &fixture.files {
        fs::copy(file, dir.join(file.file_name().unwrap())).unwrap();
    }
    dir.join(fixture.path.file_name().unwrap())
}

/// The strings of a record: lengths, their checksum, bytes.
pub(crate) fn strings(record: &[u8], elements: u64) -> Vec<Vec<u8>> {
    let mut at = 0;
    let mut varint = || {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = record[at];
            at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value as usize;
            }
        }
    };
    let lengths: Vec<usize> = (0..elements).map(|_| varint()).collect();
    at += 4;
    let mut strings = Vec::new();
    for len in lengths {
        strings.push(record[at..at + len].to_vec());
        at += len;
    }
    assert_eq!(at, record.len());
    strings
}

/// The manifest of a verbatim copy, its blobs in the order of the source's data, and where each blob comes from.
pub(crate) fn verbatim(checkpoint: &dyn Checkpoint) -> (Manifest, Vec<Extent>) {
    let catalog = checkpoint.catalog();
    let mut extents: Vec<Extent> = catalog.entries.iter().flat_map(|entry| entry.extents().unwrap().to_vec()).collect();
    extents.sort_by_key(|extent| (extent.source, extent.bytes));
    let place = |extent: &Extent| (extent.source, extent.bytes);
    let blobs: HashMap<_, _> = extents.iter().enumerate().map(|(at, extent)| (place(extent), at as u32)).collect();
    let mut manifest = Manifest::default();
    for extent in &extents {
        let checksum = extent.checksum.filter(|_| extent.order == ByteOrder::Little);
        let blob = manifest.add_blob(extent.bytes.len(), checksum);
        if let (Source::File { path, .. }, ByteOrder::Little) = (catalog.source(extent.source), extent.order) {
            manifest.verbatim.insert(blob, FileRange { path: path.clone(), bytes: extent.bytes });
        }
    }
    manifest.extras.extend(catalog.extras.clone().map(|extras| (0, extras)));
    for (id, entry) in catalog.iter() {
        let part = |extent: &Extent| {
            let layout = Layout::contiguous(&extent.region.size);
            Part { blob: BlobId(blobs[&place(extent)]), layout, region: extent.region.clone() }
        };
        let extents = entry.extents().unwrap();
        manifest.tensors.push(Output {
            path: entry.path.clone(),
            name: entry.name.clone(),
            dtype: entry.dtype,
            packing: extents.first().map_or(Default::default(), |extent| extent.packing),
            shape: entry.shape.clone(),
            parts: extents.iter().map(part).collect(),
            origin: Some(Origin { input: 0, entry: id }),
        });
    }
    (manifest, extents)
}

pub(crate) fn replace() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.replace = true;
    options.share = Share::Never;
    options
}

/// Writes tensors given as name, dtype, shape and bytes.
pub(crate) fn write(path: &Path, tensors: &[(&str, DType, &[u64], &[u8])]) -> Result<Written> {
    let mut manifest = Manifest::default();
    let shape = |dims: &[u64]| weightlift_core::Shape::new(dims).unwrap();
    let blobs: Vec<BlobId> =
        tensors.iter().map(|(name, dtype, dims, _)| manifest.add_tensor(name, *dtype, shape(dims))).collect();
    let writer = TensorFlow.create(real(), path, manifest, &replace())?;
    for (blob, (.., bytes)) in blobs.into_iter().zip(tensors) {
        writer.write_at(blob, 0, bytes)?;
    }
    writer.finish()
}

/// All that a catalog says of its tensors.
pub(crate) fn listing(catalog: &Catalog) -> String {
    format!("{:?}", catalog.entries)
}

pub(crate) fn ids(catalog: &Catalog) -> Vec<EntryId> {
    catalog.iter().map(|(id, _)| id).collect()
}

/// Opens with other names than those of the index.
pub(crate) fn open_named(path: impl AsRef<Path>, names: Names) -> Box<dyn Checkpoint> {
    let mut options = OpenOptions::default();
    options.names = names;
    TensorFlow.open(real(), path.as_ref(), &options).unwrap()
}

/// Writes a checkpoint whose manifest `edit` has changed; bytes come from where they were.
pub(crate) fn write_edited(
    files: Arc<dyn Files>,
    checkpoint: &dyn Checkpoint,
    prefix: &Path,
    options: &WriteOptions,
    edit: impl FnOnce(&mut Manifest),
) -> Result<Written> {
    let (mut manifest, extents) = verbatim(checkpoint);
    edit(&mut manifest);
    let writer = TensorFlow.create(files.clone(), prefix, manifest, options)?;
    let sources = weightlift_io::Sources::new(files.as_ref(), checkpoint, prefix);
    for (at, extent) in extents.iter().enumerate() {
        let blob = BlobId(at as u32);
        if !writer.holds(blob) {
            writer.write_at(blob, 0, &sources.get(extent.source)?.read_vec(extent.bytes, u64::MAX)?)?;
        }
    }
    writer.finish()
}

/// Leaves out the tensors of these names, and the blobs that nothing uses any more.
pub(crate) fn leave_out(manifest: &mut Manifest, gone: impl Fn(&str) -> bool) {
    manifest.tensors.retain(|output| !gone(&output.name));
}

/// The object graph of a checkpoint.
pub(crate) fn graph_of(checkpoint: &dyn Checkpoint) -> ObjectGraph {
    let bytes = strings(&read(checkpoint, KEY).unwrap(), 1).remove(0);
    ObjectGraph::parse(&bytes, &Limits::default()).unwrap()
}
