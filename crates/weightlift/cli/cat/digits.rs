//! Decimal digits of binary floating-point numbers, exact for every width.
//!
//! The digits are generated one by one from a fraction of two natural numbers, after Steele and White. They end where
//! what was written so far can mean no other number of the same format, or where they are cut. The last digit is
//! rounded to the nearest, a tie to the even digit.

use super::big::Big;
use super::exact::Magnitude;

/// Where digits are cut at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// After as many as tell the number from its neighbours.
    Unique,
    /// The same, but after so many behind the point at the latest.
    UniqueFraction(usize),
    /// The same, but after so many in all at the latest.
    UniqueDigits(usize),
    /// After so many in all, whether they are needed or not.
    Full(usize),
    /// The same, rounded whatever the neighbours are.
    Digits(usize),
}

/// A decimal number `0.d₁d₂d₃… · 10^point`; zero has no digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    digits: Vec<u8>,
    point: i32,
}

impl Decimal {
    /// The digits of a number.
    pub(super) fn of(number: Magnitude, cut: Cut) -> Decimal {
        if number.mantissa == 0 {
            return Decimal { digits: Vec::new(), point: 1 };
        }
        let mut fraction = Fraction::new(number);
        let mut decimal = Decimal { digits: Vec::new(), point: fraction.normalise(number) };
        let lowest = match cut {
            Cut::Unique => i32::MIN,
            Cut::UniqueFraction(most) => -i32::try_from(most).unwrap_or(i32::MAX),
            Cut::UniqueDigits(most) | Cut::Full(most) | Cut::Digits(most) => {
                decimal.point - i32::try_from(most).unwrap_or(i32::MAX / 2)
            }
        };
        decimal.generate(&mut fraction, lowest, cut);
        decimal
    }

    /// Appends digits down to that of `10^lowest`.
    fn generate(&mut self, fraction: &mut Fraction, lowest: i32, cut: Cut) {
        if self.point <= lowest {
            // Only the digit before the first could stand here.
            let up = self.point == lowest && fraction.beyond_half(0);
            *self = Decimal { digits: vec![1; usize::from(up)], point: if up { lowest + 1 } else { 1 } };
            return;
        }
        loop {
            let digit = fraction.next_digit();
            self.digits.push(digit);
            let (low, high) = if matches!(cut, Cut::Digits(_)) { (false, false) } else { fraction.close() };
            let last = self.point - self.digits.len() as i32 <= lowest;
            if last || ((low || high) && !matches!(cut, Cut::Full(_))) {
                return self.finish(if low == high { fraction.beyond_half(digit) } else { high });
            }
        }
    }

    /// Rounds the last digit and drops zeros behind it.
    fn finish(&mut self, up: bool) {
        let dropped = if up { 9 } else { 0 };
        while self.digits.last() == Some(&dropped) {
            self.digits.pop();
        }
        match self.digits.last_mut() {
            Some(last) if up => *last += 1,
            None if up => *self = Decimal { digits: vec![1], point: self.point + 1 },
            _ => {}
        }
    }

    /// The digits before and behind the point.
    pub(super) fn positional(&self) -> (String, String) {
        let digit = |at: i32| {
            let digit = usize::try_from(at).ok().and_then(|at| self.digits.get(at));
            digit.map_or('0', |digit| (b'0' + digit) as char)
        };
        let whole = if self.point <= 0 { "0".to_owned() } else { (0..self.point).map(digit).collect() };
        let behind = (self.point..self.digits.len() as i32).map(digit).collect();
        (whole, behind)
    }

    /// The first digit, the others, and the power of ten.
    pub(super) fn scientific(&self) -> (String, String, i32) {
        let mut text = self.digits.iter().map(|digit| (b'0' + digit) as char);
        let first = text.next().unwrap_or('0').to_string();
        (first, text.collect(), self.point - 1)
    }
}

/// The number as `value / unit`, with half the distances to its neighbours on the same scale.
struct Fraction {
    value: Big,
    unit: Big,
    below: Big,
    above: Big,
    /// Whether a decimal half-way to a neighbour still means this number: ties are read as the even one.
    inclusive: bool,
}

