//! Natural numbers of any size, as few operations as exact decimal digits need.

use std::cmp::Ordering;

/// A natural number: 32 bits a limb, lowest first, the last one not zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Big(Vec<u32>);

impl Big {
    pub(super) fn new(number: u64) -> Big {
        let mut big = Big(vec![number as u32, (number >> 32) as u32]);
        big.trim();
        big
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// Multiplies by a small number.
    pub(super) fn scale(&mut self, factor: u32) {
        let mut carry = 0;
        for limb in &mut self.0 {
            let product = u64::from(*limb) * u64::from(factor) + carry;
            *limb = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
        self.trim();
    }

    /// Multiplies by `10^power`.
    pub(super) fn scale_ten(&mut self, power: u32) {
        for _ in 0..power / 9 {
            self.scale(1_000_000_000);
        }
        self.scale(10u32.pow(power % 9));
    }

    /// Multiplies by `2^bits`.
    pub(super) fn shift(&mut self, bits: u32) {
        self.scale(1 << (bits % 32));
        if !self.0.is_empty() {
            self.0.splice(0..0, std::iter::repeat_n(0, (bits / 32) as usize));
        }
    }

    pub(super) fn plus(&self, other: &Big) -> Big {
        let (long, short) = if self.0.len() < other.0.len() { (other, self) } else { (self, other) };
        let mut sum = Vec::with_capacity(long.0.len() + 1);
        let mut carry = 0;
        for (at, &limb) in long.0.iter().enumerate() {
            let total = u64::from(limb) + u64::from(short.0.get(at).copied().unwrap_or(0)) + carry;
            sum.push(total as u32);
            carry = total >> 32;
        }
        sum.push(carry as u32);
        let mut sum = Big(sum);
        sum.trim();
        sum
    }

    /// Takes away `other`, which is not larger.
    fn reduce(&mut self, other: &Big) {
        let mut borrow = false;
        for (at, limb) in self.0.iter_mut().enumerate() {
            let (less, first) = limb.overflowing_sub(other.0.get(at).copied().unwrap_or(0));
            let (less, second) = less.overflowing_sub(u32::from(borrow));
            *limb = less;
            borrow = first || second;
        }
        self.trim();
    }

    /// Divides by `divisor` where the quotient is one decimal digit; what is left stays.
    pub(super) fn divide_digit(&mut self, divisor: &Big) -> u8 {
        let mut digit = 0;
        while digit < 9 && *self >= *divisor {
            self.reduce(divisor);
            digit += 1;
        }
        digit
    }
}

impl Ord for Big {
    fn cmp(&self, other: &Big) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl PartialOrd for Big {
    fn partial_cmp(&self, other: &Big) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::Big;

    #[test]
    fn operations_agree_with_machine_integers() {
        let number = |big: &Big| big.0.iter().rev().fold(0u128, |n, &limb| n << 32 | u128::from(limb));
        let (a, b) = (0xffff_ffff_ffff_fff0_u64, 0x1_0000_0001_u64);
        let mut big = Big::new(a);
        big.scale(1_000_000_007);
        assert_eq!(number(&big), u128::from(a) * 1_000_000_007);
        big = Big::new(b);
        big.scale_ten(19);
        assert_eq!(number(&big), u128::from(b) * 10u128.pow(19));
        big = Big::new(b);
        big.shift(67);
        assert_eq!(number(&big), u128::from(b) << 67);
        assert_eq!(number(&Big::new(a).plus(&Big::new(a))), 2 * u128::from(a));
        assert_eq!(number(&Big::new(b).plus(&Big::new(a))), u128::from(a) + u128::from(b));
        let mut rest = Big::new(b);
        rest.scale(7);
        rest = rest.plus(&Big::new(5));
        assert_eq!(rest.divide_digit(&Big::new(b)), 7);
        assert_eq!(rest, Big::new(5));
        assert!(Big::new(a) > Big::new(b) && Big::new(0) < Big::new(1));
        let mut zero = Big::new(0);
        zero.shift(64);
        assert_eq!(zero, Big::new(0));
    }
}
