//! What to hold a device's rates against: its kernels without transfers, its own copies, and the way of a job with a
//! copy in the kernel's place.
//!
//! A kernel reads its source and writes its result. The copy that it is held against moves as many bytes: half of them
//! are read, half written.

use crate::context::Gpu;
use crate::tile::{GpuTile, finished};
use std::time::{Duration, Instant};
use weightlift_core::Result;
use weightlift_kernels::device::{Job, Tile};

/// Commands of one submission take memory.
const MOST_REPETITIONS: u32 = 1 << 14;

impl Gpu {
    /// Bytes of source a second of a kernel alone: its dispatches follow each other for about `window` on the device,
    /// over what is filled in once.
    ///
    /// Open the device with large tiles ([`Settings::tile_bytes`](crate::Settings::tile_bytes)) for this, far beyond
    /// the device's caches.
    ///
    /// # Errors
    /// `Limit` for a job beyond the capacity, `Device` where the device fails.
    pub fn kernel_rate(&self, job: &Job, source: &[u8], window: Duration) -> Result<f64> {
        let mut tile = self.tile(false)?;
        tile.fill(0, source)?;
        Ok(job.source_bytes() as f64 / tile.seconds(job, window)?)
    }

    /// The same of copies between two buffers of the device that move as many bytes as the job.
    ///
    /// # Errors
    /// `Limit` for a job beyond the capacity, `Device` where the device fails.
    pub fn copy_rate(&self, job: &Job, window: Duration) -> Result<f64> {
        Ok(job.source_bytes() as f64 / self.tile(true)?.seconds(job, window)?)
    }

    /// Lends a tile whose jobs go the whole way, but with a copy that moves as many bytes in the kernel's place: what the
    /// ring of tiles yields when nothing is computed. The result is of no use, and its counts are zero.
    ///
    /// # Errors
    /// As [`Device::lease`](weightlift_kernels::device::Device::lease).
    pub fn lease_without_kernel(&self) -> Result<Box<dyn Tile + '_>> {
        Ok(Box::new(self.tile(true)?))
    }
}

impl GpuTile<'_> {
    /// Seconds that a job's dispatches take, or the copy in their place, where they follow each other on the device for
    /// at least `window`, transfers left out. They work on what was filled in; the tile can be filled anew afterwards.
    fn seconds(&mut self, job: &Job, window: Duration) -> Result<f64> {
        let shared = self.shared();
        let plan = shared.plan(job)?;
        let pipeline = shared.pipeline(plan.shader);
        self.unmap();
        self.hand_over(&plan)?;
        let mut encoder = shared.device.create_command_encoder(&Default::default());
        self.upload(&plan, job, &mut encoder)?;
        finished(shared, shared.queue.submit([encoder.finish()]))?;
        let mut run = |times: u32| -> Result<Duration> {
            let mut encoder = shared.device.create_command_encoder(&Default::default());
            (0..times).try_for_each(|_| self.work(&plan, &pipeline, job, &mut encoder))?;
            let commands = encoder.finish();
            let start = Instant::now();
            finished(shared, shared.queue.submit([commands]))?;
            Ok(start.elapsed())
        };
        // The first touches memory that nobody has touched yet.
        run(1)?;
        let (mut times, mut took) = (1, run(1)?);
        while took < window && times < MOST_REPETITIONS {
            // Not at once by what one took: it may be mostly the way to the device.
            let wanted = window.as_secs_f64() / took.as_secs_f64().max(1e-7) * f64::from(times) * 1.1;
            times = (wanted as u32).clamp(times + 1, times.saturating_mul(8)).min(MOST_REPETITIONS);
            took = run(times)?;
        }
        self.take_back()?;
        Ok(took.as_secs_f64() / f64::from(times))
    }
}
