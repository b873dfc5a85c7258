//! Plain loops that compilers turn into vector code, for every processor.
//!
//! Every value passes through the bits of an f32. A f64 goes there rounded to odd (an inexact one has its last digit
//! set), which keeps the later rounding the only one: f32 has at least two digits more than any narrower target.
//! Only f64 to f32 has a loop of its own. Floating-point arithmetic stands only where it is exact or rounds to the
//! nearest by itself; no NaN goes through it, since the bits it would leave are not defined.

mod bytes;
mod deviation;
mod floats;
mod ints;
mod reader;

use super::format::{F32, F64};
use super::limits::{self, Limits};
use super::{CastPair, Overflow, Tally};
pub(super) use deviation::run as deviation;
use floats::*;
use ints::{Exact, IntNearRoom, IntRoom, Whole, from_int, to_int};
pub(crate) use reader::Reader;
use weightlift_core::DType;

/// So many elements are counted in 32 bits before the counts are added up.
const BLOCK: usize = 1 << 16;

fn cast<S: Source<N>, T: Target<M>, const N: usize, const M: usize, const SATURATE: bool>(
    src: &[u8],
    dst: &mut [u8],
) -> Tally {
    let mut tally = Tally::default();
    let (sources, targets) = (src.as_chunks().0, dst.as_chunks_mut().0);
    for (sources, targets) in sources.chunks(BLOCK).zip(targets.chunks_mut(BLOCK)) {
        tally.merge(&block::<S, T, N, M, SATURATE>(sources, targets));
    }
    tally
}

fn block<S: Source<N>, T: Target<M>, const N: usize, const M: usize, const SATURATE: bool>(
    sources: &[[u8; N]],
    targets: &mut [[u8; M]],
) -> Tally {
    let limits = const { Limits::between(&F32, &S::FORMAT, &T::FORMAT) };
    let largest = const { limits::largest(&F32, &T::FORMAT) } as u32;
    let within = |magnitude: u32, (first, end): (u64, u64)| {
        let inside = magnitude >= first as u32 && magnitude < end as u32;
        u32::from(first < end && inside)
    };
    let (mut overflow, mut to_zero, mut subnormal, mut nan) = (0u32, 0u32, 0u32, 0u32);
    for (source, target) in sources.iter().zip(targets) {
        let bits = S::load(*source);
        let magnitude = bits & 0x7fff_ffff;
        let beyond = within(magnitude, limits.overflow);
        overflow += beyond;
        to_zero += within(magnitude, limits.to_zero);
        subnormal += within(magnitude, limits.subnormal);
        nan += u32::from(magnitude >= limits.nan as u32);
        let bits = if SATURATE && beyond == 1 { bits & 0x8000_0000 | largest } else { bits };
        *target = T::store(bits);
    }
    Tally { overflow: overflow.into(), to_zero: to_zero.into(), subnormal: subnormal.into(), nan: nan.into() }
}

/// f64 to f32, whose one rounding is the processor's.
fn f64_to_f32<const SATURATE: bool>(src: &[u8], dst: &mut [u8]) -> Tally {
    let limits = const { Limits::between(&F64, &F64, &F32) };
    let within = |magnitude: u64, (first, end): (u64, u64)| u64::from(magnitude >= first && magnitude < end);
    let mut tally = Tally::default();
    for (source, target) in src.as_chunks::<8>().0.iter().zip(dst.as_chunks_mut::<4>().0) {
        let bits = u64::from_le_bytes(*source);
        let magnitude = bits & (u64::MAX >> 1);
        let overflow = within(magnitude, limits.overflow);
        tally.overflow += overflow;
        tally.to_zero += within(magnitude, limits.to_zero);
        tally.subnormal += within(magnitude, limits.subnormal);
        tally.nan += u64::from(magnitude >= limits.nan);
        let finite = (f64::from_bits(bits) as f32).to_bits() - if SATURATE { overflow as u32 } else { 0 };
        let nan = (bits >> 32) as u32 & 0x8000_0000 | 0x7fc0_0000 | (bits >> 29) as u32 & 0x003f_ffff;
        *target = (if magnitude >= limits.nan { nan } else { finite }).to_le_bytes();
    }
    tally
}

/// The cast, or `None` where only the definition has it.
pub(super) fn run(pair: CastPair, overflow: Overflow, near: bool, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    if let Some(tally) = bytes::run(pair, overflow, src, dst) {
        return Some(tally);
    }
    match (overflow, near) {
        (Overflow::Inf, false) => choose::<false>(pair, src, dst),
        (Overflow::Saturate, false) => choose::<true>(pair, src, dst),
        (Overflow::Inf, true) => choose_near::<false>(pair, src, dst),
        (Overflow::Saturate, true) => choose_near::<true>(pair, src, dst),
    }
}

/// The casts that go by way of the nearest f32.
fn choose_near<const SATURATE: bool>(pair: CastPair, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    match pair.from {
        DType::F64 => to_float::<F64NearRoom, 8, SATURATE>(pair.to, src, dst),
        DType::I64 => to_float::<IntNearRoom<i64>, 8, SATURATE>(pair.to, src, dst),
        DType::I32 => to_float::<IntNearRoom<i32>, 4, SATURATE>(pair.to, src, dst),
        DType::U64 => to_float::<IntNearRoom<u64>, 8, SATURATE>(pair.to, src, dst),
        DType::U32 => to_float::<IntNearRoom<u32>, 4, SATURATE>(pair.to, src, dst),
        _ => None,
    }
}

