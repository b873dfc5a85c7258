//! A second definition that shares nothing with the first: values are compared as exact fractions, the nearest code
//! is found by bisecting all codes, and the formats are spelled out anew.

use crate::cast::{Overflow, Tally};
use std::cmp::Ordering;
use weightlift_core::DType;

/// `digits · 2^power`, exact, not negative.
#[derive(Debug, Clone, Copy)]
struct Exact {
    digits: u128,
    power: i32,
}

impl Exact {
    fn compare(self, other: Exact) -> Ordering {
        match (self.digits, other.digits) {
            (0, digits) => 0.cmp(&digits),
            (_, 0) => Ordering::Greater,
            _ => self.normal().cmp(&other.normal()),
        }
    }

    /// Power and digits with the first digit at the top: their order is that of the values.
    fn normal(self) -> (i32, u128) {
        let shift = self.digits.leading_zeros();
        (self.power - shift as i32, self.digits << shift)
    }

    fn doubled(self) -> Exact {
        Exact { power: self.power + 1, ..self }
    }

    fn plus(self, other: Exact) -> Exact {
        let power = self.power.min(other.power);
        let at = |x: Exact| x.digits << (x.power - power);
        Exact { digits: at(self) + at(other), power }
    }
}

/// Exponent bits, fraction bits, bias, largest finite magnitude, and the codes that are NaN or infinity.
struct Spec {
    exponent: u32,
    fraction: u32,
    bias: i32,
    largest: u64,
    special: fn(code: u64, spec: &Spec) -> Option<Special>,
    infinity: bool,
    nan: Option<u64>,
    negative_zero: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Special {
    Infinity,
    Nan,
}

fn ieee(code: u64, spec: &Spec) -> Option<Special> {
    let (e, f) = spec.fields(code);
    let top = e == (1 << spec.exponent) - 1;
    top.then_some(if f == 0 { Special::Infinity } else { Special::Nan })
}

fn spec(dtype: DType) -> Spec {
    let ieee = |exponent, fraction, bias, largest, nan| Spec {
        exponent,
        fraction,
        bias,
        largest,
        special: ieee,
        infinity: true,
        nan: Some(nan),
        negative_zero: true,
    };
    let fnuz = |exponent, fraction, bias| Spec {
        special: |code, _| (code == 0x80).then_some(Special::Nan),
        infinity: false,
        negative_zero: false,
        ..ieee(exponent, fraction, bias, 0x7f, 0x80)
    };
    let finite = |exponent, fraction, bias, largest| Spec {
        special: |_, _| None,
        infinity: false,
        nan: None,
        ..ieee(exponent, fraction, bias, largest, 0)
    };
    match dtype {
        DType::F64 => ieee(11, 52, 1023, 0x7fef_ffff_ffff_ffff, 0x7ff8_0000_0000_0000),
        DType::F32 => ieee(8, 23, 127, 0x7f7f_ffff, 0x7fc0_0000),
        DType::F16 => ieee(5, 10, 15, 0x7bff, 0x7e00),
        DType::Bf16 => ieee(8, 7, 127, 0x7f7f, 0x7fc0),
        DType::F8E5m2 => ieee(5, 2, 15, 0x7b, 0x7e),
        DType::F8E4m3fn => Spec {
            special: |code, _| (code & 0x7f == 0x7f).then_some(Special::Nan),
            infinity: false,
            ..ieee(4, 3, 7, 0x7e, 0x7f)
        },
        DType::F8E4m3fnuz => fnuz(4, 3, 8),
        DType::F8E5m2fnuz => fnuz(5, 2, 16),
        DType::F8E4m3b11fnuz => fnuz(4, 3, 11),
        DType::F6E2m3 => finite(2, 3, 1, 0x1f),
        DType::F6E3m2 => finite(3, 2, 3, 0x1f),
        DType::F4E2m1 => finite(2, 1, 1, 7),
        other => panic!("{other} is no float"),
    }
}

impl Spec {
    fn sign(&self) -> u64 {
        1 << (self.exponent + self.fraction)
    }

    fn fields(&self, code: u64) -> (u64, u64) {
        (code >> self.fraction & ((1 << self.exponent) - 1), code & ((1 << self.fraction) - 1))
    }

    /// The value of a magnitude, also of the one after the largest, as if the next binade were an ordinary one.
    fn value(&self, magnitude: u64) -> Exact {
        let (e, f) = (magnitude >> self.fraction, u128::from(magnitude & ((1 << self.fraction) - 1)));
        let m = self.fraction as i32;
        match e {
            0 => Exact { digits: f, power: 1 - self.bias - m },
            _ => Exact { digits: f + (1 << self.fraction), power: e as i32 - self.bias - m },
        }
    }

    /// The nearest magnitude, possibly one more than the largest.
    fn nearest(&self, value: Exact) -> u64 {
        let (mut low, mut high) = (0, self.largest + 2);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.value(middle).compare(value) == Ordering::Greater { high = middle } else { low = middle }
        }
        if low > self.largest {
            return low;
        }
        match value.doubled().compare(self.value(low).plus(self.value(low + 1))) {
            Ordering::Less => low,
            Ordering::Greater => low + 1,
            Ordering::Equal => low + low % 2,
        }
    }
}

/// The cast of one code and what it counts.
pub(super) fn float_to_float(from: DType, to: DType, overflow: Overflow, code: u64) -> (u64, Tally) {
    let (source, target) = (spec(from), spec(to));
    let mut tally = Tally::default();
    let sign = if code & source.sign() != 0 { target.sign() } else { 0 };
    let special = (source.special)(code, &source);
    if special == Some(Special::Nan) {
        tally.nan = 1;
        return (nan(&source, &target, code, sign), tally);
    }
    if special == Some(Special::Infinity) && target.infinity {
        return (sign | (target.largest + 1), tally);
    }
    let value = source.value(code & (source.sign() - 1));
    let near = if special.is_some() { target.largest + 1 } else { target.nearest(value) };
    if near > target.largest {
        tally.overflow = 1;
        let code = match (overflow, target.infinity, target.nan) {
            (Overflow::Inf, true, _) => sign | (target.largest + 1),
            (Overflow::Inf, false, Some(nan)) => sign | nan,
            _ => sign | target.largest,
        };
        return (code, tally);
    }
    if near == 0 {
        tally.to_zero = u64::from(value.digits != 0);
        return (if target.negative_zero { sign } else { 0 }, tally);
    }
    let normal = |spec: &Spec, magnitude: u64| magnitude >> spec.fraction != 0;
    tally.subnormal = u64::from(!normal(&target, near) && normal(&source, code & (source.sign() - 1)));
    (sign | near, tally)
}

/// Sign, quiet bit, and the payload's upper bits, digit by digit.
fn nan(source: &Spec, target: &Spec, code: u64, sign: u64) -> u64 {
    let Some(nan) = target.nan else { return 0 };
    if !target.infinity {
        return sign | nan;
    }
    let payloads = source.infinity;
    let digit = |i: u32| payloads && i < source.fraction && code >> (source.fraction - 1 - i) & 1 == 1;
    (1..target.fraction).filter(|&i| digit(i)).fold(sign | nan, |code, i| code | 1 << (target.fraction - 1 - i))
}
