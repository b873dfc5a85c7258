//! Floating-point numbers of every format as what they are: a sign, a natural number, a power of two.

use super::big::Big;
use std::cmp::Ordering;
use weightlift_core::DType;

/// A format of binary floating-point numbers, as far as printing needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FloatFormat {
    /// Bits of the significand, the leading one included.
    pub(super) precision: u32,
    /// The power of two of the lowest bit of subnormal numbers.
    pub(super) min_exponent: i32,
}

impl FloatFormat {
    /// The format of a dtype, or of the two halves of a complex one.
    pub(super) fn of(dtype: DType) -> Option<FloatFormat> {
        let (precision, min_exponent) = match dtype {
            DType::F64 | DType::C128 => (53, -1074),
            DType::F32 | DType::C64 => (24, -149),
            DType::F16 | DType::C32 => (11, -24),
            DType::Bf16 | DType::Bc32 => (8, -133),
            DType::F80 | DType::C160 => (64, -16445),
            DType::F8E4m3fn => (4, -9),
            DType::F8E5m2 => (3, -16),
            DType::F8E4m3fnuz => (4, -10),
            DType::F8E5m2fnuz => (3, -17),
            DType::F8E4m3b11fnuz => (4, -13),
            DType::F8E8m0fnu => (1, -127),
            DType::F6E2m3 => (4, -3),
            DType::F6E3m2 => (3, -4),
            DType::F4E2m1 => (2, -1),
            _ => return None,
        };
        Some(FloatFormat { precision, min_exponent })
    }
}

/// A finite number without its sign: `mantissa · 2^exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Magnitude {
    pub(super) mantissa: u64,
    pub(super) exponent: i32,
    /// Whether the next smaller number is half as far away as the next larger one.
    pub(super) narrow_below: bool,
}

impl Magnitude {
    /// Which of the two is larger.
    pub(super) fn compare(self, other: Magnitude) -> Ordering {
        let key = |number: Magnitude| match number.mantissa.leading_zeros() {
            64 => (i32::MIN, 0),
            zeros => (number.exponent - zeros as i32, number.mantissa << zeros),
        };
        key(self).cmp(&key(other))
    }

    /// Whether `self / other`, rounded once to `precision` bits, is more than 1000.
    pub(super) fn is_over_1000_times(self, other: Magnitude, precision: u32) -> bool {
        // The quotient has to lie beyond the middle between 1000 and the next number.
        let half = precision.saturating_sub(9);
        let mut limit = Big::new(other.mantissa);
        limit.scale(1000);
        limit.shift(half);
        limit = limit.plus(&Big::new(other.mantissa));
        let mut value = Big::new(self.mantissa);
        value.shift(half);
        let up = self.exponent - other.exponent;
        value.shift(up.max(0).unsigned_abs());
        limit.shift(up.min(0).unsigned_abs());
        value > limit
    }
}

/// A floating-point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exact {
    /// Not a number.
    Nan,
    /// An infinity.
    Infinite {
        /// Its sign.
        negative: bool,
    },
    /// A number, zeros included.
    Finite {
        /// Its sign.
        negative: bool,
        /// The rest.
        magnitude: Magnitude,
    },
}

