//! The workers: they read, verify, cast, and write tiles.

use crate::blueprint::{Blueprint, Check, Job, Way};
use crate::plan::Resolved;
use crate::report::{CastReport, Losses};
use crate::run::{OnOverflow, Options, Progress};
use crate::value::{Reader, Source};
use crate::workers::parallel;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use weightlift_core::{ByteOrder, ByteRange, CheckpointWriter, Class, DType, Error, Kind, Origin, Result, SourceId};
use weightlift_io::{AlignedBuffer, mismatch, verify_range};
use weightlift_kernels::cast::{self, CastPair, Overflow, Rule, Tally};
use weightlift_kernels::checksum::Digest;
use weightlift_kernels::swap;

/// A stored range whose bytes are not what they should be, and why.
pub(super) struct Damage {
    pub(super) input: u32,
    pub(super) source: SourceId,
    pub(super) range: ByteRange,
    pub(super) why: String,
}

/// A piece of work that a worker claims: jobs that are small, or tiles of a large one.
pub(super) enum Task {
    Jobs(Vec<usize>),
    Tiles(usize, std::ops::Range<u64>),
}

/// Bytes of small jobs that are claimed at once, and of tiles of a large one.
pub(super) const TASK: u64 = 1 << 20;

pub(crate) struct Run<'a> {
    pub(super) blueprint: &'a Blueprint,
    /// Which jobs have nothing left to do.
    pub(super) there: &'a [bool],
    /// The tensors that nobody reads.
    unread: HashSet<Origin>,
    pub(super) inputs: &'a [Source<'a>],
    pub(super) options: &'a Options,
    pub(super) progress: &'a dyn Progress,
    /// What the casts of each job did.
    losses: Vec<Mutex<Vec<(CastPair, Losses)>>>,
    /// A value was lost that must not be: from now on everything is counted and nothing written.
    lost: AtomicBool,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        blueprint: &'a Blueprint,
        there: &'a [bool],
        inputs: &'a [Source<'a>],
        options: &'a Options,
        progress: &'a dyn Progress,
    ) -> Run<'a> {
        let of_jobs = |wanted: bool| -> HashSet<Origin> {
            let jobs = blueprint.jobs.iter().zip(there).filter(|(_, there)| **there == wanted);
            jobs.flat_map(|(job, _)| job.value.entries()).collect()
        };
        let unread = of_jobs(true).difference(&of_jobs(false)).copied().collect();
        let losses = blueprint.jobs.iter().map(|job| Mutex::new(own_cast(job).into_iter().collect())).collect();
        Run { blueprint, there, unread, inputs, options, progress, losses, lost: AtomicBool::new(false) }
    }

    fn input(&self, origin: Origin) -> &'a Source<'a> {
        &self.inputs[origin.input as usize]
    }

    fn name(&self, origin: Origin) -> &'a str {
        &self.input(origin).checkpoint.catalog().entry(origin.entry).name
    }

    /// Verifies what no job reads exactly once, before the first tile is written.
    pub(crate) fn verify_apart(&self) -> Result<()> {
        let read = |origin: &Origin| !self.unread.contains(origin);
        let apart = self.blueprint.checks.iter().filter(|check| check.digest.is_none() && read(&check.origin));
        let apart: Vec<&Check> = apart.collect();
        let of_format: Vec<Origin> = self.blueprint.of_format.iter().copied().filter(read).collect();
        parallel(
            self.options.threads,
            apart.len() + of_format.len(),
            || (),
            |(), at| {
                let (origin, result) = match apart.get(at) {
                    Some(check) => (check.origin, self.verify(check)),
                    None => {
                        let origin = of_format[at - apart.len()];
                        (origin, self.input(origin).checkpoint.verify(origin.entry))
                    }
                };
                result.map_err(|error| error.in_tensor(self.name(origin)))
            },
        )
    }

    fn verify(&self, check: &Check) -> Result<()> {
        let input = self.input(check.origin);
        let verified = verify_range(&input.sources.get(check.source)?, check.range, check.checksum);
        verified.map_err(|error| self.in_record(check, error))
    }

    /// Names the record in an error about its bytes, where the format has names for such.
    fn in_record(&self, check: &Check, error: Error) -> Error {
        match self.input(check.origin).checkpoint.record(check.source, check.range) {
            Some(record) => error.help(format!("record {record:?}")),
            None => error,
        }
    }

    /// The stored ranges whose checksum differs or that cannot be read.
    pub(super) fn damaged(&self) -> Result<Vec<Damage>> {
        let found = Mutex::new(Vec::new());
        let damage = |origin: Origin, source, range, error: Error| match error.kind() {
            Kind::Checksum | Kind::Malformed => {
                let why =
                    error.advice().map_or(error.message().to_owned(), |help| format!("{} ({help})", error.message()));
                let damage = Damage { input: origin.input, source, range, why };
                found.lock().unwrap_or_else(PoisonError::into_inner).push(damage);
                Ok(())
            }
            _ => Err(error),
        };
        let (checks, of_format) = (&self.blueprint.checks, &self.blueprint.of_format);
        parallel(
            self.options.threads,
            checks.len() + of_format.len(),
            || (),
            |(), at| match checks.get(at) {
                Some(check) => {
                    self.verify(check).or_else(|error| damage(check.origin, check.source, check.range, error))
                }
                None => {
                    let origin = of_format[at - checks.len()];
                    let checkpoint = self.input(origin).checkpoint;
                    let Err(error) = checkpoint.verify(origin.entry) else { return Ok(()) };
                    match checkpoint.catalog().entry(origin.entry).extents()?.first() {
                        Some(extent) => damage(origin, extent.source, extent.bytes, error),
                        None => Err(error),
                    }
                }
            },
        )?;
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends every tile through the workers.
    pub(crate) fn tiles(&self, writer: &dyn CheckpointWriter) -> Result<()> {
        let tasks = self.tasks((0..self.blueprint.jobs.len()).filter(|&job| !self.there[job]));
        let work = |buffers: &mut Buffers<'a>, at: usize| self.task(&tasks[at], writer, buffers);
        parallel(self.options.threads, tasks.len(), || self.buffers(), work)
    }

    pub(super) fn task(&self, task: &Task, writer: &dyn CheckpointWriter, buffers: &mut Buffers<'a>) -> Result<()> {
        match task {
            Task::Jobs(jobs) => jobs.iter().try_for_each(|&job| self.job(job, 0..u64::MAX, writer, buffers)),
            Task::Tiles(job, tiles) => self.job(*job, tiles.clone(), writer, buffers),
        }
    }

    /// Cuts jobs into pieces for the workers.
    pub(super) fn tasks(&self, jobs: impl IntoIterator<Item = usize>) -> Vec<Task> {
        let mut tasks = Vec::new();
        let (mut together, mut bytes) = (Vec::new(), 0);
        for index in jobs {
            let job = &self.blueprint.jobs[index];
            let small = job.bytes() <= TASK;
            if !small || bytes + job.bytes() > TASK {
                tasks.push(Task::Jobs(std::mem::take(&mut together)));
                bytes = 0;
            }
            if small {
                together.push(index);
                bytes += job.bytes();
                continue;
            }
            let count = job.tiles.count();
            let step = (count / (job.bytes() / TASK).max(1)).max(1);
            let starts = (0..count).step_by(step as usize);
            tasks.extend(starts.map(|start| Task::Tiles(index, start..(start + step).min(count))));
        }
        tasks.push(Task::Jobs(together));
        tasks.retain(|task| !matches!(task, Task::Jobs(jobs) if jobs.is_empty()));
        tasks
    }

    pub(super) fn buffers(&self) -> Buffers<'a> {
        let reader = Reader::new(self.inputs, self.rule());
        Buffers { source: AlignedBuffer::default(), cast: AlignedBuffer::default(), reader }
    }

    pub(super) fn rule(&self) -> Rule {
        let overflow = match self.options.on_overflow {
            OnOverflow::Saturate => Overflow::Saturate,
            OnOverflow::Inf | OnOverflow::Error | OnOverflow::Keep => Overflow::Inf,
        };
        Rule { like: self.options.like, overflow }
    }

    pub(super) fn job(
        &self,
        index: usize,
        tiles: std::ops::Range<u64>,
        writer: &dyn CheckpointWriter,
        buffers: &mut Buffers<'a>,
    ) -> Result<()> {
        let job = &self.blueprint.jobs[index];
        let mut losses: Vec<_> = own_cast(job).into_iter().collect();
        for tile in tiles.start..tiles.end.min(job.tiles.count()) {
            self.tile(job, tile, writer, buffers, &mut losses).map_err(|error| self.in_output(job, error))?;
        }
        self.lose(index, losses);
        Ok(())
    }

    /// Names the output of a job in an error.
    pub(super) fn in_output(&self, job: &Job, error: Error) -> Error {
        error.in_tensor(&self.blueprint.manifest.tensors[job.output].name)
    }

    /// Adds to what a job has lost.
    pub(super) fn lose(&self, index: usize, losses: Vec<(CastPair, Losses)>) {
        let mut totals = self.losses[index].lock().unwrap_or_else(PoisonError::into_inner);
        losses.into_iter().for_each(|(pair, losses)| Losses::add(&mut totals, pair, &losses));
    }

    /// Notes where a value was lost that must not be.
    pub(super) fn judge(&self, losses: &[(CastPair, Losses)]) {
        if losses.iter().any(|(pair, lost)| refused(*pair, self.options.on_overflow, &lost.tally) > 0) {
            self.lost.store(true, Ordering::Relaxed);
        }
    }

    /// Writes a tile of these runs, unless nothing is to be written any more.
    pub(super) fn write(
        &self,
        job: &Job,
        runs: &[(u64, u64, u64)],
        bytes: &[u8],
        writer: &dyn CheckpointWriter,
    ) -> Result<()> {
        if self.lost.load(Ordering::Relaxed) {
            return Ok(());
        }
        for (first, count, at) in runs {
            let bytes = &bytes[(at * job.written) as usize..((at + count) * job.written) as usize];
            writer.write_at(job.blob, job.at + first * job.written, bytes)?;
        }
        Ok(())
    }

    fn tile(
        &self,
        job: &Job,
        tile: u64,
        writer: &dyn CheckpointWriter,
        buffers: &mut Buffers<'a>,
        losses: &mut Vec<(CastPair, Losses)>,
    ) -> Result<()> {
        let runs = job.tiles.runs(tile);
        let (first, count) = extent(&runs);
        let Buffers { source, cast: output, reader } = buffers;
        let position = match &job.way {
            Way::Run { bytes, .. } => bytes.start() + first * job.read,
            Way::Boxes => 0,
        };
        let source = source.bytes((count * job.read) as usize, position);
        self.read(job, tile, first, source, true, reader)?;
        let bytes = match job.cast {
            None => &*source,
            Some(pair) => {
                let output = output.bytes((count * job.written) as usize, 0);
                let lost = Losses::from(cast::cast_and_compare(pair, self.rule(), source, output));
                // The cast of the job itself is the first of its list.
                losses.iter_mut().take(1).for_each(|(_, total)| total.merge(&lost));
                &*output
            }
        };
        losses.extend(reader.take_casts());
        self.judge(losses);
        self.write(job, &runs, bytes, writer)?;
        self.progress.advance(source.len() as u64);
        Ok(())
    }

    /// Reads the elements of a tile, of which `first` is the first; `turn`: from big-endian to little-endian too.
    pub(super) fn read(
        &self,
        job: &Job,
        tile: u64,
        first: u64,
        bytes: &mut [u8],
        turn: bool,
        reader: &mut Reader<'a>,
    ) -> Result<()> {
        let Way::Run { input, source, bytes: range, order } = &job.way else {
            return reader.read(&job.value, &job.tiles.region(tile), bytes);
        };
        let offset = first * job.read;
        self.inputs[*input as usize].sources.get(*source)?.read_exact_at(bytes, range.start() + offset)?;
        if let Some((digest, _)) = job.check.and_then(|check| self.blueprint.checks[check].digest.as_ref()) {
            digest.add(offset, bytes.len() as u64, digest.algorithm().of(bytes));
        }
        if *order == ByteOrder::Big && turn {
            swap::byteswap(job.dtype.swap_unit(), bytes);
        }
        Ok(())
    }

    /// Compares the checksums of what passed with what was stored.
    pub(crate) fn checks_passed(&self) -> Result<()> {
        let mut unread = vec![false; self.blueprint.checks.len()];
        for (job, there) in self.blueprint.jobs.iter().zip(self.there) {
            job.check.into_iter().for_each(|check| unread[check] = *there);
        }
        let read = |(at, check): (usize, &'a Check)| (!unread[at]).then_some(check);
        let checks = || self.blueprint.checks.iter().enumerate().filter_map(read);
        let fused = || checks().filter_map(|check| Some((check, check.digest.as_ref()?)));
        let computed = |check: &Check, digest: &Digest| digest.finish(check.range.len());
        let differs = |check: &Check, digest: &Digest, stored: u32| computed(check, digest) != Some(stored);
        let count = fused().filter(|(check, (digest, stored))| differs(check, digest, *stored)).count();
        let Some((check, (digest, stored))) = fused().find(|(check, (digest, stored))| differs(check, digest, *stored))
        else {
            return Ok(());
        };
        let name = self.name(check.origin);
        let path = self.input(check.origin).sources.get(check.source)?.path().to_path_buf();
        let error = mismatch(*stored, computed(check, digest).unwrap_or_default());
        let error = self.in_record(check, error.in_tensor(name).in_file(path).at(check.range.start()));
        Err(match count {
            1 => error,
            count if count == fused().count() => {
                error.help(format!("all {count} checksums differ: index and data do not belong together"))
            }
            count => error.help(format!("{} other checksums differ too", count - 1)),
        })
    }

    /// What the last cast of each job lost.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (&'a Job, Losses)> {
        let own = |losses: &Mutex<Vec<(CastPair, Losses)>>| {
            losses.lock().unwrap_or_else(PoisonError::into_inner).first().map(|(_, losses)| *losses)
        };
        self.blueprint.jobs.iter().zip(&self.losses).filter_map(move |(job, losses)| Some((job, own(losses)?)))
    }

    /// The counts of all casts, in output order.
    pub(super) fn casts(&self, resolved: &Resolved) -> Result<Vec<CastReport>> {
        let mut casts: Vec<(usize, CastReport)> = Vec::new();
        for (job, losses) in self.blueprint.jobs.iter().zip(&self.losses) {
            let name = &resolved.outputs[job.output].name;
            for (at, (pair, lost)) in losses.lock().unwrap_or_else(PoisonError::into_inner).iter().enumerate() {
                // Roundings within a value are told where they lost something.
                if (at > 0 || job.cast.is_none()) && lost.tally == Tally::default() {
                    continue;
                }
                casts.push((job.output, lost.report(name, *pair)));
            }
        }
        casts.sort_by_key(|(output, cast)| (*output, cast.from, cast.to));
        // A tensor in pieces has a job for each.
        casts.dedup_by(|(output, cast), (kept, into)| {
            let same = *output == *kept && (cast.from, cast.to) == (into.from, into.to);
            if same {
                into.tally.merge(&cast.tally);
                into.deviation.merge(&cast.deviation);
            }
            same
        });
        let casts: Vec<_> = casts.into_iter().map(|(_, cast)| cast).collect();
        let lost = self.lost.load(Ordering::Relaxed);
        if lost { Err(overflowed(&casts, self.options.on_overflow)) } else { Ok(casts) }
    }
}

