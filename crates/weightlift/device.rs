//! Who does the bulk work of a conversion.

use std::fmt;
use std::sync::Arc;
use weightlift_convert::{Accelerator, DeviceReport, Options, Resolved, WORTH_OPENING, bulk_work};
use weightlift_core::Result;
use weightlift_kernels::device::Device;

/// Who does bulk casts and row copies. The bytes written are the same in every case.
#[derive(Clone, Default)]
pub enum DeviceChoice {
    /// The processor.
    #[default]
    Processor,
    /// The faster: no driver is loaded below 1 GiB of bulk work, unless a device is known to win; then the first tiles
    /// are given to both. Adapters in software are never taken.
    Auto,
    /// A compute device, the first or that with this number, software included.
    Gpu(Option<usize>),
    /// A device that was opened before. It can serve many conversions, at the same time too.
    ///
    /// ```no_run
    /// # fn main() -> weightlift::Result<()> {
    /// use std::sync::Arc;
    /// use weightlift::{CastRule, DType, DeviceChoice, Plan, SaveOptions};
    /// # #[cfg(feature = "gpu")] {
    /// use weightlift::gpu::{Choice, Gpu, Settings};
    /// let gpu = Arc::new(Gpu::open(&Choice::Any, Settings::default())?);
    /// let save = SaveOptions { device: DeviceChoice::Given(gpu), ..SaveOptions::default() };
    /// let plan = Plan::new().cast(CastRule::floats_to(DType::F16));
    /// for name in ["a.safetensors", "b.safetensors"] {
    ///     weightlift::open(name)?.save(&plan, format!("half-{name}"), &save)?;
    /// }
    /// # } Ok(()) }
    /// ```
    Given(Arc<dyn Device>),
}

impl fmt::Debug for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Processor => f.write_str("Processor"),
            DeviceChoice::Auto => f.write_str("Auto"),
            DeviceChoice::Gpu(number) => write!(f, "Gpu({number:?})"),
            DeviceChoice::Given(device) => write!(f, "Given({})", device.name()),
        }
    }
}

/// A device opened for one conversion.
pub(crate) struct Chosen {
    pub(crate) accelerator: Accelerator,
    /// What its rates are kept under.
    #[cfg_attr(not(feature = "gpu"), allow(dead_code))]
    kept_under: Option<(String, String)>,
}

impl DeviceChoice {
    /// Opens what is to be used for a plan, if anything is.
    ///
    /// # Errors
    /// `Device` where a device was asked for and there is none.
    pub(crate) fn open(&self, resolved: &Resolved, options: &Options) -> Result<Option<Chosen>> {
        let always = |device| {
            let accelerator = Accelerator { device, when: weightlift_convert::When::Always };
            Some(Chosen { accelerator, kept_under: None })
        };
        match self {
            DeviceChoice::Processor => Ok(None),
            DeviceChoice::Given(device) => Ok(always(device.clone())),
            DeviceChoice::Gpu(number) => opening::named(*number).map(always),
            DeviceChoice::Auto => Ok(opening::faster(resolved, options)),
        }
    }

    /// The most bytes of memory that a device adds to a plan's; 0 where none is used. No driver is loaded for that.
    pub fn most_memory(&self, resolved: &Resolved) -> u64 {
        match self {
            DeviceChoice::Processor => 0,
            DeviceChoice::Auto if bulk_work(resolved).0 < WORTH_OPENING => 0,
            DeviceChoice::Auto | DeviceChoice::Gpu(_) => opening::most_memory(),
            DeviceChoice::Given(device) => device.memory_in_use(),
        }
    }
}

impl Chosen {
    /// Keeps what was measured for the next time.
    pub(crate) fn keep(&self, report: &DeviceReport) {
        opening::keep(self, report);
    }
}

#[cfg(feature = "gpu")]
mod opening {
    use super::Chosen;
    use crate::rates::{Measured, Rates};
    use std::sync::Arc;
    use weightlift_convert::{Accelerator, DeviceReport, Options, Resolved, When, bulk_work, worth_opening};
    use weightlift_core::Result;
    use weightlift_gpu::{Adapter, Choice, Gpu, Settings};
    use weightlift_kernels::cast::Like;
    use weightlift_kernels::device::Device;

    pub(super) fn named(number: Option<usize>) -> Result<Arc<dyn Device>> {
        let choice = number.map_or(Choice::Any, Choice::Index);
        Ok(Arc::new(Gpu::open(&choice, Settings::from_env()?)?))
    }

    pub(super) fn most_memory() -> u64 {
        Gpu::most_memory()
    }

    pub(super) fn faster(resolved: &Resolved, options: &Options) -> Option<Chosen> {
        let (bytes, pair) = bulk_work(resolved);
        // Not even the cache is read for what no device would do.
        if bytes == 0 || options.like != Like::Exact {
            return None;
        }
        let name = pair.map_or_else(|| "rows".to_owned(), |pair| format!("{} -> {}", pair.from(), pair.to()));
        let known = Rates::load();
        // Which adapter there is shows only when drivers are loaded; what was last measured here speaks for it.
        let hint = known.best(&name, |identity| !Adapter::is_software_identity(identity)).map(rates);
        if !worth_opening(bytes, hint.as_ref()) {
            return None;
        }
        // No adapter, or one that cannot be used: the processor does it, as it would have.
        let gpu = Gpu::open(&Choice::Hardware, Settings::from_env().ok()?).ok()?;
        let identity = gpu.identity().to_owned();
        let when = When::Faster(known.get(&identity, &name).map(rates));
        let accelerator = Accelerator { device: Arc::new(gpu), when };
        Some(Chosen { accelerator, kept_under: Some((identity, name)) })
    }

    fn rates(measured: Measured) -> weightlift_convert::Rates {
        weightlift_convert::Rates { processor: measured.cpu, device: measured.gpu, both: measured.both }
    }

    pub(super) fn keep(chosen: &Chosen, report: &DeviceReport) {
        if let (Some((identity, name)), Some(rates)) = (&chosen.kept_under, &report.rates) {
            let mut known = Rates::load();
            known.put(identity, name, Measured { cpu: rates.processor, gpu: rates.device, both: rates.both });
            // A cache that cannot be written is tried anew the next time.
            let _ = known.store();
        }
    }
}

#[cfg(not(feature = "gpu"))]
mod opening {
    use super::Chosen;
    use std::sync::Arc;
    use weightlift_convert::{DeviceReport, Options, Resolved};
    use weightlift_core::{Error, Kind, Result};
    use weightlift_kernels::device::Device;

    pub(super) fn named(_: Option<usize>) -> Result<Arc<dyn Device>> {
        let error = Error::new(Kind::Device, "this build has no compute devices");
        Err(error.help("build it with the feature gpu, or leave --device at auto or cpu"))
    }

    pub(super) fn most_memory() -> u64 {
        0
    }

    pub(super) fn faster(_: &Resolved, _: &Options) -> Option<Chosen> {
        None
    }

    pub(super) fn keep(_: &Chosen, _: &DeviceReport) {}
}
