//! Writing an archive.

use super::{RawCode, RawCodes, SUFFIX, name_problem};
use crate::header::{header, render};
use std::path::Path;
use std::sync::Arc;
use weightlift_archive::{ArchiveWriter, Layout, NewMember};
use weightlift_core::{
    BlobId, CheckpointWriter, DType, Error, Files, Manifest, Output, Packing, Result, WriteOptions, Written,
};
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
    let mut blobs = vec![None; manifest.blobs.len()];
    let mut members = Vec::with_capacity(manifest.tensors.len());
    let mut headers = Vec::with_capacity(manifest.tensors.len());
    for (number, output) in manifest.tensors.iter().enumerate() {
        let planned = plan(output, manifest, number, &mut blobs);
        let (member, header) = planned.map_err(|error| error.in_tensor(&output.name))?;
        members.push(member);
        headers.push(header);
    }
    let homeless = |blob| Error::request(format!("blob {blob} belongs to no tensor"));
    let blobs = blobs.into_iter().enumerate().map(|(blob, place)| place.ok_or_else(|| homeless(blob)));
    let blobs = blobs.collect::<Result<_>>()?;
    let layout = Layout::new(members, ALIGNMENT)?;
    let mut commit = Commit::new(files, options.replace);
    let archive = ArchiveWriter::create(commit.create(path)?, layout)?;
    for (number, header) in headers.iter().enumerate() {
        archive.write_at(number, 0, header)?;
    }
    Ok(Writer { commit, archive, blobs })
}

/// The member of a tensor and the header of its array.
fn plan(
    output: &Output,
    manifest: &Manifest,
    number: usize,
    blobs: &mut [Option<(usize, u64)>],
) -> Result<(NewMember, Vec<u8>)> {
    if let Some(problem) = name_problem(&output.name) {
        return Err(Error::request(format!("the name {problem}")));
    }
    let header = header_of(output, manifest)?;
    let dense = || Error::request("arrays are written dense, but this is a view or has several parts");
    let id = output.dense_blob().ok_or_else(dense)?.0 as usize;
    let (Some(blob), Some(place)) = (manifest.blobs.get(id), blobs.get_mut(id)) else {
        return Err(Error::request(format!("blob {id} does not exist")));
    };
    if place.replace((number, header.len() as u64)).is_some() {
        return Err(Error::request("it shares its bytes with another tensor, which an archive cannot express"));
    }
    let wanted = output.dtype.bytes(output.shape.elements(), Packing::Dense);
    if wanted.is_some_and(|wanted| wanted != blob.bytes) {
        let (found, wanted) = (blob.bytes, wanted.unwrap_or(0));
        return Err(Error::request(format!("its blob has {found} bytes, where {wanted} are needed")));
    }
    let bytes = blob.bytes.checked_add(header.len() as u64);
    let bytes = bytes.ok_or_else(|| Error::request("the array has more than 2^64 bytes"))?;
    Ok((NewMember { name: format!("{}{SUFFIX}", output.name), bytes }, header))
}

fn header_of(output: &Output, manifest: &Manifest) -> Result<Vec<u8>> {
    if output.packing != Packing::Dense {
        return Err(Error::request("arrays are written without bits between elements"));
    }
    if output.dtype != DType::Raw {
        return header(output.dtype, &output.shape);
    }
    let code = raw_code(output, manifest);
    let RawCode { code, fortran_order } =
        code.ok_or_else(|| Error::request("raw bytes that come from no archive of arrays have no type here"))?;
    Ok(render(code, *fortran_order, &output.shape))
}

/// The type that the bytes of a tensor had in the archive they come from.
fn raw_code<'m>(output: &Output, manifest: &'m Manifest) -> Option<&'m RawCode> {
    let origin = output.origin?;
    let (_, extras) = manifest.extras.iter().find(|(input, _)| *input == origin.input)?;
    extras.get::<RawCodes>()?.0.get(&origin.entry.0)
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
