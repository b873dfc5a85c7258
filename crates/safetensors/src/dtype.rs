//! The dtype names of a header.

use weightlift_core::{DType, Packing};

/// Every name the format knows, with the element type it stands for.
const NAMES: &[(&str, DType)] = &[
    ("BOOL", DType::Bool),
    ("F4", DType::F4E2m1),
    ("F6_E2M3", DType::F6E2m3),
    ("F6_E3M2", DType::F6E3m2),
    ("U8", DType::U8),
    ("I8", DType::I8),
    ("F8_E5M2", DType::F8E5m2),
    ("F8_E4M3", DType::F8E4m3fn),
    ("F8_E8M0", DType::F8E8m0fnu),
    ("F8_E4M3FNUZ", DType::F8E4m3fnuz),
    ("F8_E5M2FNUZ", DType::F8E5m2fnuz),
    ("I16", DType::I16),
    ("U16", DType::U16),
    ("F16", DType::F16),
    ("BF16", DType::Bf16),
    ("I32", DType::I32),
    ("U32", DType::U32),
    ("F32", DType::F32),
    ("C64", DType::C64),
    ("F64", DType::F64),
    ("I64", DType::I64),
    ("U64", DType::U64),
];

/// The element type of a header's name; names are compared exactly.
pub(crate) fn from_name(name: &str) -> Option<DType> {
    NAMES.iter().find(|(known, _)| *known == name).map(|&(_, dtype)| dtype)
}

/// The header's name of an element type.
pub(crate) fn to_name(dtype: DType) -> Option<&'static str> {
    NAMES.iter().find(|&&(_, known)| known == dtype).map(|&(name, _)| name)
}

/// The names there are, for messages.
pub(crate) fn known() -> String {
    NAMES.iter().map(|&(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// How elements are stored: always without bits between them.
pub(crate) fn packing(dtype: DType) -> Option<Packing> {
    to_name(dtype).map(|_| Packing::Dense)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_dtypes_pair_off() {
        assert_eq!(NAMES.len(), 22);
        for &(name, dtype) in NAMES {
            assert_eq!(from_name(name), Some(dtype));
            assert_eq!(to_name(dtype), Some(name));
        }
        assert_eq!(from_name("f32"), None);
        let foreign = [DType::C128, DType::F80, DType::I4, DType::U4, DType::Qi8, DType::F8E4m3b11fnuz, DType::Str];
        assert!(foreign.iter().all(|&dtype| packing(dtype).is_none()));
    }
}