impl Exact {
    /// A number of `format`, cast to f64.
    pub(super) fn from_f64(value: f64, format: FloatFormat) -> Exact {
        let negative = value.is_sign_negative();
        if value.is_nan() {
            return Exact::Nan;
        }
        if value.is_infinite() {
            return Exact::Infinite { negative };
        }
        let bits = value.to_bits();
        let (field, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
        let (mantissa, exponent) = if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
        Exact::Finite { negative, magnitude: in_format(mantissa, exponent, format) }
    }

    /// An x87 extended number: 64 bits of significand, 15 of exponent, a sign.
    pub(super) fn from_f80(bytes: [u8; 10]) -> Exact {
        let [m0, m1, m2, m3, m4, m5, m6, m7, e0, e1] = bytes;
        let mantissa = u64::from_le_bytes([m0, m1, m2, m3, m4, m5, m6, m7]);
        let top = u16::from_le_bytes([e0, e1]);
        let (negative, field) = (top >> 15 == 1, i32::from(top & 0x7fff));
        match (field, mantissa >> 63) {
            (0x7fff, 1) if mantissa << 1 == 0 => Exact::Infinite { negative },
            // Without its leading bit a larger number is an invalid operand to the processor.
            (0x7fff, _) | (1.., 0) => Exact::Nan,
            _ => {
                let exponent = field.max(1) - 16446;
                let narrow_below = mantissa == 1 << 63 && field > 1;
                Exact::Finite { negative, magnitude: Magnitude { mantissa, exponent, narrow_below } }
            }
        }
    }

    /// The number without its sign, if it is one.
    pub(super) fn magnitude(self) -> Option<Magnitude> {
        match self {
            Exact::Finite { magnitude, .. } => Some(magnitude),
            _ => None,
        }
    }

    /// Whether it is zero and carries no minus sign.
    pub(super) fn is_positive_zero(self) -> bool {
        matches!(self, Exact::Finite { negative: false, magnitude } if magnitude.mantissa == 0)
    }

    /// Whether it carries a minus sign; that of a NaN is not looked at.
    pub(super) fn is_negative(self) -> bool {
        matches!(self, Exact::Infinite { negative: true } | Exact::Finite { negative: true, .. })
    }
}

/// Brings a number of a format to the exponent it has there.
fn in_format(mantissa: u64, exponent: i32, format: FloatFormat) -> Magnitude {
    let width = 64 - mantissa.leading_zeros() as i32;
    let own = (exponent + width - format.precision as i32).max(format.min_exponent);
    let mantissa = match own - exponent {
        up @ 0..64 => mantissa >> up,
        down @ -63..0 => mantissa << -down,
        _ => 0,
    };
    let narrow_below = mantissa == 1 << (format.precision - 1) && own > format.min_exponent;
    Magnitude { mantissa, exponent: own, narrow_below }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn magnitude(value: f64, dtype: DType) -> Magnitude {
        Exact::from_f64(value, FloatFormat::of(dtype).unwrap()).magnitude().unwrap()
    }

    #[test]
    fn numbers_come_to_the_exponent_of_their_format() {
        let number = |mantissa, exponent, narrow_below| Magnitude { mantissa, exponent, narrow_below };
        assert_eq!(magnitude(1.0, DType::F32), number(1 << 23, -23, true));
        assert_eq!(magnitude(1.5, DType::Bf16), number(192, -7, false));
        assert_eq!(magnitude(f64::from_bits(1), DType::F64), number(1, -1074, false));
        assert_eq!(magnitude(2f64.powi(-24), DType::F16), number(1, -24, false));
        assert_eq!(magnitude(0.0, DType::F16).mantissa, 0);
        assert_eq!(magnitude(0.5, DType::F4E2m1), number(1, -1, false));
        let one = [0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0xbf];
        assert_eq!(Exact::from_f80(one), Exact::Finite { negative: true, magnitude: number(1 << 63, -63, true) });
        assert_eq!(Exact::from_f80([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0x3f]), Exact::Nan);
        assert_eq!(Exact::from_f80([0; 10]).magnitude().unwrap().mantissa, 0);
    }

    #[test]
    fn magnitudes_compare() {
        let sorted = [0.0, 5e-324, 1e-300, 0.1, 0.5, 1.0, 1.5, 1e300];
        for pair in sorted.windows(2) {
            let (a, b) = (magnitude(pair[0], DType::F64), magnitude(pair[1], DType::F64));
            assert_eq!(
                (a.compare(b), b.compare(a), a.compare(a)),
                (Ordering::Less, Ordering::Greater, Ordering::Equal)
            );
        }
    }

    #[test]
    fn quotients_are_rounded_before_they_are_compared() {
        let over = |a: f64, b: f64, dtype| {
            let precision = FloatFormat::of(dtype).unwrap().precision;
            magnitude(a, dtype).is_over_1000_times(magnitude(b, dtype), precision)
        };
        assert!(!over(1000.0, 1.0, DType::F64) && over(1000.0000000000001, 1.0, DType::F64));
        assert!(over(1e300, 1e-300, DType::F64) && !over(1e-300, 1e300, DType::F64));
        let mut bits = 1u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let b = 1.0 + (bits >> 12) as f64 / 2f64.powi(52);
            let a = f64::from_bits((b * 1000.0).to_bits() + (bits & 3) - 1);
            assert_eq!(over(a, b, DType::F64), a / b > 1000.0, "{a} {b}");
        }
    }
}
