//! A new header for a file whose tensors stay where they are.

use crate::header::{self, LENGTH_BYTES};
use crate::layout::Layout;
use crate::read::read_header;
use crate::write::header_note;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{
    BlobId, Carried, CheckpointWriter, Error, FileRange, Files, Manifest, OpenOptions, Result, WriteOptions, Written,
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
    let file_is = |range: &FileRange| is_same(files.as_ref(), path, &range.path);
    for (number, place) in layout.blobs.iter().enumerate().filter(|(_, place)| place.len > 0) {
        let range = manifest.verbatim.get(&BlobId(number as u32));
        let what = match range {
            None => "its values change",
            Some(range) if range.bytes.start() != old.data.start() + place.begin || !file_is(range) => {
                "its bytes would move"
            }
            Some(_) => continue,
        };
        let error = Error::request(format!("{what}, where --in-place changes the header alone")).help(HELP);
        return Err(named(
            match manifest.tensors.iter().find(|tensor| tensor.dense_blob() == Some(BlobId(number as u32))) {
                Some(tensor) => error.in_tensor(&tensor.name),
                None => error,
            },
        ));
    }
    let text = header::render(&file.header)?;
    let notes = layout.notes.iter().cloned().chain(header_note(text.len())).collect();
    let head = in_room(&text, old.data.start() - LENGTH_BYTES).map_err(named)?;
    Ok(Box::new(Writer { path: path.to_path_buf(), head, bytes: held, len: source.len(), files, notes }))
}

fn is_same(files: &dyn Files, one: &Path, other: &Path) -> bool {
    let id = |path| files.stat(path).ok().map(|stat| stat.id);
    one == other || id(one) == id(other)
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
    head: Vec<u8>,
    /// Bytes of tensors, which stay.
    bytes: u64,
    /// The length of the file.
    len: u64,
    notes: Vec<String>,
}

impl CheckpointWriter for Writer {
    fn write_at(&self, _: BlobId, _: u64, bytes: &[u8]) -> Result<()> {
        match bytes.is_empty() {
            true => Ok(()),
            false => Err(Error::request("bytes of a tensor that stays as it is").in_file(&self.path)),
        }
    }

    fn holds(&self, _: BlobId) -> bool {
        true
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        rewrite_head(self.files.as_ref(), &self.path, &self.head)?;
        let carried = Some(Carried { how: "in place", bytes: self.bytes, unused: 0 });
        Ok(Written { files: vec![(self.path, self.len)], notes: self.notes, carried })
    }
}
