//! Plain loops that compilers turn into vector code, for every processor.
//!
//! Every value passes through the bits of an f32. A f64 goes there rounded to odd (an inexact one has its last digit
//! set), which keeps the later rounding the only one: f32 has at least two digits more than any narrower target.
//! Only f64 to f32 has a loop of its own. Floating-point arithmetic stands only where it is exact or rounds to the
//! nearest by itself; no NaN goes through it, since the bits it would leave are not defined.

use super::format::{BF16, F16, F32, F64, Float};
use super::limits::{self, Limits};
use super::{CastPair, Overflow, Tally};
use weightlift_core::DType;

/// A source of `N` bytes an element.
trait Source<const N: usize> {
    const FORMAT: Float;
    /// The value as f32, bit for bit; NaNs may still be signalling.
    fn load(bytes: [u8; N]) -> u32;
}

/// A target of `N` bytes an element.
trait Target<const N: usize> {
    const FORMAT: Float;
    fn store(bits: u32) -> [u8; N];
}

struct F64Room;
struct F32Room;
struct F16Room;
struct Bf16Room;

impl Source<8> for F64Room {
    const FORMAT: Float = F64;
    #[inline(always)]
    fn load(bytes: [u8; 8]) -> u32 {
        let value = f64::from_le_bytes(bytes);
        let bits = value.to_bits();
        let near = value as f32;
        let back = f64::from(near);
        let near = near.to_bits();
        let step = if back.abs() > value.abs() { u32::MAX } else { 1 };
        let odd = if back != value && near & 1 == 0 { near.wrapping_add(step) } else { near };
        let nan = (bits >> 32) as u32 & 0x8000_0000 | 0x7fc0_0000 | (bits >> 29) as u32 & 0x003f_ffff;
        if bits << 1 > 0x7ff0 << 49 { nan } else { odd }
    }
}

impl Source<4> for F32Room {
    const FORMAT: Float = F32;
    #[inline(always)]
    fn load(bytes: [u8; 4]) -> u32 {
        u32::from_le_bytes(bytes)
    }
}

impl Source<2> for F16Room {
    const FORMAT: Float = F16;
    #[inline(always)]
    fn load(bytes: [u8; 2]) -> u32 {
        widen(&F16, u32::from(u16::from_le_bytes(bytes)))
    }
}

impl Source<2> for Bf16Room {
    const FORMAT: Float = BF16;
    #[inline(always)]
    fn load(bytes: [u8; 2]) -> u32 {
        u32::from(u16::from_le_bytes(bytes)) << 16
    }
}

impl Target<8> for F64Room {
    const FORMAT: Float = F64;
    #[inline(always)]
    fn store(bits: u32) -> [u8; 8] {
        let finite = f64::from(f32::from_bits(bits)).to_bits();
        let sign = u64::from(bits & 0x8000_0000) << 32;
        let nan = sign | 0x7ff8 << 48 | u64::from(bits & 0x003f_ffff) << 29;
        (if is_nan(bits) { nan } else { finite }).to_le_bytes()
    }
}

impl Target<4> for F32Room {
    const FORMAT: Float = F32;
    #[inline(always)]
    fn store(bits: u32) -> [u8; 4] {
        (bits | if is_nan(bits) { 0x0040_0000 } else { 0 }).to_le_bytes()
    }
}

impl Target<2> for F16Room {
    const FORMAT: Float = F16;
    #[inline(always)]
    fn store(bits: u32) -> [u8; 2] {
        (narrow(&F16, bits) as u16).to_le_bytes()
    }
}

impl Target<2> for Bf16Room {
    const FORMAT: Float = BF16;
    #[inline(always)]
    fn store(bits: u32) -> [u8; 2] {
        (narrow(&BF16, bits) as u16).to_le_bytes()
    }
}

#[inline(always)]
fn is_nan(bits: u32) -> bool {
    bits & 0x7fff_ffff > 0x7f80_0000
}

