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
    check(bits, src.len(), dst.len());
    match bits {
        4 => unpack_4(src, dst),
        2 => unpack_2(src, dst),
        _ => unpack_1(src, dst),
    }
}

/// Puts elements that come one per byte together, `bits` bits of each; high bits are dropped. Bits of the last byte
/// that no element fills are zero.
///
/// # Panics
/// If `bits` is not 1, 2 or 4, or `dst` is not as long as that many elements take.
pub fn pack(bits: u32, src: &[u8], dst: &mut [u8]) {
    check(bits, dst.len(), src.len());
    match bits {
        4 => pack_4(src, dst),
        2 => pack_2(src, dst),
        _ => pack_1(src, dst),
    }
}

fn check(bits: u32, dense: usize, elements: usize) {
    assert!(matches!(bits, 1 | 2 | 4), "elements of {bits} bits do not fill a byte");
    let filled = elements.div_ceil(8 / bits as usize);
    assert!(dense == filled, "{elements} elements of {bits} bits do not fill {dense} bytes");
}

/// One dense byte and the word of as many bytes as it holds elements. Each element moves by a multiple of the same
/// distance, so that a few shifts of the whole word place all of them.
macro_rules! by_word {
    ($unpack:ident, $pack:ident, $word:ty, $bits:literal, $elements:literal) => {
        fn $unpack(src: &[u8], dst: &mut [u8]) {
            let apart = |byte: u8| {
                let all = (0..$elements).fold(0, |word, i| word | <$word>::from(byte) << (i * (8 - $bits)));
                (all & <$word>::MAX / 0xff * (0xff >> (8 - $bits))).to_le_bytes()
            };
            let (whole, rest) = dst.as_chunks_mut::<$elements>();
            whole.iter_mut().zip(src).for_each(|(elements, &byte)| *elements = apart(byte));
            let last = src.last().map(|&byte| apart(byte)).unwrap_or_default();
            rest.iter_mut().zip(last).for_each(|(element, last)| *element = last);
        }

        fn $pack(src: &[u8], dst: &mut [u8]) {
            let together = |elements: [u8; $elements]| {
                let word = <$word>::from_le_bytes(elements) & <$word>::MAX / 0xff * (0xff >> (8 - $bits));
                (0..$elements).fold(0, |byte, i| byte | (word >> (i * (8 - $bits))) as u8)
            };
            let (whole, rest) = src.as_chunks::<$elements>();
            whole.iter().zip(dst.iter_mut()).for_each(|(elements, byte)| *byte = together(*elements));
            let mut elements = [0; $elements];
            elements[..rest.len()].copy_from_slice(rest);
            if let (false, Some(last)) = (rest.is_empty(), dst.last_mut()) {
                *last = together(elements);
            }
        }
    };
}

by_word!(unpack_4, pack_4, u16, 4, 2);
by_word!(unpack_2, pack_2, u32, 2, 4);
by_word!(unpack_1, pack_1, u64, 1, 8);

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
