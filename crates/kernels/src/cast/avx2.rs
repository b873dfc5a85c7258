//! The casts for x86-64 with AVX2 and F16C: eight numbers at a time, as f32 bits, by the same route as the portable
//! room. The processor's own conversions round to the nearest, keep subnormals and quieten NaNs by our rule.
#![allow(unsafe_code)]

use super::format::{BF16, F16, F32, F64, Float};
use super::limits::{self, Limits};
use super::{CastPair, Overflow, Room, Tally};
use std::arch::x86_64::*;
use weightlift_core::DType;

/// Numbers a step.
const LANES: usize = 8;

/// Steps until counts leave their 32-bit lanes.
const STEPS: usize = 1 << 16;

trait Source {
    const FORMAT: Float;
    const BYTES: usize;

    /// Eight values as f32 bits, those of a f64 rounded to odd.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C, and eight elements can be read at `from`, at any alignment.
    unsafe fn load(from: *const u8) -> __m256i;
}

trait Target {
    const FORMAT: Float;
    const BYTES: usize;

    /// Rounds and writes eight values.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C, and eight elements can be written at `to`, at any alignment.
    unsafe fn store(to: *mut u8, bits: __m256i);
}

struct F64Room;
struct F32Room;
struct F16Room;
struct Bf16Room;

impl Source for F64Room {
    const FORMAT: Float = F64;
    const BYTES: usize = 8;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: the caller vouches for eight elements, which are two vectors of four.
        let (low, high) = unsafe { (_mm256_loadu_pd(from.cast()), _mm256_loadu_pd(from.add(32).cast())) };
        _mm256_set_m128i(round_to_odd(high), round_to_odd(low))
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

/// The mask of four 64-bit lanes in four 32-bit lanes.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn narrow_mask(mask: __m256d) -> __m128i {
    let (low, high) = (_mm256_castpd256_pd128(mask), _mm256_extractf128_pd(mask, 1));
    _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(low), _mm_castpd_ps(high), 0b10_00_10_00))
}

#[target_feature(enable = "avx2,f16c")]
#[inline]
fn magnitudes(bits: __m256i) -> __m256i {
    _mm256_and_si256(bits, _mm256_set1_epi32(0x7fff_ffff))
}

/// All ones in the lanes of `magnitudes` that are at least `bound`; both are below 2^31.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn at_least(magnitudes: __m256i, bound: u64) -> __m256i {
    _mm256_cmpgt_epi32(magnitudes, _mm256_set1_epi32(bound as i32 - 1))
}

/// All ones, minus one that is, in the lanes within `first..end`; nothing to compute where that is empty.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn within(magnitudes: __m256i, (first, end): (u64, u64)) -> __m256i {
    if first >= end {
        return _mm256_setzero_si256();
    }
    _mm256_sub_epi32(at_least(magnitudes, first), at_least(magnitudes, end))
}

#[target_feature(enable = "avx2,f16c")]
#[inline]
fn within_64(magnitudes: __m256i, (first, end): (u64, u64)) -> __m256i {
    let at_least = |bound: u64| _mm256_cmpgt_epi64(magnitudes, _mm256_set1_epi64x(bound as i64 - 1));
    _mm256_sub_epi64(at_least(first), at_least(end))
}

/// Lanes of counts, negative.
#[derive(Clone, Copy)]
struct Counts {
    overflow: __m256i,
    to_zero: __m256i,
    subnormal: __m256i,
    nan: __m256i,
}

impl Counts {
    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    fn zero() -> Counts {
        let zero = _mm256_setzero_si256();
        Counts { overflow: zero, to_zero: zero, subnormal: zero, nan: zero }
    }

    /// The sums over 32-bit lanes, none of which has counted beyond 2^31.
    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    fn tally(&self) -> Tally {
        let sum = |lanes: __m256i| {
            let mut counts = [0i32; LANES];
            // SAFETY: eight 32-bit lanes are one vector.
            unsafe { _mm256_storeu_si256(counts.as_mut_ptr().cast(), lanes) };
            counts.iter().map(|&count| u64::from(count.unsigned_abs())).sum()
        };
        let (overflow, to_zero) = (sum(self.overflow), sum(self.to_zero));
        Tally { overflow, to_zero, subnormal: sum(self.subnormal), nan: sum(self.nan) }
    }
}

