//! What the values of tensors are like, and what a cast would take from them.

use crate::blueprint::Blueprint;
use crate::inputs::{Input, Inputs};
use crate::plan::{Change, OutputSpec, Resolved};
use crate::report::{CastReport, Losses};
use crate::run::{Options, Progress, Run};
use crate::target::Target;
use crate::value::{Source, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use weightlift_core::{
    BlobId, Capabilities, Checkpoint, CheckpointWriter, DType, Data, Entry, EntryId, Files, Origin, Packing, Result,
    Written,
};
use weightlift_kernels::cast::{self, CastPair, Overflow, Rule};
use weightlift_kernels::pack;
use weightlift_kernels::summary::Summary;

/// What was found out about one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    /// The tensor.
    pub entry: EntryId,
    /// Its values; `None` where it has none that are numbers.
    pub summary: Option<Summary>,
    /// What the cast that was asked for would do, where there is one.
    pub cast: Option<CastReport>,
    /// Why there is no summary.
    pub why: Option<String>,
}

/// Reads tensors once, in memory that does not grow with them, and sums up their values. The result is the same on
/// any number of threads. With `to`, floating-point tensors are cast to it as well, and forgotten. Of the options,
/// threads, manner and verification count.
///
/// # Errors
/// `Checksum` or `Malformed` for damaged tensors, `Io`.
pub fn survey(
    files: &dyn Files,
    checkpoint: &dyn Checkpoint,
    entries: &[EntryId],
    to: Option<DType>,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Vec<Survey>> {
    let catalog = checkpoint.catalog();
    let readable: Vec<EntryId> = entries.iter().copied().filter(|&id| refusal(catalog.entry(id)).is_none()).collect();
    let outputs = readable.iter().map(|&id| as_it_is(id, catalog.entry(id))).collect();
    let resolved = Resolved { outputs, ..Resolved::default() };
    let inputs = [Input::new("", catalog)];
    let blueprint = Blueprint::new(&resolved, Inputs(&inputs), &anything(catalog.format), options)?;
    let sources = [Source::new(files, checkpoint, &std::env::temp_dir())];
    progress.begin(blueprint.jobs.iter().fold(0, |sum, job| sum.saturating_add(job.bytes())));
    let nothing_there = vec![false; blueprint.jobs.len()];
    let run = Run::new(&blueprint, &nothing_there, &sources, options, progress);
    let about = blueprint.jobs.iter().map(|job| {
        let output = &resolved.outputs[job.output];
        let pair = to.and_then(|to| CastPair::new(output.from, to)).filter(|_| output.from.is_float());
        (job.blob, Subject { dtype: output.from, dense: output.bits(), elements: output.shape.elements(), pair })
    });
    let surveyor = Surveyor {
        rule: Rule { like: options.like, overflow: Overflow::Inf },
        subjects: about.map(|(blob, subject)| (blob, (subject, Mutex::default()))).collect(),
    };
    run.verify_apart()?;
    run.tiles(&surveyor)?;
    run.checks_passed()?;
    let blob = |at: usize| blueprint.manifest.tensors[at].parts.first().map(|part| part.blob);
    let blobs: HashMap<EntryId, BlobId> =
        (0..readable.len()).filter_map(|at| Some((readable[at], blob(at)?))).collect();
    let one = |&id: &EntryId| {
        let entry = catalog.entry(id);
        let (summary, cast) = match blobs.get(&id) {
            Some(&blob) => surveyor.finish_one(blob, entry),
            None => (None, None),
        };
        Survey { entry: id, summary, cast, why: refusal(entry) }
    };
    Ok(entries.iter().map(one).collect())
}

/// Why a tensor has no values to sum up.
fn refusal(entry: &Entry) -> Option<String> {
    match &entry.data {
        Data::Absent(why) | Data::Broken(why) => return Some(why.clone()),
        Data::Extents(_) => {}
    }
    let packed = bits(entry);
    match Summary::of(entry.dtype, &[]) {
        None => Some(format!("{} values are not summed up", entry.dtype)),
        Some(_) if packed.is_some_and(|bits| !matches!(bits, 1 | 2 | 4)) => {
            Some(format!("dense {} values are not summed up", entry.dtype))
        }
        Some(_) => None,
    }
}

/// Bits of an element where several share a byte.
fn bits(entry: &Entry) -> Option<u32> {
    let packing = entry.extents().ok()?.first()?.packing;
    if entry.dtype.element_bytes(packing).is_some() { None } else { entry.dtype.bits() }
}

/// A tensor that would be written as it is.
fn as_it_is(id: EntryId, entry: &Entry) -> OutputSpec {
    let origin = Origin { input: 0, entry: id };
    let packing = entry.extents().ok().and_then(|extents| extents.first()).map_or(Packing::Dense, |e| e.packing);
    OutputSpec {
        value: Value::of_entry(origin, entry, entry.name.clone()),
        origin: Some(origin),
        path: entry.path.clone(),
        name: entry.name.clone(),
        from: entry.dtype,
        to: entry.dtype,
        change: Change::Copy,
        packing,
        shape: entry.shape.clone(),
        bytes: entry.dtype.bytes(entry.shape.elements(), packing).unwrap_or(entry.bytes),
        pieces: Vec::new(),
    }
}

impl OutputSpec {
    fn bits(&self) -> Option<u32> {
        if self.from.element_bytes(self.packing).is_some() { None } else { self.from.bits() }
    }
}

/// A target that takes everything.
fn anything(format: &'static str) -> Target {
    let capabilities = Capabilities {
        holds: |_| None,
        name_problem: |_| None,
        nests: true,
        shares_storage: true,
        strides: false,
        prunes_extras: false,
        joins_pieces: None,
        name_hint: |_| None,
        texts: None,
    };
    Target {
        id: format,
        name: format,
        capabilities,
        skip_unsupported: false,
        allow_expand: true,
        keep_storages: false,
        join_partitions: true,
        salvage: false,
        weights_only: false,
    }
}

/// A tensor as the surveyor knows it.
struct Subject {
    dtype: DType,
    /// Bits of an element where several share a byte.
    dense: Option<u32>,
    elements: u64,
    pair: Option<CastPair>,
}

/// Sums up of the parts of a tensor by where they begin: parts are made on any thread and joined in order.
type Parts = Mutex<BTreeMap<u64, (Summary, Losses)>>;

/// Sums up what would be written.
struct Surveyor {
    rule: Rule,
    subjects: HashMap<BlobId, (Subject, Parts)>,
}

impl Surveyor {
    fn finish_one(&self, blob: BlobId, entry: &Entry) -> (Option<Summary>, Option<CastReport>) {
        let Some((subject, parts)) = self.subjects.get(&blob) else { return (None, None) };
        let parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut summary, mut losses) = (Summary::default(), Losses::default());
        for (part, lost) in parts.values() {
            summary.merge(part);
            losses.merge(lost);
        }
        (Some(summary), subject.pair.map(|pair| losses.report(&entry.name, pair)))
    }
}

