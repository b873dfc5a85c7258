//! Values made of the same tensor of several checkpoints.

use super::{Kind, Value};
use weightlift_core::{Class, DType, Error, Result};
use weightlift_kernels::average::Width;
use weightlift_kernels::cast::CastPair;

/// The dtype in which values of `dtype` are multiplied and added, and the width of its numbers: f64 for f64, else f32;
/// complex numbers part by part. `None` for what is not averaged.
pub(super) fn arithmetic(dtype: DType) -> Option<(DType, Width)> {
    match dtype {
        DType::F64 => Some((DType::F64, Width::F64)),
        DType::C128 => Some((DType::C128, Width::F64)),
        DType::C64 => Some((DType::C64, Width::F32)),
        DType::F32 => Some((DType::F32, Width::F32)),
        other if other.class() == Class::Complex => CastPair::new(other, DType::C64).map(|_| (DType::C64, Width::F32)),
        other => CastPair::new(other, DType::F32).filter(|_| other.is_float()).map(|_| (DType::F32, Width::F32)),
    }
}

impl Value {
    /// Checks that values could be the same.
    ///
    /// # Errors
    /// `Request` where dtypes or shapes differ.
    pub(crate) fn alike(values: &[Value]) -> Result<()> {
        let Some(first) = values.first() else { return Ok(()) };
        match values.iter().find(|value| value.dtype() != first.dtype() || value.shape() != first.shape()) {
            Some(other) => {
                Err(Error::request(format!("{first:?} and {other:?} cannot be merged: dtype or shape differs")))
            }
            None => Ok(()),
        }
    }

    /// The weighted sum of floating-point or complex values; `None` for others, which are to be equal.
    ///
    /// # Errors
    /// `Request` where dtypes or shapes differ.
    pub(crate) fn merged(values: Vec<Value>, weights: &[f64]) -> Result<Option<Value>> {
        Value::alike(&values)?;
        let Some(first) = values.first() else { return Err(Error::request("there is nothing to average")) };
        let (dtype, shape) = (first.dtype(), first.shape().clone());
        let Some((_, width)) = arithmetic(dtype) else { return Ok(None) };
        if let Some(weight) = weights.iter().find(|weight| width == Width::F32 && !(**weight as f32).is_finite()) {
            let message = format!("weight {weight:e} is out of range of f32, in which {dtype} is multiplied and added");
            return Err(Error::request(message));
        }
        first.element()?;
        let text = format!("the average of {} times {first}", values.len());
        let parts = values.into_iter().zip(weights.iter().copied()).collect();
        Ok(Some(Value::new(dtype, shape, Kind::Sum(parts), text)))
    }
}
