//! From a resolved plan to a manifest and the jobs that fill its blobs.

use crate::inputs::{Inputs, Place};
use crate::items::Identity;
use crate::pieces;
use crate::plan::{Change, OutputSpec, Resolved};
use crate::run::Options;
use crate::storages::{Segment, Storage, Storages};
use crate::target::Target;
use crate::tiles::{BOX_TILES, Tiles};
use crate::value::Value;
use std::collections::{HashMap, HashSet};
use weightlift_core::{
    BlobId, ByteOrder, ByteRange, Checksum, DType, Extent, FileRange, Layout, Manifest, Origin, Output, Packing, Part,
    Region, Result, Shape, Source, SourceId,
};
use weightlift_kernels::cast::CastPair;
use weightlift_kernels::checksum::{Algorithm, Digest};

/// How the elements of a job are read.
#[derive(Debug)]
pub(crate) enum Way {
    /// They follow each other in the source.
    Run { input: u32, source: SourceId, bytes: ByteRange, order: ByteOrder },
    /// They are picked or made box by box.
    Boxes,
}

/// What fills one blob.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) value: Value,
    pub(crate) blob: BlobId,
    /// The first byte of the blob that it fills.
    pub(crate) at: u64,
    /// The first output over what it fills.
    pub(crate) output: usize,
    pub(crate) dtype: DType,
    pub(crate) cast: Option<CastPair>,
    pub(crate) way: Way,
    pub(crate) tiles: Tiles,
    /// Bytes of an element as it is read.
    pub(crate) read: u64,
    /// Bytes of an element as it is written.
    pub(crate) written: u64,
    /// The extent of the value's entry whose elements it reads, where it reads those of one only.
    pub(crate) extent: Option<usize>,
    /// The checksum that its bytes are verified against while they pass.
    pub(crate) check: Option<usize>,
}

impl Job {
    /// About how many bytes of inputs it reads; `of` says how many a tensor of one has.
    pub(crate) fn source_bytes(&self, of: &dyn Fn(Origin) -> u64) -> u64 {
        if self.value.entry().is_some() {
            return self.bytes();
        }
        let (own, all) = (self.tiles.elements(), self.value.shape().elements().max(1));
        (u128::from(self.value.reads(of)) * u128::from(own) / u128::from(all)) as u64
    }

    /// Bytes of the elements that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.tiles.elements() * self.read
    }
}

/// A stored checksum to verify.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) origin: Origin,
    pub(crate) source: SourceId,
    pub(crate) range: ByteRange,
    pub(crate) checksum: Checksum,
    /// Collects what passes, where a job reads the range exactly once; otherwise a pass of its own comes first.
    pub(crate) digest: Option<(Digest, u32)>,
}

/// Everything the pipeline needs.
#[derive(Debug, Default)]
pub(crate) struct Blueprint {
    /// Bytes of input that a tile aims at.
    tile: u64,
    pub(crate) manifest: Manifest,
    pub(crate) jobs: Vec<Job>,
    pub(crate) checks: Vec<Check>,
    /// Entries whose format checks them itself.
    pub(crate) of_format: Vec<Origin>,
    /// Bytes of storages that no tensor reaches and that are not written.
    pub(crate) dropped: u64,
}

/// What one blob is made for.
#[derive(Clone, Copy)]
enum Lead {
    /// An output, or one piece of it.
    Output(usize, Option<usize>),
    Storage(usize),
}

impl Lead {
    fn piece(self) -> Option<usize> {
        match self {
            Lead::Output(_, piece) => piece,
            Lead::Storage(_) => None,
        }
    }
}

