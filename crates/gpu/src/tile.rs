//! A tile: buffers for one job.

use crate::buffers::{PARAMS, PARAMS_STRIDE, Parts};
use crate::context::{Gpu, Shared, failed, lock};
use crate::dispatch::Plan;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use weightlift_core::{Error, Result};
use weightlift_kernels::cast::Tally;
use weightlift_kernels::device::{Done, Job, Pick, Tile};
use wgpu::{Buffer, BufferUsages, BufferView, BufferViewMut, MapMode, PollType, SubmissionIndex};

/// The buffers; they outlive the jobs.
pub(crate) struct Slot {
    /// What is filled; the same as `input` in shared memory.
    upload: Buffer,
    input: Buffer,
    output: Buffer,
    /// What is read; the same as `output` in shared memory.
    download: Buffer,
    bind_group: wgpu::BindGroup,
    /// The mapped upload buffer.
    writing: Option<BufferViewMut>,
    writable: Mapping,
}

/// How far a map has come: not yet, done, or failed.
#[derive(Clone, Default)]
struct Mapping(Arc<(Mutex<Option<bool>>, Condvar)>);

impl Mapping {
    /// Begins to map a part of a buffer.
    fn begin(&self, buffer: &Buffer, mode: MapMode, range: std::ops::Range<u64>) {
        *lock(&self.0.0) = None;
        let state = self.0.clone();
        buffer.map_async(mode, range, move |mapped| {
            *lock(&state.0) = Some(mapped.is_ok());
            state.1.notify_all();
        });
    }

    /// Whether it is done. The thread that polls the device learns of its submission's end before it is told of maps
    /// whenever another thread, polling too, is about to tell it: so it waits for that.
    fn is_done(&self, timeout: Duration) -> bool {
        let state = lock(&self.0.0);
        let waited = self.0.1.wait_timeout_while(state, timeout, |state| state.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *state == Some(true)
    }
}

impl Slot {
    pub(crate) fn new(shared: &Shared) -> Result<Slot> {
        let (device, parts) = (&shared.device, &shared.parts);
        let buffer = |size: u64, usage: BufferUsages, mapped_at_creation: bool| {
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation })
        };
        let (input_size, output_size) = (parts.input(), parts.output());
        let input_use = BufferUsages::STORAGE | BufferUsages::UNIFORM | BufferUsages::COPY_SRC;
        let output_use = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let (upload, input, output, download) = if shared.in_place {
            let input = buffer(input_size, input_use | BufferUsages::MAP_WRITE, true);
            let output = buffer(output_size, output_use | BufferUsages::MAP_READ, false);
            (input.clone(), input, output.clone(), output)
        } else {
            (
                buffer(input_size, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC, true),
                buffer(input_size, input_use | BufferUsages::COPY_DST, false),
                buffer(output_size, output_use, false),
                buffer(output_size, BufferUsages::MAP_READ | BufferUsages::COPY_DST, false),
            )
        };
        let bind_group = bind_group(shared, parts, &input, &output);
        // Where memory ran out, the device says so by now.
        shared.alive()?;
        let view = upload.get_mapped_range_mut(..).map_err(|error| failed(&format!("cannot map memory: {error}")))?;
        let writable = Mapping::default();
        Ok(Slot { upload, input, output, download, bind_group, writing: Some(view), writable })
    }

    fn fill(&mut self, shared: &Shared, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.writing.is_none() {
            shared.alive()?;
            let mapped = self
                .writable
                .is_done(shared.settings.timeout)
                .then(|| self.upload.get_mapped_range_mut(..).ok())
                .flatten();
            self.writing = Some(mapped.ok_or_else(|| shared.fail("memory to fill was not mapped"))?);
        }
        let start = offset as usize;
        if let Some(view) = self.writing.as_mut() {
            view.slice(start..start + bytes.len()).copy_from_slice(bytes);
        }
        Ok(())
    }
}

fn bind_group(shared: &Shared, parts: &Parts, input: &Buffer, output: &Buffer) -> wgpu::BindGroup {
    let part = |binding: u32, buffer, offset: u64, size: u64| wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset,
            size: std::num::NonZeroU64::new(size),
        }),
    };
    shared.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &shared.layout,
        entries: &[
            part(0, input, 0, parts.source),
            part(1, output, parts.counts, parts.result),
            part(2, output, 0, parts.counts),
            part(3, input, parts.table_at(), parts.table),
            part(4, input, parts.params_at(), PARAMS),
        ],
    })
}

/// A job on its way.
struct Pending {
    index: SubmissionIndex,
    readable: Mapping,
    /// Bytes of counts and result that are read.
    read: u64,
    result: u64,
    segments: usize,
    /// Nothing is heard of it any more.
    hangs: bool,
    /// Waiting for it panics.
    panics: bool,
}

