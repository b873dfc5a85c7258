//! Byte order.

/// Reverses the bytes of every unit of `unit` bytes in place: 2, 4, 8 or 16, as
/// [`DType::swap_unit`](weightlift_core::DType::swap_unit) gives it. A unit of 1 changes nothing.
///
/// ```
/// let mut bytes = [1, 2, 3, 4];
/// weightlift_kernels::swap::byteswap(2, &mut bytes);
/// assert_eq!(bytes, [2, 1, 4, 3]);
/// ```
///
/// # Panics
/// If `bytes` is not a whole number of units, or `unit` none of those.
pub fn byteswap(unit: usize, bytes: &mut [u8]) {
    assert!(matches!(unit, 1 | 2 | 4 | 8 | 16), "no element has a swap unit of {unit} bytes");
    assert!(bytes.len().is_multiple_of(unit), "{} bytes are no whole number of units of {unit}", bytes.len());
    match unit {
        2 => bytes
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|two| *two = u16::from_ne_bytes(*two).swap_bytes().to_ne_bytes()),
        4 => bytes
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|four| *four = u32::from_ne_bytes(*four).swap_bytes().to_ne_bytes()),
        8 => bytes
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|eight| *eight = u64::from_ne_bytes(*eight).swap_bytes().to_ne_bytes()),
        16 => bytes.as_chunks_mut::<16>().0.iter_mut().for_each(|sixteen| sixteen.reverse()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_reversed_one_by_one() {
        for unit in [1, 2, 4, 8, 16] {
            for units in 0..40 {
                let bytes: Vec<u8> = (0..unit * units).map(|i| (i * 7 % 251) as u8).collect();
                let mut padded = [&[9], bytes.as_slice(), &[9]].concat();
                byteswap(unit, &mut padded[1..=bytes.len()]);
                let expected: Vec<u8> = bytes.chunks(unit).flat_map(|unit| unit.iter().rev().copied()).collect();
                assert_eq!(padded, [&[9], expected.as_slice(), &[9]].concat(), "{units} units of {unit}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "3 bytes are no whole number of units of 2")]
    fn half_a_unit_is_refused() {
        byteswap(2, &mut [0; 3]);
    }

    #[test]
    #[should_panic(expected = "unit of 3 bytes")]
    fn odd_units_are_refused() {
        byteswap(3, &mut [0; 3]);
    }
}
