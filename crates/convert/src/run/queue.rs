//! Bulk work that processor and device share: who takes which tiles, and who is faster.

use super::chooser::{Chosen, Rates, choose};
use crate::blueprint::{Job, Way};
use crate::report::DeviceReport;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weightlift_kernels::device::{Capacity, GRANULE, Kernel};

/// A job that a device can do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// Its place among the jobs of the blueprint.
    pub(super) job: usize,
    pub(super) kernel: Kernel,
    /// Whether the device picks the elements, box by box; otherwise they come in order.
    pub(super) picks: bool,
}

/// Tiles of one job that follow each other.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) job: usize,
    pub(super) tiles: Range<u64>,
    /// Elements of the kernel in them.
    pub(super) elements: u64,
}

/// What one worker takes at once.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) kernel: Kernel,
    pub(super) picks: bool,
    pub(super) parts: Vec<Part>,
    /// Bytes of input.
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Processor,
    Device,
}

/// What a worker is to do next.
#[derive(Debug)]
pub(super) enum Claim {
    Batch(Batch),
    /// The other side is at work alone for now.
    Wait,
    End,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Each side alone, then both, for a while.
    Trial {
        stage: usize,
        claimed: u64,
        done: u64,
        since: Instant,
    },
    Settled(Chosen),
}

const STAGES: [Chosen; 3] = [Chosen::Processor, Chosen::Device, Chosen::Both];

#[derive(Debug)]
struct State {
    /// The next work, and the next tile of it.
    at: usize,
    tile: u64,
    phase: Phase,
    under_way: usize,
    rates: [f64; 3],
    moved: [u64; 2],
    failed: Option<String>,
}

/// See [`Queue::presence`].
pub(super) struct Presence<'q, 'a>(&'q Queue<'a>);

impl Drop for Presence<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// Tiles in the order of the jobs.
pub(super) struct Queue<'a> {
    jobs: &'a [Job],
    works: Vec<Work>,
    capacity: Capacity,
    /// Bytes that the processor takes at once.
    step: u64,
    /// Bytes of each stage of the trial.
    window: u64,
    state: Mutex<State>,
    changed: Condvar,
}

