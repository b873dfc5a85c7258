//! Values from bytes.

use super::exact::{Exact, FloatFormat};
use weightlift_core::{Class, DType, Error, Result};
use weightlift_kernels::cast::{CastPair, Overflow, cast};

/// What the elements of a tensor are, as far as they can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elements {
    /// Floating-point numbers.
    Float(FloatFormat),
    /// Two of them.
    Complex(FloatFormat),
    /// Integers, and bits without a meaning of their own.
    Integer,
    /// True or false.
    Bool,
    /// Strings of bytes.
    Text,
}

/// One element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// A floating-point number.
    Float(Exact),
    /// Real and imaginary half.
    Complex(Exact, Exact),
    /// An integer of at most 64 bits, signed or not.
    Integer(i128),
    /// A truth.
    Bool(bool),
    /// A string.
    Text(Vec<u8>),
}

impl Elements {
    /// What elements of `dtype` are; `None` for opaque ones.
    pub(super) fn of(dtype: DType) -> Option<Elements> {
        match dtype.class() {
            Class::Float => FloatFormat::of(dtype).map(Elements::Float),
            Class::Complex => FloatFormat::of(dtype).map(Elements::Complex),
            Class::Int | Class::UInt | Class::Quantized | Class::Bits => Some(Elements::Integer),
            Class::Bool => Some(Elements::Bool),
            Class::Opaque => None,
        }
    }
}

/// Reads elements of a dtype that are not opaque: dense, little-endian, at least one byte each.
///
/// # Errors
/// `Unsupported` where nothing here knows the numbers.
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> Result<Vec<Value>> {
    match Elements::of(dtype) {
        Some(Elements::Float(format)) => Ok(floats(dtype, format, bytes)?.into_iter().map(Value::Float).collect()),
        Some(Elements::Complex(format)) => {
            let halves = floats(half_of(dtype), format, bytes)?;
            let pairs = halves.chunks_exact(2);
            Ok(pairs.filter_map(|pair| Some(Value::Complex(*pair.first()?, *pair.last()?))).collect())
        }
        Some(Elements::Bool) => Ok(bytes.iter().map(|&byte| Value::Bool(byte != 0)).collect()),
        Some(Elements::Integer) => Ok(integers(dtype, bytes).map(Value::Integer).collect()),
        Some(Elements::Text) | None => Err(unknown(dtype)),
    }
}

fn unknown(dtype: DType) -> Error {
    Error::unsupported(format!("values of {dtype} cannot be shown"))
}

/// The dtype of both halves of a complex number.
fn half_of(dtype: DType) -> DType {
    match dtype {
        DType::C128 => DType::F64,
        DType::C64 => DType::F32,
        DType::C32 => DType::F16,
        DType::Bc32 => DType::Bf16,
        DType::C160 => DType::F80,
        other => other,
    }
}

fn floats(dtype: DType, format: FloatFormat, bytes: &[u8]) -> Result<Vec<Exact>> {
    if dtype == DType::F80 {
        // Six of the sixteen bytes are padding.
        let numbers = bytes.chunks_exact(16).filter_map(|bytes| bytes.first_chunk().copied());
        return Ok(numbers.map(Exact::from_f80).collect());
    }
    let mut wide = Vec::new();
    let doubles = match CastPair::new(dtype, DType::F64) {
        _ if dtype == DType::F64 => bytes,
        Some(pair) => {
            wide.resize(bytes.len() / element_bytes(dtype) * 8, 0);
            cast(pair, Overflow::Inf, bytes, &mut wide);
            &wide
        }
        None => return Err(unknown(dtype)),
    };
    let doubles = doubles.chunks_exact(8).filter_map(|bytes| bytes.first_chunk().copied());
    Ok(doubles.map(|bytes| Exact::from_f64(f64::from_le_bytes(bytes), format)).collect())
}

/// Bytes of an element as it comes here: at least one.
pub(super) fn element_bytes(dtype: DType) -> usize {
    dtype.bits().map_or(1, |bits| bits.div_ceil(8) as usize)
}

fn integers(dtype: DType, bytes: &[u8]) -> impl Iterator<Item = i128> {
    let bits = dtype.bits().unwrap_or(8).min(64);
    let signed = dtype.class() == Class::Int || matches!(dtype, DType::Qi8 | DType::Qi16 | DType::Qi32);
    bytes.chunks_exact(element_bytes(dtype)).map(move |bytes| {
        let word = bytes.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        // The upper bits of a byte that holds fewer say nothing.
        let top = word << (64 - bits);
        if signed { i128::from(top as i64 >> (64 - bits)) } else { i128::from(top >> (64 - bits)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(dtype: DType, bytes: &[u8]) -> Vec<i128> {
        let integer = |value| match value {
            Value::Integer(integer) => integer,
            other => panic!("{other:?}"),
        };
        decode(dtype, bytes).unwrap().into_iter().map(integer).collect()
    }

    #[test]
    fn integers_of_every_width() {
        assert_eq!(whole(DType::I8, &[0x80, 0x7f]), [-128, 127]);
        assert_eq!(whole(DType::U8, &[0x80, 0x7f]), [128, 127]);
        assert_eq!(whole(DType::I64, &i64::MIN.to_le_bytes()), [i128::from(i64::MIN)]);
        assert_eq!(whole(DType::U64, &u64::MAX.to_le_bytes()), [i128::from(u64::MAX)]);
        assert_eq!(whole(DType::I4, &[0x08, 0x07, 0xff]), [-8, 7, -1]);
        assert_eq!(whole(DType::U4, &[0x08, 0xff]), [8, 15]);
        assert_eq!(whole(DType::I2, &[0, 1, 2, 3]), [0, 1, -2, -1]);
        assert_eq!(whole(DType::Qi32, &(-5i32).to_le_bytes()), [-5]);
        assert_eq!(whole(DType::Bits16, &[1, 2]), [513]);
    }

    #[test]
    fn every_dtype_that_is_not_opaque_decodes() {
        for &dtype in DType::ALL {
            let decoded = decode(dtype, &vec![0; 2 * element_bytes(dtype)]);
            assert_eq!(decoded.map_or(0, |values| values.len()), if dtype.is_opaque() { 0 } else { 2 }, "{dtype}");
        }
    }
}
