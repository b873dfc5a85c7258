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

/// A decoded code: sign, and an exact magnitude or none.
struct Source {
    negative: bool,
    value: Result<Exact, Special>,
    /// Whether it has all the digits its format gives to normal numbers.
    normal: bool,
    /// What follows the quiet bit of a NaN, from the top of 64 bits.
    payload: u64,
}

impl Source {
    fn whole(value: i128) -> Source {
        let value_of = Exact { digits: value.unsigned_abs(), power: 0 };
        Source { negative: value < 0, value: Ok(value_of), normal: true, payload: 0 }
    }

    fn of(dtype: DType, code: u64) -> Source {
        match dtype {
            DType::I64 => Source::whole((code as i64).into()),
            DType::I32 => Source::whole((code as i32).into()),
            DType::I16 => Source::whole((code as i16).into()),
            DType::I8 => Source::whole((code as i8).into()),
            DType::I4 => Source::whole([0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1][code as usize % 16]),
            DType::I2 => Source::whole([0, 1, -2, -1][code as usize % 4]),
            DType::U64 | DType::U32 | DType::U16 | DType::U8 => Source::whole(code.into()),
            DType::U4 => Source::whole((code % 16).into()),
            DType::U2 => Source::whole((code % 4).into()),
            DType::Bool => Source::whole(if code == 0 { 0 } else { 1 }),
            DType::F8E8m0fnu => Source {
                value: if code == 255 { Err(Special::Nan) } else { Ok(Exact { digits: 1, power: code as i32 - 127 }) },
                ..Source::whole(0)
            },
            float => Source::float(&spec(float), code),
        }
    }

    fn float(spec: &Spec, code: u64) -> Source {
        let magnitude = code & (spec.sign() - 1);
        Source {
            negative: code & spec.sign() != 0,
            value: (spec.special)(code, spec).map_or(Ok(spec.value(magnitude)), Err),
            normal: magnitude >> spec.fraction != 0,
            payload: if spec.infinity { spec.fields(code).1 << (65 - spec.fraction) } else { 0 },
        }
    }
}

/// The cast of one code and what it counts.
pub(super) fn cast(from: DType, to: DType, overflow: Overflow, code: u64) -> (u64, Tally) {
    let source = Source::of(from, code);
    let (code, tally) = match to {
        DType::I64 => whole(&source, i64::MIN.into(), i64::MAX.into()),
        DType::I32 => whole(&source, i32::MIN.into(), i32::MAX.into()),
        DType::I16 => whole(&source, i16::MIN.into(), i16::MAX.into()),
        DType::I8 => whole(&source, i8::MIN.into(), i8::MAX.into()),
        DType::I4 => whole(&source, -8, 7),
        DType::I2 => whole(&source, -2, 1),
        DType::U64 => whole(&source, 0, u64::MAX.into()),
        DType::U32 => whole(&source, 0, u32::MAX.into()),
        DType::U16 => whole(&source, 0, u16::MAX.into()),
        DType::U8 => whole(&source, 0, u8::MAX.into()),
        DType::U4 => whole(&source, 0, 15),
        DType::U2 => whole(&source, 0, 3),
        DType::Bool => truth(&source),
        DType::F8E8m0fnu => scale(&source, overflow),
        float => to_float(&source, &spec(float), overflow),
    };
    let width = match to {
        DType::I4 | DType::U4 | DType::F4E2m1 => 4,
        DType::I2 | DType::U2 => 2,
        other => other.bits().unwrap().next_multiple_of(8),
    };
    (code & (u64::MAX >> (64 - width)), tally)
}

const NAN: Tally = Tally { overflow: 0, to_zero: 0, subnormal: 0, nan: 1 };
const OVERFLOW: Tally = Tally { overflow: 1, to_zero: 0, subnormal: 0, nan: 0 };
const TO_ZERO: Tally = Tally { overflow: 0, to_zero: 1, subnormal: 0, nan: 0 };
const NOTHING: Tally = Tally { overflow: 0, to_zero: 0, subnormal: 0, nan: 0 };

