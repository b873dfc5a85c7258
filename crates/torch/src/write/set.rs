//! Writing a sharded set: several archives, each a flat state dict, and the index beside them.

use super::{TorchWriter, first_storage, start};
use crate::checkpoint::Tree;
use foldhash::{HashSet, HashSetExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_archive::ArchiveWriter;
use weightlift_core::{
    Blob, BlobId, CheckpointWriter, Error, Files, KeyPath, Manifest, Output, Part, Result, WriteOptions, Written,
};
use weightlift_io::Commit;
use weightlift_shards::{Index, Target, split};

/// The extension of the files of a set.
const EXTENSION: &str = "bin";

/// A set under way.
#[derive(Debug)]
struct SetWriter {
    commit: Commit,
    archives: Vec<ArchiveWriter>,
    places: Places,
    index: PathBuf,
    notes: Vec<String>,
}

/// Starts a set of files of at most `limit` bytes of storages; what fits into one file is written as one.
pub(crate) fn create_set(
    files: Arc<dyn Files>,
    path: &Path,
    manifest: &Manifest,
    limit: u64,
    options: &WriteOptions,
) -> Result<Box<dyn CheckpointWriter>> {
    let named = |error: Error| error.in_file(path);
    let sizes: Vec<u64> = manifest.blobs.iter().map(|blob| blob.bytes).collect();
    let shards = split(&sizes, limit);
    let count = shards.last().map_or(1, |last| last + 1);
    let target = Target::new(path, EXTENSION, true, count).map_err(named)?;
    let stale = if options.replace { target.stale(files.as_ref()) } else { Vec::new() };
    let Some(index_path) = &target.index else {
        let single = target.files.first().map_or(path, PathBuf::as_path);
        let mut writer = TorchWriter::create(files, single, manifest, options)?;
        stale.into_iter().for_each(|path| writer.commit.remove_on_commit(path));
        return Ok(Box::new(writer));
    };
    if options.nest.is_some() {
        return Err(named(Error::request("--nest: the index of a set names tensors at the top of its files")));
    }
    let (parts, places) = divide(manifest, &shards, count).map_err(named)?;
    let mut commit = Commit::new(files, options.replace);
    let (mut archives, mut notes, mut index) = (Vec::with_capacity(count), Vec::new(), Index::default());
    for (path, part) in target.files.iter().zip(&parts) {
        archives.push(start(&mut commit, path, part, options)?.0);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        index.weight_map.extend(part.tensors.iter().map(|tensor| (tensor.name.clone(), file.clone().into_owned())));
    }
    if manifest.extras.iter().any(|(_, extras)| extras.get::<Tree>().is_some()) {
        notes.push("a set holds tensors alone: the objects around them stay behind".to_owned());
    }
    index.set_total_size(sizes.iter().fold(0, |sum, size| sum.saturating_add(*size)));
    let (text, note) = index.render();
    notes.extend(note);
    commit.create(index_path)?.write_all_at(text.as_bytes(), 0)?;
    stale.into_iter().for_each(|path| commit.remove_on_commit(path));
    Ok(Box::new(SetWriter { commit, archives, places, index: index_path.clone(), notes }))
}

/// For each blob its file, and its number there.
type Places = Vec<(usize, usize)>;

/// A manifest for each file, with tensors under their names, and for each blob its file and its number there.
fn divide(manifest: &Manifest, shards: &[usize], count: usize) -> Result<(Vec<Manifest>, Places)> {
    let mut parts = vec![Manifest::default(); count];
    let mut places = Vec::with_capacity(shards.len());
    for (Blob { bytes, checksum }, &shard) in manifest.blobs.iter().zip(shards) {
        let Some(part) = parts.get_mut(shard) else { continue };
        places.push((shard, part.add_blob(*bytes, *checksum).0 as usize));
    }
    let mut names = HashSet::new();
    for output in &manifest.tensors {
        if !names.insert(output.name.as_str()) {
            let error = Error::request("two tensors of this name, where those of a set differ");
            return Err(error.in_tensor(&output.name));
        }
        let place = |part: &Part| places.get(part.blob.0 as usize).copied();
        let placed: Option<Vec<(usize, usize)>> = output.parts.iter().map(place).collect();
        let shard = placed.as_ref().and_then(|placed| placed.first()).map(|(shard, _)| *shard);
        let part = shard.and_then(|shard| parts.get_mut(shard));
        let (Some(placed), Some(part)) = (placed, part) else {
            return Err(Error::request("a tensor without a blob").in_tensor(&output.name));
        };
        if placed.iter().any(|(other, _)| Some(*other) != shard) {
            return Err(Error::request("its bytes would lie in several files of the set").in_tensor(&output.name));
        }
        let renumber = |(part, (_, blob)): (&Part, (usize, usize))| Part { blob: BlobId(blob as u32), ..part.clone() };
        let own = output.parts.iter().zip(placed).map(renumber).collect();
        part.tensors.push(Output { parts: own, path: KeyPath::flat(&output.name), ..output.clone() });
    }
    Ok((parts, places))
}

impl CheckpointWriter for SetWriter {
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        let place = self.places.get(blob.0 as usize);
        let found = place.and_then(|&(shard, number)| Some((self.archives.get(shard)?, number)));
        let (archive, number) = found.ok_or_else(|| Error::request(format!("no blob has number {}", blob.0)))?;
        archive.write_at(first_storage() + number, offset, bytes)
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let SetWriter { commit, archives, index, notes, .. } = *self;
        archives.into_iter().try_for_each(ArchiveWriter::finish)?;
        Ok(Written { files: commit.commit(Some(&index))?, notes, carried: None })
    }
}
