//! Writing: the headers first, then the blobs at their places.

use crate::EXTENSION;
use crate::header::{self, LENGTH_BYTES, READABLE_HEADER};
use crate::layout::{File, Layout, Place};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weightlift_core::{
    BlobId, Carried, CheckpointWriter, Error, FileRange, Files, Manifest, Result, WriteOptions, Written,
};
use weightlift_io::{Commit, FileSink};
use weightlift_shards::{Index, Target};

/// The key of an index's metadata that holds the number of elements.
const TOTAL_PARAMETERS: &str = "total_parameters";

/// Starts a file, or with a shard size a set of files.
pub(crate) fn create(
    files: Arc<dyn Files>,
    path: &Path,
    manifest: &Manifest,
    options: &WriteOptions,
) -> Result<Box<dyn CheckpointWriter>> {
    let named = |error: Error| error.in_file(path);
    let layout = Layout::new(manifest, options).map_err(named)?;
    let target = Target::new(path, EXTENSION, options.shard_size.is_some(), layout.files.len()).map_err(named)?;
    let mut writer = Writer::new(files.clone(), options.replace, layout.notes.clone());
    for (path, file) in target.files.iter().zip(&layout.files) {
        writer.start_file(path, file).map_err(named)?;
    }
    if let Some(path) = &target.index {
        writer.write_index(path, &layout, &target)?;
    }
    writer.place_blobs(&layout.blobs);
    writer.replace_others(files.as_ref(), &target, options);
    Ok(Box::new(writer))
}

/// A warning for a header that the reference does not read.
pub(crate) fn header_note(length: usize) -> Option<String> {
    let length = (length as u64).next_multiple_of(LENGTH_BYTES);
    (length > READABLE_HEADER).then(|| {
        format!("the header has {length} bytes, but the safetensors library reads {READABLE_HEADER} at the most")
    })
}

#[derive(Debug)]
struct Started {
    sink: Arc<FileSink>,
    /// First byte after the header.
    data: u64,
}

/// A blob and how much of it has come.
#[derive(Debug)]
struct Blob {
    place: Place,
    written: AtomicU64,
}

impl Blob {
    fn new(place: Place) -> Blob {
        Blob { place, written: AtomicU64::new(0) }
    }

    /// The place in its file of `len` bytes at `offset`.
    ///
    /// # Errors
    /// `Request` where they leave the blob.
    fn range(&self, id: BlobId, offset: u64, len: u64) -> Result<u64> {
        let Place { begin, len: room, .. } = self.place;
        if offset.checked_add(len).is_none_or(|end| end > room) {
            return Err(Error::request(format!("{len} bytes at {offset} of blob {}, which has {room}", id.0)));
        }
        Ok(begin + offset)
    }

    fn count(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Refuses a blob of which bytes are missing.
    fn is_whole(&self, id: usize) -> Result<()> {
        let (written, len) = (self.written.load(Ordering::Relaxed), self.place.len);
        match written == len {
            true => Ok(()),
            false => Err(Error::request(format!("{written} of the {len} bytes of blob {id} were written"))),
        }
    }
}

/// The error for a blob that the manifest does not have.
fn no_blob(id: BlobId) -> Error {
    Error::request(format!("blob {} does not exist", id.0))
}

/// Files under way: headers and index are there, the data arrive.
#[derive(Debug)]
struct Writer {
    commit: Commit,
    files: Vec<Started>,
    index: Option<PathBuf>,
    blobs: Vec<Blob>,
    notes: Vec<String>,
    /// Bytes that the operating system copied.
    copied: AtomicU64,
}

impl Writer {
    fn new(files: Arc<dyn Files>, replace: bool, notes: Vec<String>) -> Writer {
        let commit = Commit::new(files, replace);
        let copied = AtomicU64::new(0);
        Writer { commit, files: Vec::new(), index: None, blobs: Vec::new(), notes, copied }
    }