fn whole(source: &Source, least: i128, most: i128) -> (u64, Tally) {
    let value = match source.value {
        Err(Special::Nan) => return (0, NAN),
        Err(Special::Infinity) => Exact { digits: 1, power: 100 },
        Ok(value) => value,
    };
    let two_to = |power: i32| Exact { digits: 1, power };
    let magnitude = match value.compare(two_to(100)) {
        Ordering::Less if value.power >= 0 => (value.digits << value.power) as i128,
        Ordering::Less => value.digits.checked_shr(-value.power as u32).unwrap_or(0) as i128,
        _ => 1 << 100,
    };
    let signed = if source.negative { -magnitude } else { magnitude };
    let near = signed.clamp(least, most);
    let tally = match near == signed {
        false => OVERFLOW,
        true if near == 0 && value.digits != 0 => TO_ZERO,
        true => NOTHING,
    };
    (near as u64, tally)
}

fn truth(source: &Source) -> (u64, Tally) {
    match source.value {
        Err(Special::Nan) => (1, NAN),
        Err(Special::Infinity) => (1, NOTHING),
        Ok(value) => (u64::from(value.digits > 0), NOTHING),
    }
}

fn scale(source: &Source, overflow: Overflow) -> (u64, Tally) {
    let beyond = |saturated| (if overflow == Overflow::Inf { 255 } else { saturated }, OVERFLOW);
    let value = match source.value {
        Err(Special::Nan) => return (255, NAN),
        Err(Special::Infinity) if source.negative => return beyond(0),
        Err(Special::Infinity) => return beyond(254),
        Ok(value) if source.negative || value.digits == 0 => return beyond(0),
        Ok(value) => value,
    };
    // Bounds between neighbouring codes, each belonging to the upper one, but the first belongs to the lower.
    let bound = |code: i32| Exact { digits: 3, power: code - 127 - 1 };
    let code = (1..255).filter(|&code| value.compare(bound(code)) != Ordering::Less).count() as u64;
    match (code, value.compare(Exact { digits: 1, power: -127 })) {
        (254, _) => beyond(254),
        (0, Ordering::Greater) => (1, NOTHING),
        (0, _) => (0, NOTHING),
        (code, _) => (code + 1, NOTHING),
    }
}

fn to_float(source: &Source, target: &Spec, overflow: Overflow) -> (u64, Tally) {
    let sign = if source.negative { target.sign() } else { 0 };
    let value = match source.value {
        Err(Special::Nan) => return (nan(source, target, sign), NAN),
        Err(Special::Infinity) if target.infinity => return (sign | (target.largest + 1), NOTHING),
        Err(Special::Infinity) => None,
        Ok(value) => Some(value),
    };
    let near = value.map_or(target.largest + 1, |value| target.nearest(value));
    if near > target.largest {
        let code = match (overflow, target.infinity, target.nan) {
            (Overflow::Inf, true, _) => sign | (target.largest + 1),
            (Overflow::Inf, false, Some(nan)) => sign | nan,
            _ => sign | target.largest,
        };
        return (code, OVERFLOW);
    }
    if near == 0 {
        let lost = value.is_some_and(|value| value.digits != 0);
        return (if target.negative_zero { sign } else { 0 }, if lost { TO_ZERO } else { NOTHING });
    }
    let subnormal = u64::from(near >> target.fraction == 0 && source.normal);
    (sign | near, Tally { subnormal, ..NOTHING })
}

/// Sign, quiet bit, and the payload's upper bits, digit by digit.
fn nan(source: &Source, target: &Spec, sign: u64) -> u64 {
    let Some(nan) = target.nan else { return 0 };
    let payload = if target.infinity { target.fraction - 1 } else { 0 };
    let digits = (0..payload).filter(|&i| source.payload >> (63 - i) & 1 == 1);
    digits.fold(sign | nan, |code, i| code | 1 << (payload - 1 - i))
}
