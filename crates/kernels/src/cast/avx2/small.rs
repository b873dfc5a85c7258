//! Floats of eight bits and less, as f32 bits and back.

use super::floats::{Source, Target, at_least, magnitudes};
use crate::cast::format::{E2M1, E2M3, E3M2, E4M3B11FNUZ, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, F32, Float, Special};
use std::arch::x86_64::*;

/// A float of at most eight bits.
macro_rules! small {
    ($room:ident, $format:ident) => {
        pub(super) struct $room;

        impl Source for $room {
            const FORMAT: Float = $format;
            const BYTES: usize = 1;

            #[target_feature(enable = "avx2,f16c")]
            #[inline]
            unsafe fn load(from: *const u8) -> __m256i {
                // SAFETY: the caller vouches for eight elements, which are eight bytes.
                let codes = unsafe { _mm_loadl_epi64(from.cast()) };
                widen::<$room>(_mm256_cvtepu8_epi32(codes))
            }
        }

        impl Target for $room {
            const FORMAT: Float = $format;
            const BYTES: usize = 1;

            #[target_feature(enable = "avx2,f16c")]
            #[inline]
            unsafe fn store(to: *mut u8, bits: __m256i) {
                let codes = narrow::<$room>(bits);
                let (low, high) = (_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
                let words = _mm_packus_epi32(low, high);
                // SAFETY: the caller vouches for eight elements, which are eight bytes.
                unsafe { _mm_storel_epi64(to.cast(), _mm_packus_epi16(words, words)) }
            }
        }
    };
}

small!(E5m2Room, E5M2);
small!(E4m3fnRoom, E4M3FN);
small!(E4m3fnuzRoom, E4M3FNUZ);
small!(E5m2fnuzRoom, E5M2FNUZ);
small!(E4m3b11fnuzRoom, E4M3B11FNUZ);
small!(E2m1Room, E2M1);
small!(E2m3Room, E2M3);
small!(E3m2Room, E3M2);

/// f32 bits of the codes of a small float, as the portable room finds them.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn widen<S: Source>(codes: __m256i) -> __m256i {
    let from = S::FORMAT;
    let (sign, shift) = (from.sign() as i32, 23 - from.fraction_bits as i32);
    let rebias = 127 - from.bias;
    let magnitude = _mm256_and_si256(codes, _mm256_set1_epi32(sign - 1));
    let shifted = _mm256_sll_epi32(magnitude, _mm_cvtsi32_si128(shift));
    let normal = _mm256_add_epi32(shifted, _mm256_set1_epi32(rebias << 23));
    let unit = f32::from_bits(((rebias + 1) as u32 - from.fraction_bits) << 23);
    let small = _mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(unit));
    let is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(from.min_normal() as i32), magnitude);
    let finite = _mm256_blendv_epi8(normal, _mm256_castps_si256(small), is_small);
    let above = |bound: u64| _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(bound as i32));
    let top = _mm256_set1_epi32(F32.infinity() as i32);
    let nan = _mm256_set1_epi32(0x7fc0_0000);
    let value = match from.special {
        Special::Infinity => _mm256_or_si256(finite, _mm256_and_si256(above(from.max_finite()), top)),
        Special::NanAtTop => _mm256_blendv_epi8(finite, nan, above(from.max_finite())),
        Special::NanAtNegativeZero => {
            let is_nan = _mm256_cmpeq_epi32(codes, _mm256_set1_epi32(sign));
            _mm256_or_si256(finite, _mm256_and_si256(is_nan, nan))
        }
        Special::Nothing => finite,
    };
    let signs = _mm256_and_si256(codes, _mm256_set1_epi32(sign));
    let to_top = 31 - (from.exponent_bits + from.fraction_bits) as i32;
    _mm256_or_si256(value, _mm256_sll_epi32(signs, _mm_cvtsi32_si128(to_top)))
}

/// Codes of a small float from f32 bits, as the portable room finds them.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn narrow<T: Target>(bits: __m256i) -> __m256i {
    let to = T::FORMAT;
    let shift = 23 - to.fraction_bits as i32;
    let rebias = 127 - to.bias;
    let magnitude = magnitudes(bits);
    let right = |value: __m256i| _mm256_srl_epi32(value, _mm_cvtsi32_si128(shift));
    let even = _mm256_and_si256(right(magnitude), _mm256_set1_epi32(1));
    let half = _mm256_add_epi32(even, _mm256_set1_epi32((1 << (shift - 1)) - 1));
    let normal = right(_mm256_add_epi32(magnitude, half));
    let normal = _mm256_sub_epi32(normal, _mm256_set1_epi32(rebias << to.fraction_bits));
    let anchor = _mm256_set1_epi32((rebias + 24 - to.fraction_bits as i32) << 23);
    let sum = _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_castsi256_ps(anchor));
    let small = _mm256_sub_epi32(_mm256_castps_si256(sum), anchor);
    let is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32((rebias + 1) << 23), magnitude);
    let rounded = _mm256_blendv_epi8(normal, small, is_small);
    let most = to.max_finite() as i32 + !matches!(to.special, Special::Nothing) as i32;
    let code = _mm256_min_epu32(rounded, _mm256_set1_epi32(most));
    let sign = _mm256_and_si256(
        _mm256_srl_epi32(bits, _mm_cvtsi32_si128(31 - to.sign().trailing_zeros() as i32)),
        _mm256_set1_epi32(to.sign() as i32),
    );
    let is_nan = at_least(magnitude, F32.infinity() + 1);
    match to.special {
        Special::Infinity => {
            let payload = _mm256_and_si256(right(magnitude), _mm256_set1_epi32(to.min_normal() as i32 - 1));
            let quiet = (to.infinity() | to.min_normal() >> 1) as i32;
            let nan = _mm256_or_si256(payload, _mm256_set1_epi32(quiet));
            _mm256_or_si256(sign, _mm256_blendv_epi8(code, nan, is_nan))
        }
        Special::NanAtTop => _mm256_or_si256(sign, code),
        Special::NanAtNegativeZero => {
            let is_zero = _mm256_cmpeq_epi32(code, _mm256_setzero_si256());
            _mm256_or_si256(code, _mm256_andnot_si256(is_zero, sign))
        }
        Special::Nothing => _mm256_andnot_si256(is_nan, _mm256_or_si256(sign, code)),
    }
}
