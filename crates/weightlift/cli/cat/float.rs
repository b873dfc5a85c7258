//! Floating-point numbers in words: aligned in an array, alone, or as short as can be.

use super::digits::{Cut, Decimal};
use super::exact::{Exact, FloatFormat, Magnitude};
use std::cmp::Ordering;

/// How much text the numbers of an array take, so that their points stand below one another.
///
/// Made in two looks at the numbers ([`Floats::look`], [`Floats::measure`]), used in a third ([`Floats::text`]).
#[derive(Debug, Clone)]
pub(super) struct Floats {
    format: FloatFormat,
    precision: usize,
    /// Whether positive numbers bear a sign: the imaginary halves.
    signed: bool,
    extremes: Option<(Magnitude, Magnitude)>,
    nan_or_infinite: bool,
    negative_infinity: bool,
    scientific: bool,
    left: usize,
    right: usize,
    power: usize,
}

impl Floats {
    /// For numbers of `format` with at most `precision` digits behind the point.
    pub(super) fn new(format: FloatFormat, precision: usize, signed: bool) -> Floats {
        Floats {
            format,
            precision,
            signed,
            extremes: None,
            nan_or_infinite: false,
            negative_infinity: false,
            scientific: false,
            left: 0,
            right: 0,
            power: 0,
        }
    }

    /// First look: how large and how small the numbers get.
    pub(super) fn look(&mut self, number: Exact) {
        let Some(magnitude) = number.magnitude() else {
            self.nan_or_infinite = true;
            self.negative_infinity |= number.is_negative();
            return;
        };
        if magnitude.mantissa == 0 {
            return;
        }
        let (least, most) = self.extremes.unwrap_or((magnitude, magnitude));
        let lesser = if magnitude.compare(least) == Ordering::Less { magnitude } else { least };
        let larger = if magnitude.compare(most) == Ordering::Greater { magnitude } else { most };
        if self.extremes != Some((lesser, larger)) {
            self.extremes = Some((lesser, larger));
            self.scientific = is_scientific(lesser, larger, self.format);
        }
    }

    /// Second look: how many digits they have.
    pub(super) fn measure(&mut self, number: Exact) {
        if let Exact::Finite { negative, magnitude } = number {
            let most = self.precision.saturating_add(1);
            let (whole, behind, power) = self.parts(magnitude, Cut::UniqueDigits(most));
            let sign = usize::from(negative || self.signed);
            self.left = self.left.max(whole.len() + sign);
            self.right = self.right.max(behind.len());
            self.power = self.power.max(power.len());
        }
    }

    /// The number, as wide as all of them.
    pub(super) fn text(&self, number: Exact) -> String {
        let sign = sign_of(number, self.signed);
        let left = self.left_width();
        let Exact::Finite { magnitude, .. } = number else {
            let width = left + 1 + self.right + self.exponent_width();
            return format!("{:>width$}", format!("{sign}{}", name_of(number)));
        };
        let (whole, behind, power) = self.parts(magnitude, Cut::Full(self.right + 1));
        let (whole, right) = (format!("{sign}{whole}"), self.right);
        if !self.scientific {
            return format!("{whole:>left$}.{behind:<right$}");
        }
        let (direction, digits) = power.split_at(1);
        let width = self.power.saturating_sub(1);
        format!("{whole:>left$}.{behind:0<right$}e{direction}{digits:0>width$}")
    }

    /// Characters before the point; NaN and infinities may ask for more than the numbers.
    fn left_width(&self) -> usize {
        if !self.nan_or_infinite {
            return self.left;
        }
        let sign = usize::from(self.negative_infinity || self.signed);
        self.left.max((3 + sign).saturating_sub(1 + self.right + self.exponent_width()))
    }

    /// Characters from the `e` on.
    fn exponent_width(&self) -> usize {
        if self.power == 0 { 0 } else { 1 + self.power }
    }

    /// Digits before and behind the point, and the power of ten with its sign, before which `cut` holds.
    fn parts(&self, magnitude: Magnitude, cut: Cut) -> (String, String, String) {
        if self.scientific {
            let (whole, behind, power) = Decimal::of(magnitude, cut).scientific();
            return (whole, behind, format!("{power:+03}"));
        }
        let (whole, behind) = Decimal::of(magnitude, Cut::UniqueFraction(self.precision)).positional();
        (whole, behind, String::new())
    }
}

/// Whether numbers of these sizes are written with powers of ten.
fn is_scientific(least: Magnitude, most: Magnitude, format: FloatFormat) -> bool {
    let decimals = f64::from(format.precision - 1) * std::f64::consts::LOG10_2;
    let large = bound(10f64.powf(decimals.floor().min(8.0)), format);
    let small = bound(0.0001, format);
    most.compare(large) != Ordering::Less
        || least.compare(small) == Ordering::Less
        || most.is_over_1000_times(least, format.precision)
}

