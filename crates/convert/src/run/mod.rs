//! From a resolved plan to a written checkpoint.

mod chooser;
mod device;
mod options;
mod pipeline;
mod queue;

pub use chooser::{Chosen, Rates, WORTH_OPENING, choose, worth_opening};
pub use device::{Accelerator, When, bulk_work};
pub use options::{OnOverflow, Options, Progress, planned_memory};
use pipeline::Damage;
pub(crate) use pipeline::{Run, refused};

use crate::agree;
use crate::blueprint::{Blueprint, Job};
use crate::dedupe;
use crate::inputs::{Input, Inputs};
use crate::measure;
use crate::plan::{Change, LeftOut, OutputSpec, Resolved};
use crate::report::Report;
use crate::target::Target;
use crate::value::Source;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weightlift_core::{
    ByteRange, Checkpoint, CheckpointWriter, DType, EntryId, Error, Files, Format, Manifest, Origin, Result, Share,
    SourceId,
};
use weightlift_io::folder_of;

/// The inputs and the output of a conversion.
pub struct Conversion<'a> {
    /// Where they lie.
    pub files: Arc<dyn Files>,
    /// The checkpoints that the plan was resolved for, in the same order.
    pub inputs: &'a [&'a dyn Checkpoint],
    /// The format of the output.
    pub format: &'a dyn Format,
    /// What the format holds.
    pub target: &'a Target,
    /// The path of the output.
    pub output: &'a Path,
}

impl<'a> Conversion<'a> {
    /// What the inputs hold; their words have done their work when the plan was resolved.
    pub(crate) fn catalogs(&self) -> Vec<Input<'a>> {
        self.inputs.iter().map(|input| Input::new("", input.catalog())).collect()
    }

    /// The inputs opened for reading; what must be decoded is spilled beside the output.
    pub(crate) fn sources(&self) -> Vec<Source<'_>> {
        let open = |&checkpoint| Source::new(self.files.as_ref(), checkpoint, folder_of(self.output));
        self.inputs.iter().map(open).collect()
    }
}

