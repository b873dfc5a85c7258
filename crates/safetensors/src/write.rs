//! Writing: the header first, then the blobs at their places.

use crate::header::{self, LENGTH_BYTES};
use crate::layout::Layout;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weightlift_core::{BlobId, CheckpointWriter, Error, FileRange, Files, Manifest, Result, WriteOptions, Written};
use weightlift_io::{Commit, FileSink};

/// Longer headers are refused by the reference reader.
const READABLE_HEADER: usize = 100_000_000;

/// Starts a file.
pub(crate) fn create(
    files: Arc<dyn Files>,
    path: &Path,
    manifest: &Manifest,
    options: &WriteOptions,
) -> Result<Box<dyn CheckpointWriter>> {
    let Layout { header, blobs, bytes, mut notes } = Layout::new(manifest).map_err(|error| error.in_file(path))?;
    let text = header::render(&header)?;
    notes.extend(header_note(text.len()));
    let head = header::padded(&text);
    let start = head.len() as u64;
    let total = start.checked_add(bytes).filter(|&total| total <= i64::MAX as u64);
    let total = total.ok_or_else(|| Error::request("the file would have more than 2^63 bytes").in_file(path))?;
    let mut commit = Commit::new(files, options.replace);
    let sink = commit.create(path)?;
    sink.reserve(total)?;
    sink.write_all_at(&head, 0)?;
    let blobs = blobs.into_iter().map(|(begin, len)| Blob { start: start + begin, len, written: AtomicU64::new(0) });
    Ok(Box::new(Writer { commit, sink, blobs: blobs.collect(), notes }))
}

/// A warning for a header that the reference does not read.
fn header_note(length: usize) -> Option<String> {
    let length = length.next_multiple_of(LENGTH_BYTES as usize);
    (length > READABLE_HEADER).then(|| {
        format!("the header has {length} bytes, but the safetensors library reads {READABLE_HEADER} at the most")
    })
}

#[derive(Debug)]
struct Blob {
    start: u64,
    len: u64,
    written: AtomicU64,
}

/// A file under way: the header is there, the data arrive.
#[derive(Debug)]
struct Writer {
    commit: Commit,
    sink: Arc<FileSink>,
    blobs: Vec<Blob>,
    notes: Vec<String>,
}

impl Writer {
    /// The blob and the place in the file of `len` bytes at `offset` of it.
    fn place(&self, id: BlobId, offset: u64, len: u64) -> Result<(&Blob, u64)> {
        let request = |message: String| Error::request(message).in_file(self.sink.path());
        let blob = self.blobs.get(id.0 as usize).ok_or_else(|| request(format!("blob {} does not exist", id.0)))?;
        if offset.checked_add(len).is_none_or(|end| end > blob.len) {
            let message = format!("{len} bytes at {offset} of blob {}, which has {}", id.0, blob.len);
            return Err(request(message));
        }
        Ok((blob, blob.start + offset))
    }
}

impl CheckpointWriter for Writer {
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        let (blob, place) = self.place(blob, offset, bytes.len() as u64)?;
        self.sink.write_all_at(bytes, place)?;
        blob.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn copy_from(&self, blob: BlobId, offset: u64, range: &FileRange) -> Result<bool> {
        let (blob, place) = self.place(blob, offset, range.bytes.len())?;
        let copied = self.sink.copy_from(place, range)?;
        if copied {
            blob.written.fetch_add(range.bytes.len(), Ordering::Relaxed);
        }
        Ok(copied)
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Writer { commit, sink, blobs, notes } = *self;
        for (id, blob) in blobs.iter().enumerate() {
            let written = blob.written.load(Ordering::Relaxed);
            if written != blob.len {
                let message = format!("{written} of the {} bytes of blob {id} were written", blob.len);
                return Err(Error::request(message).in_file(sink.path()));
            }
        }
        Ok(Written { files: commit.commit(None)?, notes })
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
