//! Writing a `torch.save` zip.

mod allowed;
mod calls;
mod edit;
mod home;
mod inert;
mod keep;
mod nest;
mod set;
mod tensor;

pub(crate) use set::create_set;

use crate::checkpoint::Tree;
use crate::storage::Stored;
use std::io::Read;
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
    notes: Vec<String>,
}

/// The members that stand before the storages: name and bytes.
fn fixed_members(pickle: Vec<u8>) -> [(&'static str, Vec<u8>); 3] {
    [("data.pkl", pickle), ("byteorder", b"little".to_vec()), ("version", b"3\n".to_vec())]
}

/// What the pickle says, and what it needs beside the blobs.
struct Content<'a> {
    pickle: Vec<u8>,
    carried: Vec<Stored>,
    tree: Option<&'a Tree>,
}

/// The pickle of a manifest: the tree of the first input that has one, changed; or the tensors under their paths.
fn content<'a>(manifest: &'a Manifest, options: &WriteOptions) -> Result<Content<'a>> {
    let placed = nest::placed(manifest)?;
    let trees = manifest.extras.iter().filter_map(|(input, extras)| Some((*input, extras.get::<Tree>()?)));
    if let Some((input, tree)) = trees.min_by_key(|(input, _)| *input)
        && let Some(edits) = edit::plan(tree, input, &manifest.tensors, &manifest.emptied)?
    {
        let (pickle, carried) = keep::pickle(tree, &edits, manifest, &placed, options)?;
        return Ok(Content { pickle, carried, tree: Some(tree) });
    }
    Ok(Content { pickle: nest::pickle(manifest, &placed, options.nest.as_deref())?, carried: Vec::new(), tree: None })
}

/// What of a tree stays behind when it is written back.
///
/// # Errors
/// `Request` where it has calls that are not known to be inert.
pub(crate) fn left_behind(tree: &Tree, options: &WriteOptions) -> Result<Vec<String>> {
    if options.weights_only {
        return Ok(allowed::Verdicts::of(tree).lines(tree));
    }
    if !options.keep_calls {
        calls::check_calls(tree)?;
    }
    Ok(Vec::new())
}

/// Copies the bytes of a storage, a piece at a time.
fn copy(tree: &Tree, stored: &Stored, mut write: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let mut reader = tree.spaces.reader(stored.source, stored.bytes, &tree.limits)?;
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    while at < stored.bytes.len() {
        let most = (stored.bytes.len() - at).min(piece.len() as u64) as usize;
        reader.read_exact(&mut piece[..most]).map_err(|error| match error.downcast::<Error>() {
            Ok(inner) => inner,
            Err(error) => Error::malformed(format!("a storage cannot be read: {error}")),
        })?;
        write(at, &piece[..most])?;
        at += most as u64;
    }
    Ok(())
}

/// The number of the first storage among the members.
fn first_storage() -> usize {
    fixed_members(Vec::new()).len()
}

/// Starts one archive of a commit, all but the storages of the blobs written. Answers notes too.
fn start(
    commit: &mut Commit,
    path: &Path,
    manifest: &Manifest,
    options: &WriteOptions,
) -> Result<(ArchiveWriter, Vec<String>)> {
    let Content { pickle, carried, tree } = content(manifest, options).map_err(|error| error.in_file(path))?;
    let fixed = fixed_members(pickle);
    let named =
        |(name, bytes): &(&str, Vec<u8>)| NewMember { name: format!("{FOLDER}/{name}"), bytes: bytes.len() as u64 };
    let lengths = manifest.blobs.iter().map(|blob| blob.bytes).chain(carried.iter().map(|stored| stored.bytes.len()));
    let storage = |(key, bytes): (usize, u64)| NewMember { name: format!("{FOLDER}/data/{key}"), bytes };
    let members = fixed.iter().map(named).chain(lengths.enumerate().map(storage));
    let layout = Layout::new(members.collect(), ALIGN).map_err(|error| error.in_file(path))?;
    let archive = ArchiveWriter::create(commit.create(path)?, layout)?;
    for (member, (_, bytes)) in fixed.iter().enumerate() {
        archive.write_at(member, 0, bytes)?;
    }
    let first = fixed.len() + manifest.blobs.len();
    for (at, stored) in carried.iter().enumerate() {
        if let Some(tree) = tree {
            copy(tree, stored, |offset, bytes| archive.write_at(first + at, offset, bytes))?;
        }
    }
    let notes = match carried.len() {
        0 => Vec::new(),
        count => vec![format!("{count} storages that are no listed tensor's went along as they are")],
    };
    Ok((archive, notes))
}

impl TorchWriter {
    pub(crate) fn create(
        files: Arc<dyn Files>,
        path: &Path,
        manifest: &Manifest,
        options: &WriteOptions,
    ) -> Result<TorchWriter> {
        let mut commit = Commit::new(files, options.replace);
        let (archive, notes) = start(&mut commit, path, manifest, options)?;
        Ok(TorchWriter { archive, commit, blobs: manifest.blobs.clone(), notes })
    }

    fn member(&self, blob: BlobId) -> Result<(usize, &Blob)> {
        let at = blob.0 as usize;
        let found = self.blobs.get(at).ok_or_else(|| Error::request(format!("no blob has number {at}")))?;
        Ok((first_storage() + at, found))
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
        Ok(Written { files: self.commit.commit(None)?, notes: self.notes, carried: None })
    }
}