impl CheckpointWriter for Surveyor {
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        let Some((subject, parts)) = self.subjects.get(&blob) else { return Ok(()) };
        let unpacked = subject.dense.map(|bits| {
            let (first, per_byte) = (offset * 8 / u64::from(bits), 8 / u64::from(bits));
            let count = (bytes.len() as u64 * per_byte).min(subject.elements.saturating_sub(first));
            let mut elements = vec![0; count as usize];
            pack::unpack(bits, &bytes[..count.div_ceil(per_byte) as usize], &mut elements);
            elements
        });
        let bytes = unpacked.as_deref().unwrap_or(bytes);
        let summary = Summary::of(subject.dtype, bytes).unwrap_or_default();
        let losses = subject.pair.map_or_else(Losses::default, |pair| lose(pair, self.rule, bytes));
        parts.lock().unwrap_or_else(PoisonError::into_inner).insert(offset, (summary, losses));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

/// Casts into a small buffer, piece by piece.
fn lose(pair: CastPair, rule: Rule, bytes: &[u8]) -> Losses {
    const PIECE: usize = 4096;
    let width = |dtype: DType| dtype.element_bytes(Packing::OnePerByte).unwrap_or(1) as usize;
    let mut buffer = vec![0; PIECE * width(pair.to())];
    let mut total = Losses::default();
    for piece in bytes.chunks(PIECE * width(pair.from())) {
        let target = &mut buffer[..piece.len() / width(pair.from()) * width(pair.to())];
        total.merge(&cast::cast_and_compare(pair, rule, piece, target).into());
    }
    total
}
