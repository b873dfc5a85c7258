//! Floats of sixteen bits and more, as f32 bits and back.

use crate::cast::format::{BF16, F16, F32, F64, Float};
use std::arch::x86_64::*;

pub(super) trait Source {
    const FORMAT: Float;
    const BYTES: usize;

    /// Eight values as f32 bits, those of a f64 rounded to odd.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C, and eight elements can be read at `from`, at any alignment.
    unsafe fn load(from: *const u8) -> __m256i;
}

pub(super) trait Target {
    const FORMAT: Float;
    const BYTES: usize;

    /// Rounds and writes eight values.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C, and eight elements can be written at `to`, at any alignment.
    unsafe fn store(to: *mut u8, bits: __m256i);
}

pub(super) struct F64Room;
pub(super) struct F32Room;
pub(super) struct F16Room;
pub(super) struct Bf16Room;

impl Source for F64Room {
    const FORMAT: Float = F64;
    const BYTES: usize = 8;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: the caller vouches for eight elements, which are two vectors of four.
        let (low, high) = unsafe { (_mm256_loadu_pd(from.cast()), _mm256_loadu_pd(from.add(32).cast())) };
        let near = _mm256_set_m128(_mm256_cvtpd_ps(sticky(high)), _mm256_cvtpd_ps(sticky(low)));
        let bits = _mm256_castps_si256(near);
        // Outside the normal numbers of f32 the digits that stick do not all fit.
        let above = _mm256_sub_epi32(magnitudes(bits), _mm256_set1_epi32(F32.min_normal() as i32));
        let bound = _mm256_set1_epi32((F32.infinity() - F32.min_normal()) as i32);
        let outside = _mm256_cmpeq_epi32(_mm256_max_epu32(above, bound), above);
        if _mm256_testz_si256(outside, outside) == 1 {
            return bits;
        }
        _mm256_set_m128i(round_to_odd(high), round_to_odd(low))
    }
}

/// f64 by way of the nearest f32.
pub(super) struct F64NearRoom;

impl Source for F64NearRoom {
    const FORMAT: Float = F64;
    const BYTES: usize = 8;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: the caller vouches for eight elements, which are two vectors of four.
        let (low, high) = unsafe { (_mm256_loadu_pd(from.cast()), _mm256_loadu_pd(from.add(32).cast())) };
        _mm256_set_m128i(round_to_nearest(high), round_to_nearest(low))
    }
}

impl Source for F32Room {
    const FORMAT: Float = F32;
    const BYTES: usize = 4;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: the caller vouches for eight elements, which are one vector.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
}

impl Source for F16Room {
    const FORMAT: Float = F16;
    const BYTES: usize = 2;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: the caller vouches for eight elements, which are half a vector.
        let halves = unsafe { _mm_loadu_si128(from.cast()) };
        _mm256_castps_si256(_mm256_cvtph_ps(halves))
    }
}

impl Source for Bf16Room {
    const FORMAT: Float = BF16;
    const BYTES: usize = 2;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: the caller vouches for eight elements, which are half a vector.
        let halves = unsafe { _mm_loadu_si128(from.cast()) };
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16)
    }
}

impl Target for F64Room {
    const FORMAT: Float = F64;
    const BYTES: usize = 8;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn store(to: *mut u8, bits: __m256i) {
        let low = _mm256_cvtps_pd(_mm_castsi128_ps(_mm256_castsi256_si128(bits)));
        let high = _mm256_cvtps_pd(_mm_castsi128_ps(_mm256_extracti128_si256(bits, 1)));
        // SAFETY: the caller vouches for eight elements, which are two vectors of four.
        unsafe {
            _mm256_storeu_pd(to.cast(), low);
            _mm256_storeu_pd(to.add(32).cast(), high);
        }
    }
}

impl Target for F32Room {
    const FORMAT: Float = F32;
    const BYTES: usize = 4;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn store(to: *mut u8, bits: __m256i) {
        let nan = at_least(magnitudes(bits), F32.infinity() + 1);
        let quiet = _mm256_or_si256(bits, _mm256_and_si256(nan, _mm256_set1_epi32(0x0040_0000)));
        // SAFETY: the caller vouches for eight elements, which are one vector.
        unsafe { _mm256_storeu_si256(to.cast(), quiet) }
    }
}