/// The f32 of a code of a format with fewer exponent and fraction bits.
#[inline(always)]
fn widen(from: &Float, code: u32) -> u32 {
    let sign = code & from.sign() as u32;
    let magnitude = code & (from.sign() as u32 - 1);
    let shift = 23 - from.fraction_bits;
    let rebias = (127 - from.bias) as u32;
    let normal = (magnitude << shift) + (rebias << 23);
    // A subnormal is a small integer in units of the least one, a power of two: exact, and never an f32 subnormal.
    let unit = f32::from_bits((rebias + 1 - from.fraction_bits) << 23);
    let subnormal = (magnitude as i32 as f32 * unit).to_bits();
    let finite = if magnitude < from.min_normal() as u32 { subnormal } else { normal };
    let special = magnitude << shift | 0x7f80_0000;
    let value = if magnitude >= from.infinity() as u32 { special } else { finite };
    value | sign << (31 - from.exponent_bits - from.fraction_bits)
}

/// The code of an f32 in a format with fewer fraction and no more exponent bits.
#[inline(always)]
fn narrow(to: &Float, bits: u32) -> u32 {
    let magnitude = bits & 0x7fff_ffff;
    let shift = 23 - to.fraction_bits;
    let rebias = (127 - to.bias) as u32;
    let half = (1 << (shift - 1)) - 1 + (magnitude >> shift & 1);
    let mut code = ((magnitude + half) >> shift).wrapping_sub(rebias << to.fraction_bits);
    if rebias > 0 {
        // Added to a number whose last digit is the least subnormal, a small one is rounded to that digit.
        let anchor = (rebias + 24 - to.fraction_bits) << 23;
        let sum = f32::from_bits(magnitude) + f32::from_bits(anchor);
        let subnormal = sum.to_bits().wrapping_sub(anchor);
        code = if magnitude < (rebias + 1) << 23 { subnormal } else { code };
    }
    let infinity = to.infinity() as u32;
    code = if code > infinity { infinity } else { code };
    let nan = infinity | 1 << (to.fraction_bits - 1) | magnitude >> shift & (to.min_normal() as u32 - 1);
    code = if magnitude > 0x7f80_0000 { nan } else { code };
    code | bits >> 31 << (to.exponent_bits + to.fraction_bits)
}

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
pub(super) fn run(pair: CastPair, overflow: Overflow, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    match overflow {
        Overflow::Inf => choose::<false>(pair, src, dst),
        Overflow::Saturate => choose::<true>(pair, src, dst),
    }
}

fn choose<const SATURATE: bool>(pair: CastPair, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    use DType::{Bf16, F16, F32, F64};
    Some(match (pair.from, pair.to) {
        (F64, F32) => f64_to_f32::<SATURATE>(src, dst),
        (F64, F16) => cast::<F64Room, F16Room, 8, 2, SATURATE>(src, dst),
        (F64, Bf16) => cast::<F64Room, Bf16Room, 8, 2, SATURATE>(src, dst),
        (F32, F64) => cast::<F32Room, F64Room, 4, 8, SATURATE>(src, dst),
        (F32, F16) => cast::<F32Room, F16Room, 4, 2, SATURATE>(src, dst),
        (F32, Bf16) => cast::<F32Room, Bf16Room, 4, 2, SATURATE>(src, dst),
        (F16, F64) => cast::<F16Room, F64Room, 2, 8, SATURATE>(src, dst),
        (F16, F32) => cast::<F16Room, F32Room, 2, 4, SATURATE>(src, dst),
        (F16, Bf16) => cast::<F16Room, Bf16Room, 2, 2, SATURATE>(src, dst),
        (Bf16, F64) => cast::<Bf16Room, F64Room, 2, 8, SATURATE>(src, dst),
        (Bf16, F32) => cast::<Bf16Room, F32Room, 2, 4, SATURATE>(src, dst),
        (Bf16, F16) => cast::<Bf16Room, F16Room, 2, 2, SATURATE>(src, dst),
        _ => return None,
    })
}
