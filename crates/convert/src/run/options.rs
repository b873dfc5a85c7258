//! How a plan is carried out, and what memory that takes.

use super::device::{Accelerator, When};
use crate::plan::Resolved;
use crate::target::Target;
use crate::tiles::{BOX_TILES, RUN_TILE};
use weightlift_core::{Error, Result, WriteOptions};
use weightlift_kernels::cast::Like;

/// What a finite value beyond the target's range becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnOverflow {
    /// Nothing is written; the tensors and counts are named.
    #[default]
    Error,
    /// The target's infinity.
    Inf,
    /// The target's largest finite value.
    Saturate,
    /// The tensor stays in its own dtype. A pass of its own measures every tensor that would be cast.
    Keep,
}

/// How a plan is carried out.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of worker threads.
    pub threads: usize,
    /// What becomes of values beyond the target's range.
    pub on_overflow: OnOverflow,
    /// Whose bits casts give.
    pub like: Like,
    /// Whether stored checksums of the input are verified.
    pub verify: bool,
    /// Whether existing files may be replaced.
    pub replace: bool,
    /// Most bytes of tensors in one file, for formats that are written as sets; a larger tensor has a file of its own.
    pub shard_size: Option<u64>,
    /// Bytes of input that a worker handles at once; four times as many where tensors are picked together. Outputs do
    /// not depend on it.
    pub tile_bytes: u64,
    /// Whether tensors with equal values are found, by reading them all once more, and written once.
    pub dedupe: bool,
    /// A device beside the processor for bulk casts and row copies. Outputs do not depend on it.
    pub accelerator: Option<Accelerator>,
    /// What else the writer is told.
    pub output: WriteOptions,
}

impl Options {
    /// What of it concerns the writer.
    pub fn for_writer(&self, target: &Target) -> WriteOptions {
        let mut options = self.output.clone();
        (options.replace, options.shard_size) = (self.replace, self.shard_size);
        options.weights_only = target.weights_only;
        options
    }
}

impl Default for Options {
    /// One worker a processor, errors on overflow, verified, nothing replaced.
    fn default() -> Options {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            threads,
            on_overflow: OnOverflow::Error,
            like: Like::Exact,
            verify: true,
            replace: false,
            shard_size: None,
            tile_bytes: RUN_TILE,
            dedupe: false,
            accelerator: None,
            output: WriteOptions::default(),
        }
    }
}

/// Hears how far the work is. Called from many threads.
pub trait Progress: Sync {
    /// The work begins; so many bytes will be read.
    fn begin(&self, bytes: u64) {
        let _ = bytes;
    }

    /// So many more bytes were read.
    fn advance(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// Tells nobody.
impl Progress for () {}

/// What an entry, its output and its job take, names and the new index included: 2.5 kB a tensor was measured on a
/// safetensors file of 100,000 tensors, to each format.
const INDEX_OF_ONE: u64 = 2600;
const PROGRAM: u64 = 5 << 20;

/// Bytes that a conversion holds at once: tiles in flight and the index.
pub fn planned_memory(resolved: &Resolved, options: &Options) -> u64 {
    let tiles = options.threads as u64 * tiles_at_once(resolved) * options.tile_bytes;
    fixed_memory(resolved)
        + tiles
        + options.accelerator.as_ref().map_or(0, |accelerator| accelerator.device.memory_in_use())
}

fn fixed_memory(resolved: &Resolved) -> u64 {
    PROGRAM + resolved.outputs.len() as u64 * INDEX_OF_ONE
}

/// How many tiles a worker holds: what is read, gathered, cast and written, and for tensors that steps make three more
/// for each step.
fn tiles_at_once(resolved: &Resolved) -> u64 {
    let deepest = resolved.outputs.iter().map(|output| output.value.depth()).max();
    deepest.map_or(1, |depth| BOX_TILES * (4 + 3 * depth))
}

impl Options {
    /// Leaves a device that is used only where it is faster, makes tiles smaller, then threads fewer, until
    /// [`planned_memory`] is at most `most` bytes.
    ///
    /// # Errors
    /// `Request` where that is not enough, with what is needed.
    pub fn fit_memory(&mut self, resolved: &Resolved, most: u64) -> Result<()> {
        const SMALLEST: u64 = 16 << 10;
        let spared = |accelerator: &Accelerator| matches!(accelerator.when, When::Faster(_));
        if planned_memory(resolved, self) > most && self.accelerator.as_ref().is_some_and(spared) {
            self.accelerator = None;
        }
        while planned_memory(resolved, self) > most && self.tile_bytes > SMALLEST {
            self.tile_bytes /= 2;
        }
        while planned_memory(resolved, self) > most && self.threads > 1 {
            self.threads -= 1;
        }
        match planned_memory(resolved, self) {
            needed if needed > most => {
                let count = resolved.outputs.len();
                let message = format!("{count} tensors need about {needed} bytes of memory, and {most} are allowed");
                Err(Error::request(message).help("raise --max-memory, or convert fewer tensors at once with --include"))
            }
            _ => Ok(()),
        }
    }
}
