//! Bulk work on a device: batches of tiles through one dispatch, and the processor for whatever fails.

use super::chooser::{Chosen, Rates};
use super::pipeline::{Buffers, Run, extent, own_cast};
use super::queue::{Batch, Claim, Part, Queue, Side, Work};
use crate::blueprint::{Job, Way};
use crate::plan::{Change, Resolved};
use crate::report::{DeviceReport, Losses};
use crate::value::Picked;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use weightlift_core::{ByteOrder, CheckpointWriter, DType, Error, Kind, Region, Result};
use weightlift_io::place;
use weightlift_kernels::cast::{self, CastPair, Like, Rule, Tally};
use weightlift_kernels::device::{
    Capacity, Convert, Device, Job as DeviceJob, Kernel, MAX_RANK, Pick, Processor, Tile,
};

/// A device for bulk casts and row copies.
#[derive(Clone)]
pub struct Accelerator {
    /// The device; it may serve many conversions.
    pub device: Arc<dyn Device>,
    /// When it is used.
    pub when: When,
}

/// When a device is used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// For everything it can do.
    Always,
    /// Where it is faster, by rates that are known or else tried on the first tiles.
    Faster(Option<Rates>),
}

impl fmt::Debug for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.device.name(), self.when)
    }
}

impl PartialEq for Accelerator {
    fn eq(&self, other: &Accelerator) -> bool {
        Arc::ptr_eq(&self.device, &other.device) && self.when == other.when
    }
}

/// What of a plan is bulk work: the bytes, and the cast with most of them.
pub fn bulk_work(resolved: &Resolved) -> (u64, Option<CastPair>) {
    let mut pairs: HashMap<CastPair, u64> = HashMap::new();
    let mut bytes = 0u64;
    for output in &resolved.outputs {
        let read = output.shape.elements().saturating_mul(output.from.element_bytes(output.packing).unwrap_or(0));
        match output.change {
            Change::Cast(pair) if is_bulk(pair) => {
                bytes = bytes.saturating_add(read);
                *pairs.entry(pair).or_default() += read;
            }
            Change::Copy if output.value.picked().is_some() => bytes = bytes.saturating_add(read),
            _ => {}
        }
    }
    (bytes, pairs.into_iter().max_by_key(|(pair, bytes)| (*bytes, pair.from(), pair.to())).map(|(pair, _)| pair))
}

/// Whether devices may have the cast.
fn is_bulk(pair: CastPair) -> bool {
    let float = |dtype: DType| dtype.is_float() && dtype.element_bytes(weightlift_core::Packing::Dense).is_some();
    float(pair.from()) && float(pair.to())
}

/// What a device would do for a job.
fn work(at: usize, job: &Job, device: &dyn Device, rule: Rule) -> Option<Work> {
    let big = matches!(job.way, Way::Run { order: ByteOrder::Big, .. });
    let unit = job.dtype.swap_unit();
    let convert = match job.cast {
        Some(pair) if rule.like == Like::Exact => Convert::Cast { pair, overflow: rule.overflow },
        Some(_) => return None,
        None if big => Convert::Same { bytes: unit },
        None => Convert::Same { bytes: usize::try_from(job.read).ok()? },
    };
    // The largest errors are found on the processor, which needs the numbers in order and in its own byte order.
    let lossless = job.cast.is_none_or(CastPair::is_lossless);
    let boxes = matches!(job.way, Way::Boxes) && job.value.shape().dims().len() <= MAX_RANK;
    let picks = lossless && boxes && job.value.picked().is_some();
    let (from, to) = convert.bytes();
    let kernel = Kernel { convert, swap: big && lossless && from == unit };
    let whole = job.cast.is_none() || (from as u64, to as u64) == (job.read, job.written);
    let worth = job.cast.is_some() || kernel.swap || picks;
    (worth && whole && device.has(&kernel)).then_some(Work { job: at, kernel, picks })
}

impl<'a> Run<'a> {
    /// The jobs that a device does, and those that it does not.
    fn part_jobs(&self, device: &dyn Device) -> (Vec<Work>, Vec<usize>) {
        let jobs = self.blueprint.jobs.iter().enumerate().filter(|(at, _)| !self.there[*at]);
        let (mut works, mut others) = (Vec::new(), Vec::new());
        for (at, job) in jobs {
            match work(at, job, device, self.rule()) {
                Some(work) => works.push(work),
                None => others.push(at),
            }
        }
        (works, others)
    }

