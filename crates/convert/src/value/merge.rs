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
    /// The weighted sum of floating-point or complex values; for all others the first, if the others are equal to it.
    ///
    /// # Errors
    /// `Request` where dtypes or shapes differ.
    pub(crate) fn merged(values: Vec<(Value, f64)>) -> Result<Value> {
        let Some((first, _)) = values.first() else { return Err(Error::request("there is nothing to average")) };
        first.element()?;
        for (value, _) in &values {
            if value.dtype() != first.dtype() || value.shape() != first.shape() {
                return Err(Error::request(format!(
                    "{first:?} and {value:?} cannot be averaged: dtype or shape differs"
                )));
            }
        }
        let (dtype, shape) = (first.dtype(), first.shape().clone());
        if arithmetic(dtype).is_some() {
            let text = format!("the average of {} times {first}", values.len());
            return Ok(Value::new(dtype, shape, Kind::Sum(values), text));
        }
        let text = format!("{first}, equal in {} inputs", values.len());
        let values = values.into_iter().map(|(value, _)| value).collect();
        Ok(Value::new(dtype, shape, Kind::Agree(values), text))
    }
}
