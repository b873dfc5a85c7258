//! Signs flipped on the way: what the `conj` and `neg` bits of a tensor ask for.

use std::io::{self, Read};
use weightlift_core::{ByteOrder, Class, DType};

/// Which signs of a run of numbers to flip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SignFlip {
    /// Bytes of an element.
    element: usize,
    /// Which bytes of an element hold a sign bit that is flipped.
    signs: [Option<usize>; 2],
}

impl SignFlip {
    /// The flip for a tensor's bits; `None` for dtypes whose sign is no bit of its own.
    pub(crate) fn of(dtype: DType, conj: bool, neg: bool, order: ByteOrder) -> Option<SignFlip> {
        let element = dtype.bits()? as usize / 8;
        let parts = match dtype.class() {
            Class::Float if dtype != DType::F8E8m0fnu && element > 0 => 1,
            Class::Complex => 2,
            _ => return None,
        };
        let part = element / parts;
        let sign = |index: usize| match order {
            ByteOrder::Little => index * part + part - 1,
            ByteOrder::Big => index * part,
        };
        let real = neg.then(|| sign(0));
        let imaginary = (parts == 2 && conj != neg).then(|| sign(1));
        Some(SignFlip { element, signs: [real, imaginary] })
    }

    /// Flips signs in what `inner` gives; its first byte is the first of an element.
    pub(crate) fn reader<R: Read>(self, inner: R) -> impl Read {
        Flipping { inner, flip: self, at: 0 }
    }
}

struct Flipping<R> {
    inner: R,
    flip: SignFlip,
    /// Position of the next byte in its element.
    at: usize,
}

impl<R: Read> Read for Flipping<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        for byte in &mut buf[..read] {
            if self.flip.signs.contains(&Some(self.at)) {
                *byte ^= 0x80;
            }
            self.at = (self.at + 1) % self.flip.element;
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flipped(dtype: DType, conj: bool, neg: bool, order: ByteOrder, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        SignFlip::of(dtype, conj, neg, order).unwrap().reader(bytes).read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn the_right_signs_are_flipped() {
        let little = [1f32, 2.0, -3.0, 4.0].map(f32::to_le_bytes).concat();
        let values = |bytes: Vec<u8>| -> Vec<f32> {
            bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
        };
        let run = |dtype, conj, neg| values(flipped(dtype, conj, neg, ByteOrder::Little, &little));
        assert_eq!(run(DType::C64, true, false), [1.0, -2.0, -3.0, -4.0]);
        assert_eq!(run(DType::C64, true, true), [-1.0, 2.0, 3.0, 4.0]);
        assert_eq!(run(DType::C64, false, true), [-1.0, -2.0, 3.0, -4.0]);
        assert_eq!(run(DType::F32, false, true), [-1.0, -2.0, 3.0, -4.0]);
        let big = [1f32, 2.0].map(f32::to_be_bytes).concat();
        assert_eq!(flipped(DType::C64, true, false, ByteOrder::Big, &big), [1f32, -2.0].map(f32::to_be_bytes).concat());
        assert_eq!(SignFlip::of(DType::I32, false, true, ByteOrder::Little), None);
    }
}
