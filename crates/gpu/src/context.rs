//! An open device: its pipelines, its tiles, and whether it still works.

use crate::adapter::{Adapter, Choice};
use crate::buffers::{PARAMS, Parts};
use crate::dispatch::{Plan, shader};
use crate::quiet::quietly;
use crate::settings::{Faults, Settings};
use crate::tile::{GpuTile, Slot};
use crate::vectors;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use weightlift_core::{Error, Kind, Result};
use weightlift_kernels::device::{Capacity, Device, Job, Kernel, Tile};
use weightlift_shaders::{Pick, Shader};
use wgpu::{BindGroupLayout, BufferBindingType, ComputePipeline, Features};

/// An open compute device. Opened once, it can be shared by as many threads and conversions as there are.
pub struct Gpu {
    name: String,
    identity: String,
    pub(crate) shared: Shared,
    /// Tiles that nobody has; fewer than [`Gpu::tiles`] until they are first wanted.
    idle: Mutex<Tiles>,
    returned: Condvar,
}

#[derive(Default)]
struct Tiles {
    idle: Vec<Slot>,
    made: usize,
}

/// Jobs on their way at once: one that is filled, one that is computed, one that is read.
const TILES: usize = 3;

/// What tiles and device have in common.
pub(crate) struct Shared {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) settings: Settings,
    pub(crate) parts: Parts,
    /// Whether the processor's memory is the adapter's.
    pub(crate) in_place: bool,
    tiles: usize,
    pub(crate) layout: BindGroupLayout,
    pipeline_layout: wgpu::PipelineLayout,
    pipelines: Mutex<HashMap<Shader, ComputePipeline>>,
    failure: Arc<Mutex<Option<String>>>,
    pub(crate) submitted: AtomicU64,
    pub(crate) mapped: AtomicU64,
    armed: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// Opens an adapter and lets it answer questions whose answers are known.
    ///
    /// # Errors
    /// `Device` where there is no such adapter, its driver refuses, or an answer is wrong.
    pub fn open(choice: &Choice, settings: Settings) -> Result<Gpu> {
        Gpu::on(&Adapter::choose(choice)?, settings)
    }

    /// [`Gpu::open`] on an adapter from the list.
    ///
    /// # Errors
    /// `Device` where its driver refuses or an answer is wrong.
    pub fn on(adapter: &Adapter, settings: Settings) -> Result<Gpu> {
        let features = adapter.inner.features() & Features::MAPPABLE_PRIMARY_BUFFERS;
        let in_place = adapter.shares_memory() && settings.shared_memory && !features.is_empty();
        let mut limits = adapter.limits().clone();
        // Asked for no more than is used, the driver itself refuses what is beyond it.
        if let Some(most) = settings.max_binding {
            limits.max_storage_buffer_binding_size = limits.max_storage_buffer_binding_size.min(most);
        }
        if let Some(most) = settings.max_groups {
            limits.max_compute_workgroups_per_dimension = limits.max_compute_workgroups_per_dimension.min(most);
        }
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("weightlift"),
            required_features: if in_place { features } else { Features::empty() },
            required_limits: limits,
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let opened = quietly(|| pollster::block_on(adapter.inner.request_device(&descriptor)));
        let (device, queue) = opened.map_err(|error| failed(&format!("{adapter} cannot be opened: {error}")))?;
        Gpu::with(adapter, device, queue, in_place, settings)
    }

    /// Takes a device that was opened elsewhere, with the limits that it was opened with.
    ///
    /// # Errors
    /// `Device` where an answer is wrong.
    pub fn with(
        adapter: &Adapter,
        device: wgpu::Device,
        queue: wgpu::Queue,
        in_place: bool,
        settings: Settings,
    ) -> Result<Gpu> {
        let limits = device.limits();
        let (binding, buffer) = (limits.max_storage_buffer_binding_size, limits.max_buffer_size);
        let groups = limits.max_compute_workgroups_per_dimension;
        let parts = Parts::new(&settings, adapter.is_software(), binding, buffer, groups);
        let failure: Arc<Mutex<Option<String>>> = Arc::default();
        let note = |failure: &Arc<Mutex<Option<String>>>, message: String| {
            lock(failure).get_or_insert(message);
        };
        let (of_error, of_loss) = (failure.clone(), failure.clone());
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| note(&of_error, short(&error.to_string()))));
        device.set_device_lost_callback(move |reason, message| {
            note(&of_loss, short(&format!("the device was lost ({reason:?}) {message}")));
        });
        let layout = bind_group_layout(&device);
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let shared = Shared {
            tiles: settings.tiles.unwrap_or(TILES).max(1),
            device,
            queue,
            settings,
            parts,
            in_place,
            layout,
            pipeline_layout,
            pipelines: Mutex::default(),
            failure,
            submitted: AtomicU64::new(0),
            mapped: AtomicU64::new(0),
            armed: AtomicBool::new(false),
        };
        let gpu = Gpu {
            name: adapter.to_string(),
            identity: adapter.identity(),
            shared,
            idle: Mutex::default(),
            returned: Condvar::new(),
        };
        vectors::check(&gpu)?;
        // Failures on purpose begin with the caller's first job.
        gpu.shared.submitted.store(0, Ordering::SeqCst);
        gpu.shared.mapped.store(0, Ordering::SeqCst);
        gpu.shared.armed.store(true, Ordering::SeqCst);
        Ok(gpu)
    }

    /// What tells the adapter from others, with its driver.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The most memory that a device with the default settings takes, on both sides, with what its user keeps of each job:
    /// what a plan says without loading a driver.
    pub fn most_memory() -> u64 {
        let parts = Parts::new(&Settings::default(), false, u64::MAX, u64::MAX, u32::MAX);
        TILES as u64 * (2 * (parts.input() + parts.output()) + parts.source + parts.result)
    }

    /// Why it takes no more work, if it does not.
    pub fn failure(&self) -> Option<String> {
        lock(&self.shared.failure).clone()
    }

    /// A tile; a bare one has a copy in the kernel's place.
    pub(crate) fn tile(&self, bare: bool) -> Result<GpuTile<'_>> {
        Ok(GpuTile::new(self, self.slot()?, bare))
    }

    fn slot(&self) -> Result<Slot> {
        let mut tiles = lock(&self.idle);
        loop {
            self.shared.alive()?;
            if let Some(slot) = tiles.idle.pop() {
                return Ok(slot);
            }
            if tiles.made < self.shared.tiles {
                tiles.made += 1;
                drop(tiles);
                return Slot::new(&self.shared).inspect_err(|_| lock(&self.idle).made -= 1);
            }
            tiles = self.returned.wait(tiles).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn give_back(&self, slot: Slot) {
        lock(&self.idle).idle.push(slot);
        // All of them: where the device is dead by now, nobody would wake the next.
        self.returned.notify_all();
    }
}

impl Device for Gpu {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn has(&self, kernel: &Kernel) -> bool {
        shader(kernel, Pick::Segments).is_some()
    }

    fn capacity(&self) -> Capacity {
        self.shared.parts.capacity()
    }

    fn tiles(&self) -> usize {
        self.shared.tiles
    }

    fn prepare(&self, kernel: &Kernel) -> Result<()> {
        if let Some(shader) = shader(kernel, Pick::Segments) {
            self.shared.pipeline(shader);
        }
        // The buffers too: allocating them is no part of a job.
        let mut tiles = lock(&self.idle);
        while tiles.made < self.shared.tiles {
            tiles.idle.push(Slot::new(&self.shared)?);
            tiles.made += 1;
        }
        drop(tiles);
        self.returned.notify_all();
        self.shared.alive()
    }

    fn staging_bytes(&self) -> u64 {
        let one = self.shared.parts.input() + self.shared.parts.output();
        self.shared.tiles as u64 * one * if self.shared.in_place { 1 } else { 2 }
    }

    fn lease(&self) -> Result<Box<dyn Tile + '_>> {
        Ok(Box::new(self.tile(false)?))
    }
}

