//! Devices: whatever carries out a kernel over many elements, in the same bits.
//!
//! A [`Kernel`] says what becomes of each element, a [`Job`] over which elements. A [`Device`] lends a [`Tile`], which
//! is filled with the source's bytes, told its job, and read when that is done. The [`Processor`] is the device that
//! every machine has and by which the others are measured; what another one fails to do is done again there.
//!
//! ```
//! use weightlift_core::DType;
//! use weightlift_kernels::cast::{CastPair, Overflow};
//! use weightlift_kernels::device::{Convert, Device, Job, Kernel, Pick, Processor};
//! let pair = CastPair::new(DType::F32, DType::F16).unwrap();
//! let kernel = Kernel { convert: Convert::Cast { pair, overflow: Overflow::Inf }, swap: false };
//! let job = Job::new(kernel, Pick::Segments(vec![2])).unwrap();
//! let processor = Processor::default();
//! let mut tile = processor.lease()?;
//! tile.fill(0, &[1.0f32, 1e6].map(f32::to_le_bytes).concat())?;
//! tile.submit(&job)?;
//! let done = tile.wait()?;
//! assert_eq!(done.bytes, [0x00, 0x3c, 0x00, 0x7c]);
//! assert_eq!(done.tallies[0].overflow, 1);
//! # Ok::<(), weightlift_core::Error>(())
//! ```

mod job;
mod processor;

pub use job::{Convert, GRANULE, Job, Kernel, MAX_RANK, Pick};
pub use processor::Processor;

use crate::cast::Tally;
use weightlift_core::Result;

/// How much one job may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of the source ([`Job::source_bytes`]).
    pub source: u64,
    /// Bytes of the result ([`Job::result_bytes`]).
    pub result: u64,
    /// Segments that are counted apart.
    pub segments: u64,
    /// Rows that a table names.
    pub rows: u64,
}

impl Capacity {
    /// Whether a job fits.
    pub fn holds(&self, job: &Job) -> bool {
        let (segments, rows) = match &job.pick {
            Pick::Segments(elements) => (elements.len(), 0),
            Pick::Rows { table, .. } | Pick::Scatter { table, .. } => (1, table.len()),
            Pick::Strided { .. } => (1, 0),
        };
        job.source_bytes() <= self.source
            && job.result_bytes() <= self.result
            && segments as u64 <= self.segments
            && rows as u64 <= self.rows
    }

    /// Elements in one segment that a kernel can do in one job: a multiple of [`GRANULE`], at least one.
    pub fn elements(&self, kernel: &Kernel) -> u64 {
        let (from, to) = kernel.convert.bytes();
        let most = (self.source / from as u64).min(self.result / to as u64);
        (most / GRANULE * GRANULE).max(GRANULE)
    }
}

/// Something that carries out jobs.
pub trait Device: Send + Sync {
    /// What it is called, for people.
    fn name(&self) -> String;

    /// Whether it has the kernel.
    fn has(&self, kernel: &Kernel) -> bool;

    /// How much a job may hold.
    fn capacity(&self) -> Capacity;

    /// How many jobs are best under way at once.
    fn tiles(&self) -> usize;

    /// Makes a kernel ready, so that its first job is as fast as the others.
    ///
    /// # Errors
    /// `Device` where it was lost or refuses.
    fn prepare(&self, kernel: &Kernel) -> Result<()> {
        let _ = kernel;
        Ok(())
    }

    /// Bytes of memory that its tiles take, on both sides together.
    fn staging_bytes(&self) -> u64 {
        0
    }

    /// Bytes of memory that come with its use: its tiles, and the source and result that are kept of each job for the
    /// processor.
    fn memory_in_use(&self) -> u64 {
        let Capacity { source, result, .. } = self.capacity();
        self.staging_bytes() + self.tiles() as u64 * (source + result)
    }

    /// Lends a tile; waits where all of them are lent.
    ///
    /// # Errors
    /// `Device` where it was lost.
    fn lease(&self) -> Result<Box<dyn Tile + '_>>;
}

/// The place of one job on a device. After [`wait`](Tile::wait) it can be filled for the next.
pub trait Tile {
    /// Writes bytes of the source. They cannot be read back: a device's memory may be slow to read.
    ///
    /// # Errors
    /// `Device` where it was lost; `Limit` beyond the device's capacity.
    fn fill(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Begins a job over what was filled in.
    ///
    /// # Errors
    /// `Device` where it was lost or refuses; `Limit` beyond its capacity.
    fn submit(&mut self, job: &Job) -> Result<()>;

    /// Waits for the job that was begun last.
    ///
    /// # Errors
    /// `Device` where it was lost, failed or took too long.
    fn wait(&mut self) -> Result<Done<'_>>;
}

/// What a job has made.
#[derive(Debug)]
pub struct Done<'a> {
    /// The result, [`Job::result_bytes`] long: segments where [`Job::result_offsets`] says, everything else at once.
    pub bytes: &'a [u8],
    /// What each segment lost; one where there are no segments.
    pub tallies: Vec<Tally>,
}
