//! Writing an archive.

use super::{SUFFIX, name_problem};
use crate::output::plan;
use std::path::Path;
use std::sync::Arc;
use weightlift_archive::{ArchiveWriter, Layout, NewMember};
use weightlift_core::{BlobId, CheckpointWriter, Error, Files, Manifest, Result, WriteOptions, Written};
use weightlift_io::Commit;

/// Data begin at a multiple of this: headers have such lengths, and so can be mapped.
const ALIGNMENT: u16 = 64;

/// An archive under way.
#[derive(Debug)]
pub(crate) struct Writer {
    commit: Commit,
    archive: ArchiveWriter,
    /// For each blob its member and the place of its first byte there.
    blobs: Vec<(usize, u64)>,
}

/// Starts an archive: members in the order of the tensors.
pub(crate) fn create(
    files: Arc<dyn Files>,
    path: &Path,
    manifest: &Manifest,
    options: &WriteOptions,
) -> Result<Writer> {
    for output in &manifest.tensors {
        if let Some(problem) = name_problem(&output.name) {
            return Err(Error::request(format!("the name {problem}")).in_tensor(&output.name));
        }
    }
    let (arrays, owners) = plan(manifest, options)?;
    let mut members = Vec::with_capacity(arrays.len());
    for (array, output) in arrays.iter().zip(&manifest.tensors) {
        let bytes = array.bytes.checked_add(array.header.len() as u64);
        let bytes =
            bytes.ok_or_else(|| Error::request("the array has more than 2^64 bytes").in_tensor(&output.name))?;
        members.push(NewMember { name: format!("{}{SUFFIX}", output.name), bytes });
    }
    let mut layout = Layout::new(members, ALIGNMENT)?;
    for (number, record) in arrays.iter().enumerate().filter_map(|(number, array)| Some((number, array.record?))) {
        layout.set_comment(number, &record.text());
    }
    let mut commit = Commit::new(files, options.replace);
    let archive = ArchiveWriter::create(commit.create(path)?, layout)?;
    for (number, array) in arrays.iter().enumerate() {
        archive.write_at(number, 0, &array.header)?;
    }
    let start = |&number: &usize| Some((number, arrays.get(number)?.header.len() as u64));
    Ok(Writer { commit, archive, blobs: owners.iter().filter_map(start).collect() })
}

impl CheckpointWriter for Writer {
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        let missing = || Error::request(format!("blob {} does not exist", blob.0));
        let &(member, start) = self.blobs.get(blob.0 as usize).ok_or_else(missing)?;
        self.archive.write_at(member, start.saturating_add(offset), bytes)
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Writer { commit, archive, .. } = *self;
        archive.finish()?;
        Ok(Written { files: commit.commit(None)?, notes: Vec::new(), carried: None })
    }
}
