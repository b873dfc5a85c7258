//! The device and the processor, from memory to memory, one after the other and at the same time.

use super::super::bench::Pass;
use super::TURNS;
use super::works::Work;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weightlift::Result;
use weightlift_gpu::Gpu;
use weightlift_kernels::device::{Device, Job};

/// Bytes of source a second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Race {
    /// The device, with all transfers.
    pub(super) ring: f64,
    /// The same way with a copy in the kernel's place.
    pub(super) bare: f64,
    /// The processor's threads.
    pub(super) cpu: f64,
    /// The processor's threads and the device.
    pub(super) both: f64,
}

/// Who runs in one part of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Ring,
    Bare,
    Cpu,
    Both,
}

const PARTS: [Part; 4] = [Part::Bare, Part::Ring, Part::Cpu, Part::Both];

/// A thread for each tile fills, submits, waits and copies the result out; others do passes on the processor. All parts
/// come in turns; the best turn of each counts.
///
/// # Errors
/// `Device` where the device fails.
pub(super) fn race(gpu: &Gpu, work: &Work, job: &Job, threads: usize, size: u64, window: Duration) -> Result<Race> {
    let tiles = gpu.tiles();
    let barrier = Barrier::new(tiles + threads);
    let rates = Mutex::new([[0f64; PARTS.len()]; TURNS]);
    // Every thread comes to every barrier, also when something failed: others wait there.
    let turns = |mut run: Box<dyn FnMut(Part) -> Result<f64> + '_>| -> Result<()> {
        let mut failure = Ok(());
        for turn in 0..TURNS {
            for (at, part) in PARTS.into_iter().enumerate() {
                barrier.wait();
                let rate = if failure.is_ok() { run(part) } else { Ok(0.0) };
                match rate {
                    Ok(rate) => rates.lock().unwrap_or_else(PoisonError::into_inner)[turn][at] += rate,
                    Err(error) => failure = Err(error),
                }
            }
        }
        failure
    };
    let on_device = || {
        let mut lane = Lane::new(gpu, work, job, size);
        turns(Box::new(move |part| match part {
            Part::Cpu => Ok(0.0),
            Part::Bare => lane.run(true, window),
            Part::Ring | Part::Both => lane.run(false, window),
        }))
    };
    let on_processor = || {
        let (bytes, mut pass) = work.pass(size as usize);
        turns(Box::new(move |part| match part {
            Part::Cpu | Part::Both => Ok(passes(bytes, &mut pass, window)),
            Part::Bare | Part::Ring => Ok(0.0),
        }))
    };
    std::thread::scope(|scope| -> Result<()> {
        let mut all: Vec<_> = (0..tiles).map(|_| scope.spawn(on_device)).collect();
        all.extend((0..threads).map(|_| scope.spawn(on_processor)));
        all.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })?;
    let rates = rates.into_inner().unwrap_or_else(PoisonError::into_inner);
    let best = |part: Part| {
        let of = |turn: &[f64; PARTS.len()]| PARTS.iter().zip(turn).find_map(|(p, rate)| (*p == part).then_some(*rate));
        rates.iter().filter_map(of).fold(0.0, f64::max)
    };
    let (ring, bare, cpu) = (best(Part::Ring), best(Part::Bare), best(Part::Cpu));
    // More than the sum is a moment in which other programs let go.
    Ok(Race { ring, bare, cpu, both: best(Part::Both).min(ring + cpu) })
}

/// One of the threads that keep the ring busy.
struct Lane<'a> {
    gpu: &'a Gpu,
    job: &'a Job,
    source: Vec<u8>,
    result: Vec<u8>,
    /// The tile of the memory that is next.
    next: u64,
}

impl<'a> Lane<'a> {
    /// Memory for as many tiles as read and write `size` bytes.
    fn new(gpu: &'a Gpu, work: &Work, job: &'a Job, size: u64) -> Lane<'a> {
        let tiles = (size / (job.source_bytes() + job.result_bytes())).max(1);
        let source = work.source(tiles * job.source_bytes());
        let result = vec![0; (tiles * job.result_bytes()) as usize];
        Lane { gpu, job, source, result, next: 0 }
    }

    fn run(&mut self, bare: bool, window: Duration) -> Result<f64> {
        let (from, to) = (self.job.source_bytes() as usize, self.job.result_bytes() as usize);
        let (start, mut bytes) = (Instant::now(), 0);
        let mut tile = if bare { self.gpu.lease_without_kernel()? } else { self.gpu.lease()? };
        while bytes == 0 || start.elapsed() < window {
            let at = self.next as usize;
            tile.fill(0, &self.source[at * from..][..from])?;
            tile.submit(self.job)?;
            let done = tile.wait()?;
            self.result[at * to..][..to].copy_from_slice(done.bytes);
            self.next = (self.next + 1) % (self.source.len() / from) as u64;
            bytes += from;
        }
        Ok(bytes as f64 / start.elapsed().as_secs_f64())
    }
}

/// Bytes a second of passes on the processor.
fn passes(bytes: u64, pass: &mut Pass, window: Duration) -> f64 {
    let (start, mut passes) = (Instant::now(), 0u32);
    while passes == 0 || start.elapsed() < window {
        pass();
        passes += 1;
    }
    f64::from(passes) * bytes as f64 / start.elapsed().as_secs_f64()
}
