//! Numbers that NumPy has no type for, in its files.

use weightlift_convert::{CastRule, Plan, Resolved, Step, Target};
use weightlift_core::{Catalog, DType, Error, Nameless, Result, WriteOptions};
use weightlift_npy::holds_nameless;

/// How NumPy's files hold what NumPy has no type for: bf16, the 8-bit floats, half complex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NpyRaw {
    /// As unsigned integers of the same bits.
    Bits,
    /// Widened to f32, or c64.
    F32,
    /// As raw bytes, as `ml_dtypes` saves them.
    MlDtypes,
}

impl NpyRaw {
    /// What the writer is told.
    pub(crate) fn form(self) -> Nameless {
        match self {
            NpyRaw::Bits => Nameless::Bits,
            NpyRaw::MlDtypes => Nameless::Raw,
            NpyRaw::F32 => Nameless::Refuse,
        }
    }
}

/// Whether a format is one of NumPy's.
fn is_numpy(target: &Target) -> bool {
    matches!(target.id, "npy" | "npz")
}

/// Lets a target hold what is asked for, and adds the casts that this needs.
///
/// # Errors
/// `Request` for targets that are not NumPy's.
pub(crate) fn prepare(plan: &Plan, target: &mut Target, catalog: &Catalog, raw: Option<NpyRaw>) -> Result<Plan> {
    let Some(raw) = raw else { return Ok(plan.clone()) };
    if !is_numpy(target) {
        return Err(Error::request(format!("--npy-raw is for NumPy's files, but a {} is written", target.name)));
    }
    if raw != NpyRaw::F32 {
        target.capabilities.holds = holds_nameless;
        return Ok(plan.clone());
    }
    let mut nameless: Vec<DType> =
        catalog.entries.iter().map(|entry| entry.dtype).filter(|&d| is_nameless(d)).collect();
    nameless.sort();
    nameless.dedup();
    nameless.into_iter().try_fold(plan.clone(), |plan, dtype| {
        let wide = if dtype.is_float() { DType::F32 } else { DType::C64 };
        Ok(plan.before(Step::Cast(CastRule::parse(&format!("{dtype}:{wide}"))?)))
    })
}

fn is_nameless(dtype: DType) -> bool {
    weightlift_npy::header(dtype, &weightlift_core::Shape::default()).is_err() && holds_nameless(dtype).is_some()
}

/// The tensors that were widened for NumPy's sake, with what they were, for the writer to record.
pub(crate) fn widened(resolved: &Resolved, options: &mut WriteOptions) {
    let widened = resolved.outputs.iter().filter(|output| output.from != output.to && is_nameless(output.from));
    options.widened = widened.map(|output| (output.name.clone(), output.from)).collect();
}

/// The way out for tensors that NumPy has no type for.
pub(crate) fn hint(error: Error, target: &Target, catalog: &Catalog, raw: Option<NpyRaw>) -> Error {
    match is_numpy(target) && raw.is_none() && catalog.entries.iter().any(|entry| is_nameless(entry.dtype)) {
        true => error.help("--npy-raw bits, f32 or ml_dtypes says how; --skip-unsupported leaves them out"),
        false => error,
    }
}
