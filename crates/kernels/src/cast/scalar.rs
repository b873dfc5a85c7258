//! The definition: one number at a time, in integers alone. Every other room equals it bit for bit.
//!
//! A code is decoded to an exact [`Number`] and that is encoded with one rounding, to the nearest, ties to even.

use super::format::{Coding, Element, Float, Special};
use super::{Overflow, Tally};

/// The exact value behind a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) negative: bool,
    pub(super) magnitude: Magnitude,
    /// Whether the source holds it with fewer digits than its normal numbers have.
    pub(super) subnormal: bool,
}

impl Number {
    const fn whole(negative: bool, significand: u64) -> Number {
        Number { negative, magnitude: Magnitude::Finite { significand, exponent: 0 }, subnormal: false }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Magnitude {
    /// `significand · 2^exponent`; zero where the significand is.
    Finite {
        significand: u64,
        exponent: i32,
    },
    Infinity,
    /// `payload` is the fraction, its top bit in bit 63; that of a format without payloads is the quiet bit.
    Nan {
        payload: u64,
    },
}

const QUIET: u64 = 1 << 63;

/// What a cast took from one number; it takes at most one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    Nothing,
    Overflow,
    ToZero,
    Subnormal,
    Nan,
}

impl Tally {
    pub(super) fn count(&mut self, loss: Loss, times: u64) {
        match loss {
            Loss::Nothing => {}
            Loss::Overflow => self.overflow += times,
            Loss::ToZero => self.to_zero += times,
            Loss::Subnormal => self.subnormal += times,
            Loss::Nan => self.nan += times,
        }
    }

