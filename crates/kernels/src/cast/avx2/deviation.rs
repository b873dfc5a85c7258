//! The largest errors of a cast, eight numbers at a time, or four that are compared in f64.
//!
//! A division a vector would cost more than the cast. The largest share found so far is multiplied with the sources
//! instead: only where an error is larger than that product is a share divided out. The difference is taken by one
//! fused step, whose sign is that of the exact difference, so that no share is overlooked.

use super::floats::*;
use super::small::*;
use super::{LANES, STEPS};
use crate::cast::deviation::Deviation;
use crate::cast::{CastPair, Room};
use std::arch::x86_64::*;
use weightlift_core::DType;

/// Below every share there is: a number loses nothing, or at least its last digit.
const NO_SHARE: f32 = 1.0 / (1u64 << 60) as f32;

/// The comparison of `count` elements at `from` and `to`.
type Compare = unsafe fn(&[u8], &[u8]) -> Deviation;

/// Eight elements of both sides, as f32.
struct Single<S, T>(S, T);
/// Eight f64 and their results.
struct Double<T>(T);

/// Running maxima; `share` is the same in all lanes.
trait Highest: Copy {
    const FROM: usize;
    const TO: usize;

    /// # Safety
    /// The processor has AVX2, F16C and FMA.
    unsafe fn new() -> Self;

    /// # Safety
    /// Likewise, and eight elements can be read at both places.
    unsafe fn step(&mut self, from: *const u8, to: *const u8);

    /// # Safety
    /// The processor has AVX2, F16C and FMA.
    unsafe fn finish(self) -> Deviation;
}

struct SingleState<S, T> {
    absolute: __m256,
    share: __m256,
    zeros: __m256i,
    pair: std::marker::PhantomData<Single<S, T>>,
}

impl<S, T> Clone for SingleState<S, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S, T> Copy for SingleState<S, T> {}

impl<S: Source, T: Source> Highest for SingleState<S, T> {
    const FROM: usize = S::BYTES;
    const TO: usize = T::BYTES;

    #[target_feature(enable = "avx2,f16c,fma")]
    #[inline]
    unsafe fn new() -> Self {
        let share = _mm256_set1_ps(NO_SHARE);
        let (absolute, zeros) = (_mm256_setzero_ps(), _mm256_setzero_si256());
        SingleState { absolute, share, zeros, pair: std::marker::PhantomData }
    }

    #[target_feature(enable = "avx2,f16c,fma")]
    #[inline]
    unsafe fn step(&mut self, from: *const u8, to: *const u8) {
        let sign = _mm256_set1_ps(-0.0);
        // SAFETY: as the caller vouches.
        let (x, y) = unsafe { (_mm256_castsi256_ps(S::load(from)), _mm256_castsi256_ps(T::load(to))) };
        let error = _mm256_andnot_ps(sign, _mm256_sub_ps(x, y));
        let finite = _mm256_cmp_ps::<_CMP_LT_OQ>(error, _mm256_set1_ps(f32::INFINITY));
        let error = _mm256_and_ps(error, finite);
        self.absolute = _mm256_max_ps(error, self.absolute);
        let zero = _mm256_cmp_ps::<_CMP_EQ_OQ>(x, _mm256_setzero_ps());
        self.zeros = _mm256_sub_epi32(self.zeros, _mm256_castps_si256(zero));
        let size = _mm256_or_ps(_mm256_andnot_ps(sign, x), _mm256_and_ps(zero, _mm256_set1_ps(1.0)));
        let above = _mm256_fnmadd_ps(self.share, size, error);
        if _mm256_movemask_ps(above) != 0xff {
            self.share = raise(self.share, _mm256_div_ps(error, size));
        }
    }

    #[target_feature(enable = "avx2,f16c,fma")]
    #[inline]
    unsafe fn finish(self) -> Deviation {
        let (mut absolute, mut zeros) = ([0f32; LANES], [0i32; LANES]);
        // SAFETY: eight 32-bit lanes are one vector.
        unsafe {
            _mm256_storeu_ps(absolute.as_mut_ptr(), self.absolute);
            _mm256_storeu_si256(zeros.as_mut_ptr().cast(), self.zeros);
        }
        let share = _mm256_cvtss_f32(self.share);
        Deviation {
            absolute: absolute.into_iter().fold(0f32, f32::max).into(),
            relative: if share > NO_SHARE { share.into() } else { 0.0 },
            numbers: 0,
            zeros: zeros.iter().map(|&zeros| u64::from(zeros.unsigned_abs())).sum(),
        }
    }
}