    /// Sends every tile through the workers and a device.
    pub(super) fn tiles_with(&self, accelerator: &Accelerator, writer: &dyn CheckpointWriter) -> Result<DeviceReport> {
        let device = accelerator.device.as_ref();
        let (works, others) = self.part_jobs(device);
        let tasks = self.tasks(others);
        let settled = match &accelerator.when {
            When::Always => Some(Chosen::Device),
            When::Faster(rates) => rates.as_ref().map(super::chooser::choose),
        };
        let any = !works.is_empty();
        let queue = Queue::new(&self.blueprint.jobs, works, device.capacity(), super::pipeline::TASK, settled);
        // What compiling costs is not a kernel's rate.
        if settled != Some(Chosen::Processor)
            && let Err(error) = queue.kernels().iter().try_for_each(|kernel| device.prepare(kernel))
        {
            queue.fail(error.message());
        }
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let stop = |error: Error| {
            next.store(tasks.len(), Ordering::Relaxed);
            queue.stop();
            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        };
        let processor = || {
            let _here = queue.presence();
            let mut buffers = self.buffers();
            loop {
                let mut claim = queue.claim(Side::Processor);
                if !matches!(claim, Claim::Batch(_)) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if let Some(task) = tasks.get(at) {
                        if let Err(error) = self.task(task, writer, &mut buffers) {
                            return stop(error);
                        }
                        continue;
                    }
                    claim = queue.wait(Side::Processor);
                }
                let Claim::Batch(batch) = claim else { return };
                let run = |part: &Part| self.job(part.job, part.tiles.clone(), writer, &mut buffers);
                if let Err(error) = batch.parts.iter().try_for_each(run) {
                    return stop(error);
                }
                queue.done(Side::Processor, batch.bytes);
            }
        };
        let driver = || {
            let _here = queue.presence();
            let mut hand = Hand { buffers: self.buffers(), source: Vec::new(), result: Vec::new() };
            while let Claim::Batch(batch) = queue.wait(Side::Device) {
                let failure = |error: &Error| queue.fail(error.message());
                match self.on_device(device, &batch, writer, &mut hand, &failure) {
                    Ok(side) => queue.done(side, batch.bytes),
                    Err(error) => return stop(error),
                }
            }
        };
        std::thread::scope(|scope| {
            let drivers = if any { device.tiles() } else { 0 };
            // Where the system gives no more threads, those that there are do the work.
            let spawned = (0..drivers).take_while(|_| std::thread::Builder::new().spawn_scoped(scope, driver).is_ok());
            if spawned.count() == 0 {
                queue.fail("the system gives no thread for it");
            }
            for _ in 1..self.options.threads {
                if std::thread::Builder::new().spawn_scoped(scope, processor).is_err() {
                    break;
                }
            }
            processor();
        });
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        Ok(queue.report(device.name()))
    }

    /// Does a batch on the device, or on the processor where the device fails; `failure` hears of that. Answers who did
    /// it in the end.
    fn on_device(
        &self,
        device: &dyn Device,
        batch: &Batch,
        writer: &dyn CheckpointWriter,
        hand: &mut Hand<'a>,
        failure: &dyn Fn(&Error),
    ) -> Result<Side> {
        let lent = device.lease();
        let mut lent = lent.map_err(|error| failure(&error)).ok();
        let tile = lent.as_deref_mut();
        if batch.picks {
            let mut losses = Vec::new();
            let [part] = batch.parts.as_slice() else { return Ok(Side::Device) };
            let done = self.picked(device.capacity(), (tile, batch.kernel), part, writer, hand, &mut losses);
            let Some(error) = only_device(done)? else {
                self.lose(part.job, losses);
                return Ok(Side::Device);
            };
            failure(&error);
            drop(hand.buffers.reader.take_casts());
            self.job(part.job, part.tiles.clone(), writer, &mut hand.buffers)?;
            return Ok(Side::Processor);
        }
        self.segments(device.capacity(), batch, tile, writer, hand, failure)
    }

    /// Elements in order: every part a segment of one job, or a part that is too large for that in pieces.
    fn segments(
        &self,
        capacity: Capacity,
        batch: &Batch,
        mut tile: Option<&mut (dyn Tile + '_)>,
        writer: &dyn CheckpointWriter,
        hand: &mut Hand<'a>,
        failure: &dyn Fn(&Error),
    ) -> Result<Side> {
        let (from, to) = batch.kernel.convert.bytes();
        let pick = Pick::Segments(batch.parts.iter().map(|part| part.elements).collect());
        let job = DeviceJob::new(batch.kernel, pick)?;
        let offsets: Vec<(usize, usize)> =
            job.source_offsets().zip(job.result_offsets()).map(|(at, into)| (at as usize, into as usize)).collect();
        hand.source.resize(job.source_bytes() as usize, 0);
        let fits = capacity.holds(&job);
        let mut casts = Vec::with_capacity(batch.parts.len());
        // Read tile by tile, and passed on while it is hot.
        for (part, &(at, _)) in batch.parts.iter().zip(&offsets) {
            let job = &self.blueprint.jobs[part.job];
            let mut at = at;
            for number in part.tiles.clone() {
                let (first, count) = extent(&job.tiles.runs(number));
                let bytes = &mut hand.source[at..at + (count * job.read) as usize];
                self.read(job, number, first, bytes, !batch.kernel.swap, &mut hand.buffers.reader)
                    .map_err(|error| self.in_output(job, error))?;
                if let Some(lent) = tile.as_deref_mut().filter(|_| fits)
                    && let Some(error) = only_device(lent.fill(at as u64, bytes))?
                {
                    failure(&error);
                    tile = None;
                }
                at += bytes.len();
            }
            casts.push(hand.buffers.reader.take_casts());
        }
        let mut casts = casts.into_iter();
        if let Some(lent) = tile.as_deref_mut().filter(|_| fits) {
            let done = lent.submit(&job).and_then(|()| lent.wait());
            match done {
                Ok(done) => {
                    for ((part, &(at, into)), tally) in batch.parts.iter().zip(&offsets).zip(&done.tallies) {
                        let source = &hand.source[at..at + part.elements as usize * from];
                        let result = &done.bytes[into..into + part.elements as usize * to];
                        self.emit(part, *tally, casts.next(), source, result, writer)?;
                    }
                    return Ok(Side::Device);
                }
                Err(error) if error.kind() == Kind::Device => {
                    failure(&error);
                    tile = None;
                }
                Err(error) => return Err(error),
            }
        }
        for (part, &(at, _)) in batch.parts.iter().zip(&offsets) {
            let source = &hand.source[at..at + part.elements as usize * from];
            hand.result.resize(part.elements as usize * to, 0);
            let mut tally = Tally::default();
            let most = capacity.elements(&batch.kernel) as usize;
            for (source, result) in source.chunks(most * from).zip(hand.result.chunks_mut(most * to)) {
                let piece = match tile.as_deref_mut() {
                    Some(lent) => only_device(one_piece(lent, batch.kernel, source, result, &mut tally))?,
                    None => Some(Error::new(Kind::Device, "none")),
                };
                if let Some(error) = piece {
                    if tile.take().is_some() {
                        failure(&error);
                    }
                    tally.merge(&Processor::convert(batch.kernel, source, result));
                }
            }
            self.emit(part, tally, casts.next(), source, &hand.result, writer)?;
        }
        Ok(if tile.is_some() { Side::Device } else { Side::Processor })
    }

    /// Counts and writes the tiles of a part; `casts` is what casts within its value did.
    fn emit(
        &self,
        part: &Part,
        tally: Tally,
        casts: Option<Vec<(CastPair, Losses)>>,
        source: &[u8],
        result: &[u8],
        writer: &dyn CheckpointWriter,
    ) -> Result<()> {
        let job = &self.blueprint.jobs[part.job];
        let mut losses: Vec<_> = own_cast(job).into_iter().collect();
        let mut into = 0;
        if let Some((pair, lost)) = losses.first_mut() {
            lost.tally = tally;
            lost.deviation = cast::deviation(*pair, source, result);
        }
        losses.extend(casts.into_iter().flatten());
        self.judge(&losses);
        for number in part.tiles.clone() {
            let runs = job.tiles.runs(number);
            let (_, count) = extent(&runs);
            let bytes = (count * job.written) as usize;
            self.write(job, &runs, &result[into..into + bytes], writer)?;
            self.progress.advance(count * job.read);
            into += bytes;
        }
        self.lose(part.job, losses);
        Ok(())
    }

    /// A tile of which the device picks the elements; cut into boxes that it holds.
    fn picked(
        &self,
        capacity: Capacity,
        (tile, kernel): (Option<&mut (dyn Tile + '_)>, Kernel),
        part: &Part,
        writer: &dyn CheckpointWriter,
        hand: &mut Hand<'a>,
        losses: &mut Vec<(CastPair, Losses)>,
    ) -> Result<()> {
        let job = &self.blueprint.jobs[part.job];
        let (Some(tile), Some(picked)) = (tile, job.value.picked()) else {
            return Err(Error::new(Kind::Device, "none"));
        };
        losses.extend(own_cast(job));
        let whole = job.tiles.region(part.tiles.start);
        hand.result.resize((whole.size.elements() * job.written) as usize, 0);
        let mut boxes = vec![whole.clone()];
        while let Some(region) = boxes.pop() {
            if !fits(&capacity, &picked, &region, job)
                && let Some((one, other)) = halves(&region)
            {
                boxes.extend([other, one]);
                continue;
            }
            let Buffers { reader, .. } = &mut hand.buffers;
            let pick = reader.pool(&picked, &region, job.read, &mut hand.source);
            let pick = pick.map_err(|error| self.in_output(job, error))?;
            let of_device = DeviceJob::new(kernel, pick)?;
            tile.fill(0, &hand.source)?;
            tile.submit(&of_device)?;
            let done = tile.wait()?;
            if let (Some((_, lost)), Some(tally)) = (losses.first_mut(), done.tallies.first()) {
                lost.tally.merge(tally);
            }
            place(done.bytes, job.written, &region, &whole, &mut hand.result)?;
        }
        losses.extend(hand.buffers.reader.take_casts());
        self.judge(losses);
        self.write(job, &job.tiles.runs(part.tiles.start), &hand.result, writer)?;
        self.progress.advance(whole.size.elements() * job.read);
        Ok(())
    }
}

/// What one driver of a device holds.
struct Hand<'a> {
    buffers: Buffers<'a>,
    /// What the device was given, kept for the processor in case that it fails.
    source: Vec<u8>,
    result: Vec<u8>,
}

/// An error of the device itself is no error of the work: `Ok(Some)`.
fn only_device<T>(result: Result<T>) -> Result<Option<Error>> {
    match result {
        Ok(_) => Ok(None),
        Err(error) if error.kind() == Kind::Device => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

fn one_piece(
    tile: &mut (dyn Tile + '_),
    kernel: Kernel,
    source: &[u8],
    result: &mut [u8],
    tally: &mut Tally,
) -> Result<()> {
    let elements = source.len() / kernel.convert.bytes().0;
    let job = DeviceJob::new(kernel, Pick::Segments(vec![elements as u64]))?;
    tile.fill(0, source)?;
    tile.submit(&job)?;
    let done = tile.wait()?;
    result.copy_from_slice(done.bytes);
    done.tallies.iter().for_each(|counted| tally.merge(counted));
    Ok(())
}

/// Whether a device holds what a box is picked from, and the box.
fn fits(capacity: &Capacity, picked: &Picked<'_>, region: &Region, job: &Job) -> bool {
    let rows = match picked {
        Picked::Permuted(..) => 0,
        Picked::Rows { .. } => region.size.dims().first().copied().unwrap_or(0),
    };
    picked.pool_bytes(region, job.read) <= capacity.source
        && region.size.elements() * job.written <= capacity.result
        && rows <= capacity.rows
}

/// A box cut in two along its longest axis; `None` for a single element.
fn halves(region: &Region) -> Option<(Region, Region)> {
    let dims = region.size.dims();
    let axis = (0..dims.len()).filter(|&axis| dims[axis] > 1).max_by_key(|&axis| dims[axis])?;
    region.halves(axis)
}
