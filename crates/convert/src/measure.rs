//! The measuring pass of `--on-overflow keep`: what would a cast lose, before it is decided.

use crate::blueprint::Blueprint;
use crate::inputs::Inputs;
use crate::plan::{Change, OutputSpec, Resolved};
use crate::report::{CastReport, Losses};
use crate::run::{Conversion, Options, Progress, Run, refused};
use crate::target;
use std::collections::HashMap;
use weightlift_core::{BlobId, CheckpointWriter, Result, Written};

/// Casts everything that is to be cast and keeps nothing of it but the counts; tensors that lose what the policy does
/// not allow stay in their own dtype. Answers which, with what they would have lost.
///
/// # Errors
/// `Request` where the target cannot hold the dtype of such a tensor; `Malformed`, `Io`.
pub(crate) fn keep(
    conversion: &Conversion<'_>,
    resolved: &mut Resolved,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Vec<CastReport>> {
    let catalogs = conversion.catalogs();
    let catalogs = Inputs(&catalogs);
    let is_cast = |output: &OutputSpec| matches!(output.change, Change::Cast(_));
    let chosen: Vec<usize> = (0..resolved.outputs.len()).filter(|&at| is_cast(&resolved.outputs[at])).collect();
    let outputs = chosen.iter().map(|&at| resolved.outputs[at].clone()).collect();
    let measured = Resolved { outputs, ..Resolved::default() };
    let mut options = options.clone();
    (options.verify, options.output.in_place) = (false, false);
    let blueprint = Blueprint::new(&measured, catalogs, conversion.target, &options)?;
    let sources = conversion.sources();
    progress.begin(blueprint.jobs.iter().fold(0, |sum, job| sum.saturating_add(job.bytes())));
    let nothing_there = vec![false; blueprint.jobs.len()];
    let run = Run::new(&blueprint, &nothing_there, &sources, &options, progress);
    run.tiles(&Nowhere)?;
    // Tied tensors share a job.
    let losses: HashMap<BlobId, _> = run.losses().map(|(job, losses)| (job.blob, losses)).collect();
    let mut kept = Vec::new();
    for (&at, described) in chosen.iter().zip(&blueprint.manifest.tensors) {
        let output = &mut resolved.outputs[at];
        let mut lost = Losses::default();
        described.parts.iter().filter_map(|part| losses.get(&part.blob)).for_each(|part| lost.merge(part));
        if let Change::Cast(pair) = output.change
            && refused(pair, options.on_overflow, &lost.tally) > 0
        {
            kept.push(lost.report(&output.name, pair));
            target::uncast(output, catalogs, conversion.target)?;
        }
    }
    Ok(kept)
}

/// Takes what is written and forgets it.
struct Nowhere;

impl CheckpointWriter for Nowhere {
    fn write_at(&self, _: BlobId, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}