impl Target for F16Room {
    const FORMAT: Float = F16;
    const BYTES: usize = 2;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn store(to: *mut u8, bits: __m256i) {
        let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_castsi256_ps(bits));
        // SAFETY: the caller vouches for eight elements, which are half a vector.
        unsafe { _mm_storeu_si128(to.cast(), halves) }
    }
}

impl Target for Bf16Room {
    const FORMAT: Float = BF16;
    const BYTES: usize = 2;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn store(to: *mut u8, bits: __m256i) {
        let even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        let near = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), even);
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let nan = at_least(magnitudes(bits), F32.infinity() + 1);
        let upper = _mm256_srli_epi32(_mm256_blendv_epi8(near, quiet, nan), 16);
        let packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(upper, upper), 0b1000);
        // SAFETY: the caller vouches for eight elements, which are half a vector.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed)) }
    }
}

/// Four f64 without the digits that f32 has no room for; where one of those was set, the last digit left is.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn sticky(value: __m256d) -> __m256d {
    let (bits, rest) = (_mm256_castpd_si256(value), _mm256_set1_epi64x((1 << 29) - 1));
    // Anything but zero carries into the digit above.
    let carried = _mm256_add_epi64(_mm256_and_si256(bits, rest), rest);
    _mm256_castsi256_pd(_mm256_andnot_si256(rest, _mm256_or_si256(bits, carried)))
}

/// f32 of four f64, an inexact one with its last digit set. The nearest f32 is there already if it is odd; if it is
/// even, the odd one lies next to it on the side of the exact value.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn round_to_odd(value: __m256d) -> __m128i {
    let near = _mm256_cvtpd_ps(value);
    let back = _mm256_cvtps_pd(near);
    let sign = _mm256_set1_pd(-0.0);
    let too_large = _mm256_cmp_pd::<_CMP_GT_OQ>(_mm256_andnot_pd(sign, back), _mm256_andnot_pd(sign, value));
    let too_small = _mm256_cmp_pd::<_CMP_LT_OQ>(_mm256_andnot_pd(sign, back), _mm256_andnot_pd(sign, value));
    let (minus, plus) = (narrow_mask(too_large), narrow_mask(too_small));
    let near = _mm_castps_si128(near);
    let even = _mm_sub_epi32(_mm_and_si128(near, _mm_set1_epi32(1)), _mm_set1_epi32(1));
    let step = _mm_and_si128(_mm_sub_epi32(minus, plus), even);
    _mm_add_epi32(near, step)
}

/// The nearest f32 of four f64, but zero and infinity only of values that are that: elsewhere its neighbour stands for
/// it, which becomes the same in every target and shows what was lost.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn round_to_nearest(value: __m256d) -> __m128i {
    let near = _mm_castps_si128(_mm256_cvtpd_ps(value));
    let magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), value);
    let finite = narrow_mask(_mm256_cmp_pd::<_CMP_LT_OQ>(magnitude, _mm256_set1_pd(f64::INFINITY)));
    let lost = narrow_mask(_mm256_cmp_pd::<_CMP_GT_OQ>(magnitude, _mm256_setzero_pd()));
    let bits = _mm_and_si128(near, _mm_set1_epi32(i32::MAX));
    let zero = _mm_and_si128(_mm_cmpeq_epi32(bits, _mm_setzero_si128()), lost);
    let infinite = _mm_and_si128(_mm_cmpeq_epi32(bits, _mm_set1_epi32(F32.infinity() as i32)), finite);
    _mm_add_epi32(_mm_sub_epi32(near, zero), infinite)
}

/// The mask of four 64-bit lanes in four 32-bit lanes.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn narrow_mask(mask: __m256d) -> __m128i {
    let (low, high) = (_mm256_castpd256_pd128(mask), _mm256_extractf128_pd(mask, 1));
    _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(low), _mm_castpd_ps(high), 0b10_00_10_00))
}

#[target_feature(enable = "avx2,f16c")]
#[inline]
pub(super) fn magnitudes(bits: __m256i) -> __m256i {
    _mm256_and_si256(bits, _mm256_set1_epi32(0x7fff_ffff))
}

/// All ones in the lanes of `magnitudes` that are at least `bound`; both are below 2^31.
#[target_feature(enable = "avx2,f16c")]
#[inline]
pub(super) fn at_least(magnitudes: __m256i, bound: u64) -> __m256i {
    _mm256_cmpgt_epi32(magnitudes, _mm256_set1_epi32(bound as i32 - 1))
}