/// A bound as the format has it: rounded.
fn bound(value: f64, format: FloatFormat) -> Magnitude {
    let dropped = 53u32.saturating_sub(format.precision);
    let (mask, odd) = ((1u64 << dropped) - 1, value.to_bits() >> dropped & 1);
    let rounded = (value.to_bits() + (mask >> 1) + odd * u64::from(dropped > 0)) & !mask;
    let none = Magnitude { mantissa: 0, exponent: 0, narrow_below: false };
    Exact::from_f64(f64::from_bits(rounded), format).magnitude().unwrap_or(none)
}

fn name_of(number: Exact) -> &'static str {
    match number {
        Exact::Infinite { .. } => "inf",
        _ => "nan",
    }
}

/// The sign before a number.
fn sign_of(number: Exact, signed: bool) -> &'static str {
    match number.is_negative() {
        true => "-",
        false if signed => "+",
        false => "",
    }
}

/// A number alone, in as few digits as tell it from its neighbours; `point` keeps one zero behind the point.
fn alone(number: Exact, format: FloatFormat, point: bool, signed: bool) -> String {
    let sign = sign_of(number, signed);
    let Exact::Finite { magnitude, .. } = number else { return format!("{sign}{}", name_of(number)) };
    let decimal = Decimal::of(magnitude, Cut::Unique);
    if magnitude.mantissa == 0 || is_plain_alone(magnitude, format) {
        let (whole, behind) = decimal.positional();
        return match (behind.as_str(), point) {
            ("", true) => format!("{sign}{whole}.0"),
            ("", false) => format!("{sign}{whole}"),
            _ => format!("{sign}{whole}.{behind}"),
        };
    }
    let (first, rest, power) = decimal.scientific();
    let dot = if rest.is_empty() { "" } else { "." };
    format!("{sign}{first}{dot}{rest}e{power:+03}")
}

/// Whether a number alone is written without a power of ten.
fn is_plain_alone(magnitude: Magnitude, format: FloatFormat) -> bool {
    let large = match format.precision {
        11 => 1e3,
        24 => 1e6,
        _ => 1e16,
    };
    let wide = FloatFormat { precision: 64, min_exponent: -16445 };
    // The nearest extended number to 0.0001.
    let small = Magnitude { mantissa: 0xd1b7_1758_e219_652c, exponent: -77, narrow_below: false };
    magnitude.compare(small) != Ordering::Less && magnitude.compare(bound(large, wide)) == Ordering::Less
}

/// A number that is no element of an array.
pub(super) fn scalar(number: Exact, format: FloatFormat) -> String {
    alone(number, format, true, false)
}

/// A complex number that is no element of an array.
pub(super) fn complex_scalar(real: Exact, imaginary: Exact, format: FloatFormat) -> String {
    if real.is_positive_zero() {
        return format!("{}j", alone(imaginary, format, false, false));
    }
    format!("({}{}j)", alone(real, format, false, false), alone(imaginary, format, false, true))
}

/// A number in six digits at most, as `%g` of C writes it, or `%+g`.
pub(super) fn short(number: Exact, signed: bool) -> String {
    const DIGITS: i32 = 6;
    let sign = sign_of(number, signed);
    let Exact::Finite { magnitude, .. } = number else { return format!("{sign}{}", name_of(number)) };
    let decimal = Decimal::of(magnitude, Cut::Digits(DIGITS as usize));
    let (first, rest, power) = decimal.scientific();
    let (whole, behind, exponent) = match power {
        -4..DIGITS => {
            let (whole, behind) = decimal.positional();
            (whole, behind, String::new())
        }
        _ => (first, rest, format!("e{power:+03}")),
    };
    let dot = if behind.is_empty() { "" } else { "." };
    format!("{sign}{whole}{dot}{behind}{exponent}")
}

/// A number in as few digits as tell it from its neighbours, as JSON writes it; `None` for NaN and infinities.
pub(super) fn json(number: Exact) -> Option<String> {
    let magnitude = number.magnitude()?;
    let (sign, decimal) = (sign_of(number, false), Decimal::of(magnitude, Cut::Unique));
    let (first, rest, power) = decimal.scientific();
    let (whole, behind, exponent) = match power {
        -5..17 => {
            let (whole, behind) = decimal.positional();
            (whole, behind, String::new())
        }
        _ => (first, rest, format!("e{power}")),
    };
    let behind = if behind.is_empty() { "0" } else { behind.as_str() };
    Some(format!("{sign}{whole}.{behind}{exponent}"))
}
