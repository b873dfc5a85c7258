//! TensorFlow's DataType numbers.

use weightlift_core::{DType, Error, Packing, Result};

const NUMBERS: &[(i32, DType)] = &[
    (1, DType::F32),
    (2, DType::F64),
    (3, DType::I32),
    (4, DType::U8),
    (5, DType::I16),
    (6, DType::I8),
    (7, DType::Str),
    (8, DType::C64),
    (9, DType::I64),
    (10, DType::Bool),
    (11, DType::Qi8),
    (12, DType::Qu8),
    (13, DType::Qi32),
    (14, DType::Bf16),
    (15, DType::Qi16),
    (16, DType::Qu16),
    (17, DType::U16),
    (18, DType::C128),
    (19, DType::F16),
    (21, DType::Variant),
    (22, DType::U32),
    (23, DType::U64),
    (24, DType::F8E5m2),
    (25, DType::F8E4m3fn),
    (26, DType::F8E4m3fnuz),
    (27, DType::F8E4m3b11fnuz),
    (28, DType::F8E5m2fnuz),
    (29, DType::I4),
    (30, DType::U4),
    (31, DType::I2),
    (32, DType::U2),
    (33, DType::F4E2m1),
];

/// The dtype behind a number.
///
/// # Errors
/// `Malformed` for the number of an invalid type or of a reference; `Unsupported` for resources and for numbers that
/// are not known.
pub(crate) fn from_number(number: i32) -> Result<DType> {
    if let Some((_, dtype)) = NUMBERS.iter().find(|(known, _)| *known == number) {
        return Ok(*dtype);
    }
    match number {
        0 => Err(Error::malformed("data type 0 (invalid)")),
        20 => Err(Error::unsupported("data type 20 (resource) has no values in a file")),
        _ => Err(Error::unsupported(format!("data type {number} is not known; 1 to 33 are"))),
    }
}

/// The number of a dtype, where TensorFlow has it.
pub(crate) fn number(dtype: DType) -> Option<i32> {
    NUMBERS.iter().find(|(_, known)| *known == dtype).map(|(number, _)| *number)
}

/// How elements are stored: a byte each where they are narrower.
pub(crate) fn packing(dtype: DType) -> Packing {
    match dtype.bits() {
        Some(bits) if bits % 8 != 0 => Packing::OnePerByte,
        _ => Packing::Dense,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        for n in 1..=33 {
            match from_number(n) {
                Ok(dtype) => assert_eq!(number(dtype), Some(n)),
                Err(_) => assert_eq!(n, 20),
            }
        }
        for n in [0, -1, 34, 99, 101, i32::MAX] {
            assert!(from_number(n).is_err());
        }
        assert_eq!(number(DType::C32), None);
        assert_eq!(packing(DType::I2), Packing::OnePerByte);
        assert_eq!(packing(DType::F16), Packing::Dense);
        assert_eq!(packing(DType::Str), Packing::Dense);
    }
}
