//! Element types and their names.

use crate::Packing;
use std::fmt;
use std::str::FromStr;

/// What kind of number an element is; casts by rule never cross from one kind to another unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A real floating-point number.
    Float,
    /// A signed integer.
    Int,
    /// An unsigned integer.
    UInt,
    /// True or false, one byte.
    Bool,
    /// Two floating-point numbers.
    Complex,
    /// An integer with a scale and a zero point kept elsewhere.
    Quantized,
    /// Bits without a meaning of their own.
    Bits,
    /// Not numbers: strings, variants, raw records. Carried as bytes.
    Opaque,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident $name:literal $bits:literal $class:ident [$($alias:literal)*],)*) => {
        /// The type of a tensor's elements. Numbers in names count bits.
        ///
        /// ```
        /// use weightlift_core::DType;
        /// assert_eq!("half".parse::<DType>().unwrap(), DType::F16);
        /// assert_eq!("torch.bfloat16".parse::<DType>().unwrap(), DType::Bf16);
        /// assert!("f8".parse::<DType>().unwrap_err().to_string().contains("f8e4m3fn"));
        /// assert_eq!(DType::C64.bits(), Some(64));
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType { $($(#[$doc])* $variant,)* }

        impl DType {
            /// Every dtype, in the order of the documentation.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The short name, as in `f16`.
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Bits of one element where none lie between elements; `None` for opaque elements, whose size varies.
            pub fn bits(self) -> Option<u32> {
                match self { $(DType::$variant => match $bits { 0 => None, bits => Some(bits) },)* }
            }

            /// The kind of number.
            pub fn class(self) -> Class {
                match self { $(DType::$variant => Class::$class,)* }
            }

            fn aliases(self) -> &'static [&'static str] {
                match self { $(DType::$variant => &[$($alias,)*],)* }
            }
        }
    };
}

dtypes! {
    /// IEEE binary64.
    F64 "f64" 64 Float ["float64" "double" "fp64"],
    /// IEEE binary32.
    F32 "f32" 32 Float ["float32" "fp32" "single"],
    /// IEEE binary16.
    F16 "f16" 16 Float ["float16" "half" "fp16"],
    /// bfloat16: the upper half of a binary32.
    Bf16 "bf16" 16 Float ["bfloat16"],
    /// 4 exponent and 3 fraction bits, no infinity, one NaN; largest value 448.
    F8E4m3fn "f8e4m3fn" 8 Float ["float8_e4m3fn" "f8_e4m3"  "f8_e4m3fn"],
    /// 5 exponent and 2 fraction bits, IEEE-like; largest value 57344.
    F8E5m2 "f8e5m2" 8 Float ["float8_e5m2" "f8_e5m2"],
    /// e4m3 with bias 8, no negative zero, one NaN; largest value 240.
    F8E4m3fnuz "f8e4m3fnuz" 8 Float ["float8_e4m3fnuz" "f8_e4m3fnuz"],
    /// e5m2 with bias 16, no negative zero, one NaN; largest value 57344.
    F8E5m2fnuz "f8e5m2fnuz" 8 Float ["float8_e5m2fnuz" "f8_e5m2fnuz"],
    /// e4m3 with bias 11, no negative zero, one NaN; largest value 30.
    F8E4m3b11fnuz "f8e4m3b11fnuz" 8 Float ["float8_e4m3b11fnuz" "f8_e4m3b11fnuz"],
    /// A power of two: 8 exponent bits, no sign, no zero; a scale.
    F8E8m0fnu "f8e8m0fnu" 8 Float ["float8_e8m0fnu" "f8_e8m0" "f8_e8m0fnu" "f8e8m0"],
    /// 2 exponent and 3 fraction bits.
    F6E2m3 "f6e2m3" 6 Float ["float6_e2m3fn" "f6_e2m3"],
    /// 3 exponent and 2 fraction bits.
    F6E3m2 "f6e3m2" 6 Float ["float6_e3m2fn" "f6_e3m2"],
    /// 2 exponent bits and 1 fraction bit; values 0 0.5 1 1.5 2 3 4 6.
    F4E2m1 "f4e2m1" 4 Float ["float4_e2m1fn" "f4_e2m1" "float4_e2m1fn_x2"],
    /// 64-bit signed integer.
    I64 "i64" 64 Int ["int64" "long"],
    /// 32-bit signed integer.
    I32 "i32" 32 Int ["int32"],
    /// 16-bit signed integer.
    I16 "i16" 16 Int ["int16" "short"],
    /// 8-bit signed integer.
    I8 "i8" 8 Int ["int8"],
    /// 64-bit unsigned integer.
    U64 "u64" 64 UInt ["uint64"],
    /// 32-bit unsigned integer.
    U32 "u32" 32 UInt ["uint32"],
    /// 16-bit unsigned integer.
    U16 "u16" 16 UInt ["uint16"],
    /// 8-bit unsigned integer.
    U8 "u8" 8 UInt ["uint8" "byte"],
    /// 4-bit signed integer.
    I4 "i4" 4 Int ["int4"],
    /// 4-bit unsigned integer.
    U4 "u4" 4 UInt ["uint4"],
    /// 2-bit signed integer.
    I2 "i2" 2 Int ["int2"],
    /// 2-bit unsigned integer.
    U2 "u2" 2 UInt ["uint2"],
    /// One byte: 0 is false, anything else true.
    Bool "bool" 8 Bool [],
    /// Two f64: real, imaginary.
    C128 "c128" 128 Complex ["complex128" "cdouble"],
    /// Two f32: real, imaginary.
    C64 "c64" 64 Complex ["complex64" "cfloat"],
    /// Two f16: real, imaginary.
    C32 "c32" 32 Complex ["complex32" "chalf"],
    /// Two bf16: real, imaginary.
    Bc32 "bc32" 32 Complex ["bcomplex32"],
    /// x87 extended precision in 16 bytes.
    F80 "f80" 128 Float ["longdouble"],
    /// Two x87 extended numbers in 32 bytes.
    C160 "c160" 256 Complex ["clongdouble"],
    /// Quantized 8-bit signed integer.
    Qi8 "qi8" 8 Quantized ["qint8"],
    /// Quantized 8-bit unsigned integer.
    Qu8 "qu8" 8 Quantized ["quint8"],
    /// Quantized 16-bit signed integer.
    Qi16 "qi16" 16 Quantized ["qint16"],
    /// Quantized 16-bit unsigned integer.
    Qu16 "qu16" 16 Quantized ["quint16"],
    /// Quantized 32-bit signed integer.
    Qi32 "qi32" 32 Quantized ["qint32"],
    /// Quantized 4-bit unsigned integer.
    Qu4 "qu4" 4 Quantized ["quint4x2"],
    /// Quantized 2-bit unsigned integer.
    Qu2 "qu2" 2 Quantized ["quint2x4"],
    /// 8 bits.
    Bits8 "bits8" 8 Bits [],
    /// 16 bits.
    Bits16 "bits16" 16 Bits [],
    /// A byte of eight 1-bit values.
    Bits1x8 "bits1x8" 8 Bits [],
    /// A byte of four 2-bit values.
    Bits2x4 "bits2x4" 8 Bits [],
    /// A byte of two 4-bit values.
    Bits4x2 "bits4x2" 8 Bits [],
    /// NumPy records, fixed-size strings and dates.
    Raw "raw" 0 Opaque [],
    /// Strings of bytes.
    Str "str" 0 Opaque ["string"],
    /// Serialized TensorFlow variants.
    Variant "variant" 0 Opaque [],
}

impl DType {
    /// Whether this is a real floating-point number: what `--dtype f16` without a source means.
    pub fn is_float(self) -> bool {
        self.class() == Class::Float
    }

    /// Whether elements are carried as bytes nobody looks into.
    pub fn is_opaque(self) -> bool {
        self.class() == Class::Opaque
    }

    /// Bytes of one element under `packing`, where that is a whole number.
    pub fn element_bytes(self, packing: Packing) -> Option<u64> {
        match (self.bits()?, packing) {
            (bits, _) if bits % 8 == 0 => Some(u64::from(bits / 8)),
            (_, Packing::OnePerByte) => Some(1),
            (_, Packing::Dense) => None,
        }
    }

    /// Bytes of `elements` elements under `packing`; a last byte filled only in part counts.
    /// `None` for opaque elements and where the product does not fit into 63 bits.
    pub fn bytes(self, elements: u64, packing: Packing) -> Option<u64> {
        let bits = match self.element_bytes(packing) {
            Some(bytes) => u128::from(bytes) * 8,
            None => u128::from(self.bits()?),
        };
        u64::try_from((bits * u128::from(elements)).div_ceil(8)).ok().filter(|&n| n <= i64::MAX as u64)
    }

    /// How many bytes change places together when the byte order is swapped: the element, half of it for a complex
    /// number, 1 where there is nothing to swap.
    pub fn swap_unit(self) -> usize {
        match (self.class(), self.bits()) {
            (Class::Complex, Some(bits)) => bits as usize / 16,
            (_, Some(bits)) if bits % 8 == 0 => bits as usize / 8,
            _ => 1,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no dtype, or could be several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownDType {
    name: String,
    candidates: Vec<DType>,
}

impl fmt::Display for UnknownDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |dtypes: &[DType]| dtypes.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ");
        match self.candidates.as_slice() {
            [] => write!(f, "no dtype is called {:?}; there are {}", self.name, list(DType::ALL)),
            several => write!(f, "{:?} could be several dtypes: say one of {}", self.name, list(several)),
        }
    }
}

impl std::error::Error for UnknownDType {}

/// Names that other tools use for different things.
const AMBIGUOUS: &[(&str, &[DType])] = &[
    ("f4", &[DType::F4E2m1, DType::F32]),
    ("f8", &[DType::F8E4m3fn, DType::F8E5m2, DType::F64]),
    ("float8", &[DType::F8E4m3fn, DType::F8E5m2]),
    ("float8_e4m3", &[DType::F8E4m3fn, DType::F8E4m3fnuz, DType::F8E4m3b11fnuz]),
    ("float", &[DType::F32, DType::F64]),
    ("int", &[DType::I32, DType::I64]),
];

impl FromStr for DType {
    type Err = UnknownDType;

    /// Takes the short names, the frameworks' names (`float16`, `half`, `torch.bfloat16`, `F8_E4M3`), in any case.
    fn from_str(text: &str) -> std::result::Result<DType, UnknownDType> {
        let lower = text.to_ascii_lowercase();
        let prefixes = ["torch.", "tf.", "np.", "numpy.", "dt_"];
        let name = prefixes.iter().find_map(|p| lower.strip_prefix(p)).unwrap_or(&lower);
        let unknown = |candidates: &[DType]| UnknownDType { name: text.to_owned(), candidates: candidates.to_vec() };
        if let Some((_, several)) = AMBIGUOUS.iter().find(|(ambiguous, _)| *ambiguous == name) {
            return Err(unknown(several));
        }
        let found = DType::ALL.iter().copied().find(|d| d.name() == name || d.aliases().contains(&name));
        found.ok_or_else(|| unknown(&[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_and_aliases_are_unique_and_parse() {
        let mut seen = HashSet::new();
        for &dtype in DType::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            for name in dtype.aliases().iter().chain([&dtype.name()]) {
                assert!(seen.insert(*name), "{name} stands twice");
            }
        }
        assert_eq!("F8_E4M3".parse(), Ok(DType::F8E4m3fn));
        assert_eq!("DT_HALF".parse(), Ok(DType::F16));
        for (name, candidates) in AMBIGUOUS {
            let error = name.parse::<DType>().unwrap_err().to_string();
            assert!(candidates.iter().all(|c| error.contains(c.name())), "{error}");
        }
        assert!("q".parse::<DType>().is_err());
    }

    #[test]
    fn sizes_follow_the_packing() {
        assert_eq!(DType::F32.bytes(3, Packing::Dense), Some(12));
        assert_eq!(DType::F4E2m1.bytes(3, Packing::Dense), Some(2));
        assert_eq!(DType::F4E2m1.bytes(3, Packing::OnePerByte), Some(3));
        assert_eq!(DType::F6E2m3.bytes(4, Packing::Dense), Some(3));
        assert_eq!(DType::F64.bytes(1 << 62, Packing::Dense), None);
        assert_eq!(DType::Str.bytes(1, Packing::Dense), None);
        assert_eq!(DType::C64.swap_unit(), 4);
        assert_eq!(DType::U4.swap_unit(), 1);
        assert_eq!(DType::F64.swap_unit(), 8);
    }
}
