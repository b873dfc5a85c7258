//! What the values of a tensor are like: their range, mean and spread.

use crate::cast::Reader;
use weightlift_core::DType;

/// Numbers a block: each is summed up by itself, twice, while it is in the first cache.
const BLOCK: usize = 1024;
/// Sums that run side by side. They decide the last digits, so their number is the same on every processor.
const LANES: usize = 8;

/// The values of a tensor or a part of it, summed up. Range, mean and spread are those of the finite numbers; NaNs and
/// infinities are counted. The parts of complex numbers are numbers of their own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// How many numbers there are.
    pub count: u64,
    /// How many are zero.
    pub zeros: u64,
    /// How many are NaN.
    pub nan: u64,
    /// How many are infinite.
    pub infinite: u64,
    /// The least; infinity where no number is finite.
    pub min: f64,
    /// The largest; minus infinity where no number is finite.
    pub max: f64,
    mean: f64,
    /// The sum of the squared distances from the mean.
    squares: f64,
}

impl Default for Summary {
    /// Of nothing.
    fn default() -> Summary {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        Summary { count: 0, zeros: 0, nan: 0, infinite: 0, min, max, mean: 0.0, squares: 0.0 }
    }
}

impl Summary {
    /// Of dense little-endian elements at any alignment, those narrower than a byte one per byte; `None` for dtypes
    /// that are no numbers, quantized ones and x87 numbers. The result is the same on every processor.
    ///
    /// ```
    /// use weightlift_core::DType;
    /// use weightlift_kernels::summary::Summary;
    /// let bytes: Vec<u8> = [1f32, 3.0, f32::NAN, 0.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    /// let summary = Summary::of(DType::F32, &bytes).unwrap();
    /// assert_eq!((summary.min, summary.max, summary.mean(), summary.zeros, summary.nan), (0.0, 4.0, Some(2.0), 1, 1));
    /// ```
    pub fn of(dtype: DType, bytes: &[u8]) -> Option<Summary> {
        let (reader, width) = (Reader::new(dtype)?, Reader::number_bytes(dtype)?);
        let (mut numbers, mut summary) = ([0.0; BLOCK], Summary::default());
        for part in bytes.chunks(BLOCK * width) {
            let count = part.len() / width;
            reader.read(part, &mut numbers);
            summary.merge(&of_block(&numbers[..count]));
        }
        Some(summary)
    }