impl<'a> Queue<'a> {
    /// `settled`: who does it, where that needs no trial.
    pub(super) fn new(
        jobs: &'a [Job],
        works: Vec<Work>,
        capacity: Capacity,
        step: u64,
        settled: Option<Chosen>,
    ) -> Queue<'a> {
        const WINDOW: u64 = 128 << 20;
        let bytes = works.iter().fold(0, |sum: u64, work| sum.saturating_add(jobs[work.job].bytes()));
        let trial = Phase::Trial { stage: 0, claimed: 0, done: 0, since: Instant::now() };
        let phase = settled.map_or(trial, Phase::Settled);
        let state = State { at: 0, tile: 0, phase, under_way: 0, rates: [0.0; 3], moved: [0; 2], failed: None };
        let window = WINDOW.min(bytes / 8);
        Queue { jobs, works, capacity, step, window, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The kernels of all work, in the order of their first use.
    pub(super) fn kernels(&self) -> Vec<Kernel> {
        let mut kernels: Vec<Kernel> = Vec::new();
        for work in self.works.iter().filter(|work| !work.picks) {
            if !kernels.contains(&work.kernel) {
                kernels.push(work.kernel);
            }
        }
        kernels
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next tiles for a side.
    pub(super) fn claim(&self, side: Side) -> Claim {
        let mut state = self.state();
        let failed = state.failed.is_some();
        if failed && side == Side::Device {
            return Claim::End;
        }
        let turn = match state.phase {
            Phase::Settled(chosen) => Some(chosen),
            Phase::Trial { stage, claimed, .. } => (claimed < self.window.max(1)).then_some(STAGES[stage]),
        };
        let ours = failed
            || match turn {
                Some(Chosen::Both) => true,
                Some(Chosen::Processor) => side == Side::Processor,
                Some(Chosen::Device) => side == Side::Device,
                None => false,
            };
        if !ours {
            let over = state.at >= self.works.len()
                || (side == Side::Device && matches!(state.phase, Phase::Settled(Chosen::Processor)));
            return if over { Claim::End } else { Claim::Wait };
        }
        let Some(batch) = self.take(&mut state, side) else {
            self.changed.notify_all();
            return Claim::End;
        };
        if let Phase::Trial { claimed, since, .. } = &mut state.phase {
            // What comes before, such as compiling, is no part of a stage.
            if *claimed == 0 {
                *since = Instant::now();
            }
            *claimed += batch.bytes;
        }
        state.under_way += 1;
        Claim::Batch(batch)
    }

    /// Waits until it may be worth asking again.
    pub(super) fn wait(&self, side: Side) -> Claim {
        loop {
            match self.claim(side) {
                Claim::Wait => {
                    let state = self.state();
                    // Woken by every change; the time limit covers what changed since the question.
                    let limit = std::time::Duration::from_millis(20);
                    drop(self.changed.wait_timeout(state, limit));
                }
                claim => return claim,
            }
        }
    }

    fn take(&self, state: &mut State, side: Side) -> Option<Batch> {
        let mut batch: Option<Batch> = None;
        // Where the last segment begins and ends on the device, in elements.
        let (mut start, mut end, mut segments) = (0, 0, 0);
        while let Some(work) = self.works.get(state.at) {
            let job = &self.jobs[work.job];
            if state.tile >= job.tiles.count() {
                (state.at, state.tile) = (state.at + 1, 0);
                continue;
            }
            let (from, to) = work.kernel.convert.bytes();
            let bytes = job.tiles.region(state.tile).size.elements() * job.read;
            let elements = bytes / from as u64;
            let mut joined = false;
            if let Some(batch) = &batch {
                let last = batch.parts.last();
                joined = matches!(job.way, Way::Run { .. }) && last.is_some_and(|part| part.job == work.job);
                let first = if joined { start } else { u64::next_multiple_of(end, GRANULE) };
                let after = if joined { end } else { first } + elements;
                let fits = after * from as u64 <= self.capacity.source
                    && after * to as u64 <= self.capacity.result
                    && segments < self.capacity.segments;
                let alike = batch.kernel == work.kernel && !batch.picks && !work.picks;
                let full = match side {
                    Side::Processor => batch.bytes + bytes > self.step,
                    Side::Device => !alike || !fits,
                };
                if full {
                    break;
                }
                (start, end) = (first, after);
            } else {
                end = elements;
            }
            let batch = batch.get_or_insert_with(|| Batch {
                kernel: work.kernel,
                picks: work.picks,
                parts: Vec::new(),
                bytes: 0,
            });
            match batch.parts.last_mut() {
                Some(part) if joined => (part.tiles.end, part.elements) = (state.tile + 1, part.elements + elements),
                _ => {
                    segments += 1;
                    let tiles = state.tile..state.tile + 1;
                    batch.parts.push(Part { job: work.job, tiles, elements });
                }
            }
            batch.bytes += bytes;
            state.tile += 1;
        }
        batch
    }

    /// Tells that a batch is done.
    pub(super) fn done(&self, side: Side, bytes: u64) {
        let mut state = self.state();
        state.under_way -= 1;
        state.moved[side as usize] += bytes;
        let idle = state.under_way == 0;
        if let Phase::Trial { stage, claimed, done, since } = &mut state.phase {
            *done += bytes;
            if *claimed >= self.window && idle {
                let (at, rate) = (*stage, *done as f64 / since.elapsed().as_secs_f64().max(1e-9));
                (*stage, *claimed, *done, *since) = (at + 1, 0, 0, Instant::now());
                state.rates[at] = rate;
                if at + 1 == STAGES.len() {
                    let [processor, device, both] = state.rates;
                    state.phase = Phase::Settled(choose(&Rates { processor, device, both }));
                }
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The device does no more; the processor takes what is left.
    pub(super) fn fail(&self, why: &str) {
        self.state().failed.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    /// For a worker to hold: if it panics, the others end, and do not wait for what it had claimed.
    pub(super) fn presence(&self) -> Presence<'_, 'a> {
        Presence(self)
    }

    /// Nothing more is to be done.
    pub(super) fn stop(&self) {
        self.state().at = self.works.len();
        self.changed.notify_all();
    }

    /// Who did what, and why a device of this name was given up, if it had anything to do.
    pub(super) fn report(self, name: String) -> DeviceReport {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let chosen = match state.phase {
            Phase::Settled(chosen) => Some(chosen),
            Phase::Trial { .. } => None,
        };
        let [processor, device, both] = state.rates;
        let rates = (both > 0.0 && state.failed.is_none()).then_some(Rates { processor, device, both });
        let [by_processor, by_device] = state.moved;
        let failure = state.failed.filter(|_| !self.works.is_empty());
        DeviceReport { name, by_processor, by_device, chosen, rates, failure }
    }
}