/// The largest lane of both in every lane; NaNs of `new` count for nothing.
#[target_feature(enable = "avx2,f16c,fma")]
#[cold]
fn raise(old: __m256, new: __m256) -> __m256 {
    let largest = _mm256_max_ps(new, old);
    let largest = _mm256_max_ps(largest, _mm256_permute2f128_ps::<1>(largest, largest));
    let largest = _mm256_max_ps(largest, _mm256_permute_ps::<0b01_00_11_10>(largest));
    _mm256_max_ps(largest, _mm256_permute_ps::<0b10_11_00_01>(largest))
}

struct DoubleState<T> {
    absolute: __m256d,
    share: __m256d,
    zeros: __m256i,
    pair: std::marker::PhantomData<Double<T>>,
}

impl<T> Clone for DoubleState<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for DoubleState<T> {}

impl<T: Source> DoubleState<T> {
    #[target_feature(enable = "avx2,f16c,fma")]
    #[inline]
    fn four(&mut self, x: __m256d, y: __m128) {
        let sign = _mm256_set1_pd(-0.0);
        let error = _mm256_andnot_pd(sign, _mm256_sub_pd(x, _mm256_cvtps_pd(y)));
        let finite = _mm256_cmp_pd::<_CMP_LT_OQ>(error, _mm256_set1_pd(f64::INFINITY));
        let error = _mm256_and_pd(error, finite);
        self.absolute = _mm256_max_pd(error, self.absolute);
        let zero = _mm256_cmp_pd::<_CMP_EQ_OQ>(x, _mm256_setzero_pd());
        self.zeros = _mm256_sub_epi64(self.zeros, _mm256_castpd_si256(zero));
        let size = _mm256_or_pd(_mm256_andnot_pd(sign, x), _mm256_and_pd(zero, _mm256_set1_pd(1.0)));
        let above = _mm256_fnmadd_pd(self.share, size, error);
        if _mm256_movemask_pd(above) != 0xf {
            self.share = raise_double(self.share, _mm256_div_pd(error, size));
        }
    }
}

#[target_feature(enable = "avx2,f16c,fma")]
#[cold]
fn raise_double(old: __m256d, new: __m256d) -> __m256d {
    let largest = _mm256_max_pd(new, old);
    let largest = _mm256_max_pd(largest, _mm256_permute2f128_pd::<1>(largest, largest));
    _mm256_max_pd(largest, _mm256_permute_pd::<0b0101>(largest))
}

impl<T: Source> Highest for DoubleState<T> {
    const FROM: usize = 8;
    const TO: usize = T::BYTES;

    #[target_feature(enable = "avx2,f16c,fma")]
    #[inline]
    unsafe fn new() -> Self {
        let share = _mm256_set1_pd(NO_SHARE.into());
        let (absolute, zeros) = (_mm256_setzero_pd(), _mm256_setzero_si256());
        DoubleState { absolute, share, zeros, pair: std::marker::PhantomData }
    }

    #[target_feature(enable = "avx2,f16c,fma")]
    #[inline]
    unsafe fn step(&mut self, from: *const u8, to: *const u8) {
        // SAFETY: the caller vouches for eight elements, of which those of f64 are two vectors.
        let (low, high, y) =
            unsafe { (_mm256_loadu_pd(from.cast()), _mm256_loadu_pd(from.add(32).cast()), T::load(to)) };
        self.four(low, _mm_castsi128_ps(_mm256_castsi256_si128(y)));
        self.four(high, _mm_castsi128_ps(_mm256_extracti128_si256(y, 1)));
    }

    #[target_feature(enable = "avx2,f16c,fma")]
    #[inline]
    unsafe fn finish(self) -> Deviation {
        let (mut absolute, mut zeros) = ([0f64; 4], [0i64; 4]);
        // SAFETY: four 64-bit lanes are one vector.
        unsafe {
            _mm256_storeu_pd(absolute.as_mut_ptr(), self.absolute);
            _mm256_storeu_si256(zeros.as_mut_ptr().cast(), self.zeros);
        }
        let share = _mm256_cvtsd_f64(self.share);
        Deviation {
            absolute: absolute.into_iter().fold(0f64, f64::max),
            relative: if share > NO_SHARE.into() { share } else { 0.0 },
            numbers: 0,
            zeros: zeros.iter().map(|&zeros| zeros.unsigned_abs()).sum(),
        }
    }
}