/// A cast of eight elements at a time.
trait Step {
    /// Bytes of a source element.
    const FROM: usize;
    /// Bytes of a target element.
    const TO: usize;

    /// # Safety
    /// The processor has AVX2 and F16C, and eight elements can be read at `from` and written at `to`.
    unsafe fn step<const SATURATE: bool>(from: *const u8, to: *mut u8, counts: &mut Counts);
}

/// The way through f32.
struct Pair<S, T>(S, T);

impl<S: Source, T: Target> Pair<S, T> {
    const LIMITS: Limits = Limits::between(&F32, &S::FORMAT, &T::FORMAT);
    const LARGEST: i32 = limits::largest(&F32, &T::FORMAT) as i32;
}

impl<S: Source, T: Target> Step for Pair<S, T> {
    const FROM: usize = S::BYTES;
    const TO: usize = T::BYTES;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn step<const SATURATE: bool>(from: *const u8, to: *mut u8, counts: &mut Counts) {
        // SAFETY: as the caller vouches.
        let mut bits = unsafe { S::load(from) };
        let (magnitude, limits) = (magnitudes(bits), Self::LIMITS);
        let overflow = within(magnitude, limits.overflow);
        counts.overflow = _mm256_add_epi32(counts.overflow, overflow);
        counts.to_zero = _mm256_add_epi32(counts.to_zero, within(magnitude, limits.to_zero));
        counts.subnormal = _mm256_add_epi32(counts.subnormal, within(magnitude, limits.subnormal));
        counts.nan = _mm256_add_epi32(counts.nan, at_least(magnitude, limits.nan));
        if SATURATE && limits.overflow.0 < limits.overflow.1 {
            let sign = _mm256_andnot_si256(_mm256_set1_epi32(i32::MAX), bits);
            let largest = _mm256_or_si256(sign, _mm256_set1_epi32(Self::LARGEST));
            bits = _mm256_blendv_epi8(bits, largest, overflow);
        }
        // SAFETY: as the caller vouches.
        unsafe { T::store(to, bits) };
    }
}

/// f64 to f32, whose one rounding is the processor's.
struct F64ToF32;

impl F64ToF32 {
    const LIMITS: Limits = Limits::between(&F64, &F64, &F32);
    const LARGEST: i64 = limits::largest(&F64, &F32) as i64;

    /// Four elements, and their masks of overflow, zero, subnormal and NaN.
    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    fn half<const SATURATE: bool>(bits: __m256i) -> (__m128, [__m256i; 4]) {
        let (magnitude, limits) = (_mm256_and_si256(bits, _mm256_set1_epi64x(i64::MAX)), Self::LIMITS);
        let overflow = within_64(magnitude, limits.overflow);
        let nan = _mm256_cmpgt_epi64(magnitude, _mm256_set1_epi64x(limits.nan as i64 - 1));
        let sign = _mm256_andnot_si256(_mm256_set1_epi64x(i64::MAX), bits);
        let largest = _mm256_or_si256(sign, _mm256_set1_epi64x(Self::LARGEST));
        let bits = if SATURATE { _mm256_blendv_epi8(bits, largest, overflow) } else { bits };
        let near = _mm256_cvtpd_ps(_mm256_castsi256_pd(bits));
        (near, [overflow, within_64(magnitude, limits.to_zero), within_64(magnitude, limits.subnormal), nan])
    }
}

