//! Writing a bundle: data first, at offsets known beforehand, then the index.

mod blob;
mod objects;
mod plan;
mod share;

use crate::bundle::VERSION;
use crate::names::{self, index_path, shard_path, shown};
use crate::proto::{BundleHeader, VersionDef};
use crate::state::{self, StateFile};
use crate::table::TableWriter;
use crate::{locate, names::folder};
use blob::BlobState;
use plan::Plan;
use prost::Message;
use share::Shared;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weightlift_core::{
    Blob, BlobId, Carried, CheckpointWriter, Error, FileKind, FileRange, Files, Manifest, Result, WriteOptions, Written,
};
use weightlift_io::{Commit, FileSink};

/// A bundle under way.
#[derive(Debug)]
pub(crate) struct BundleWriter {
    plan: Plan,
    blobs: Vec<BlobState>,
    /// The data files; none where one comes over whole.
    shards: Vec<Option<Arc<FileSink>>>,
    index: Arc<FileSink>,
    state_file: Option<(Arc<FileSink>, StateFile)>,
    commit: Commit,
    notes: Vec<String>,
    carried: Option<Carried>,
    /// Bytes that the system copied.
    copied: AtomicU64,
}

impl BundleWriter {
    /// Checks the manifest alone.
    pub(crate) fn check(prefix: &Path, mut manifest: Manifest, options: &WriteOptions) -> Result<()> {
        objects::prepare(&mut manifest, options.object_graph, prefix)?;
        let (places, lens) = plan::lay_out(&manifest.blobs, u64::MAX)?;
        Plan::new(&manifest, places, lens).map(drop)
    }

    /// Checks the manifest, lays out the files and starts them.
    pub(crate) fn create(
        files: Arc<dyn Files>,
        path: &Path,
        mut manifest: Manifest,
        options: &WriteOptions,
    ) -> Result<BundleWriter> {
        let prefix = prefix_of(files.as_ref(), path)?;
        let own = objects::prepare(&mut manifest, options.object_graph, &prefix)?;
        let (places, lens) = plan::lay_out(&manifest.blobs, options.shard_size.unwrap_or(u64::MAX))?;
        // What a bundle cannot hold is told before a file is begun.
        let mut plan = Plan::new(&manifest, places, lens)?;
        let mut commit = Commit::new(files.clone(), options.replace);
        let index = commit.create(&index_path(&prefix))?;
        let shared = match options.shard_size {
            None => Shared::take(files.as_ref(), &mut commit, &manifest, &own.blobs, options.share, &prefix)?,
            Some(_) => None,
        };
        let (mut shards, mut carried) = (Vec::new(), None);
        if let Some(shared) = shared {
            plan = Plan::new(&manifest, shared.places, shared.lens)?;
            shards = vec![None; shared.count];
            carried = Some(shared.carried);
        }
        let (over, count) = (shards.len(), plan.shards.len() as u32);
        for (shard, &len) in (0..).zip(&plan.shards).skip(over) {
            let sink = commit.create(&shard_path(&prefix, shard, count))?;
            sink.reserve(len)?;
            shards.push(Some(sink));
        }
        if options.replace {
            stale_shards(files.as_ref(), &prefix, count)?.into_iter().for_each(|path| commit.remove_on_commit(path));
        }
        let strings = |at: usize| plan.strings.get(&BlobId(at as u32)).copied();
        let state = |(at, blob): (usize, Blob)| BlobState::new(blob, strings(at));
        let blobs = manifest.blobs.into_iter().enumerate().map(state).collect();
        let state_file =
            if options.state_file { Some(begin_state(files.as_ref(), &mut commit, &prefix)?) } else { None };
        let notes = own.notes.into_iter().chain(stale_meta(files.as_ref(), &prefix)?).collect();
        let copied = AtomicU64::new(0);
        let writer = BundleWriter { plan, blobs, shards, index, state_file, commit, notes, carried, copied };
        writer.fill(&own.blobs)?;
        Ok(writer)
    }

