//! Data files that become those of the output as they are: where only names, order or membership change, the index is
//! all there is to write.

use super::plan::Place;
use crate::names::{self, folder, shard_path};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use weightlift_core::{BlobId, Carried, Checksum, Error, FileRange, Files, Manifest, Result, Share};
use weightlift_io::Commit;

/// The layout of an output whose first data files are those of its source.
#[derive(Debug)]
pub(super) struct Shared {
    /// Where each blob begins.
    pub(super) places: Vec<Place>,
    /// Bytes of each data file.
    pub(super) lens: Vec<u64>,
    /// How many of them come over whole; one that is written may follow.
    pub(super) count: usize,
    pub(super) carried: Carried,
}

impl Shared {
    /// Takes the files over, where everything that the writer does not make itself is a verbatim copy with a known
    /// checksum and the file system can; begins nothing otherwise.
    ///
    /// # Errors
    /// `Request` where hard links are asked for and cannot be made; `Io`.
    pub(super) fn take(
        files: &dyn Files,
        commit: &mut Commit,
        manifest: &Manifest,
        own: &BTreeMap<BlobId, Vec<u8>>,
        share: Share,
        prefix: &Path,
    ) -> Result<Option<Shared>> {
        if matches!(share, Share::Never | Share::Copy) {
            return Ok(None);
        }
        let Some((sources, places)) = verbatim(manifest, own) else { return Ok(None) };
        if sources.is_empty() {
            return Ok(None);
        }
        let fresh: u64 = places.iter().zip(&manifest.blobs).filter(|(p, _)| p.is_none()).map(|(_, b)| b.bytes).sum();
        let total = sources.len() + usize::from(!own.is_empty());
        let Some(how) = Taker { files, commit, share, prefix, total: total as u32 }.all(&sources)? else {
            return Ok(None);
        };
        let mut lens = Vec::with_capacity(total);
        for source in &sources {
            lens.push(files.stat(source).map_err(|error| Error::io("cannot stat", source, error))?.len);
        }
        let bytes = lens.iter().fold(0, |sum: u64, len| sum.saturating_add(*len));
        let used = manifest.blobs.iter().zip(&places).filter(|(_, place)| place.is_some()).map(|(blob, _)| blob.bytes);
        let carried = Carried { how, bytes, unused: bytes.saturating_sub(used.sum()) };
        if !own.is_empty() {
            lens.push(fresh);
        }
        let mut end = 0;
        let place = |(place, blob): (Option<Place>, &weightlift_core::Blob)| {
            place.unwrap_or_else(|| {
                let offset = end;
                end += blob.bytes;
                Place { shard: sources.len() as u32, offset }
            })
        };
        let places = places.into_iter().zip(&manifest.blobs).map(place).collect();
        Ok(Some(Shared { places, lens, count: sources.len(), carried }))
    }
}

/// The files that blobs are copies from, and the place of each blob in them, `None` for the writer's own; nothing where
/// a blob is no such copy.
fn verbatim<'m>(
    manifest: &'m Manifest,
    own: &BTreeMap<BlobId, Vec<u8>>,
) -> Option<(Vec<&'m Path>, Vec<Option<Place>>)> {
    let mut ranges = Vec::with_capacity(manifest.blobs.len());
    for (at, blob) in (0..).zip(&manifest.blobs) {
        if own.contains_key(&BlobId(at)) {
            ranges.push(None);
            continue;
        }
        let range = manifest.verbatim.get(&BlobId(at))?;
        let known = matches!(blob.checksum, Some(Checksum::Crc32c(_) | Checksum::OfFormat(_)));
        if !known || range.bytes.len() != blob.bytes {
            return None;
        }
        ranges.push(Some(range));
    }
    let sources = in_order(ranges.iter().flatten().map(|range| range.path.as_path()));
    let shards: HashMap<&Path, u32> = sources.iter().copied().zip(0..).collect();
    let place = |range: &FileRange| Place { shard: shards[range.path.as_path()], offset: range.bytes.start() };
    let places = ranges.into_iter().map(|range| range.map(place)).collect();
    Some((sources, places))
}

/// The distinct files, bundle by bundle as they come, those of a bundle by their numbers.
fn in_order<'m>(paths: impl Iterator<Item = &'m Path>) -> Vec<&'m Path> {
    let mut bundles: HashMap<PathBuf, usize> = HashMap::new();
    let mut found: BTreeSet<(usize, &Path)> = BTreeSet::new();
    let mut seen: HashSet<&Path> = HashSet::new();
    for path in paths.filter(|path| seen.insert(path)) {
        let next = bundles.len();
        let bundle = *bundles.entry(names::prefix_of_data(path).unwrap_or_default()).or_insert(next);
        found.insert((bundle, path));
    }
    found.into_iter().map(|(_, path)| path).collect()
}

/// Takes data files over, one after the other.
struct Taker<'a> {
    files: &'a dyn Files,
    commit: &'a mut Commit,
    share: Share,
    prefix: &'a Path,
    /// How many data files the output has.
    total: u32,
}

impl Taker<'_> {
    /// How all of them came over; `None`, with nothing begun, where the file system cannot.
    fn all(self, sources: &[&Path]) -> Result<Option<&'static str>> {
        let in_place = sources.iter().map(|source| self.is_own(source)).collect::<Result<Vec<bool>>>()?;
        let mut begun = 0;
        for (shard, (source, in_place)) in (0..).zip(sources.iter().zip(&in_place)) {
            let target = shard_path(self.prefix, shard, self.total);
            if *in_place && self.is_same(source, &target) {
                continue;
            }
            let taken = match self.share {
                // What stays where it is bears another name only because the number of files is in it.
                _ if *in_place => self.commit.hard_link(source, &target)?,
                Share::HardLink => self.commit.hard_link(source, &target)?,
                _ => self.commit.reflink(source, &target)?,
            };
            if !taken {
                self.commit.take_back(begun);
                return if self.share == Share::HardLink { Err(no_link(source, &target)) } else { Ok(None) };
            }
            begun += 1;
        }
        Ok(Some(match self.share {
            _ if in_place.iter().all(|own| *own) => "in place",
            Share::HardLink => "hard link",
            _ => "reflink",
        }))
    }

    /// Whether a data file belongs to the bundle that is replaced.
    fn is_own(&self, source: &Path) -> Result<bool> {
        if names::prefix_of_data(source).and_then(|prefix| Some(prefix.file_name()? == self.prefix.file_name()?))
            != Some(true)
        {
            return Ok(false);
        }
        let real =
            |path: &Path| self.files.resolve(folder(path)).map_err(|error| Error::io("cannot resolve", path, error));
        Ok(real(source)? == real(self.prefix)?)
    }

    fn is_same(&self, a: &Path, b: &Path) -> bool {
        let id = |path: &Path| self.files.stat(path).ok().map(|stat| stat.id);
        id(a).is_some_and(|found| id(b) == Some(found))
    }
}

fn no_link(source: &Path, target: &Path) -> Error {
    let message = format!("cannot be a hard link of {}: the file system does not make one", source.display());
    Error::request(message).in_file(PathBuf::from(target)).help("--share copy copies; so does leaving --share out")
}