/// Carries out a resolved plan: tiles go through a pool of workers, so memory does not grow with the checkpoint.
///
/// # Errors
/// `Checksum` or `Malformed` for damaged input, `Request` for values that overflow under [`OnOverflow::Error`] and for
/// outputs that exist, `Io`. Nothing bears the output's name then.
pub fn convert(
    conversion: &Conversion<'_>,
    mut resolved: Resolved,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Report> {
    let start = Instant::now();
    let catalogs = conversion.catalogs();
    let catalogs = Inputs(&catalogs);
    agree::check(conversion, &resolved, options)?;
    let deduped = if options.dedupe { dedupe::dedupe(conversion, &mut resolved, options)? } else { None };
    let kept_back = match options.on_overflow {
        OnOverflow::Keep => measure::keep(conversion, &mut resolved, options, progress)?,
        _ => Vec::new(),
    };
    let mut blueprint = Blueprint::new(&resolved, catalogs, conversion.target, options)?;
    let folder = folder_of(conversion.output);
    let share = share(options.output.share, &resolved, catalogs);
    let to_write = share == Share::Never || share == Share::Copy || blueprint.manifest.verbatim.is_empty();
    if to_write && !options.output.in_place {
        room_for(conversion.files.as_ref(), folder, blueprint.manifest.bytes())?;
    }
    let sources = conversion.sources();
    if conversion.target.salvage {
        let damaged = Run::new(&blueprint, &[], &sources, options, progress).damaged()?;
        if leave_out(&mut resolved, &damaged, catalogs)? {
            blueprint = Blueprint::new(&resolved, catalogs, conversion.target, options)?;
        }
    }
    let mut write_options = options.for_writer(conversion.target);
    write_options.share = share;
    let manifest = blueprint.manifest.clone();
    let writer = conversion.format.create(conversion.files.clone(), conversion.output, manifest, &write_options)?;
    let there = placed(&blueprint, writer.as_ref(), share, options.verify)?;
    let to_read = blueprint.jobs.iter().zip(&there).filter(|(_, there)| !**there);
    let bytes = |origin: Origin| catalogs.entry(origin).bytes;
    let compared = resolved.agreements.iter().flat_map(|agreement| agreement.values.iter().skip(1));
    let compared = compared.map(|value| value.reads(&bytes));
    let made = to_read.clone().map(|(job, _)| job.source_bytes(&bytes));
    let bytes_read = made.chain(compared).fold(0, u64::saturating_add);
    progress.begin(to_read.clone().fold(0, |sum: u64, (job, _)| sum.saturating_add(job.bytes())));
    let run = Run::new(&blueprint, &there, &sources, options, progress);
    run.verify_apart()?;
    let device = match &options.accelerator {
        Some(accelerator) => Some(run.tiles_with(accelerator, writer.as_ref())?),
        None => run.tiles(writer.as_ref()).map(|()| None)?,
    };
    run.checks_passed()?;
    let casts = run.casts(&resolved)?;
    let mut written = writer.finish()?;
    let mut notes: Vec<String> = blueprint.parted_note(&resolved, catalogs).into_iter().collect();
    notes.extend(blueprint.dropped_note());
    notes.extend(deduped);
    notes.extend(resolved.notes.iter().cloned());
    notes.append(&mut written.notes);
    if written.carried.is_none() && !matches!(options.output.share, Share::Auto | Share::Never) {
        notes.push("--share: the data change, so that they were written anew".to_owned());
    }
    Ok(Report {
        tensors: resolved.outputs.len(),
        bytes_read,
        files: written.files,
        elapsed: start.elapsed(),
        casts,
        kept: kept(&resolved, false),
        edited: kept(&resolved, true),
        kept_back,
        device,
        left_out: resolved.left_out,
        lost: resolved.lost,
        not_carried: resolved.not_carried,
        suggested_key: resolved.suggested_key,
        carried: written.carried,
        notes,
    })
}

/// How files come over: of its own accord the pipeline takes none that has tensors which are to be left out.
fn share(asked: Share, resolved: &Resolved, inputs: Inputs<'_>) -> Share {
    if asked != Share::Auto {
        return asked;
    }
    let mut used: HashMap<u32, HashSet<EntryId>> = HashMap::new();
    for origin in resolved.outputs.iter().flat_map(|output| output.value.entries()) {
        used.entry(origin.input).or_default().insert(origin.entry);
    }
    let whole = |(input, entries): (&u32, &HashSet<EntryId>)| inputs.catalog(*input).entries.len() == entries.len();
    if used.iter().all(whole) { asked } else { Share::Never }
}

/// Which jobs have nothing left to do: the writer has the bytes, or the system copies them unread.
fn placed(blueprint: &Blueprint, writer: &dyn CheckpointWriter, share: Share, verify: bool) -> Result<Vec<bool>> {
    let copies = matches!(share, Share::Copy | Share::Reflink) || !verify;
    let placed = |job: &Job| {
        if writer.holds(job.blob) {
            return Ok(true);
        }
        match blueprint.manifest.verbatim.get(&job.blob).filter(|range| copies && range.bytes.len() > 0) {
            Some(range) => writer.copy_from(job.blob, 0, range),
            None => Ok(false),
        }
    };
    blueprint.jobs.iter().map(placed).collect()
}

/// What a format would be told to write, for asking it before a file is begun.
///
/// # Errors
/// `Malformed` for inputs whose parts do not fit together.
pub fn manifest(resolved: &Resolved, inputs: &[Input<'_>], target: &Target) -> Result<Manifest> {
    Blueprint::new(resolved, Inputs(inputs), target, &Options { verify: false, ..Options::default() })
        .map(|blueprint| blueprint.manifest)
}

/// Moves outputs that read damaged bytes to the lost ones; whether there were any.
fn leave_out(resolved: &mut Resolved, damaged: &[Damage], inputs: Inputs<'_>) -> Result<bool> {
    let before = resolved.lost.len();
    for output in std::mem::take(&mut resolved.outputs) {
        let entries = output.value.entries();
        let extents = entries.iter().flat_map(|origin| {
            let extents = inputs.entry(*origin).extents().unwrap_or_default();
            extents.iter().map(|extent| (origin.input, extent.source, extent.bytes))
        });
        let hit = |(input, source, bytes): (u32, SourceId, ByteRange)| {
            damaged.iter().find(|damage| (damage.input, damage.source, damage.range) == (input, source, bytes))
        };
        match extents.filter_map(hit).next() {
            Some(Damage { why, .. }) => {
                let (name, dtype, why) = (output.name, output.from, why.clone());
                resolved.lost.push(LeftOut { name, dtype, why });
            }
            None => resolved.outputs.push(output),
        }
    }
    if resolved.outputs.is_empty() && resolved.lost.len() > before {
        return Err(Error::checksum("every tensor is damaged: nothing is left to write"));
    }
    Ok(resolved.lost.len() > before)
}

fn room_for(files: &dyn Files, folder: &Path, bytes: u64) -> Result<()> {
    match files.free_space(folder) {
        Ok(Some(free)) if free < bytes => {
            let message = format!("the output needs {bytes} bytes, but only {free} are free there");
            Err(Error::request(message).in_file(folder).help("free some room or write to another disk"))
        }
        // A file system that does not know its room shows it when the output is reserved.
        _ => Ok(()),
    }
}

/// How many tensors of each dtype were not cast: those that are as they were, or those that steps made.
fn kept(resolved: &Resolved, edited: bool) -> Vec<(DType, usize)> {
    let mut kept: Vec<(DType, usize)> = Vec::new();
    let wanted = |output: &&OutputSpec| {
        let made = output.value.entry().is_none();
        output.change == Change::Copy && made == edited && !output.value.is_scaled()
    };
    for output in resolved.outputs.iter().filter(wanted) {
        match kept.iter_mut().find(|(dtype, _)| *dtype == output.to) {
            Some((_, count)) => *count += 1,
            None => kept.push((output.to, 1)),
        }
    }
    kept
}