impl Blueprint {
    pub(crate) fn new(
        resolved: &Resolved,
        inputs: Inputs<'_>,
        target: &Target,
        options: &Options,
    ) -> Result<Blueprint> {
        let mut blueprint = Blueprint { tile: options.tile_bytes.max(1), ..Blueprint::default() };
        let storages = Storages::of(resolved, inputs, target)?;
        let leaders = leaders(resolved, inputs, target);
        let alone = |index: &usize| leaders[*index] == *index && storages.of_output[*index].is_none();
        let pieces = |index: usize| {
            let output = &resolved.outputs[index];
            let made: Vec<Option<usize>> = (0..output.pieces.len()).map(Some).collect();
            let pieces = if made.is_empty() { pieces::of(&output.value, inputs, target) } else { made };
            pieces.into_iter().map(move |piece| (index, Lead::Output(index, piece)))
        };
        let mut leads: Vec<(usize, Lead)> = (0..leaders.len()).filter(alone).flat_map(pieces).collect();
        let shared = storages.storages.iter().enumerate().map(|(at, storage)| (storage.output, Lead::Storage(at)));
        leads.extend(shared);
        leads.sort_by_key(|(index, _)| *index);
        if inputs.edited().format == target.id {
            // Back into the same format: data keep the order that they have there.
            leads.sort_by_key(|(index, lead)| position(&resolved.outputs[*index].value, lead.piece(), inputs));
        }
        let (mut parts, mut of_storage) = (HashMap::new(), vec![BlobId(0); storages.storages.len()]);
        for (_, lead) in leads {
            match lead {
                Lead::Output(index, piece) => {
                    let part = blueprint.add_job(index, piece, &resolved.outputs[index], inputs, target)?;
                    parts.entry(index).or_insert_with(Vec::new).push((piece, part));
                }
                Lead::Storage(at) => {
                    of_storage[at] = blueprint.add_storage(&storages.storages[at], resolved, inputs)?;
                }
            }
        }
        parts.values_mut().for_each(|parts| parts.sort_by_key(|(piece, _)| *piece));
        for (index, output) in resolved.outputs.iter().enumerate() {
            let parts = match (&storages.of_output[index], parts.get(&leaders[index])) {
                (Some((storage, layout)), _) => {
                    let (blob, layout) = (of_storage[*storage], layout.clone());
                    vec![Part { blob, layout, region: Region::whole(&output.shape) }]
                }
                (None, parts) => parts.into_iter().flatten().map(|(_, part)| part.clone()).collect(),
            };
            blueprint.manifest.tensors.push(describe(output, parts));
        }
        if let Some(extras) = inputs.edited().extras.as_ref().filter(|_| resolved.carries_extras) {
            blueprint.manifest.extras.push((0, extras.clone()));
            blueprint.manifest.emptied.clone_from(&resolved.emptied);
        }
        blueprint.jobs.sort_by_key(|job| position(&job.value, job.extent, inputs));
        if options.verify {
            blueprint.plan_checks(inputs)?;
        }
        Ok(blueprint)
    }

    /// What to say of tensors that share a storage in the input and no longer do.
    pub(crate) fn parted_note(&self, resolved: &Resolved, inputs: Inputs<'_>) -> Option<String> {
        let mut storages: HashMap<_, Vec<Origin>> = HashMap::new();
        for output in &resolved.outputs {
            if let Some(origin) = output.origin
                && let Ok([extent]) = inputs.entry(origin).extents()
                && output.bytes > 0
            {
                storages.entry((origin.input, extent.source, extent.bytes)).or_default().push(origin);
            }
        }
        let mut shared: HashMap<BlobId, usize> = HashMap::new();
        for output in &self.manifest.tensors {
            output.parts.iter().for_each(|part| *shared.entry(part.blob).or_default() += 1);
        }
        let still_share = |output: &&Output| output.parts.iter().any(|part| shared[&part.blob] > 1);
        let kept: HashSet<_> = self.manifest.tensors.iter().filter(still_share).filter_map(|o| o.origin).collect();
        let several = storages.values().filter(|entries| entries.len() > 1).flatten();
        match several.filter(|entry| !kept.contains(entry)).count() {
            0 => None,
            count => Some(format!("{count} tensors shared storage with others and are now stored apart")),
        }
    }

    /// What to say of storage that is left behind.
    pub(crate) fn dropped_note(&self) -> Option<String> {
        let dropped = self.dropped;
        let note =
            || format!("{dropped} bytes of storage that no tensor uses are left behind (--keep-storages keeps them)");
        (dropped > 0).then(note)
    }