/// The first element of a tile of these runs, and how many it has.
pub(super) fn extent(runs: &[(u64, u64, u64)]) -> (u64, u64) {
    (runs.first().map_or(0, |(first, ..)| *first), runs.iter().map(|(_, count, _)| count).sum())
}

/// What one worker holds.
pub(super) struct Buffers<'a> {
    source: AlignedBuffer,
    cast: AlignedBuffer,
    pub(super) reader: Reader<'a>,
}

/// The cast at the end of a job, with nothing counted yet.
pub(super) fn own_cast(job: &Job) -> Option<(CastPair, Losses)> {
    job.cast.map(|pair| (pair, Losses::default()))
}

/// How many of the counted values a policy does not allow: all that overflow under `Error` and `Keep`; under `Inf`
/// those for which the target has no infinity or NaN; and NaN where the target has none, unless it may saturate.
pub(crate) fn refused(pair: CastPair, policy: OnOverflow, tally: &Tally) -> u64 {
    let to = pair.to();
    let finite_only =
        matches!(to.class(), Class::Int | Class::UInt) || matches!(to, DType::F4E2m1 | DType::F6E2m3 | DType::F6E3m2);
    match policy {
        OnOverflow::Saturate => 0,
        OnOverflow::Error | OnOverflow::Inf | OnOverflow::Keep if finite_only => tally.overflow + tally.nan,
        OnOverflow::Error | OnOverflow::Keep => tally.overflow,
        OnOverflow::Inf => 0,
    }
}

fn overflowed(casts: &[CastReport], policy: OnOverflow) -> Error {
    const SHOWN: usize = 10;
    let count =
        |cast: &CastReport| CastPair::new(cast.from, cast.to).map_or(0, |pair| refused(pair, policy, &cast.tally));
    let bad: Vec<_> = casts.iter().filter(|cast| count(cast) > 0).collect();
    let values: u64 = bad.iter().map(|cast| count(cast)).sum();
    let shown = bad.iter().take(SHOWN);
    let mut list: Vec<_> =
        shown.map(|cast| format!("{:?} ({} of {} to {})", cast.name, count(cast), cast.from, cast.to)).collect();
    if bad.len() > SHOWN {
        list.push(format!("and {} more", bad.len() - SHOWN));
    }
    let (value, tensor) = (plural(values, "value"), plural(bad.len() as u64, "tensor"));
    Error::request(format!("{value} in {tensor} are out of range: {}; nothing was written", list.join(", "))).help(
        "--on-overflow inf or saturate writes them, keep leaves these tensors as they are; or choose another \
             --dtype, for all or for NAME=f32",
    )
}

fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
