//! Elements narrower than a byte: several in a byte, the first in its low bits, or one in each byte.

/// Takes dense elements of `bits` bits apart, one per byte of `dst`, high bits zero. `dst` says how many there are.
///
/// ```
/// let mut four = [0; 3];
/// weightlift_kernels::pack::unpack(4, &[0x21, 0x03], &mut four);
/// assert_eq!(four, [1, 2, 3]);
/// ```
///
/// # Panics
/// If `bits` is not 1, 2 or 4, or `src` is not as long as that many elements take.
pub fn unpack(bits: u32, src: &[u8], dst: &mut [u8]) {
    let per_byte = elements_per_byte(bits, src.len(), dst.len());
    match per_byte {
        2 => unpack_by::<2>(src, dst),
        4 => unpack_by::<4>(src, dst),
        _ => unpack_by::<8>(src, dst),
    }
}

/// Puts elements that come one per byte together, `bits` bits of each; high bits are dropped. Bits of the last byte
/// that no element fills are zero.
///
/// # Panics
/// If `bits` is not 1, 2 or 4, or `dst` is not as long as that many elements take.
pub fn pack(bits: u32, src: &[u8], dst: &mut [u8]) {
    let per_byte = elements_per_byte(bits, dst.len(), src.len());
    match per_byte {
        2 => pack_by::<2>(src, dst),
        4 => pack_by::<4>(src, dst),
        _ => pack_by::<8>(src, dst),
    }
}

fn elements_per_byte(bits: u32, dense: usize, elements: usize) -> usize {
    assert!(matches!(bits, 1 | 2 | 4), "elements of {bits} bits do not fill a byte");
    let per_byte = 8 / bits as usize;
    assert!(dense == elements.div_ceil(per_byte), "{elements} elements of {bits} bits do not fill {dense} bytes");
    per_byte
}

fn unpack_by<const N: usize>(src: &[u8], dst: &mut [u8]) {
    let bits = 8 / N;
    let (whole, rest) = dst.as_chunks_mut::<N>();
    for (elements, &byte) in whole.iter_mut().zip(src) {
        *elements = std::array::from_fn(|i| byte >> (i * bits) & (0xff >> (8 - bits)));
    }
    let last = src.last().copied().unwrap_or_default();
    rest.iter_mut().enumerate().for_each(|(i, element)| *element = last >> (i * bits) & (0xff >> (8 - bits)));
}

fn pack_by<const N: usize>(src: &[u8], dst: &mut [u8]) {
    let bits = 8 / N;
    let join = |elements: &[u8]| {
        let places = elements.iter().enumerate().map(|(i, element)| (element & (0xff >> (8 - bits))) << (i * bits));
        places.fold(0, |byte, element| byte | element)
    };
    let (whole, rest) = src.as_chunks::<N>();
    whole.iter().zip(dst.iter_mut()).for_each(|(elements, byte)| *byte = join(elements));
    if let (false, Some(last)) = (rest.is_empty(), dst.last_mut()) {
        *last = join(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit.
    fn expected(bits: u32, src: &[u8], elements: usize) -> Vec<u8> {
        let bit = |i: usize| src[i / 8] >> (i % 8) & 1;
        let bits = bits as usize;
        (0..elements).map(|e| (0..bits).map(|i| bit(e * bits + i) << i).sum()).collect()
    }

    #[test]
    fn there_and_back() {
        for (bits, elements) in [1, 2, 4].into_iter().flat_map(|bits| (0..100).map(move |elements| (bits, elements))) {
            let dense = (elements * bits as usize).div_ceil(8);
            let mut src: Vec<u8> = (0..dense).map(|i| (i * 73 + 41) as u8).collect();
            let mut apart = vec![0xa5; elements];
            unpack(bits, &src, &mut apart);
            assert_eq!(apart, expected(bits, &src, elements), "{elements} of {bits}");

            let mut together = vec![0xa5; dense];
            apart.iter_mut().for_each(|element| *element |= 0xff << bits);
            pack(bits, &apart, &mut together);
            let used = elements * bits as usize % 8;
            if let (1.., Some(last)) = (used, src.last_mut()) {
                *last &= 0xff >> (8 - used);
            }
            assert_eq!(together, src, "{elements} of {bits}");
        }
    }

    #[test]
    #[should_panic(expected = "3 elements of 4 bits do not fill 1 bytes")]
    fn lengths_are_checked() {
        unpack(4, &[0], &mut [0; 3]);
    }

    #[test]
    #[should_panic(expected = "elements of 6 bits")]
    fn widths_are_checked() {
        pack(6, &[0; 4], &mut [0; 3]);
    }
}
