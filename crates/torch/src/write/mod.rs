//! Writing a `torch.save` zip.

mod nest;
mod tensor;

use std::path::Path;
use std::sync::Arc;
use weightlift_archive::{ArchiveWriter, Layout, NewMember};
use weightlift_core::{
    Blob, BlobId, CheckpointWriter, Checksum, Error, FileRange, Files, Manifest, Result, WriteOptions, Written,
};
use weightlift_io::Commit;

/// Every storage starts at a multiple of this.
const ALIGN: u16 = 64;
/// The folder of all records, as PyTorch names it where it knows no file name.
const FOLDER: &str = "archive";

/// A checkpoint under way.
#[derive(Debug)]
pub(crate) struct TorchWriter {
    archive: ArchiveWriter,
    commit: Commit,
    blobs: Vec<Blob>,
}

/// The members that stand before the storages: name and bytes.
fn fixed_members(pickle: Vec<u8>) -> [(&'static str, Vec<u8>); 3] {
    [("data.pkl", pickle), ("byteorder", b"little".to_vec()), ("version", b"3\n".to_vec())]
}

impl TorchWriter {
    pub(crate) fn create(
        files: Arc<dyn Files>,
        path: &Path,
        manifest: &Manifest,
        options: &WriteOptions,
    ) -> Result<TorchWriter> {
        let pickle = nest::pickle(manifest).map_err(|error| error.in_file(path))?;
        let fixed = fixed_members(pickle);
        let named =
            |(name, bytes): &(&str, Vec<u8>)| NewMember { name: format!("{FOLDER}/{name}"), bytes: bytes.len() as u64 };
        let storage =
            |(key, blob): (usize, &Blob)| NewMember { name: format!("{FOLDER}/data/{key}"), bytes: blob.bytes };
        let members = fixed.iter().map(named).chain(manifest.blobs.iter().enumerate().map(storage));
        let layout = Layout::new(members.collect(), ALIGN).map_err(|error| error.in_file(path))?;
        let mut commit = Commit::new(files, options.replace);
        let archive = ArchiveWriter::create(commit.create(path)?, layout)?;
        for (member, (_, bytes)) in fixed.iter().enumerate() {
            archive.write_at(member, 0, bytes)?;
        }
        Ok(TorchWriter { archive, commit, blobs: manifest.blobs.clone() })
    }

    fn member(&self, blob: BlobId) -> Result<(usize, &Blob)> {
        let at = blob.0 as usize;
        let found = self.blobs.get(at).ok_or_else(|| Error::request(format!("no blob has number {at}")))?;
        Ok((fixed_members(Vec::new()).len() + at, found))
    }
}

impl CheckpointWriter for TorchWriter {
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.archive.write_at(self.member(blob)?.0, offset, bytes)
    }

    fn copy_from(&self, blob: BlobId, offset: u64, range: &FileRange) -> Result<bool> {
        match self.member(blob)? {
            // Only of whole storages is the checksum known without reading.
            (member, &Blob { bytes, checksum: Some(Checksum::Crc32(crc)) })
                if offset == 0 && range.bytes.len() == bytes =>
            {
                self.archive.copy_whole(member, range, crc)
            }
            _ => Ok(false),
        }
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        self.archive.finish()?;
        Ok(Written { files: self.commit.commit(None)?, notes: Vec::new() })
    }
}
