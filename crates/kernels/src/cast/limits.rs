//! Where a cast begins to lose: bounds between source magnitudes, found by bisecting the definition.

use super::Overflow;
use super::format::{Float, Special};
use super::scalar::{Loss, convert_float, decode_float, encode_float};

/// Source magnitudes as codes of a wider format, the carrier, split into ranges by what happens to them. Each bound
/// is the first code that belongs to its range; ranges that no source value falls into are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// `to_zero.0..to_zero.1` become zero.
    pub(super) to_zero: (u64, u64),
    /// `subnormal.0..subnormal.1` are normal in the source and subnormal in the target.
    pub(super) subnormal: (u64, u64),
    /// `overflow.0..overflow.1` are beyond the target.
    pub(super) overflow: (u64, u64),
    /// All from here on are NaN.
    pub(super) nan: u64,
}

impl Limits {
    /// The limits of casts of `from` to `to` for values that come as codes of `carrier`. Where the carrier is
    /// narrower than the source, the values must come rounded to odd: inexact ones with the last digit set, which
    /// keeps them on their side of every bound, because bounds are even.
    pub(super) const fn between(carrier: &Float, from: &Float, to: &Float) -> Limits {
        let min_normal = convert_float(from, carrier, Overflow::Inf, from.min_normal()).0;
        let smallest = convert_float(from, carrier, Overflow::Inf, 1).0;
        let largest = largest(carrier, from);
        let infinities = matches!(from.special, Special::Infinity);
        let infinity_fits = matches!(to.special, Special::Infinity);

        let kept = first(carrier, to, 1);
        let normal = first(carrier, to, to.min_normal());
        let over = first_overflow(carrier, to);
        let subnormal = min(max(kept, min_normal), normal);
        let over_end = carrier.infinity() + !infinity_fits as u64;
        let over = if over > largest && (infinity_fits || !infinities) { over_end } else { over };
        Limits {
            to_zero: (1, if kept <= smallest { 1 } else { kept }),
            subnormal: (if normal <= smallest { normal } else { subnormal }, normal),
            overflow: (over, over_end),
            nan: carrier.infinity() + 1,
        }
    }
}

/// The largest finite magnitude of `to` as a code of `carrier`, infinity where that cannot hold it.
pub(super) const fn largest(carrier: &Float, to: &Float) -> u64 {
    convert_float(to, carrier, Overflow::Inf, to.max_finite()).0
}

/// The first finite code of `carrier` whose magnitude in `to` is at least `magnitude`.
const fn first(carrier: &Float, to: &Float, magnitude: u64) -> u64 {
    let (mut low, mut high) = (0, carrier.infinity());
    while low < high {
        let middle = low + (high - low) / 2;
        // Saturation keeps the order of magnitudes.
        if encode_float(to, decode_float(carrier, middle), Overflow::Saturate).0 >= magnitude {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The first code of `carrier` that `to` has no finite room for.
const fn first_overflow(carrier: &Float, to: &Float) -> u64 {
    let (mut low, mut high) = (0, carrier.infinity());
    while low < high {
        let middle = low + (high - low) / 2;
        if matches!(encode_float(to, decode_float(carrier, middle), Overflow::Saturate).1, Loss::Overflow) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

const fn min(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}
