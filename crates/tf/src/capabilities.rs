//! What a bundle can hold.

use crate::{dtype, record};
use weightlift_core::{Capabilities, DType, Packing};

pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    holds,
    name_problem,
    nests: false,
    shares_storage: false,
    strides: false,
    prunes_extras: false,
    joins_pieces: Some(joins_pieces),
    name_hint,
    texts: Some(record::same_strings),
};

fn holds(dtype: DType) -> Option<Packing> {
    dtype::number(dtype).map(|_| dtype::packing(dtype))
}

pub(crate) fn name_problem(name: &str) -> Option<String> {
    match name.as_bytes() {
        [] => Some("is empty: TensorFlow keeps the header of a bundle under the empty name".to_owned()),
        [0, ..] => Some("begins with a zero byte: TensorFlow keeps slices under such names".to_owned()),
        _ => None,
    }
}

/// Whether TensorFlow puts slices of this dtype together where they are asked for in another cut.
fn joins_pieces(dtype: DType) -> bool {
    use DType::{Bf16, Bool, C64, C128, F32, F64, I8, I16, I32, I64, Qi8, Qi32, Qu8, U8};
    matches!(dtype, F32 | F64 | I32 | U8 | I16 | I8 | C64 | C128 | I64 | Bool | Qi32 | Qu8 | Qi8 | Bf16)
}

/// Names of operations' outputs are written as they are, but variables are restored by names without them.
fn name_hint(name: &str) -> Option<&'static str> {
    let hint = "end in :0, which no variable is restored by: --rename ':0$=' takes it off";
    name.ends_with(":0").then_some(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_have_a_home_or_none() {
        for dtype in [DType::I4, DType::U4, DType::I2, DType::U2, DType::F4E2m1] {
            assert_eq!(holds(dtype), Some(Packing::OnePerByte), "{dtype}");
        }
        for dtype in [DType::F6E2m3, DType::F6E3m2, DType::C32, DType::Bc32, DType::F80, DType::C160, DType::Bits8] {
            assert_eq!(holds(dtype), None, "{dtype}");
        }
        for dtype in [DType::U16, DType::U32, DType::U64, DType::F16, DType::Bf16, DType::Qi8, DType::Str] {
            assert_eq!(holds(dtype), Some(Packing::Dense), "{dtype}");
        }
        assert_eq!([DType::F8E8m0fnu, DType::Qu4, DType::Qu2, DType::Raw].map(holds), [None; 4]);
    }

    #[test]
    fn names() {
        assert!(name_problem("").unwrap().starts_with("is empty"));
        assert!(name_problem("\0w").is_some());
        assert_eq!(name_problem("dense/kernel:0"), None);
    }
}
