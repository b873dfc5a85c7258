//! The casts for x86-64 with AVX2, F16C and FMA: eight numbers at a time, as f32 bits, by the same route as the portable
//! room. The processor's own conversions quieten NaNs by our rule; they round to the nearest and keep subnormals in the
//! floating-point mode that Rust programs run in.
#![allow(unsafe_code)]

mod deviation;
mod floats;
mod small;

use super::format::{F32, F64};
use super::limits::{self, Limits};
use super::{CastPair, Overflow, Room, Tally};
pub(super) use deviation::run as deviation;
use floats::*;
use small::*;
use std::arch::x86_64::*;
use weightlift_core::DType;

/// Numbers a step.
const LANES: usize = 8;

/// Steps until counts leave their 32-bit lanes.
const STEPS: usize = 1 << 16;

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
pub(super) fn run(pair: CastPair, overflow: Overflow, near: bool, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    if !Room::Avx2.is_available() {
        return None;
    }
    match overflow {
        // SAFETY: the processor has been asked.
        Overflow::Inf => unsafe { choose::<false>(pair, near, src, dst) },
        // SAFETY: likewise.
        Overflow::Saturate => unsafe { choose::<true>(pair, near, src, dst) },
    }
}

/// # Safety
/// The processor has AVX2 and F16C.
unsafe fn choose<const SATURATE: bool>(pair: CastPair, near: bool, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    let cast = match pair.from {
        DType::F64 if near => to_float::<F64NearRoom, SATURATE>(pair.to)?,
        _ if near => return None,
        DType::F64 if pair.to == DType::F32 => cast::<F64ToF32, SATURATE>,
        DType::F64 => to_float::<F64Room, SATURATE>(pair.to)?,
        DType::F32 => to_float::<F32Room, SATURATE>(pair.to)?,
        DType::F16 => to_float::<F16Room, SATURATE>(pair.to)?,
        DType::Bf16 => to_float::<Bf16Room, SATURATE>(pair.to)?,
        DType::F8E5m2 => widening::<E5m2Room>(pair.to)?,
        DType::F8E4m3fn => widening::<E4m3fnRoom>(pair.to)?,
        DType::F8E4m3fnuz => widening::<E4m3fnuzRoom>(pair.to)?,
        DType::F8E5m2fnuz => widening::<E5m2fnuzRoom>(pair.to)?,
        DType::F8E4m3b11fnuz => widening::<E4m3b11fnuzRoom>(pair.to)?,
        DType::F4E2m1 => widening::<E2m1Room>(pair.to)?,
        DType::F6E2m3 => widening::<E2m3Room>(pair.to)?,
        DType::F6E3m2 => widening::<E3m2Room>(pair.to)?,
        _ => return None,
    };
    // SAFETY: as the caller vouches.
    Some(unsafe { cast(src, dst) })
}

/// A cast whose caller has asked the processor.
type Cast = unsafe fn(&[u8], &mut [u8]) -> Tally;

fn to_float<S: Source, const SATURATE: bool>(to: DType) -> Option<Cast> {
    Some(match to {
        DType::F64 => cast::<Pair<S, F64Room>, SATURATE>,
        DType::F32 => cast::<Pair<S, F32Room>, SATURATE>,
        DType::F16 => cast::<Pair<S, F16Room>, SATURATE>,
        DType::Bf16 => cast::<Pair<S, Bf16Room>, SATURATE>,
        DType::F8E5m2 => cast::<Pair<S, E5m2Room>, SATURATE>,
        DType::F8E4m3fn => cast::<Pair<S, E4m3fnRoom>, SATURATE>,
        DType::F8E4m3fnuz => cast::<Pair<S, E4m3fnuzRoom>, SATURATE>,
        DType::F8E5m2fnuz => cast::<Pair<S, E5m2fnuzRoom>, SATURATE>,
        DType::F8E4m3b11fnuz => cast::<Pair<S, E4m3b11fnuzRoom>, SATURATE>,
        DType::F4E2m1 => cast::<Pair<S, E2m1Room>, SATURATE>,
        DType::F6E2m3 => cast::<Pair<S, E2m3Room>, SATURATE>,
        DType::F6E3m2 => cast::<Pair<S, E3m2Room>, SATURATE>,
        _ => return None,
    })
}

/// From a source that overflows no target here: there is nothing to saturate.
fn widening<S: Source>(to: DType) -> Option<Cast> {
    Some(match to {
        DType::F64 => cast::<Pair<S, F64Room>, false>,
        DType::F32 => cast::<Pair<S, F32Room>, false>,
        DType::F16 => cast::<Pair<S, F16Room>, false>,
        DType::Bf16 => cast::<Pair<S, Bf16Room>, false>,
        _ => return None,
    })
}