    /// Adds another part. The last digits of mean and spread depend on the order of the parts.
    pub fn merge(&mut self, other: &Summary) {
        let (own, others) = (self.finite() as f64, other.finite() as f64);
        if others > 0.0 {
            let distance = other.mean - self.mean;
            let share = others / (own + others);
            self.mean += distance * share;
            self.squares += other.squares + distance * distance * own * share;
        }
        self.count += other.count;
        self.zeros += other.zeros;
        self.nan += other.nan;
        self.infinite += other.infinite;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many numbers are finite.
    pub fn finite(&self) -> u64 {
        self.count - self.nan - self.infinite
    }

    /// The mean; `None` where no number is finite.
    pub fn mean(&self) -> Option<f64> {
        (self.finite() > 0).then_some(self.mean)
    }

    /// The standard deviation of the numbers as they are (not an estimate from a sample); `None` where none is finite.
    pub fn std(&self) -> Option<f64> {
        (self.finite() > 0).then(|| (self.squares / self.finite() as f64).sqrt())
    }
}

fn of_block(numbers: &[f64]) -> Summary {
    let mut summary = Summary { count: numbers.len() as u64, ..Summary::default() };
    let (mut sums, mut min, mut max) = ([0.0; LANES], [f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
    let (mut zeros, mut nan, mut finite) = ([0u32; LANES], [0u32; LANES], [0u32; LANES]);
    for lanes in numbers.chunks(LANES) {
        for (lane, &x) in lanes.iter().enumerate() {
            let is_finite = x.abs() < f64::INFINITY;
            sums[lane] += if is_finite { x } else { 0.0 };
            min[lane] = if is_finite && x < min[lane] { x } else { min[lane] };
            max[lane] = if is_finite && x > max[lane] { x } else { max[lane] };
            zeros[lane] += u32::from(x == 0.0);
            nan[lane] += u32::from(x.is_nan());
            finite[lane] += u32::from(is_finite);
        }
    }
    let total = |counts: [u32; LANES]| counts.iter().map(|&count| u64::from(count)).sum::<u64>();
    (summary.zeros, summary.nan) = (total(zeros), total(nan));
    summary.infinite = summary.count - summary.nan - total(finite);
    summary.min = min.into_iter().fold(f64::INFINITY, f64::min);
    summary.max = max.into_iter().fold(f64::NEG_INFINITY, f64::max);
    if summary.finite() > 0 {
        // The mean of numbers near the largest there are must not overflow on the way.
        let sum = pairwise(sums);
        let mean = sum / summary.finite() as f64;
        summary.mean = if mean.is_finite() { mean } else { halved_mean(numbers, summary.finite()) };
        summary.squares = squares(numbers, summary.mean);
    }
    summary
}

fn pairwise([a, b, c, d, e, f, g, h]: [f64; LANES]) -> f64 {
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

fn halved_mean(numbers: &[f64], finite: u64) -> f64 {
    numbers.iter().filter(|x| x.is_finite()).fold(0.0, |mean, x| mean + x / finite as f64).clamp(-f64::MAX, f64::MAX)
}

fn squares(numbers: &[f64], mean: f64) -> f64 {
    let mut sums = [0.0; LANES];
    for lanes in numbers.chunks(LANES) {
        for (sum, &x) in sums.iter_mut().zip(lanes) {
            let distance = if x.abs() < f64::INFINITY { x - mean } else { 0.0 };
            *sum += distance * distance;
        }
    }
    pairwise(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Summary {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Summary::of(DType::F64, &bytes).unwrap()
    }

    /// Two passes over all, one after the other.
    fn expected(values: &[f64]) -> (f64, f64) {
        let finite: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
        let mean = finite.iter().sum::<f64>() / finite.len() as f64;
        let squares: f64 = finite.iter().map(|x| (x - mean).powi(2)).sum();
        (mean, (squares / finite.len() as f64).sqrt())
    }

    fn values(count: usize) -> Vec<f64> {
        let value =
            |i: usize| ((i * 7919) % 10007) as f64 / 10007.0 - 0.25 + if i.is_multiple_of(3) { 1e6 } else { 0.0 };
        (0..count).map(value).collect()
    }

    #[test]
    fn mean_and_spread_are_those_of_two_passes() {
        for count in [1, 2, 7, 8, 9, 1023, 1024, 1025, 10_000] {
            let values = values(count);
            let (summary, (mean, std)) = (of(&values), expected(&values));
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.abs().max(1.0);
            assert!(near(summary.mean().unwrap(), mean), "{count}: {summary:?} {mean}");
            assert!((summary.std().unwrap() - std).abs() <= 1e-9 * std.max(1e-3), "{count}: {summary:?} {std}");
            assert_eq!(summary.min, values.iter().copied().fold(f64::INFINITY, f64::min));
            assert_eq!(summary.max, values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        }
    }

    #[test]
    fn what_is_not_finite_is_counted_and_left_out() {
        let odd = [f64::NAN, 2.0, f64::INFINITY, -0.0, f64::NEG_INFINITY, 4.0, -f64::NAN];
        let summary = of(&odd);
        assert_eq!((summary.count, summary.zeros, summary.nan, summary.infinite), (7, 1, 2, 2));
        assert_eq!((summary.min, summary.max, summary.mean()), (-0.0, 4.0, Some(2.0)));
        let none = of(&[f64::NAN, f64::INFINITY]);
        assert_eq!((none.mean(), none.std(), none.finite()), (None, None, 0));
        assert_eq!(of(&[]), Summary::default());
        assert!((of(&[f64::MAX; 40]).mean().unwrap() / f64::MAX - 1.0).abs() < 1e-12);
    }

    #[test]
    fn parts_add_up() {
        let values = values(5000);
        let (mut left, right) = (of(&values[..2048]), of(&values[2048..]));
        left.merge(&right);
        let whole = of(&values);
        assert_eq!((left.count, left.min, left.max), (whole.count, whole.min, whole.max));
        assert!((left.std().unwrap() / whole.std().unwrap() - 1.0).abs() < 1e-12);
        let mut empty = Summary::default();
        empty.merge(&whole);
        assert_eq!(empty, whole);
    }

    #[test]
    fn every_dtype_of_numbers_is_read() {
        let bytes = [0x00, 0x3c, 0x00, 0xc0, 0x00, 0x7e];
        let summary = Summary::of(DType::F16, &bytes).unwrap();
        assert_eq!((summary.min, summary.max, summary.nan), (-2.0, 1.0, 1));
        assert_eq!(Summary::of(DType::I8, &[0xff, 5]).unwrap().mean(), Some(2.0));
        assert_eq!(Summary::of(DType::I4, &[0x0f, 0x07]).unwrap().min, -1.0);
        assert_eq!(Summary::of(DType::Bool, &[0, 7, 1]).unwrap().max, 1.0);
        assert_eq!(Summary::of(DType::C32, &bytes[..4]).unwrap().count, 2);
        assert_eq!(Summary::of(DType::F4E2m1, &[0x7, 0xf]).unwrap().std(), Some(6.0));
        assert!(Summary::of(DType::Str, &[]).is_none() && Summary::of(DType::Qi8, &[1]).is_none());
    }
}