    /// Adds the job that fills one blob: that of an output, or of one piece of it.
    fn add_job(
        &mut self,
        index: usize,
        piece: Option<usize>,
        output: &OutputSpec,
        inputs: Inputs<'_>,
        target: &Target,
    ) -> Result<Part> {
        // A piece of what steps made is a value of its own.
        let made = piece.and_then(|piece| output.pieces.get(piece)).cloned();
        let value = match &made {
            Some(region) => output.value.boxed(region)?,
            None => output.value.clone(),
        };
        let piece = piece.filter(|_| made.is_none());
        let (way, tiles, read) = way_of(&value, piece, inputs, self.tile)?;
        let cast = match output.change {
            Change::Cast(pair) => Some(pair),
            Change::Copy => None,
        };
        let written = match cast {
            Some(_) => output.to.element_bytes(output.packing).unwrap_or(read),
            None => read,
        };
        let one = piece.or_else(|| matches!(way, Way::Run { .. }).then_some(0));
        let extent = one.and_then(|one| pieces::extent(&value, one, inputs));
        let apart = piece.is_some() || made.is_some();
        let region = match (made, extent.filter(|_| piece.is_some())) {
            (Some(region), _) => region,
            (None, Some(extent)) => extent.region.clone(),
            (None, None) => Region::whole(&output.shape),
        };
        let bytes = if apart { tiles.elements() * written } else { output.bytes };
        let checksum = extent.and_then(|extent| carried_checksum(extent, &way, cast));
        let blob = self.manifest.add_blob(bytes, checksum);
        let same = extent.filter(|extent| is_verbatim(extent, &way, cast));
        if let (Some(origin), Some(extent)) = (value.entry(), same) {
            let catalog = inputs.catalog(origin.input);
            if let (Source::File { path, .. }, true) = (catalog.source(extent.source), catalog.format == target.id) {
                self.manifest.verbatim.insert(blob, FileRange { path: path.clone(), bytes: extent.bytes });
            }
        }
        let (at, dtype, output, extent, check) = (0, value.dtype(), index, one, None);
        self.jobs.push(Job { value, blob, at, output, dtype, cast, way, tiles, read, written, extent, check });
        Ok(Part { blob, layout: Layout::contiguous(&region.size), region })
    }

    /// A job for each segment of a storage.
    fn add_storage(&mut self, storage: &Storage, resolved: &Resolved, inputs: Inputs<'_>) -> Result<BlobId> {
        let Storage { input, source, order, output, elements, .. } = *storage;
        let OutputSpec { to, packing, change, .. } = resolved.outputs[output];
        let element = resolved.outputs[output].from.element_bytes(Packing::Dense).unwrap_or(1);
        let (cast, written) = match change {
            Change::Cast(pair) => (Some(pair), to.element_bytes(packing).unwrap_or(element)),
            Change::Copy => (None, element),
        };
        let blob = self.manifest.add_blob(elements.saturating_mul(written), None);
        for &Segment { output, at, run } in &storage.segments {
            let value = resolved.outputs[output].value.clone();
            let (way, tiles, read) = match run {
                Some(bytes) => {
                    let flat = Shape::new([bytes.len() / element])?;
                    (Way::Run { input, source, bytes, order }, Tiles::of(&flat, self.tile / element), element)
                }
                None => way_of(&value, None, inputs, self.tile)?,
            };
            let extent = matches!(way, Way::Run { .. }).then_some(0);
            let one = extent.and_then(|one| pieces::extent(&value, one, inputs));
            if let ([_], Some(one)) = (storage.segments.as_slice(), one) {
                self.manifest.blobs[blob.0 as usize].checksum = carried_checksum(one, &way, cast);
            }
            let (at, dtype, check) = (at * written, value.dtype(), None);
            self.jobs.push(Job { value, blob, at, output, dtype, cast, way, tiles, read, written, extent, check });
        }
        self.dropped = self.dropped.saturating_add(storage.dropped);
        Ok(blob)
    }

    /// Lists every stored checksum once, fused into a job where one reads its range exactly once.
    fn plan_checks(&mut self, inputs: Inputs<'_>) -> Result<()> {
        let mut known = HashSet::new();
        for job in &mut self.jobs {
            let (Way::Run { source, bytes, .. }, Some(origin)) = (&job.way, job.value.entry()) else { continue };
            let Some(extent) = job.extent.and_then(|one| pieces::extent(&job.value, one, inputs)) else { continue };
            let Some((algorithm, stored)) = extent.checksum.and_then(Algorithm::expected) else { continue };
            if *bytes == extent.bytes && bytes.len() > 0 && known.insert((origin.input, *source, *bytes)) {
                job.check = Some(self.checks.len());
                self.checks.push(check(origin, extent, Some((Digest::new(algorithm), stored))));
            }
        }
        for origin in self.jobs.iter().flat_map(|job| job.value.entries()) {
            for extent in inputs.entry(origin).extents()? {
                match extent.checksum {
                    Some(Checksum::OfFormat(_)) => self.of_format.push(origin),
                    Some(_) if known.insert((origin.input, extent.source, extent.bytes)) => {
                        self.checks.push(check(origin, extent, None));
                    }
                    _ => {}
                }
            }
        }
        let mut seen = HashSet::new();
        self.of_format.retain(|origin| seen.insert(*origin));
        Ok(())
    }
}