/// A tile that is lent.
pub(crate) struct GpuTile<'a> {
    gpu: &'a Gpu,
    slot: Option<Slot>,
    pending: Option<Pending>,
    /// The mapped result of the job before.
    reading: Option<BufferView>,
    /// Whether a copy that moves as many bytes takes the kernel's place.
    bare: bool,
}

impl<'a> GpuTile<'a> {
    pub(crate) fn new(gpu: &'a Gpu, slot: Slot, bare: bool) -> GpuTile<'a> {
        GpuTile { gpu, slot: Some(slot), pending: None, reading: None, bare }
    }

    pub(crate) fn shared(&self) -> &'a Shared {
        &self.gpu.shared
    }

    fn slot(&mut self) -> Result<&mut Slot> {
        self.slot.as_mut().ok_or_else(|| failed("the tile is gone"))
    }

    /// Lets go of the last result.
    pub(crate) fn unmap(&mut self) {
        if self.reading.take().is_some()
            && let Some(slot) = &self.slot
        {
            slot.download.unmap();
        }
    }

    /// Writes what goes beside the source, and hands the filled buffer over.
    pub(crate) fn hand_over(&mut self, plan: &Plan) -> Result<()> {
        let shared = self.shared();
        let parts = shared.parts;
        let slot = self.slot()?;
        slot.fill(shared, parts.table_at(), bytemuck::cast_slice(&plan.table))?;
        for (at, dispatch) in plan.dispatches.iter().enumerate() {
            let at = parts.params_at() + at as u64 * PARAMS_STRIDE;
            slot.fill(shared, at, bytemuck::bytes_of(&dispatch.params))?;
        }
        slot.writing = None;
        slot.upload.unmap();
        Ok(())
    }

    /// Takes the filled buffer back, to be filled anew.
    pub(crate) fn take_back(&mut self) -> Result<()> {
        let shared = self.shared();
        let slot = self.slot()?;
        slot.writable.begin(&slot.upload, MapMode::Write, 0..slot.upload.size());
        finished(shared, shared.queue.submit([]))
    }

    /// Copies what was filled to where the shader reads it.
    pub(crate) fn upload(&mut self, plan: &Plan, job: &Job, encoder: &mut wgpu::CommandEncoder) -> Result<()> {
        let shared = self.shared();
        let parts = shared.parts;
        let slot = self.slot()?;
        if !shared.in_place {
            let params = plan.dispatches.len() as u64 * PARAMS_STRIDE;
            for (at, len) in
                [(0, job.source_bytes()), (parts.table_at(), plan.table.len() as u64 * 4), (parts.params_at(), params)]
            {
                if len > 0 {
                    encoder.copy_buffer_to_buffer(&slot.upload, at, &slot.input, at, Some(words(len)));
                }
            }
        }
        Ok(())
    }

    /// The kernel, or the copy in its place: from where sources lie to where results do.
    pub(crate) fn work(
        &mut self,
        plan: &Plan,
        pipeline: &wgpu::ComputePipeline,
        job: &Job,
        encoder: &mut wgpu::CommandEncoder,
    ) -> Result<()> {
        let (bare, counts) = (self.bare, self.shared().parts.counts);
        let slot = self.slot()?;
        if bare {
            let moved = (job.source_bytes() + job.result_bytes()) / 2;
            encoder.copy_buffer_to_buffer(&slot.input, 0, &slot.output, counts, Some(words(moved)));
            return Ok(());
        }
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(pipeline);
        for (at, dispatch) in plan.dispatches.iter().enumerate() {
            pass.set_bind_group(0, &slot.bind_group, &[(at as u64 * PARAMS_STRIDE) as u32]);
            pass.dispatch_workgroups(dispatch.groups.0, dispatch.groups.1, 1);
        }
        Ok(())
    }

    fn encode(&mut self, plan: &Plan, job: &Job) -> Result<wgpu::CommandBuffer> {
        let shared = self.shared();
        let parts = shared.parts;
        let pipeline = shared.pipeline(plan.shader);
        self.hand_over(plan)?;
        let mut encoder = shared.device.create_command_encoder(&Default::default());
        self.upload(plan, job, &mut encoder)?;
        let counts = plan.segments as u64 * 16;
        let slot = self.slot()?;
        encoder.clear_buffer(&slot.output, 0, Some(counts.max(4)));
        if let Pick::Scatter { .. } = job.pick() {
            let len = words(job.result_bytes());
            encoder.copy_buffer_to_buffer(&slot.input, job.base_offset(), &slot.output, parts.counts, Some(len));
        }
        self.work(plan, &pipeline, job, &mut encoder)?;
        let slot = self.slot()?;
        if !shared.in_place {
            let (result, at) = (words(job.result_bytes()), parts.counts);
            encoder.copy_buffer_to_buffer(&slot.output, 0, &slot.download, 0, Some(counts.max(4)));
            if result > 0 {
                encoder.copy_buffer_to_buffer(&slot.output, at, &slot.download, at, Some(result));
            }
        }
        Ok(encoder.finish())
    }
}