impl Fraction {
    fn new(number: Magnitude) -> Fraction {
        let Magnitude { mantissa, exponent, narrow_below } = number;
        // One more bit for the halves, another for the quarter of a gap that is half as wide.
        let extra = 1 + u32::from(narrow_below);
        let shifted = |number: u64, bits: u32| {
            let mut big = Big::new(number);
            big.shift(bits);
            big
        };
        let up = exponent.max(0).unsigned_abs();
        Fraction {
            value: shifted(mantissa, up + extra),
            unit: shifted(1, exponent.min(0).unsigned_abs() + extra),
            below: shifted(1, up),
            above: shifted(1, up + extra - 1),
            inclusive: mantissa % 2 == 0,
        }
    }

    /// Divides by a power of ten so that `value / unit` lies in `0.1 .. 1`; answers the power.
    fn normalise(&mut self, number: Magnitude) -> i32 {
        let log2 = number.exponent + 63 - number.mantissa.leading_zeros() as i32;
        let mut power = (f64::from(log2) * std::f64::consts::LOG10_2).floor() as i32;
        if power >= 0 {
            self.unit.scale_ten(power.unsigned_abs());
        } else {
            self.scale_ten(power.unsigned_abs());
        }
        while self.value >= self.unit {
            self.unit.scale(10);
            power += 1;
        }
        power
    }

    fn scale_ten(&mut self, power: u32) {
        for big in [&mut self.value, &mut self.below, &mut self.above] {
            big.scale_ten(power);
        }
    }

    fn next_digit(&mut self) -> u8 {
        self.scale_ten(1);
        self.value.divide_digit(&self.unit)
    }

    /// Whether the digits so far, and the digits so far rounded up, are closer to this number than to its neighbours.
    fn close(&self) -> (bool, bool) {
        let raised = self.value.plus(&self.above);
        match self.inclusive {
            true => (self.value <= self.below, raised >= self.unit),
            false => (self.value < self.below, raised > self.unit),
        }
    }

    /// Whether what is left rounds `digit` up.
    fn beyond_half(&self, digit: u8) -> bool {
        let twice = self.value.plus(&self.value);
        twice > self.unit || (twice == self.unit && digit % 2 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cat::exact::{Exact, FloatFormat};
    use weightlift_core::DType;

    fn exact(value: f64) -> Magnitude {
        Exact::from_f64(value, FloatFormat::of(DType::F64).unwrap()).magnitude().unwrap()
    }

    fn text(value: f64, cut: Cut) -> String {
        let (whole, behind) = Decimal::of(exact(value), cut).positional();
        format!("{whole}.{behind}")
    }

    #[test]
    fn digits_are_cut_at_the_nearest() {
        assert_eq!(text(0.1, Cut::Unique), "0.1");
        assert_eq!(text(123456.789, Cut::UniqueFraction(2)), "123456.79");
        assert_eq!(text(9.999, Cut::UniqueFraction(2)), "10.");
        assert_eq!(text(0.25, Cut::UniqueFraction(1)), "0.2");
        assert_eq!(text(0.75, Cut::UniqueFraction(1)), "0.8");
        assert_eq!(text(0.006, Cut::UniqueFraction(2)), "0.01");
        assert_eq!(text(0.004, Cut::UniqueFraction(2)), "0.");
        assert_eq!(text(0.0006, Cut::UniqueFraction(2)), "0.");
        assert_eq!(text(0.5, Cut::UniqueFraction(0)), "0.");
        assert_eq!(text(1.015625, Cut::Digits(6)), "1.01562");
        assert_eq!(text(0.333984375, Cut::Digits(6)), "0.333984");
        assert_eq!(text(1e22, Cut::Unique), "10000000000000000000000.");
        assert_eq!(text(0.0, Cut::Unique), "0.");
    }

    #[test]
    fn shortest_digits_read_back() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..2000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(bits & !(1 << 63));
            if value.is_finite() {
                let (first, rest, power) = Decimal::of(exact(value), Cut::Unique).scientific();
                let text = format!("{first}.{rest}e{power}");
                assert_eq!(text.parse::<f64>().unwrap(), value, "{text}");
                assert!(rest.len() <= 16, "{text}");
            }
        }
    }
}