/// # Safety
/// The processor has AVX2, F16C and FMA.
#[target_feature(enable = "avx2,f16c,fma")]
unsafe fn compare<H: Highest>(src: &[u8], dst: &[u8]) -> Deviation {
    let (src, src_rest) = src.split_at(src.len() - src.len() % (H::FROM * LANES));
    let (dst, dst_rest) = dst.split_at(src.len() / H::FROM * H::TO);
    let mut found = Deviation::default();
    for (src, dst) in src.chunks(H::FROM * LANES * STEPS).zip(dst.chunks(H::TO * LANES * STEPS)) {
        // SAFETY: the caller has asked the processor; both chunks hold eight elements.
        let mut highest = unsafe { H::new() };
        for (from, to) in src.chunks_exact(H::FROM * LANES).zip(dst.chunks_exact(H::TO * LANES)) {
            // SAFETY: likewise.
            unsafe { highest.step(from.as_ptr(), to.as_ptr()) };
        }
        // SAFETY: likewise.
        found.merge(&unsafe { highest.finish() });
    }
    if !src_rest.is_empty() {
        let (mut from, mut to) = ([0; 8 * LANES], [0; 8 * LANES]);
        from[..src_rest.len()].copy_from_slice(src_rest);
        to[..dst_rest.len()].copy_from_slice(dst_rest);
        // SAFETY: no element is wider than eight bytes.
        let mut rest = unsafe {
            let mut highest = H::new();
            highest.step(from.as_ptr(), to.as_ptr());
            highest.finish()
        };
        rest.zeros -= (LANES - src_rest.len() / H::FROM) as u64;
        found.merge(&rest);
    }
    found
}

/// The comparison, or `None` where this room has none for the pair or cannot be used.
pub(in crate::cast) fn run(pair: CastPair, src: &[u8], dst: &[u8]) -> Option<Deviation> {
    let compare: Compare = match pair.from {
        DType::F64 if pair.to == DType::F32 => compare::<DoubleState<F32Room>>,
        DType::F64 => double(pair.to)?,
        DType::F32 => single::<F32Room>(pair.to)?,
        DType::F16 => single::<F16Room>(pair.to)?,
        DType::Bf16 => single::<Bf16Room>(pair.to)?,
        _ => return None,
    };
    // SAFETY: the processor has been asked.
    Room::Avx2.is_available().then(|| unsafe { compare(src, dst) })
}

fn double(to: DType) -> Option<Compare> {
    Some(match to {
        DType::F16 => compare::<DoubleState<F16Room>>,
        DType::Bf16 => compare::<DoubleState<Bf16Room>>,
        DType::F8E5m2 => compare::<DoubleState<E5m2Room>>,
        DType::F8E4m3fn => compare::<DoubleState<E4m3fnRoom>>,
        DType::F8E4m3fnuz => compare::<DoubleState<E4m3fnuzRoom>>,
        DType::F8E5m2fnuz => compare::<DoubleState<E5m2fnuzRoom>>,
        DType::F8E4m3b11fnuz => compare::<DoubleState<E4m3b11fnuzRoom>>,
        DType::F4E2m1 => compare::<DoubleState<E2m1Room>>,
        _ => return None,
    })
}

fn single<S: Source>(to: DType) -> Option<Compare> {
    Some(match to {
        DType::F16 => compare::<SingleState<S, F16Room>>,
        DType::Bf16 => compare::<SingleState<S, Bf16Room>>,
        DType::F8E5m2 => compare::<SingleState<S, E5m2Room>>,
        DType::F8E4m3fn => compare::<SingleState<S, E4m3fnRoom>>,
        DType::F8E4m3fnuz => compare::<SingleState<S, E4m3fnuzRoom>>,
        DType::F8E5m2fnuz => compare::<SingleState<S, E5m2fnuzRoom>>,
        DType::F8E4m3b11fnuz => compare::<SingleState<S, E4m3b11fnuzRoom>>,
        DType::F4E2m1 => compare::<SingleState<S, E2m1Room>>,
        _ => return None,
    })
}
