//! CRC-32 (zip) and CRC-32C (TensorFlow), in pieces that can be joined in any order.
//!
//! Both are the reflected 32-bit CRC with all ones going in and out, so they share all but the polynomial.
//!
//! ```
//! use weightlift_kernels::checksum::{Algorithm, Digest};
//! let (a, b) = (Algorithm::Crc32c.of(b"check"), Algorithm::Crc32c.of(b"point"));
//! assert_eq!(Algorithm::Crc32c.combine(a, b, 5), Algorithm::Crc32c.of(b"checkpoint"));
//!
//! let digest = Digest::new(Algorithm::Crc32c);
//! digest.add(5, 5, b);
//! assert_eq!(digest.finish(10), None);
//! digest.add(0, 5, a);
//! assert_eq!(digest.finish(10), Some(Algorithm::Crc32c.of(b"checkpoint")));
//! ```

mod combine;
mod digest;

pub use digest::Digest;

use combine::Powers;
use weightlift_core::Checksum;

/// CRC-32C (Castagnoli) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    Algorithm::Crc32c.of(bytes)
}

/// CRC-32 of zip and gzip (IEEE 802.3) of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    Algorithm::Crc32.of(bytes)
}

const MASK_DELTA: u32 = 0xa282_ead8;

/// A CRC-32C as TensorFlow stores it: rotated and offset, so that the checksum of data that itself holds checksums
/// stays strong.
pub fn mask_crc32c(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// The CRC-32C behind a stored value: undoes [`mask_crc32c`].
pub fn unmask_crc32c(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(15)
}

/// Which polynomial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// IEEE 802.3: zip, gzip.
    Crc32,
    /// Castagnoli: TensorFlow's tables and tensors.
    Crc32c,
}

impl Algorithm {
    /// The checksum of `bytes`; 0 for none.
    pub fn of(self, bytes: &[u8]) -> u32 {
        self.extend(0, bytes)
    }

    /// The checksum of what `crc` covers followed by `bytes`.
    pub fn extend(self, crc: u32, bytes: &[u8]) -> u32 {
        match self {
            Algorithm::Crc32c => crc32c::crc32c_append(crc, bytes),
            Algorithm::Crc32 => {
                let mut hasher = crc32fast::Hasher::new_with_initial(crc);
                hasher.update(bytes);
                hasher.finalize()
            }
        }
    }

    /// The checksum of a text whose first part has checksum `a` and whose second part, of `len_b` bytes, has
    /// checksum `b`. Costs a multiplication for each non-zero byte of `len_b`, whatever the parts hold.
    pub fn combine(self, a: u32, b: u32, len_b: u64) -> u32 {
        self.powers().advance(a, len_b) ^ b
    }

    /// A checksum a file declares, with the way to compute it; `None` for sums by a format's own rule.
    pub fn expected(stored: Checksum) -> Option<(Algorithm, u32)> {
        match stored {
            Checksum::Crc32(crc) => Some((Algorithm::Crc32, crc)),
            Checksum::Crc32c(crc) => Some((Algorithm::Crc32c, crc)),
            Checksum::OfFormat(_) => None,
        }
    }

    /// `crc` in the words of the catalog.
    pub fn checksum(self, crc: u32) -> Checksum {
        match self {
            Algorithm::Crc32 => Checksum::Crc32(crc),
            Algorithm::Crc32c => Checksum::Crc32c(crc),
        }
    }

    fn powers(self) -> &'static Powers {
        static CRC32: Powers = Powers::of(0xedb8_8320);
        static CRC32C: Powers = Powers::of(0x82f6_3b78);
        match self {
            Algorithm::Crc32 => &CRC32,
            Algorithm::Crc32c => &CRC32C,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOTH: [Algorithm; 2] = [Algorithm::Crc32, Algorithm::Crc32c];

    #[test]
    fn known_answers() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert!(BOTH.iter().all(|algorithm| algorithm.of(b"") == 0));
    }

    #[test]
    fn masks_are_tensorflows() {
        assert_eq!(mask_crc32c(0), 0xa282_ead8);
        assert_eq!(mask_crc32c(crc32c(b"123456789")), 0xc78ab0e5);
        for crc in [0, 1, u32::MAX, 0xdead_beef] {
            assert_ne!(mask_crc32c(crc), crc);
            assert_eq!(unmask_crc32c(mask_crc32c(crc)), crc);
        }
    }

    #[test]
    fn combines_lengths_beyond_memory() {
        for len in [0, 1, 255, 256, 65_536, 1 << 31, (1 << 32) + 77, (1 << 40) - 1, u64::MAX >> 1] {
            let (a, b) = (0x1234_5678, if len == 0 { 0 } else { 0x9abc_def0 });
            let mut fast = crc32fast::Hasher::new_with_initial(a);
            fast.combine(&crc32fast::Hasher::new_with_initial_len(b, len));
            assert_eq!(Algorithm::Crc32.combine(a, b, len), fast.finalize(), "length {len}");
            let crate_s = crc32c::crc32c_combine(a, b, len as usize);
            assert_eq!(Algorithm::Crc32c.combine(a, b, len), crate_s, "length {len}");
        }
    }

    #[test]
    fn checksums_of_files_name_their_algorithm() {
        for algorithm in BOTH {
            assert_eq!(Algorithm::expected(algorithm.checksum(7)), Some((algorithm, 7)));
        }
        assert_eq!(Algorithm::expected(Checksum::OfFormat(7)), None);
    }

    proptest! {
        #[test]
        fn parts_make_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..3000), cut in any::<prop::sample::Index>()) {
            let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
            for algorithm in BOTH {
                let whole = algorithm.of(&bytes);
                prop_assert_eq!(algorithm.extend(algorithm.of(head), tail), whole);
                prop_assert_eq!(algorithm.combine(algorithm.of(head), algorithm.of(tail), tail.len() as u64), whole);
            }
        }
    }
}
