//! Floats as f32 bits and back.

use crate::cast::format::{
    BF16, E2M1, E2M3, E3M2, E4M3B11FNUZ, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, F16, F32, F64, Float, Special,
};

/// A source of `N` bytes an element.
pub(super) trait Source<const N: usize> {
    const FORMAT: Float;
    /// The value as f32, bit for bit; NaNs may still be signalling.
    fn load(bytes: [u8; N]) -> u32;
}

/// A target of `N` bytes an element.
pub(super) trait Target<const N: usize> {
    const FORMAT: Float;
    fn store(bits: u32) -> [u8; N];
}

pub(super) struct F64Room;
pub(super) struct F32Room;
pub(super) struct Bf16Room;

impl Source<8> for F64Room {
    const FORMAT: Float = F64;
    #[inline(always)]
    fn load(bytes: [u8; 8]) -> u32 {
        odd_f32(f64::from_le_bytes(bytes))
    }
}

/// f64 by way of the nearest f32.
pub(super) struct F64NearRoom;

impl Source<8> for F64NearRoom {
    const FORMAT: Float = F64;
    #[inline(always)]
    fn load(bytes: [u8; 8]) -> u32 {
        near_f32(f64::from_le_bytes(bytes))
    }
}

impl Source<4> for F32Room {
    const FORMAT: Float = F32;
    #[inline(always)]
    fn load(bytes: [u8; 4]) -> u32 {
        u32::from_le_bytes(bytes)
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

/// A target narrower than f32.
macro_rules! narrow_target {
    ($room:ident, $format:ident, $code:ty, $bytes:literal) => {
        impl Target<$bytes> for $room {
            const FORMAT: Float = $format;
            #[inline(always)]
            fn store(bits: u32) -> [u8; $bytes] {
                (narrow(&$format, bits) as $code).to_le_bytes()
            }
        }
    };
}

pub(super) struct F16Room;
pub(super) struct E5m2Room;
pub(super) struct E4m3fnRoom;
pub(super) struct E4m3fnuzRoom;
pub(super) struct E5m2fnuzRoom;
pub(super) struct E4m3b11fnuzRoom;
pub(super) struct E2m1Room;
pub(super) struct E2m3Room;
pub(super) struct E3m2Room;

impl Source<2> for F16Room {
    const FORMAT: Float = F16;
    #[inline(always)]
    fn load(bytes: [u8; 2]) -> u32 {
        widen(&F16, u32::from(u16::from_le_bytes(bytes)))
    }
}

narrow_target!(F16Room, F16, u16, 2);
narrow_target!(Bf16Room, BF16, u16, 2);
narrow_target!(E5m2Room, E5M2, u8, 1);
narrow_target!(E4m3fnRoom, E4M3FN, u8, 1);
narrow_target!(E4m3fnuzRoom, E4M3FNUZ, u8, 1);
narrow_target!(E5m2fnuzRoom, E5M2FNUZ, u8, 1);
narrow_target!(E4m3b11fnuzRoom, E4M3B11FNUZ, u8, 1);
narrow_target!(E2m1Room, E2M1, u8, 1);
narrow_target!(E2m3Room, E2M3, u8, 1);
narrow_target!(E3m2Room, E3M2, u8, 1);

/// The bits of the f32 that is equal or, with its last digit set, next to `value` on the side of zero.
#[inline(always)]
pub(super) fn odd_f32(value: f64) -> u32 {
    let bits = value.to_bits();
    let near = value as f32;
    let back = f64::from(near);
    let near = near.to_bits();
    let step = if back.abs() > value.abs() { u32::MAX } else { 1 };
    let odd = if back != value && near & 1 == 0 { near.wrapping_add(step) } else { near };
    let nan = (bits >> 32) as u32 & 0x8000_0000 | 0x7fc0_0000 | (bits >> 29) as u32 & 0x003f_ffff;
    if bits << 1 > 0x7ff0 << 49 { nan } else { odd }
}

/// The bits of the nearest f32, but of zero and infinity only where the value is that.
#[inline(always)]
fn near_f32(value: f64) -> u32 {
    let bits = value.to_bits();
    let near = (value as f32).to_bits();
    let magnitude = near & 0x7fff_ffff;
    let finite = bits << 1 < 0x7ff0 << 49;
    let held = magnitude.max(u32::from(bits << 1 != 0)).min(0x7f80_0000 - u32::from(finite));
    near & 0x8000_0000 | if bits << 1 > 0x7ff0 << 49 { 0x7fc0_0000 } else { held }
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
    let sign = to.sign() as u32;
    let is_nan = magnitude > 0x7f80_0000;
    // One past the largest stands for all beyond it, unless the caller has saturated them.
    code = code.min(to.max_finite() as u32 + !matches!(to.special, Special::Nothing) as u32);
    code = match to.special {
        Special::Infinity if is_nan => {
            let payload = magnitude >> shift & (to.min_normal() as u32 - 1);
            to.infinity() as u32 | 1 << (to.fraction_bits - 1) | payload
        }
        Special::Nothing if is_nan => return 0,
        _ => code,
    };
    let signed = !(matches!(to.special, Special::NanAtNegativeZero) && code == 0);
    if signed && bits >> 31 == 1 { code | sign } else { code }
}
