//! The adapters of this machine.

use crate::quiet::quietly;
use std::fmt;
use weightlift_core::{Error, Kind, Result};
use wgpu::{Backends, DeviceType, Instance, InstanceDescriptor, InstanceFlags};

/// An adapter that a device can be opened on.
#[derive(Debug, Clone)]
pub struct Adapter {
    pub(crate) inner: wgpu::Adapter,
    info: wgpu::AdapterInfo,
    limits: wgpu::Limits,
}

/// The kind of adapters that compute on the processor.
const SOFTWARE: &str = "software";

/// Which adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The first that is no software, else the first.
    Any,
    /// The first that is no software.
    Hardware,
    /// The one at this place of [`adapters`].
    Index(usize),
}

/// Lists the adapters: separate ones first, then those that share the processor's memory, then software.
///
/// This loads the drivers, which takes up to some hundred milliseconds.
pub fn adapters() -> Vec<Adapter> {
    let mut descriptor = InstanceDescriptor::new_without_display_handle();
    descriptor.backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
    descriptor.flags = InstanceFlags::empty();
    let found = quietly(|| pollster::block_on(Instance::new(descriptor).enumerate_adapters(Backends::all())));
    let mut adapters: Vec<Adapter> = found
        .into_iter()
        .map(|inner| Adapter { info: inner.get_info(), limits: inner.limits(), inner })
        .filter(|adapter| adapter.limits.max_storage_buffers_per_shader_stage >= 4)
        .collect();
    adapters.sort_by_key(|adapter| match adapter.info.device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    });
    adapters
}

impl Adapter {
    /// The one that is meant.
    ///
    /// # Errors
    /// `Device` where there is none, with what was found.
    pub fn choose(choice: &Choice) -> Result<Adapter> {
        let found = adapters();
        let chosen = match choice {
            Choice::Any => found.first(),
            Choice::Hardware => found.iter().find(|adapter| !adapter.is_software()),
            Choice::Index(index) => found.get(*index),
        };
        chosen.cloned().ok_or_else(|| {
            let list: Vec<String> = found.iter().map(Adapter::to_string).collect();
            let found = match list.is_empty() {
                true => "no Vulkan, Metal or DX12 adapter was found".to_owned(),
                false => format!("found: {}", list.join("; ")),
            };
            let wanted = match choice {
                Choice::Any => "no compute device".to_owned(),
                Choice::Hardware => "no compute device that is no software".to_owned(),
                Choice::Index(index) => format!("no compute device with number {index}"),
            };
            Error::new(Kind::Device, format!("{wanted}: {found}"))
                .help("install the adapter's Vulkan driver, or leave --device at auto or cpu")
        })
    }

    /// The adapter's own name.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// `Vulkan`, `Metal` or `DX12`.
    pub fn backend(&self) -> String {
        match self.info.backend {
            wgpu::Backend::Dx12 => "DX12".to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// The driver and its version.
    pub fn driver(&self) -> String {
        format!("{} {}", self.info.driver, self.info.driver_info).trim().to_owned()
    }

    /// `discrete`, `integrated`, `virtual`, `software` or `other`.
    pub fn kind(&self) -> &'static str {
        match self.info.device_type {
            DeviceType::DiscreteGpu => "discrete",
            DeviceType::IntegratedGpu => "integrated",
            DeviceType::VirtualGpu => "virtual",
            DeviceType::Cpu => SOFTWARE,
            DeviceType::Other => "other",
        }
    }

    /// Whether it computes on the processor.
    pub fn is_software(&self) -> bool {
        self.info.device_type == DeviceType::Cpu
    }

    /// Whether it shares the processor's memory.
    pub(crate) fn shares_memory(&self) -> bool {
        matches!(self.info.device_type, DeviceType::Cpu | DeviceType::IntegratedGpu)
    }

    /// Most bytes of one buffer.
    pub fn max_buffer(&self) -> u64 {
        self.limits.max_buffer_size
    }

    /// Most bytes that a shader sees of one buffer.
    pub fn max_binding(&self) -> u64 {
        self.limits.max_storage_buffer_binding_size
    }

    /// Most workgroups along a dimension of one dispatch.
    pub fn max_groups(&self) -> u32 {
        self.limits.max_compute_workgroups_per_dimension
    }

    pub(crate) fn limits(&self) -> &wgpu::Limits {
        &self.limits
    }

    /// What tells it from others, its kind first, with its driver: what was measured on it is true for no other.
    pub fn identity(&self) -> String {
        let info = &self.info;
        let (kind, backend, driver) = (self.kind(), self.backend(), self.driver());
        format!("{kind} {backend} {:04x}:{:04x} {} {driver}", info.vendor, info.device, info.name)
    }

    /// Whether [`identity`](Adapter::identity) is that of an adapter in software.
    pub fn is_software_identity(identity: &str) -> bool {
        identity.split(' ').next() == Some(SOFTWARE)
    }
}

/// `NVIDIA H200 (Vulkan, discrete)`.
impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.name(), self.backend(), self.kind())
    }
}