    fn start_file(&mut self, path: &Path, file: &File) -> Result<()> {
        let text = header::render(&file.header)?;
        self.notes.extend(header_note(text.len()));
        let head = header::padded(&text);
        let data = head.len() as u64;
        let total = data.checked_add(file.bytes).filter(|&total| total <= i64::MAX as u64);
        let total = total.ok_or_else(|| Error::request("the file would have more than 2^63 bytes"))?;
        let sink = self.commit.create(path)?;
        sink.reserve(total)?;
        sink.write_all_at(&head, 0)?;
        self.files.push(Started { sink, data });
        Ok(())
    }

    fn write_index(&mut self, path: &Path, layout: &Layout, target: &Target) -> Result<()> {
        let mut index = Index { metadata: layout.index.clone(), weight_map: Vec::new() };
        index.set_total_size(layout.blobs.iter().map(|place| place.len).fold(0, u64::saturating_add));
        let tensors = layout.files.iter().flat_map(|file| &file.header.tensors);
        if let Some(count) = index.metadata.get_mut(TOTAL_PARAMETERS) {
            *count = Value::from(tensors.map(|tensor| tensor.shape.elements()).fold(0, u64::saturating_add));
        }
        for (path, file) in target.files.iter().zip(&layout.files) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let pair = |tensor: &header::Tensor| (tensor.name.clone(), name.clone().into_owned());
            index.weight_map.extend(file.header.tensors.iter().map(pair));
        }
        let (text, note) = index.render();
        self.notes.extend(note);
        self.commit.create(path)?.write_all_at(text.as_bytes(), 0)?;
        self.index = Some(path.to_path_buf());
        Ok(())
    }

    fn place_blobs(&mut self, places: &[Place]) {
        self.blobs = places.iter().map(|&place| Blob::new(place)).collect();
    }

    /// A set takes the place of all files of its name. A single file leaves those of a set alone, but says so.
    fn replace_others(&mut self, files: &dyn Files, target: &Target, options: &WriteOptions) {
        self.notes.extend(target.index_beside(files));
        if options.replace {
            target.stale(files).into_iter().for_each(|path| self.commit.remove_on_commit(path));
        }
    }

    /// The blob, its file, and the place in that of `len` bytes at `offset` of the blob.
    fn place(&self, id: BlobId, offset: u64, len: u64) -> Result<(&Blob, &FileSink, u64)> {
        let blob = self.blobs.get(id.0 as usize);
        let file = blob.and_then(|blob| self.files.get(blob.place.file));
        let (Some(blob), Some(file)) = (blob, file) else { return Err(no_blob(id)) };
        let begin = blob.range(id, offset, len).map_err(|error| error.in_file(file.sink.path()))?;
        Ok((blob, &file.sink, file.data + begin))
    }
}

impl CheckpointWriter for Writer {
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        let (blob, sink, place) = self.place(blob, offset, bytes.len() as u64)?;
        sink.write_all_at(bytes, place)?;
        blob.count(bytes.len() as u64);
        Ok(())
    }

    fn copy_from(&self, blob: BlobId, offset: u64, range: &FileRange) -> Result<bool> {
        let (blob, sink, place) = self.place(blob, offset, range.bytes.len())?;
        let copied = sink.copy_from(place, range)?;
        if copied {
            blob.count(range.bytes.len());
            self.copied.fetch_add(range.bytes.len(), Ordering::Relaxed);
        }
        Ok(copied)
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Writer { commit, files, index, blobs, notes, copied } = *self;
        for (id, blob) in blobs.iter().enumerate() {
            blob.is_whole(id).map_err(|error| match files.get(blob.place.file) {
                Some(file) => error.in_file(file.sink.path()),
                None => error,
            })?;
        }
        let copied = Some(copied.into_inner()).filter(|&bytes| bytes > 0);
        let carried = copied.map(|bytes| Carried { how: "system copy", bytes, unused: 0 });
        Ok(Written { files: commit.commit(index.as_deref())?, notes, carried })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_beyond_the_reference_are_noted() {
        assert_eq!(header_note(100_000_000), None);
        assert!(header_note(99_999_999).is_none());
        assert!(header_note(100_000_001).unwrap().contains("100000008"));
    }
}
