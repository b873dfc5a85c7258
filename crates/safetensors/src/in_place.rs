//! A new header for a file whose tensors stay where they are.

use crate::header::{self, LENGTH_BYTES};
use crate::layout::Layout;
use crate::read::read_header;
use crate::write::{Blob, header_note, no_blob};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{
    BlobId, ByteRange, CheckpointWriter, Error, FileRange, Files, Manifest, OpenOptions, Result, Stat, WriteOptions,
    Written,
};
use weightlift_io::{FileSource, rewrite_head};

const HELP: &str = "without --in-place the file is written anew";

/// Starts a change of the header of the file at `path`.
///
/// # Errors
/// `Request` where the new header does not fit into the room of the old one, or the tensors are not those of the file.
pub(crate) fn create(
    files: Arc<dyn Files>,
    path: &Path,
    manifest: &Manifest,
    options: &WriteOptions,
) -> Result<Box<dyn CheckpointWriter>> {
    let named = |error: Error| error.in_file(path);
    if options.shard_size.is_some() {
        return Err(named(Error::request("a set of files is not changed in place").help(HELP)));
    }
    let source = FileSource::open(files.as_ref(), path)?;
    // What was harmless when the input was opened is so here.
    let mut lenient = OpenOptions::default();
    lenient.lenient = true;
    let old = read_header(&source, &lenient).map_err(named)?;
    let layout = Layout::new(manifest, options).map_err(named)?;
    let file = layout.files.first().ok_or_else(|| Error::request("nothing to write"))?;
    let held = old.header.tensors.iter().map(|tensor| tensor.end).max().unwrap_or(0);
    if file.bytes != held {
        let message = format!("the tensors would have {} bytes, where the file has {held}", file.bytes);
        return Err(named(Error::request(message).help(HELP)));
    }
    let text = header::render(&file.header)?;
    let notes = layout.notes.iter().cloned().chain(header_note(text.len())).collect();
    let head = in_room(&text, old.data.start() - LENGTH_BYTES).map_err(named)?;
    let stat = files.stat(path).map_err(|error| Error::io("cannot stat", path, error))?;
    let blobs = layout.blobs.iter().map(|&place| Blob::new(place)).collect();
    Ok(Box::new(Writer { files, path: path.to_path_buf(), stat, head, data: old.data, blobs, notes }))
}

/// The bytes before the data: a text padded to the length of the old one.
fn in_room(text: &str, room: u64) -> Result<Vec<u8>> {
    let needed = text.len() as u64;
    if needed > room {
        let message = format!("the new header needs {needed} bytes, but the old one left room for {room}");
        return Err(Error::request(message).help(HELP));
    }
    let mut head = room.to_le_bytes().to_vec();
    head.extend_from_slice(text.as_bytes());
    head.resize((LENGTH_BYTES + room) as usize, b' ');
    Ok(head)
}

/// A change under way: the file is touched only when it finishes.
#[derive(Debug)]
struct Writer {
    files: Arc<dyn Files>,
    path: PathBuf,
    stat: Stat,
    head: Vec<u8>,
    data: ByteRange,
    blobs: Vec<Blob>,
    notes: Vec<String>,
}

impl Writer {
    fn blob(&self, id: BlobId) -> Result<&Blob> {
        self.blobs.get(id.0 as usize).ok_or_else(|| no_blob(id))
    }

    fn is_this_file(&self, path: &Path) -> bool {
        path == self.path || self.files.stat(path).is_ok_and(|stat| stat.id == self.stat.id)
    }
}

impl CheckpointWriter for Writer {
    fn write_at(&self, _: BlobId, _: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        Err(Error::request("its values change, where --in-place changes the header alone")
            .in_file(&self.path)
            .help(HELP))
    }

    fn copy_from(&self, id: BlobId, offset: u64, range: &FileRange) -> Result<bool> {
        let blob = self.blob(id)?;
        let begin = self.data.start() + blob.range(id, offset, range.bytes.len())?;
        if range.bytes.len() > 0 && (range.bytes.start() != begin || !self.is_this_file(&range.path)) {
            let message = "its bytes would move, where --in-place changes the header alone";
            return Err(Error::request(message).in_file(&self.path).help(HELP));
        }
        blob.count(range.bytes.len());
        Ok(true)
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        for (id, blob) in self.blobs.iter().enumerate() {
            blob.is_whole(id).map_err(|error| error.in_file(&self.path))?;
        }
        rewrite_head(self.files.as_ref(), &self.path, &self.head)?;
        Ok(Written { files: vec![(self.path, self.stat.len)], notes: self.notes, carried: None })
    }
}
