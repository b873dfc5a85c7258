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
}

/// The real numbers an element consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) coding: Coding,
    /// Bytes of each.
    pub(super) bytes: usize,
}

impl Element {
    /// What elements of `dtype` hold, where casts know it.
    pub(super) const fn of(dtype: DType) -> Option<Element> {
        let (coding, bytes) = match dtype {
            DType::F64 => (Coding::Float(F64), 8),
            DType::F32 => (Coding::Float(F32), 4),
            DType::F16 => (Coding::Float(F16), 2),
            DType::Bf16 => (Coding::Float(BF16), 2),
            DType::F8E5m2 => (Coding::Float(E5M2), 1),
            DType::F8E4m3fn => (Coding::Float(E4M3FN), 1),
            DType::F8E4m3fnuz => (Coding::Float(E4M3FNUZ), 1),
            DType::F8E5m2fnuz => (Coding::Float(E5M2FNUZ), 1),
            DType::F8E4m3b11fnuz => (Coding::Float(E4M3B11FNUZ), 1),
            DType::F8E8m0fnu => (Coding::Scale, 1),
            DType::F6E2m3 => (Coding::Float(E2M3), 1),
            DType::F6E3m2 => (Coding::Float(E3M2), 1),
            DType::F4E2m1 => (Coding::Float(E2M1), 1),
            _ => return None,
        };
        Some(Element { coding, bytes })
    }
}
