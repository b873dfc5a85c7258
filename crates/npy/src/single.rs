//! Writing one array into a file of its own.

use crate::output::plan;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weightlift_core::{BlobId, CheckpointWriter, Error, Files, Manifest, Result, WriteOptions, Written};
use weightlift_io::{Commit, FileSink};

/// An array under way.
#[derive(Debug)]
struct Writer {
    commit: Commit,
    sink: Arc<FileSink>,
    start: u64,
    bytes: u64,
    written: AtomicU64,
    notes: Vec<String>,
}

/// Starts a file of one array.
///
/// # Errors
/// `Request` for another number of tensors.
pub(crate) fn create(
    files: Arc<dyn Files>,
    path: &Path,
    manifest: &Manifest,
    options: &WriteOptions,
) -> Result<Box<dyn CheckpointWriter>> {
    let (arrays, _) = plan(manifest, options).map_err(|error| error.in_file(path))?;
    let [array] = &arrays[..] else {
        let error = Error::request(format!("{} tensors for one .npy file", arrays.len())).in_file(path);
        return Err(error.help("an output without that extension is a folder of arrays; .npz is an archive of them"));
    };
    let lost = |record: &crate::record::Record| format!("the file itself cannot say what it is: {}", record.text());
    let notes = array.record.iter().map(lost).collect();
    let mut commit = Commit::new(files, options.replace);
    let sink = commit.create(path)?;
    sink.reserve(array.header.len() as u64 + array.bytes)?;
    sink.write_all_at(&array.header, 0)?;
    let (start, bytes) = (array.header.len() as u64, array.bytes);
    Ok(Box::new(Writer { commit, sink, start, bytes, written: AtomicU64::new(0), notes }))
}

impl CheckpointWriter for Writer {
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        if blob.0 != 0 || offset.checked_add(len).is_none_or(|end| end > self.bytes) {
            let (blob, room) = (blob.0, self.bytes);
            return Err(Error::request(format!("{len} bytes at {offset} of blob {blob}, where the array has {room}")));
        }
        self.sink.write_all_at(bytes, self.start + offset)?;
        self.written.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Writer { commit, sink, bytes, written, notes, .. } = *self;
        let written = written.into_inner();
        if written != bytes {
            let error = Error::request(format!("{written} of its {bytes} bytes were written"));
            return Err(error.in_file(sink.path()));
        }
        Ok(Written { files: commit.commit(None)?, notes, carried: None })
    }
}
