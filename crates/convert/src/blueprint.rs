//! From a resolved plan to a manifest and the jobs that fill its blobs.

use crate::inputs::{Inputs, Place};
use crate::items::Identity;
use crate::plan::{Change, OutputSpec, Resolved};
use crate::storages::{Segment, Storage, Storages};
use crate::target::Target;
use crate::tiles::{BOX_TILE, RUN_TILE, Tiles};
use crate::value::Value;
use std::collections::{HashMap, HashSet};
use weightlift_core::{
    BlobId, ByteOrder, ByteRange, Checksum, DType, Entry, Extent, Layout, Manifest, Origin, Output, Packing, Part,
    Region, Result, Shape, SourceId,
};
use weightlift_io::run_of;
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
    /// The checksum that its bytes are verified against while they pass.
    pub(crate) check: Option<usize>,
}

impl Job {
    /// Bytes it reads.
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
    Output(usize),
    Storage(usize),
}

impl Blueprint {
    pub(crate) fn new(resolved: &Resolved, inputs: Inputs<'_>, target: &Target, verify: bool) -> Result<Blueprint> {
        let mut blueprint = Blueprint::default();
        let storages = Storages::of(resolved, inputs, target)?;
        let leaders = leaders(resolved, inputs, target);
        let alone = |index: &usize| leaders[*index] == *index && storages.of_output[*index].is_none();
        let mut leads: Vec<(usize, Lead)> =
            (0..leaders.len()).filter(alone).map(|index| (index, Lead::Output(index))).collect();
        let shared = storages.storages.iter().enumerate().map(|(at, storage)| (storage.output, Lead::Storage(at)));
        leads.extend(shared);
        leads.sort_by_key(|(index, _)| *index);
        if inputs.edited().format == target.id {
            // Back into the same format: data keep the order that they have there.
            leads.sort_by_key(|(index, _)| position(&resolved.outputs[*index].value, inputs));
        }
        let (mut blobs, mut of_storage) = (HashMap::new(), vec![BlobId(0); storages.storages.len()]);
        for (_, lead) in leads {
            match lead {
                Lead::Output(index) => {
                    blobs.insert(index, blueprint.add_job(index, &resolved.outputs[index], inputs)?);
                }
                Lead::Storage(at) => {
                    of_storage[at] = blueprint.add_storage(&storages.storages[at], resolved, inputs)?;
                }
            }
        }
        for (index, output) in resolved.outputs.iter().enumerate() {
            let (blob, layout) = match &storages.of_output[index] {
                Some((storage, layout)) => (of_storage[*storage], layout.clone()),
                None => {
                    let blob = blobs.get(&leaders[index]).copied().unwrap_or(BlobId(0));
                    (blob, Layout::contiguous(&output.shape))
                }
            };
            blueprint.manifest.tensors.push(describe(output, blob, layout));
        }
        if let Some(extras) = inputs.edited().extras.as_ref().filter(|_| resolved.carries_extras) {
            blueprint.manifest.extras.push((0, extras.clone()));
        }
        blueprint.jobs.sort_by_key(|job| position(&job.value, inputs));
        if verify {
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

    fn add_job(&mut self, index: usize, output: &OutputSpec, inputs: Inputs<'_>) -> Result<BlobId> {
        let value = output.value.clone();
        let (way, tiles, read) = way_of(&value, inputs)?;
        let cast = match output.change {
            Change::Cast(pair) => Some(pair),
            Change::Copy => None,
        };
        let written = match cast {
            Some(_) => output.to.element_bytes(output.packing).unwrap_or(read),
            None => read,
        };
        let checksum = value.entry().and_then(|origin| carried_checksum(inputs.entry(origin), &way, cast));
        let blob = self.manifest.add_blob(output.bytes, checksum);
        let (dtype, check) = (value.dtype(), None);
        let (at, output) = (0, index);
        self.jobs.push(Job { value, blob, at, output, dtype, cast, way, tiles, read, written, check });
        Ok(blob)
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
                    (Way::Run { input, source, bytes, order }, Tiles::of(&flat, RUN_TILE / element), element)
                }
                None => way_of(&value, inputs)?,
            };
            if let ([_], Some(origin)) = (storage.segments.as_slice(), value.entry()) {
                self.manifest.blobs[blob.0 as usize].checksum = carried_checksum(inputs.entry(origin), &way, cast);
            }
            let (at, dtype, check) = (at * written, value.dtype(), None);
            self.jobs.push(Job { value, blob, at, output, dtype, cast, way, tiles, read, written, check });
        }
        self.dropped = self.dropped.saturating_add(storage.dropped);
        Ok(blob)
    }

    /// Lists every stored checksum once, fused into a job where one reads its range exactly once.
    fn plan_checks(&mut self, inputs: Inputs<'_>) -> Result<()> {
        let mut known = HashSet::new();
        for job in &mut self.jobs {
            let (Way::Run { source, bytes, .. }, Some(origin)) = (&job.way, job.value.entry()) else { continue };
            let [extent] = inputs.entry(origin).extents()? else { continue };
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

/// Where the bytes of a value begin: those of the first tensor that it reads.
fn position(value: &Value, inputs: Inputs<'_>) -> (u32, SourceId, u64) {
    let origin = value.entry().or_else(|| value.entries().first().copied());
    let first = origin.and_then(|origin| Some((origin.input, inputs.entry(origin).extents().ok()?.first()?)));
    first.map_or((0, SourceId(0), 0), |(input, extent)| (input, extent.source, extent.bytes.start()))
}

/// How a value is read, its tiles, and the bytes of one element of them.
fn way_of(value: &Value, inputs: Inputs<'_>) -> Result<(Way, Tiles, u64)> {
    let Some(origin) = value.entry() else {
        let read = value.element()?;
        let cut = if value.crosses() { Tiles::square } else { Tiles::of };
        return Ok((Way::Boxes, cut(value.shape(), BOX_TILE / read), read));
    };
    let entry = inputs.entry(origin);
    let extents = entry.extents()?;
    let packing = extents.first().map_or(Packing::Dense, |extent| extent.packing);
    if let [extent] = extents {
        let element = entry.dtype.element_bytes(extent.packing);
        let run = match element {
            Some(element) => run_of(extent, element, &Region::whole(&entry.shape)),
            // Opaque bytes, and elements that are no whole bytes: the stored bytes as they are.
            None => Some(extent.bytes),
        };
        if let Some(bytes) = run {
            let (read, order) =
                (element.unwrap_or(1), if element.is_some() { extent.order } else { ByteOrder::Little });
            let flat = Shape::new([bytes.len() / read])?;
            let way = Way::Run { input: origin.input, source: extent.source, bytes, order };
            return Ok((way, Tiles::of(&flat, RUN_TILE / read), read));
        }
    }
    let read = entry.dtype.element_bytes(packing).unwrap_or(1);
    Ok((Way::Boxes, Tiles::of(&entry.shape, BOX_TILE / read), read))
}

/// The stored checksum that stays true for a blob: its bytes are those of the extent's whole range.
fn carried_checksum(entry: &Entry, way: &Way, cast: Option<CastPair>) -> Option<Checksum> {
    match (way, entry.extents().ok()?) {
        (Way::Run { bytes, order: ByteOrder::Little, .. }, [extent]) if cast.is_none() && *bytes == extent.bytes => {
            extent.checksum
        }
        _ => None,
    }
}

fn describe(output: &OutputSpec, blob: BlobId, layout: Layout) -> Output {
    Output {
        path: output.path.clone(),
        name: output.name.clone(),
        dtype: output.to,
        packing: output.packing,
        shape: output.shape.clone(),
        parts: vec![Part { blob, layout, region: Region::whole(&output.shape) }],
        origin: output.origin,
    }
}
