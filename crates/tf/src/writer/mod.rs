//! Writing a bundle: data first, at offsets known beforehand, then the index.

mod blob;
mod plan;

use crate::bundle::VERSION;
use crate::names::{self, index_path, shard_path, shown};
use crate::proto::{BundleHeader, VersionDef};
use crate::table::TableWriter;
use crate::{locate, names::folder};
use blob::BlobState;
use plan::Plan;
use prost::Message;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{
    Blob, BlobId, CheckpointWriter, Error, FileKind, FileRange, Files, Manifest, Result, WriteOptions, Written,
};
use weightlift_io::{Commit, FileSink};

/// A bundle under way.
#[derive(Debug)]
pub(crate) struct BundleWriter {
    plan: Plan,
    blobs: Vec<BlobState>,
    /// The data files.
    shards: Vec<Arc<FileSink>>,
    index: Arc<FileSink>,
    commit: Commit,
    notes: Vec<String>,
}

impl BundleWriter {
    /// Checks the manifest, lays out the files and starts them.
    pub(crate) fn create(
        files: Arc<dyn Files>,
        path: &Path,
        manifest: Manifest,
        options: &WriteOptions,
    ) -> Result<BundleWriter> {
        let plan = Plan::new(&manifest, options.shard_size)?;
        let prefix = prefix_of(files.as_ref(), path)?;
        let mut commit = Commit::new(files.clone(), options.replace);
        let index = commit.create(&index_path(&prefix))?;
        let count = plan.shards.len() as u32;
        let mut shards = Vec::with_capacity(plan.shards.len());
        for (shard, &len) in (0..).zip(&plan.shards) {
            let sink = commit.create(&shard_path(&prefix, shard, count))?;
            sink.reserve(len)?;
            shards.push(sink);
        }
        if options.replace {
            stale_shards(files.as_ref(), &prefix, count)?.into_iter().for_each(|path| commit.remove_on_commit(path));
        }
        let strings = |at: usize| plan.strings.get(&BlobId(at as u32)).copied();
        let state = |(at, blob): (usize, Blob)| BlobState::new(blob, strings(at));
        let blobs = manifest.blobs.into_iter().enumerate().map(state).collect();
        let notes = stale_meta(files.as_ref(), &prefix)?.into_iter().collect();
        Ok(BundleWriter { plan, blobs, shards, index, commit, notes })
    }

    /// The state of a blob, its data file and where it begins there.
    fn blob(&self, id: BlobId) -> Result<(&BlobState, &FileSink, u64)> {
        let at = id.0 as usize;
        let find = || {
            let place = self.plan.places.get(at)?;
            Some((self.blobs.get(at)?, self.shards.get(place.shard as usize)?.as_ref(), place.offset))
        };
        find().ok_or_else(|| Error::request(format!("there is no blob {at}")))
    }

    /// The bytes of the index, now that every checksum is known.
    fn index_bytes(&self) -> Result<Vec<u8>> {
        let mut table = TableWriter::new();
        let version = Some(VersionDef { producer: VERSION, ..VersionDef::default() });
        table.add(b"", &BundleHeader { num_shards: self.shards.len() as i32, endianness: 0, version }.encode_to_vec());
        for planned in &self.plan.entries {
            let mut entry = planned.entry.clone();
            if let Some(blob) = planned.blob {
                let (state, ..) = self.blob(blob)?;
                entry.crc32c = state.crc().map_err(|error| error.in_tensor(&planned.name))?;
            }
            table.add(&planned.key, &entry.encode_to_vec());
        }
        Ok(table.finish())
    }
}

impl CheckpointWriter for BundleWriter {
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        let (state, file, start) = self.blob(blob)?;
        let len = bytes.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > state.blob.bytes) {
            let message = format!("{len} bytes at {offset} do not fit into blob {} of {}", blob.0, state.blob.bytes);
            return Err(Error::request(message));
        }
        state.add(offset, bytes);
        file.write_all_at(bytes, start + offset)
    }

    fn copy_from(&self, blob: BlobId, offset: u64, range: &FileRange) -> Result<bool> {
        let (state, file, start) = self.blob(blob)?;
        let whole = offset == 0 && range.bytes.len() == state.blob.bytes;
        let copied = whole && state.is_known() && file.copy_from(start, range)?;
        if copied {
            state.set_copied()?;
        }
        Ok(copied)
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let bytes = self.index_bytes()?;
        self.index.reserve(bytes.len() as u64)?;
        self.index.write_all_at(&bytes, 0)?;
        let files = self.commit.commit(Some(self.index.path()))?;
        Ok(Written { files, notes: self.notes })
    }
}

/// The prefix of an output that was named by its prefix or by one of its files.
fn prefix_of(files: &dyn Files, path: &Path) -> Result<PathBuf> {
    let named = names::without_suffix(path, ".index").or_else(|| names::prefix_of_data(path));
    let prefix = named.unwrap_or_else(|| path.to_path_buf());
    let is_folder = locate::stat(files, &prefix)?.is_some_and(|stat| stat.kind == FileKind::Dir);
    if is_folder || prefix.file_name().is_none() {
        let error = Error::request("is a folder, not the prefix of a checkpoint").in_file(&prefix);
        return Err(error.help(format!("give a name in it, such as {}", prefix.join("model.ckpt").display())));
    }
    Ok(prefix)
}

/// The data files that a bundle of this prefix has left and the new one of `count` files has not.
fn stale_shards(files: &dyn Files, prefix: &Path, count: u32) -> Result<Vec<PathBuf>> {
    let ours: HashSet<PathBuf> = (0..count).map(|shard| shard_path(prefix, shard, count)).collect();
    let names = locate::list(files, folder(prefix))?;
    let paths = names.iter().map(|name| prefix.with_file_name(name));
    Ok(paths.filter(|path| !ours.contains(path) && names::prefix_of_data(path).as_deref() == Some(prefix)).collect())
}

/// What to say of a graph beside the output.
fn stale_meta(files: &dyn Files, prefix: &Path) -> Result<Option<String>> {
    let meta = names::with_suffix(prefix, ".meta");
    let there = locate::stat(files, &meta)?.is_some();
    Ok(there.then(|| format!("{} is of an earlier save: its graph may not fit", shown(&meta))))
}