fn check(origin: Origin, extent: &Extent, digest: Option<(Digest, u32)>) -> Check {
    let checksum = extent.checksum.unwrap_or(Checksum::OfFormat(0));
    Check { origin, source: extent.source, range: extent.bytes, checksum, digest }
}

/// For every output the first output whose blob it can share: itself where it shares none.
fn leaders(resolved: &Resolved, inputs: Inputs<'_>, target: &Target) -> Vec<usize> {
    let mut first = HashMap::new();
    let mut leaders = Vec::with_capacity(resolved.outputs.len());
    for (index, output) in resolved.outputs.iter().enumerate() {
        let bytes = match output.value.entry() {
            Some(origin) => Place::of(origin.input, inputs.entry(origin)).map(Identity::Stored),
            None => Some(Identity::Made(output.value.address())),
        };
        // Tensors without bytes have nothing to share.
        let bytes = bytes.filter(|_| target.capabilities.shares_storage && output.bytes > 0);
        leaders.push(match bytes {
            Some(bytes) => *first.entry((bytes, &output.shape, output.from, output.to)).or_insert(index),
            None => index,
        });
    }
    leaders
}

/// Where the bytes of a value begin and how many there are, or of one extent of it: else those of the first tensor that
/// it reads. A tensor without bytes comes before the one that begins at its place.
fn position(value: &Value, extent: Option<usize>, inputs: Inputs<'_>) -> (u32, SourceId, u64, u64) {
    let origin = value.entry().or_else(|| value.entries().first().copied());
    let found = |origin: Origin| Some((origin.input, inputs.entry(origin).extents().ok()?.get(extent.unwrap_or(0))?));
    let place = |(input, e): (u32, &Extent)| (input, e.source, e.bytes.start(), e.bytes.len());
    origin.and_then(found).map_or((0, SourceId(0), 0, 0), place)
}

/// How a value is read, or one extent of it; the tiles, and the bytes of one element of them.
fn way_of(value: &Value, piece: Option<usize>, inputs: Inputs<'_>, tile: u64) -> Result<(Way, Tiles, u64)> {
    let Some(origin) = value.entry() else {
        let read = value.element()?;
        let cut = if value.crosses() { Tiles::square } else { Tiles::of };
        return Ok((Way::Boxes, cut(value.shape(), BOX_TILES * tile / read), read));
    };
    let entry = inputs.entry(origin);
    let extents = entry.extents()?;
    let packing = extents.first().map_or(Packing::Dense, |extent| extent.packing);
    let one = piece.or((extents.len() == 1).then_some(0)).and_then(|at| extents.get(at));
    if let Some(extent) = one
        && let Some(bytes) = pieces::run(entry, extent)
    {
        let element = entry.dtype.element_bytes(extent.packing);
        let order = if element.is_some() { extent.order } else { ByteOrder::Little };
        let read = element.unwrap_or(1);
        let flat = Shape::new([bytes.len() / read])?;
        let way = Way::Run { input: origin.input, source: extent.source, bytes, order };
        return Ok((way, Tiles::of(&flat, tile / read), read));
    }
    let read = entry.dtype.element_bytes(packing).unwrap_or(1);
    Ok((Way::Boxes, Tiles::of(&entry.shape, BOX_TILES * tile / read), read))
}

/// Whether the bytes of a blob are those of the extent's whole range.
fn is_verbatim(extent: &Extent, way: &Way, cast: Option<CastPair>) -> bool {
    let Way::Run { bytes, order: ByteOrder::Little, .. } = way else { return false };
    cast.is_none() && *bytes == extent.bytes
}

/// The stored checksum that stays true for a blob.
fn carried_checksum(extent: &Extent, way: &Way, cast: Option<CastPair>) -> Option<Checksum> {
    extent.checksum.filter(|_| is_verbatim(extent, way, cast))
}

fn describe(output: &OutputSpec, parts: Vec<Part>) -> Output {
    Output {
        path: output.path.clone(),
        name: output.name.clone(),
        dtype: output.to,
        packing: output.packing,
        shape: output.shape.clone(),
        parts,
        origin: output.origin,
    }
}