fn choose<const SATURATE: bool>(pair: CastPair, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    use DType::{Bf16, F16, F32, F64, I16, I32, I64, U16, U32, U64};
    match pair.from {
        F64 if pair.to == F32 => Some(f64_to_f32::<SATURATE>(src, dst)),
        F64 => from_float::<F64Room, 8, SATURATE>(pair.to, src, dst),
        F32 => from_float::<F32Room, 4, SATURATE>(pair.to, src, dst),
        F16 => from_float::<F16Room, 2, SATURATE>(pair.to, src, dst),
        Bf16 => from_float::<Bf16Room, 2, SATURATE>(pair.to, src, dst),
        I64 => from_int::<i64, 8>(pair.to, src, dst).or_else(|| narrow_int::<i64, 8, SATURATE>(pair.to, src, dst)),
        I32 => from_int::<i32, 4>(pair.to, src, dst).or_else(|| narrow_int::<i32, 4, SATURATE>(pair.to, src, dst)),
        I16 => from_int::<i16, 2>(pair.to, src, dst).or_else(|| narrow_int::<i16, 2, SATURATE>(pair.to, src, dst)),
        U64 => from_int::<u64, 8>(pair.to, src, dst).or_else(|| narrow_int::<u64, 8, SATURATE>(pair.to, src, dst)),
        U32 => from_int::<u32, 4>(pair.to, src, dst).or_else(|| narrow_int::<u32, 4, SATURATE>(pair.to, src, dst)),
        U16 => from_int::<u16, 2>(pair.to, src, dst).or_else(|| narrow_int::<u16, 2, SATURATE>(pair.to, src, dst)),
        _ => None,
    }
}

fn from_float<S: Source<N> + Exact<N>, const N: usize, const SATURATE: bool>(
    to: DType,
    src: &[u8],
    dst: &mut [u8],
) -> Option<Tally> {
    to_int::<S, N>(to, src, dst).or_else(|| to_float::<S, N, SATURATE>(to, src, dst))
}

/// To the targets of an integer that are narrower than f32.
fn narrow_int<S: Whole<N>, const N: usize, const SATURATE: bool>(
    to: DType,
    src: &[u8],
    dst: &mut [u8],
) -> Option<Tally> {
    let narrow = to.is_float() && to.bits() <= Some(16);
    if narrow { to_float::<IntRoom<S>, N, SATURATE>(to, src, dst) } else { None }
}

/// To powers of two: the exponent, rounded up from half way on, and from anything on above the least power.
fn to_scale<S: Source<N>, const N: usize, const SATURATE: bool>(src: &[u8], dst: &mut [u8]) -> Tally {
    const NAN: u32 = 0xff;
    let (mut tally, beyond) = (Tally::default(), |code| if SATURATE { code } else { NAN });
    for (source, target) in src.as_chunks::<N>().0.iter().zip(dst) {
        let bits = S::load(*source);
        let (magnitude, fraction) = (bits & 0x7fff_ffff, bits & 0x007f_ffff);
        let half = if magnitude >> 23 == 0 { 0x0040_0001 } else { 0x0040_0000 };
        let code = (magnitude >> 23) + u32::from(fraction >= half);
        let (nan, below) = (magnitude > 0x7f80_0000, magnitude == 0 || bits >> 31 == 1);
        let lost = !nan && (below || code >= NAN);
        tally.nan += u64::from(nan);
        tally.overflow += u64::from(lost);
        let held = if below { beyond(0) } else { code.min(beyond(NAN - 1)) };
        *target = if nan { NAN } else { held } as u8;
    }
    tally
}

fn to_float<S: Source<N>, const N: usize, const SATURATE: bool>(
    to: DType,
    src: &[u8],
    dst: &mut [u8],
) -> Option<Tally> {
    Some(match to {
        DType::F64 => cast::<S, F64Room, N, 8, SATURATE>(src, dst),
        DType::F32 => cast::<S, F32Room, N, 4, SATURATE>(src, dst),
        DType::F16 => cast::<S, F16Room, N, 2, SATURATE>(src, dst),
        DType::Bf16 => cast::<S, Bf16Room, N, 2, SATURATE>(src, dst),
        DType::F8E5m2 => cast::<S, E5m2Room, N, 1, SATURATE>(src, dst),
        DType::F8E4m3fn => cast::<S, E4m3fnRoom, N, 1, SATURATE>(src, dst),
        DType::F8E4m3fnuz => cast::<S, E4m3fnuzRoom, N, 1, SATURATE>(src, dst),
        DType::F8E5m2fnuz => cast::<S, E5m2fnuzRoom, N, 1, SATURATE>(src, dst),
        DType::F8E4m3b11fnuz => cast::<S, E4m3b11fnuzRoom, N, 1, SATURATE>(src, dst),
        DType::F4E2m1 => cast::<S, E2m1Room, N, 1, SATURATE>(src, dst),
        DType::F6E2m3 => cast::<S, E2m3Room, N, 1, SATURATE>(src, dst),
        DType::F6E3m2 => cast::<S, E3m2Room, N, 1, SATURATE>(src, dst),
        DType::F8E8m0fnu => to_scale::<S, N, SATURATE>(src, dst),
        _ => return None,
    })
}