impl Step for F64ToF32 {
    const FROM: usize = 8;
    const TO: usize = 4;

    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn step<const SATURATE: bool>(from: *const u8, to: *mut u8, counts: &mut Counts) {
        // SAFETY: the caller vouches for eight elements, which are two vectors of four.
        let (low, high) = unsafe { (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())) };
        let ((low, low_masks), (high, high_masks)) = (Self::half::<SATURATE>(low), Self::half::<SATURATE>(high));
        let lanes = |i: usize| {
            let (low, high) = (_mm256_castsi256_ps(low_masks[i]), _mm256_castsi256_ps(high_masks[i]));
            _mm256_castps_si256(_mm256_shuffle_ps(low, high, 0b10_00_10_00))
        };
        counts.overflow = _mm256_add_epi32(counts.overflow, lanes(0));
        counts.to_zero = _mm256_add_epi32(counts.to_zero, lanes(1));
        counts.subnormal = _mm256_add_epi32(counts.subnormal, lanes(2));
        counts.nan = _mm256_add_epi32(counts.nan, lanes(3));
        // SAFETY: the caller vouches for eight elements, which are one vector.
        unsafe { _mm256_storeu_ps(to.cast(), _mm256_set_m128(high, low)) };
    }
}

/// # Safety
/// The processor has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
unsafe fn cast<S: Step, const SATURATE: bool>(src: &[u8], dst: &mut [u8]) -> Tally {
    let mut tally = Tally::default();
    let (src, src_rest) = src.split_at(src.len() - src.len() % (S::FROM * LANES));
    let (dst, dst_rest) = dst.split_at_mut(src.len() / S::FROM * S::TO);
    for (src, dst) in src.chunks(S::FROM * LANES * STEPS).zip(dst.chunks_mut(S::TO * LANES * STEPS)) {
        let mut counts = Counts::zero();
        for (from, to) in src.chunks_exact(S::FROM * LANES).zip(dst.chunks_exact_mut(S::TO * LANES)) {
            // SAFETY: both chunks hold eight elements.
            unsafe { S::step::<SATURATE>(from.as_ptr(), to.as_mut_ptr(), &mut counts) };
        }
        tally.merge(&counts.tally());
    }
    let (mut from, mut to, mut counts) = ([0; 8 * LANES], [0; 8 * LANES], Counts::zero());
    from[..src_rest.len()].copy_from_slice(src_rest);
    // SAFETY: no element is wider than eight bytes; the zeros after the rest stay zeros and are not counted.
    unsafe { S::step::<SATURATE>(from.as_ptr(), to.as_mut_ptr(), &mut counts) };
    dst_rest.copy_from_slice(&to[..dst_rest.len()]);
    tally.merge(&counts.tally());
    tally
}

/// The cast, or `None` where this room has none for the pair or cannot be used.
pub(super) fn run(pair: CastPair, overflow: Overflow, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    if !Room::Avx2.is_available() {
        return None;
    }
    match overflow {
        // SAFETY: the processor has been asked.
        Overflow::Inf => unsafe { choose::<false>(pair, src, dst) },
        // SAFETY: likewise.
        Overflow::Saturate => unsafe { choose::<true>(pair, src, dst) },
    }
}

/// # Safety
/// The processor has AVX2 and F16C.
unsafe fn choose<const SATURATE: bool>(pair: CastPair, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    use DType::{Bf16, F16, F32, F64};
    let cast: unsafe fn(&[u8], &mut [u8]) -> Tally = match (pair.from, pair.to) {
        (F64, F32) => cast::<F64ToF32, SATURATE>,
        (F64, F16) => cast::<Pair<F64Room, F16Room>, SATURATE>,
        (F64, Bf16) => cast::<Pair<F64Room, Bf16Room>, SATURATE>,
        (F32, F64) => cast::<Pair<F32Room, F64Room>, SATURATE>,
        (F32, F16) => cast::<Pair<F32Room, F16Room>, SATURATE>,
        (F32, Bf16) => cast::<Pair<F32Room, Bf16Room>, SATURATE>,
        (F16, F64) => cast::<Pair<F16Room, F64Room>, SATURATE>,
        (F16, F32) => cast::<Pair<F16Room, F32Room>, SATURATE>,
        (F16, Bf16) => cast::<Pair<F16Room, Bf16Room>, SATURATE>,
        (Bf16, F64) => cast::<Pair<Bf16Room, F64Room>, SATURATE>,
        (Bf16, F32) => cast::<Pair<Bf16Room, F32Room>, SATURATE>,
        (Bf16, F16) => cast::<Pair<Bf16Room, F16Room>, SATURATE>,
        _ => return None,
    };
    // SAFETY: as the caller vouches.
    Some(unsafe { cast(src, dst) })
}