    /// Takes back one count.
    pub(super) fn uncount(&mut self, loss: Loss) {
        match loss {
            Loss::Nothing => {}
            Loss::Overflow => self.overflow -= 1,
            Loss::ToZero => self.to_zero -= 1,
            Loss::Subnormal => self.subnormal -= 1,
            Loss::Nan => self.nan -= 1,
        }
    }
}

/// The code of the number `code` stands for, in another coding.
pub(super) const fn convert(from: &Coding, to: &Coding, overflow: Overflow, code: u64) -> (u64, Loss) {
    encode(to, decode(from, code), overflow)
}

/// The number a code stands for.
pub(super) const fn decode(from: &Coding, code: u64) -> Number {
    match from {
        Coding::Float(float) => decode_float(float, code),
        Coding::Scale => decode_scale(code),
        Coding::Int { bits, signed } => decode_int(*bits, *signed, code),
        Coding::Bool => Number::whole(false, (code != 0) as u64),
    }
}

/// The code nearest to a number.
pub(super) const fn encode(to: &Coding, number: Number, overflow: Overflow) -> (u64, Loss) {
    match to {
        Coding::Float(float) => encode_float(float, number, overflow),
        Coding::Scale => encode_scale(number, overflow),
        Coding::Int { bits, signed } => encode_int(*bits, *signed, number),
        Coding::Bool => encode_bool(number),
    }
}

/// [`convert`] between floats.
pub(super) const fn convert_float(from: &Float, to: &Float, overflow: Overflow, code: u64) -> (u64, Loss) {
    encode_float(to, decode_float(from, code), overflow)
}

pub(super) const fn decode_float(from: &Float, code: u64) -> Number {
    let magnitude = code & (from.sign() - 1);
    let negative = code & from.sign() != 0;
    let fraction = magnitude & (from.min_normal() - 1);
    let exponent = (magnitude >> from.fraction_bits) as i32;
    let least = 1 - from.bias - from.fraction_bits as i32;
    let magnitude = match from.special {
        Special::Infinity if magnitude == from.infinity() => Magnitude::Infinity,
        Special::Infinity if magnitude > from.infinity() => {
            Magnitude::Nan { payload: fraction << (64 - from.fraction_bits) }
        }
        Special::NanAtTop if magnitude > from.max_finite() => Magnitude::Nan { payload: QUIET },
        Special::NanAtNegativeZero if code == from.sign() => Magnitude::Nan { payload: QUIET },
        _ if exponent == 0 => Magnitude::Finite { significand: fraction, exponent: least },
        _ => Magnitude::Finite { significand: fraction | from.min_normal(), exponent: least + exponent - 1 },
    };
    Number { negative, magnitude, subnormal: exponent == 0 && fraction != 0 }
}

pub(super) const fn encode_float(to: &Float, number: Number, overflow: Overflow) -> (u64, Loss) {
    let sign = if number.negative { to.sign() } else { 0 };
    match number.magnitude {
        Magnitude::Nan { payload } => (nan_code(to, sign, payload), Loss::Nan),
        Magnitude::Infinity if matches!(to.special, Special::Infinity) => (sign | to.infinity(), Loss::Nothing),
        Magnitude::Infinity => (overflow_code(to, sign, overflow), Loss::Overflow),
        Magnitude::Finite { significand, exponent } => {
            let magnitude = round(to, significand, exponent);
            if magnitude > to.max_finite() {
                (overflow_code(to, sign, overflow), Loss::Overflow)
            } else if magnitude == 0 {
                let zero = if matches!(to.special, Special::NanAtNegativeZero) { 0 } else { sign };
                (zero, if significand == 0 { Loss::Nothing } else { Loss::ToZero })
            } else if magnitude < to.min_normal() && !number.subnormal {
                (sign | magnitude, Loss::Subnormal)
            } else {
                (sign | magnitude, Loss::Nothing)
            }
        }
    }
}

/// The nearest magnitude, ties to even, as if exponents had no end.
pub(super) const fn round(to: &Float, significand: u64, exponent: i32) -> u64 {
    if significand == 0 {
        return 0;
    }
    let top = exponent + 63 - significand.leading_zeros() as i32;
    let least_normal = 1 - to.bias;
    let binade = if top > least_normal { top } else { least_normal };
    let digits = shift_right_rounding(significand, binade - to.fraction_bits as i32 - exponent);
    // `digits` has the leading one of normal numbers, hence the exponent one too low; a carry raises it by itself.
    (((binade - least_normal) as u64) << to.fraction_bits) + digits
}

/// `value / 2^shift` to the nearest integer, ties to even; a negative shift loses nothing.
const fn shift_right_rounding(value: u64, shift: i32) -> u64 {
    if shift <= 0 {
        return value << -shift;
    }
    if shift > 64 {
        return 0;
    }
    let value = value as u128;
    let (whole, rest, half) = (value >> shift, value & ((1 << shift) - 1), 1 << (shift - 1));
    let up = rest > half || (rest == half && whole & 1 == 1);
    whole as u64 + up as u64
}

/// Sign and upper payload bits as far as the target has them, and quiet; 0 in a target without NaN.
pub(super) const fn nan_code(to: &Float, sign: u64, payload: u64) -> u64 {
    match to.special {
        Special::Infinity => sign | to.infinity() | (payload | QUIET) >> (64 - to.fraction_bits),
        Special::NanAtTop => sign | (to.sign() - 1),
        Special::NanAtNegativeZero => to.sign(),
        Special::Nothing => 0,
    }
}

const fn overflow_code(to: &Float, sign: u64, overflow: Overflow) -> u64 {
    match (overflow, to.special) {
        (Overflow::Saturate, _) | (_, Special::Nothing) => sign | to.max_finite(),
        (Overflow::Inf, Special::Infinity) => sign | to.infinity(),
        (Overflow::Inf, _) => nan_code(to, sign, 0),
    }
}

const SCALE_BIAS: i32 = 127;
const SCALE_NAN: u64 = 0xff;

const fn decode_scale(code: u64) -> Number {
    let magnitude = match code {
        SCALE_NAN => Magnitude::Nan { payload: QUIET },
        _ => Magnitude::Finite { significand: 1, exponent: code as i32 - SCALE_BIAS },
    };
    Number { negative: false, magnitude, subnormal: false }
}

/// Scales round as the hardware they are made for does: half way and above goes up, whatever is above the least
/// power but below the next goes up to that, and the least stands for all below it. Zero and negative numbers are
/// beyond the format, on its lower side.
const fn encode_scale(number: Number, overflow: Overflow) -> (u64, Loss) {
    encode_power(number, overflow, true)
}

/// Scales by the nearest power instead, half way up.
pub(super) const fn encode_nearest_scale(number: Number, overflow: Overflow) -> (u64, Loss) {
    encode_power(number, overflow, false)
}

/// `up`: whatever is above the least power goes up.
const fn encode_power(number: Number, overflow: Overflow, up: bool) -> (u64, Loss) {
    let (significand, exponent) = match number.magnitude {
        Magnitude::Nan { .. } => return (SCALE_NAN, Loss::Nan),
        Magnitude::Infinity => (1, i32::MAX / 2),
        Magnitude::Finite { significand, exponent } => (significand, exponent),
    };
    if significand == 0 || number.negative {
        return (if matches!(overflow, Overflow::Inf) { SCALE_NAN } else { 0 }, Loss::Overflow);
    }
    let digits = significand << significand.leading_zeros();
    let power = exponent + 63 - significand.leading_zeros() as i32 + SCALE_BIAS;
    let rest = digits << 1;
    let code = match power {
        ..0 => 0,
        0 if up => (rest > 0) as i32,
        _ => power + (rest >= 1 << 63) as i32,
    };
    match (code < SCALE_NAN as i32, overflow) {
        (true, _) => (code as u64, Loss::Nothing),
        (false, Overflow::Inf) => (SCALE_NAN, Loss::Overflow),
        (false, Overflow::Saturate) => (SCALE_NAN - 1, Loss::Overflow),
    }
}

const fn decode_int(bits: u32, signed: bool, code: u64) -> Number {
    let unused = 64 - bits;
    let value = (code << unused) as i64 >> unused;
    if signed { Number::whole(value < 0, value.unsigned_abs()) } else { Number::whole(false, code << unused >> unused) }
}

/// Towards zero; what lies beyond becomes the last value on its side, NaN becomes 0.
const fn encode_int(bits: u32, signed: bool, number: Number) -> (u64, Loss) {
    let mask = u64::MAX >> (64 - bits);
    let most = match (signed, number.negative) {
        (true, true) => 1 << (bits - 1),
        (true, false) => mask >> 1,
        (false, true) => 0,
        (false, false) => mask,
    };
    let (whole, zero) = match number.magnitude {
        Magnitude::Nan { .. } => return (0, Loss::Nan),
        Magnitude::Infinity => (u64::MAX as u128 + 1, false),
        Magnitude::Finite { significand, exponent } => (truncate(significand, exponent), significand == 0),
    };
    let beyond = whole > most as u128;
    let magnitude = if beyond { most } else { whole as u64 };
    let code = if number.negative { magnitude.wrapping_neg() & mask } else { magnitude };
    let loss = match (beyond, whole == 0 && !zero) {
        (true, _) => Loss::Overflow,
        (_, true) => Loss::ToZero,
        _ => Loss::Nothing,
    };
    (code, loss)
}

/// `significand · 2^exponent` without what follows the point; anything beyond 64 bits is some number beyond them.
const fn truncate(significand: u64, exponent: i32) -> u128 {
    if exponent < 0 {
        return (significand as u128) >> if exponent > -64 { -exponent } else { 64 };
    }
    (significand as u128) << if exponent < 64 { exponent } else { 64 }
}

const fn encode_bool(number: Number) -> (u64, Loss) {
    match number.magnitude {
        Magnitude::Nan { .. } => (1, Loss::Nan),
        Magnitude::Infinity => (1, Loss::Nothing),
        Magnitude::Finite { significand, .. } => ((significand != 0) as u64, Loss::Nothing),
    }
}

/// All of `src` into `dst`, whose lengths the dispatcher has checked. A real number becomes a complex one without an
/// imaginary part; complex ones go part by part.
pub(super) fn run(from: Element, to: Element, overflow: Overflow, src: &[u8], dst: &mut [u8]) -> Tally {
    let stride = if from.numbers == to.numbers { to.bytes } else { to.size() };
    run_with(from, to, stride, src, dst, |code| convert(&from.coding, &to.coding, overflow, code))
}

/// The same by any rule for one number; each takes `stride` bytes of the target, zeros behind its own.
pub(super) fn run_with(
    from: Element,
    to: Element,
    stride: usize,
    src: &[u8],
    dst: &mut [u8],
    convert: impl Fn(u64) -> (u64, Loss),
) -> Tally {
    let mut tally = Tally::default();
    for (source, target) in src.chunks_exact(from.bytes).zip(dst.chunks_exact_mut(stride)) {
        let (code, loss) = convert(load(source));
        let (number, imaginary) = target.split_at_mut(to.bytes);
        number.copy_from_slice(&code.to_le_bytes()[..to.bytes]);
        imaginary.fill(0);
        tally.count(loss, 1);
    }
    tally
}

/// A code from its little-endian bytes.
pub(super) fn load(bytes: &[u8]) -> u64 {
    let mut code = [0; 8];
    code[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(code)
}