    /// Writes what the writer makes itself, and notes what came over whole.
    fn fill(&self, own: &BTreeMap<BlobId, Vec<u8>>) -> Result<()> {
        for (at, (state, place)) in (0..).zip(self.blobs.iter().zip(&self.plan.places)) {
            match (own.get(&BlobId(at)), self.shards.get(place.shard as usize)) {
                (Some(bytes), Some(Some(file))) => {
                    state.add(0, bytes);
                    file.write_all_at(bytes, place.offset)?;
                    state.set_held();
                }
                (None, Some(None)) => {
                    state.set_copied()?;
                    state.set_held();
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The state of a blob, its data file and where it begins there.
    fn blob(&self, id: BlobId) -> Result<(&BlobState, &FileSink, u64)> {
        let at = id.0 as usize;
        let find = || {
            let place = self.plan.places.get(at)?;
            Some((self.blobs.get(at)?, self.shards.get(place.shard as usize)?.as_deref()?, place.offset))
        };
        find().ok_or_else(|| Error::request(format!("there is no blob {at} to write")))
    }

    fn state(&self, id: BlobId) -> Result<&BlobState> {
        self.blobs.get(id.0 as usize).ok_or_else(|| Error::request(format!("there is no blob {}", id.0)))
    }

    /// The bytes of the index, now that every checksum is known.
    fn index_bytes(&self) -> Result<Vec<u8>> {
        let mut table = TableWriter::new();
        let version = Some(VersionDef { producer: VERSION, ..VersionDef::default() });
        table.add(b"", &BundleHeader { num_shards: self.shards.len() as i32, endianness: 0, version }.encode_to_vec());
        for planned in &self.plan.entries {
            let mut entry = planned.entry.clone();
            if let Some(blob) = planned.blob {
                entry.crc32c = self.state(blob)?.crc().map_err(|error| error.in_tensor(&planned.name))?;
            }
            table.add(&planned.key, &entry.encode_to_vec());
        }
        Ok(table.finish())
    }
}

impl CheckpointWriter for BundleWriter {
    fn holds(&self, blob: BlobId) -> bool {
        self.state(blob).is_ok_and(BlobState::is_held)
    }

    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.holds(blob) {
            return Ok(());
        }
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
        if self.holds(blob) {
            return Ok(true);
        }
        let (state, file, start) = self.blob(blob)?;
        let whole = offset == 0 && range.bytes.len() == state.blob.bytes;
        let copied = whole && state.is_known() && file.copy_from(start, range)?;
        if copied {
            state.set_copied()?;
            self.copied.fetch_add(range.bytes.len(), Ordering::Relaxed);
        }
        Ok(copied)
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let bytes = self.index_bytes()?;
        self.index.reserve(bytes.len() as u64)?;
        self.index.write_all_at(&bytes, 0)?;
        if let Some((sink, state)) = &self.state_file {
            let text = state.to_text();
            sink.reserve(text.len() as u64)?;
            sink.write_all_at(text.as_bytes(), 0)?;
        }
        let copied = self.copied.into_inner();
        let by_system = (copied > 0).then_some(Carried { how: "system copy", bytes: copied, unused: 0 });
        let files = self.commit.commit(Some(self.index.path()))?;
        Ok(Written { files, notes: self.notes, carried: self.carried.or(by_system) })
    }
}

/// Begins the new state file: the old one with this checkpoint as the latest.
fn begin_state(files: &dyn Files, commit: &mut Commit, prefix: &Path) -> Result<(Arc<FileSink>, StateFile)> {
    let path = folder(prefix).join(state::FILE_NAME);
    let mut state = match locate::stat(files, &path)? {
        Some(_) => locate::read_state(files, &path)
            .map_err(|error| error.help("it is not replaced: move it away, or leave out --state-file"))?,
        None => StateFile::default(),
    };
    let name = prefix.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::request("a state file names checkpoints in UTF-8").in_file(prefix))?;
    state.forget(|known| known != name && folder(&path).join(known) == prefix);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    state.push(name, now.map_or(0.0, |time| time.as_secs_f64()));
    Ok((commit.update(&path)?, state))
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
    if locate::is_table_file(files, &prefix)? {
        let error = Error::request("is a checkpoint of version 1, which is read and never written").in_file(&prefix);
        return Err(error.help("write to another name: every TensorFlow since 0.12 reads what is written there"));
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