/// Copies are whole words.
fn words(bytes: u64) -> u64 {
    bytes.next_multiple_of(4)
}

impl Tile for GpuTile<'_> {
    fn fill(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let shared = self.shared();
        let end = offset.saturating_add(bytes.len() as u64);
        if end > shared.parts.source {
            return Err(Error::limit(format!("{end} bytes for a tile of {}", shared.parts.source)));
        }
        self.slot()?.fill(shared, offset, bytes)
    }

    fn submit(&mut self, job: &Job) -> Result<()> {
        let shared = self.shared();
        let plan = shared.plan(job)?;
        shared.alive()?;
        self.unmap();
        let commands = self.encode(&plan, job)?;
        let (count, faults) = (shared.submitted.fetch_add(1, Ordering::SeqCst) + 1, shared.faults());
        if faults.submit == Some(count) {
            return Err(shared.fail("a submission was refused, as it was told to be"));
        }
        let index = shared.queue.submit([commands]);
        if faults.lose == Some(count) {
            shared.device.destroy();
        }
        let read = shared.parts.counts + words(job.result_bytes());
        let readable = Mapping::default();
        let slot = self.slot()?;
        readable.begin(&slot.download, MapMode::Read, 0..read);
        slot.writable.begin(&slot.upload, MapMode::Write, 0..slot.upload.size());
        let (result, segments) = (job.result_bytes(), plan.segments);
        let (hangs, panics) = (faults.hang == Some(count), faults.panic == Some(count));
        self.pending = Some(Pending { index, readable, read, result, segments, hangs, panics });
        shared.alive()
    }

    fn wait(&mut self) -> Result<Done<'_>> {
        let shared = self.shared();
        let pending = self.pending.take().ok_or_else(|| Error::request("no job was submitted"))?;
        if pending.hangs {
            std::thread::sleep(shared.settings.timeout);
            return Err(late(shared));
        }
        answered(shared, || match pending.panics {
            true => resume_unwind(Box::new(())),
            false => poll(shared, pending.index),
        })?;
        let fault = shared.faults().map == Some(shared.mapped.fetch_add(1, Ordering::SeqCst) + 1);
        let slot = self.slot.as_ref().ok_or_else(|| failed("the tile is gone"))?;
        let mapped = (!fault && pending.readable.is_done(shared.settings.timeout))
            .then(|| slot.download.get_mapped_range(0..pending.read));
        let Some(Ok(view)) = mapped else { return Err(shared.fail("a result could not be mapped")) };
        let view = self.reading.insert(view);
        let (counts, bytes) = view.split_at(shared.parts.counts as usize);
        let tallies = counts.chunks_exact(16).take(pending.segments).map(tally).collect();
        Ok(Done { bytes: &bytes[..pending.result as usize], tallies })
    }
}

/// Waits for a submission.
pub(crate) fn finished(shared: &Shared, index: SubmissionIndex) -> Result<()> {
    answered(shared, || poll(shared, index))
}

type Polled = std::result::Result<wgpu::PollStatus, wgpu::PollError>;

fn poll(shared: &Shared, index: SubmissionIndex) -> Polled {
    shared.device.poll(PollType::Wait { submission_index: Some(index), timeout: Some(shared.settings.timeout) })
}

/// What an answer means. wgpu has no error for a device that is lost, or out of memory, while it is waited for: it
/// panics. The device is not used afterwards, so that it does not matter what state that leaves it in.
fn answered(shared: &Shared, poll: impl FnOnce() -> Polled) -> Result<()> {
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(Ok(_)) => shared.alive(),
        Ok(Err(wgpu::PollError::Timeout)) => Err(late(shared)),
        Ok(Err(wgpu::PollError::WrongSubmissionIndex(..))) => Err(shared.fail("a submission was not taken")),
        Err(_) => Err(shared.fail("the device was lost while it was waited for")),
    }
}

fn late(shared: &Shared) -> Error {
    shared.fail(&format!("no answer within {} s", shared.settings.timeout.as_secs_f32()))
}

/// The counts of a segment, in the shaders' order.
fn tally(bytes: &[u8]) -> Tally {
    let mut counts = bytes.chunks_exact(4).map(|word| match word {
        &[a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        _ => 0,
    });
    let mut next = || counts.next().unwrap_or(0);
    Tally { overflow: next(), to_zero: next(), subnormal: next(), nan: next() }
}

impl Drop for GpuTile<'_> {
    fn drop(&mut self) {
        self.unmap();
        if let Some(slot) = self.slot.take() {
            self.gpu.give_back(slot);
        }
    }
}
