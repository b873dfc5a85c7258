//! The formats numbers are stored in, as parameters of one definition.

use weightlift_core::DType;

/// What the topmost codes of a floating-point format stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    /// The top exponent holds infinity (fraction 0) and NaNs.
    Infinity,
    /// The code of all ones is NaN, there is no infinity (`fn`).
    NanAtTop,
    /// The code of negative zero is NaN, there is neither infinity nor negative zero (`fnuz`).
    NanAtNegativeZero,
    /// Every code is a finite number.
    Nothing,
}

/// A binary floating-point format with a sign bit: code (e, f) is `f·2^(1−bias−m)` for e = 0 and
/// `(1 + f/2^m)·2^(e−bias)` above, m being the number of fraction bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Float {
    pub(super) exponent_bits: u32,
    pub(super) fraction_bits: u32,
    pub(super) bias: i32,
    pub(super) special: Special,
}

impl Float {
    const fn new(exponent_bits: u32, fraction_bits: u32, bias: i32, special: Special) -> Float {
        Float { exponent_bits, fraction_bits, bias, special }
    }

    /// The sign bit; all codes below it are magnitudes.
    pub(super) const fn sign(&self) -> u64 {
        1 << (self.exponent_bits + self.fraction_bits)
    }

    /// The smallest normal magnitude; smaller ones are subnormal or zero.
    pub(super) const fn min_normal(&self) -> u64 {
        1 << self.fraction_bits
    }

    /// The magnitude of infinity in formats that have one.
    pub(super) const fn infinity(&self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    /// The largest finite magnitude.
    pub(super) const fn max_finite(&self) -> u64 {
        match self.special {
            Special::Infinity => self.infinity() - 1,
            Special::NanAtTop => self.sign() - 2,
            Special::NanAtNegativeZero | Special::Nothing => self.sign() - 1,
        }
    }
}

pub(super) const F64: Float = Float::new(11, 52, 1023, Special::Infinity);
pub(super) const F32: Float = Float::new(8, 23, 127, Special::Infinity);
pub(super) const F16: Float = Float::new(5, 10, 15, Special::Infinity);
pub(super) const BF16: Float = Float::new(8, 7, 127, Special::Infinity);
pub(super) const E5M2: Float = Float::new(5, 2, 15, Special::Infinity);
pub(super) const E4M3FN: Float = Float::new(4, 3, 7, Special::NanAtTop);
pub(super) const E4M3FNUZ: Float = Float::new(4, 3, 8, Special::NanAtNegativeZero);
pub(super) const E5M2FNUZ: Float = Float::new(5, 2, 16, Special::NanAtNegativeZero);
pub(super) const E4M3B11FNUZ: Float = Float::new(4, 3, 11, Special::NanAtNegativeZero);
pub(super) const E2M3: Float = Float::new(2, 3, 1, Special::Nothing);
pub(super) const E3M2: Float = Float::new(3, 2, 3, Special::Nothing);
pub(super) const E2M1: Float = Float::new(2, 1, 1, Special::Nothing);

/// How one real number is stored: little-endian in so many bytes, narrower ones in the low bits of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// A float with a sign.
    Float(Float),
    /// A power of two, `2^(code−127)`; the code of all ones is NaN. No sign, no zero.
    Scale,
    /// An integer of so many bits, in two's complement if signed.
    Int { bits: u32, signed: bool },
    /// Zero is false, anything else is true and written as one.
    Bool,
}

/// The real numbers an element consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) coding: Coding,
    /// Bytes of each number.
    pub(super) bytes: usize,
    /// 1, or 2 for the real and imaginary part of a complex element.
    pub(super) numbers: usize,
}

impl Element {
    /// What elements of `dtype` hold, where casts know it.
    pub(super) const fn of(dtype: DType) -> Option<Element> {
        let real = match dtype {
            DType::F64 | DType::C128 => Element::float(F64, 8),
            DType::F32 | DType::C64 => Element::float(F32, 4),
            DType::F16 | DType::C32 => Element::float(F16, 2),
            DType::Bf16 | DType::Bc32 => Element::float(BF16, 2),
            DType::F8E5m2 => Element::float(E5M2, 1),
            DType::F8E4m3fn => Element::float(E4M3FN, 1),
            DType::F8E4m3fnuz => Element::float(E4M3FNUZ, 1),
            DType::F8E5m2fnuz => Element::float(E5M2FNUZ, 1),
            DType::F8E4m3b11fnuz => Element::float(E4M3B11FNUZ, 1),
            DType::F8E8m0fnu => Element { coding: Coding::Scale, bytes: 1, numbers: 1 },
            DType::F6E2m3 => Element::float(E2M3, 1),
            DType::F6E3m2 => Element::float(E3M2, 1),
            DType::F4E2m1 => Element::float(E2M1, 1),
            DType::I64 => Element::int(64, true),
            DType::I32 => Element::int(32, true),
            DType::I16 => Element::int(16, true),
            DType::I8 => Element::int(8, true),
            DType::I4 => Element::int(4, true),
            DType::I2 => Element::int(2, true),
            DType::U64 => Element::int(64, false),
            DType::U32 => Element::int(32, false),
            DType::U16 => Element::int(16, false),
            DType::U8 => Element::int(8, false),
            DType::U4 => Element::int(4, false),
            DType::U2 => Element::int(2, false),
            DType::Bool => Element { coding: Coding::Bool, bytes: 1, numbers: 1 },
            _ => return None,
        };
        let complex = matches!(dtype, DType::C128 | DType::C64 | DType::C32 | DType::Bc32);
        Some(Element { numbers: 1 + complex as usize, ..real })
    }

    /// Bytes of the whole element.
    pub(super) const fn size(&self) -> usize {
        self.bytes * self.numbers
    }

    const fn float(format: Float, bytes: usize) -> Element {
        Element { coding: Coding::Float(format), bytes, numbers: 1 }
    }

    const fn int(bits: u32, signed: bool) -> Element {
        Element { coding: Coding::Int { bits, signed }, bytes: bits.div_ceil(8) as usize, numbers: 1 }
    }
}
