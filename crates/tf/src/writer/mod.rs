//! Writing a bundle: data first, at offsets known beforehand, then the index.

mod plan;

use crate::bundle::VERSION;
use crate::names::{self, index_path, shard_path, shown};
use crate::proto::{BundleHeader, VersionDef};
use crate::table::TableWriter;
use crate::{locate, names::folder};
use plan::Plan;
use prost::Message;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weightlift_core::{
    Blob, BlobId, CheckpointWriter, Checksum, Error, FileKind, FileRange, Files, Manifest, Result, WriteOptions,
    Written,
};
use weightlift_io::{Commit, FileSink};
use weightlift_kernels::checksum::{Algorithm, Digest, crc32c, mask_crc32c};

/// A bundle under way.
#[derive(Debug)]
pub(crate) struct BundleWriter {
    plan: Plan,
    blobs: Vec<BlobState>,
    data: Arc<FileSink>,
    index: Arc<FileSink>,
    commit: Commit,
    notes: Vec<String>,
}

/// What has arrived of a blob.
#[derive(Debug)]
struct BlobState {
    blob: Blob,
    digest: Digest,
    copied: AtomicBool,
}

impl BundleWriter {
    /// Checks the manifest, lays out the files and starts them.
    pub(crate) fn create(
        files: Arc<dyn Files>,
        path: &Path,
        manifest: Manifest,
        options: &WriteOptions,
    ) -> Result<BundleWriter> {
        let plan = Plan::new(&manifest)?;
        let prefix = prefix_of(files.as_ref(), path)?;
        let mut commit = Commit::new(files.clone(), options.replace);
        let index = commit.create(&index_path(&prefix))?;
        let data_path = shard_path(&prefix, 0, 1);
        let data = commit.create(&data_path)?;
        data.reserve(plan.data_len)?;
        if options.replace {
            stale_shards(files.as_ref(), &prefix, &data_path)?.into_iter().for_each(|p| commit.remove_on_commit(p));
        }
        let state =
            |blob: Blob| BlobState { blob, digest: Digest::new(Algorithm::Crc32c), copied: AtomicBool::new(false) };
        let blobs = manifest.blobs.into_iter().map(state).collect();
        let notes = stale_meta(files.as_ref(), &prefix)?.into_iter().collect();
        Ok(BundleWriter { plan, blobs, data, index, commit, notes })
    }

    /// The state of a blob and where it begins in the data file.
    fn blob(&self, id: BlobId) -> Result<(&BlobState, u64)> {
        let at = id.0 as usize;
        let found = self.blobs.get(at).zip(self.plan.offsets.get(at).copied());
        found.ok_or_else(|| Error::request(format!("there is no blob {at}")))
    }

    /// The bytes of the index, now that every checksum is known.
    fn index_bytes(&self) -> Result<Vec<u8>> {
        let mut table = TableWriter::new();
        let version = Some(VersionDef { producer: VERSION, ..VersionDef::default() });
        table.add(b"", &BundleHeader { num_shards: 1, endianness: 0, version }.encode_to_vec());
        for planned in &self.plan.entries {
            let mut entry = planned.entry.clone();
            if let Some(blob) = planned.blob {
                let (state, _) = self.blob(blob)?;
                entry.crc32c = state.crc().map_err(|error| error.in_tensor(&planned.name))?;
            }
            table.add(&planned.key, &entry.encode_to_vec());
        }
        Ok(table.finish())
    }
}

impl BlobState {
    /// The checksum as the index stores it.
    fn crc(&self) -> Result<u32> {
        let bytes = self.blob.bytes;
        let written = self.digest.finish(bytes);
        match (self.copied.load(Ordering::Acquire), self.blob.checksum, written) {
            (true, Some(Checksum::Crc32c(crc)), _) if self.digest.covered() == 0 => Ok(mask_crc32c(crc)),
            (true, Some(Checksum::OfFormat(crc)), _) if self.digest.covered() == 0 => Ok(crc),
            (false, Some(Checksum::OfFormat(crc)), Some(_)) => Ok(crc),
            (false, _, Some(crc)) => Ok(mask_crc32c(crc)),
            (copied, ..) => {
                let arrived = self.digest.covered() + if copied { bytes } else { 0 };
                let message = format!("{arrived} bytes were written where each of {bytes} was due once");
                Err(Error::request(message))
            }
        }
    }
}

impl CheckpointWriter for BundleWriter {
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        let (state, start) = self.blob(blob)?;
        let len = bytes.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > state.blob.bytes) {
            let message = format!("{len} bytes at {offset} do not fit into blob {} of {}", blob.0, state.blob.bytes);
            return Err(Error::request(message));
        }
        state.digest.add(offset, len, crc32c(bytes));
        self.data.write_all_at(bytes, start + offset)
    }

    fn copy_from(&self, blob: BlobId, offset: u64, range: &FileRange) -> Result<bool> {
        let (state, start) = self.blob(blob)?;
        let whole = offset == 0 && range.bytes.len() == state.blob.bytes;
        let known = matches!(state.blob.checksum, Some(Checksum::Crc32c(_) | Checksum::OfFormat(_)));
        if !whole || !known || !self.data.copy_from(start, range)? {
            return Ok(false);
        }
        if state.copied.swap(true, Ordering::AcqRel) {
            return Err(Error::request(format!("blob {} was copied twice", blob.0)));
        }
        Ok(true)
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

/// The data files that a bundle of this prefix has left and the new one has not.
fn stale_shards(files: &dyn Files, prefix: &Path, ours: &Path) -> Result<Vec<PathBuf>> {
    let names = locate::list(files, folder(prefix))?;
    let paths = names.iter().map(|name| prefix.with_file_name(name));
    Ok(paths.filter(|path| path != ours && names::prefix_of_data(path).as_deref() == Some(prefix)).collect())
}

/// What to say of a graph beside the output.
fn stale_meta(files: &dyn Files, prefix: &Path) -> Result<Option<String>> {
    let meta = names::with_suffix(prefix, ".meta");
    let there = locate::stat(files, &meta)?.is_some();
    Ok(there.then(|| format!("{} is of an earlier save: its graph may not fit", shown(&meta))))
}
