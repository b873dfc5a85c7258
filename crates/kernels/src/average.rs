//! Weighted sums: multiply, then add, each rounded by itself, so that the bits depend on the order of the inputs alone.

/// The width sums are made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// f32, for everything narrower too.
    F32,
    /// f64.
    F64,
}

/// Starts a sum: `sum = weight · src`, element by element. Both hold little-endian numbers of `width`, at any
/// alignment; in f32 the weight is rounded to that first.
///
/// # Panics
/// If the lengths differ or are no whole number of elements.
pub fn scale(width: Width, weight: f64, src: &[u8], sum: &mut [u8]) {
    check(width, src, sum);
    match width {
        Width::F32 => each_f32(src, sum, |_, value| weight as f32 * value),
        Width::F64 => each_f64(src, sum, |_, value| weight * value),
    }
}

/// Goes on with a sum: `sum = sum + weight · src`; never fused into one rounding.
///
/// ```
/// use weightlift_kernels::average::{Width, scale, scale_add};
/// let mut sum = [0; 4];
/// scale(Width::F32, 0.25, &8f32.to_le_bytes(), &mut sum);
/// scale_add(Width::F32, 0.75, &4f32.to_le_bytes(), &mut sum);
/// assert_eq!(f32::from_le_bytes(sum), 5.0);
/// ```
///
/// # Panics
/// If the lengths differ or are no whole number of elements.
pub fn scale_add(width: Width, weight: f64, src: &[u8], sum: &mut [u8]) {
    check(width, src, sum);
    match width {
        Width::F32 => each_f32(src, sum, |sum, value| sum + weight as f32 * value),
        Width::F64 => each_f64(src, sum, |sum, value| sum + weight * value),
    }
}

fn check(width: Width, src: &[u8], sum: &[u8]) {
    let element = match width {
        Width::F32 => 4,
        Width::F64 => 8,
    };
    let whole = src.len() == sum.len() && src.len().is_multiple_of(element);
    assert!(whole, "{} bytes of {width:?} do not go with {} bytes", src.len(), sum.len());
}

fn each_f32(src: &[u8], sum: &mut [u8], work: impl Fn(f32, f32) -> f32) {
    for (sum, value) in sum.as_chunks_mut::<4>().0.iter_mut().zip(src.as_chunks::<4>().0) {
        *sum = work(f32::from_le_bytes(*sum), f32::from_le_bytes(*value)).to_le_bytes();
    }
}

fn each_f64(src: &[u8], sum: &mut [u8], work: impl Fn(f64, f64) -> f64) {
    for (sum, value) in sum.as_chunks_mut::<8>().0.iter_mut().zip(src.as_chunks::<8>().0) {
        *sum = work(f64::from_le_bytes(*sum), f64::from_le_bytes(*value)).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_32(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn products_are_rounded_before_they_are_added() {
        // The exact product 1 + 2^-11 + 2^-24 lies half way between two f32; fused with -1 its last digit would stay.
        let value = 1.0 + 2f32.powi(-12);
        let mut sum = bytes_32(&[-1.0; 9]);
        scale_add(Width::F32, value.into(), &bytes_32(&[value; 9]), &mut sum);
        assert_eq!(sum, bytes_32(&[2f32.powi(-11); 9]));
        assert_ne!(value.mul_add(value, -1.0), 2f32.powi(-11));

        let value = 1.0 + 2f64.powi(-27);
        let mut sum: Vec<u8> = [-1f64; 5].iter().flat_map(|x| x.to_le_bytes()).collect();
        let src: Vec<u8> = [value; 5].iter().flat_map(|x| x.to_le_bytes()).collect();
        scale_add(Width::F64, value, &src, &mut sum);
        assert_eq!(f64::from_le_bytes(sum[32..].try_into().unwrap()), 2f64.powi(-26));
    }

    #[test]
    fn a_sum_starts_without_a_zero() {
        let mut sum = bytes_32(&[f32::NAN; 3]);
        scale(Width::F32, 0.1, &bytes_32(&[-0.0, 3.0, 1e-45]), &mut sum);
        assert_eq!(sum, bytes_32(&[-0.0, 0.1f32 * 3.0, 0.0]));
        assert_ne!(0.1 * 3.0, f64::from(0.1f32 * 3.0), "the weight is an f32");
    }

    #[test]
    #[should_panic(expected = "6 bytes of F32")]
    fn half_elements_are_refused() {
        scale(Width::F32, 1.0, &[0; 6], &mut [0; 6]);
    }

    #[test]
    #[should_panic(expected = "do not go with 8 bytes")]
    fn lengths_must_agree() {
        scale_add(Width::F64, 1.0, &[0; 16], &mut [0; 8]);
    }
}