impl Shared {
    /// # Errors
    /// `Device` after any failure.
    pub(crate) fn alive(&self) -> Result<()> {
        match &*lock(&self.failure) {
            Some(message) => Err(failed(message)),
            None => Ok(()),
        }
    }

    /// Takes no more work from now on.
    pub(crate) fn fail(&self, message: &str) -> Error {
        failed(lock(&self.failure).get_or_insert_with(|| short(message)))
    }

    /// What is to fail by now.
    pub(crate) fn faults(&self) -> Faults {
        if self.armed.load(Ordering::SeqCst) { self.settings.faults } else { Faults::default() }
    }

    pub(crate) fn plan(&self, job: &Job) -> Result<Plan> {
        Plan::new(job, &self.parts)
    }

    /// The pipeline of a shader, made when it is first wanted.
    pub(crate) fn pipeline(&self, shader: Shader) -> ComputePipeline {
        let mut pipelines = lock(&self.pipelines);
        let pipeline = pipelines.entry(shader).or_insert_with(|| {
            let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: None,
                source: wgpu::ShaderSource::Wgsl(shader.wgsl().into()),
            });
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: Some(&self.pipeline_layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: Default::default(),
                cache: None,
            })
        });
        pipeline.clone()
    }
}

pub(crate) fn failed(message: &str) -> Error {
    Error::new(Kind::Device, message)
}

/// The first lines of what a driver says, as one.
fn short(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
    lines.join(": ")
}

fn bind_group_layout(device: &wgpu::Device) -> BindGroupLayout {
    let entry = |binding: u32, ty: BufferBindingType| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: ty == BufferBindingType::Uniform,
            min_binding_size: std::num::NonZeroU64::new(if ty == BufferBindingType::Uniform { PARAMS } else { 4 }),
        },
        count: None,
    };
    let (read, written) =
        (BufferBindingType::Storage { read_only: true }, BufferBindingType::Storage { read_only: false });
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &[
            entry(0, read),
            entry(1, written),
            entry(2, written),
            entry(3, read),
            entry(4, BufferBindingType::Uniform),
        ],
    })
}
