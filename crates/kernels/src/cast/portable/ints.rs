//! Integers of sixteen bits and more, and the way from floats to integers and truth values.

use super::floats::{Bf16Room, F16Room, F32Room, F64Room, Source, odd_f32};
use crate::cast::Tally;
use crate::cast::format::{F64, Float};
use weightlift_core::DType;

/// An integer of `N` bytes.
pub(super) trait Whole<const N: usize>: Copy + PartialEq {
    const ZERO: Self;
    const LEAST: Self;
    const MOST: Self;
    /// The largest f64 that is below all that become the least.
    const BELOW: f64;
    /// The smallest f64 that is above all that become the most.
    const ABOVE: f64;
    fn read(bytes: [u8; N]) -> Self;
    fn write(self) -> [u8; N];
    fn is_negative(self) -> bool;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    /// The value rounded to odd, so that it can be rounded again.
    fn to_odd_f64(self) -> f64;
    /// Towards zero, saturating, 0 for NaN.
    fn of(value: f64) -> Self;
}

macro_rules! whole {
    ($int:ident, $bytes:literal, $below:expr) => {
        impl Whole<$bytes> for $int {
            const ZERO: $int = 0;
            const LEAST: $int = $int::MIN;
            const MOST: $int = $int::MAX;
            const BELOW: f64 = $below;
            const ABOVE: f64 = ($int::MAX / 2 + 1) as f64 * 2.0;
            fn read(bytes: [u8; $bytes]) -> $int {
                $int::from_le_bytes(bytes)
            }
            fn write(self) -> [u8; $bytes] {
                self.to_le_bytes()
            }
            #[allow(unused_comparisons)] // the macro is for unsigned integers too
            fn is_negative(self) -> bool {
                self < 0
            }
            fn to_f32(self) -> f32 {
                self as f32
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn to_odd_f64(self) -> f64 {
                // 53 digits fit: of the last eleven of 64, remember only whether one was set.
                let (magnitude, mask) = (i128::from(self).unsigned_abs() as u64, (1 << 11) - 1);
                let sticky = magnitude & !mask | u64::from(magnitude & mask != 0) << 11;
                let value = if magnitude >> 53 == 0 { magnitude } else { sticky } as f64;
                if self.is_negative() { -value } else { value }
            }
            fn of(value: f64) -> $int {
                value as $int
            }
        }
    };
}

whole!(i64, 8, (i64::MIN as f64).next_down());
whole!(i32, 4, i32::MIN as f64 - 1.0);
whole!(i16, 2, i16::MIN as f64 - 1.0);
whole!(i8, 1, i8::MIN as f64 - 1.0);
whole!(u64, 8, -1.0);
whole!(u32, 4, -1.0);
whole!(u16, 2, -1.0);
whole!(u8, 1, -1.0);

/// An integer as a source of floats narrower than f32.
pub(super) struct IntRoom<T>(T);

impl<T: Whole<N>, const N: usize> Source<N> for IntRoom<T> {
    // What counts is that all integers are normal and none is too large for the format.
    const FORMAT: Float = F64;
    fn load(bytes: [u8; N]) -> u32 {
        odd_f32(T::read(bytes).to_odd_f64())
    }
}

/// The same by way of the nearest f32.
pub(super) struct IntNearRoom<T>(T);

impl<T: Whole<N>, const N: usize> Source<N> for IntNearRoom<T> {
    const FORMAT: Float = F64;
    fn load(bytes: [u8; N]) -> u32 {
        T::read(bytes).to_f32().to_bits()
    }
}

/// A float of `N` bytes that is exact in f64.
pub(super) trait Exact<const N: usize> {
    fn value(bytes: [u8; N]) -> f64;
}

impl Exact<8> for F64Room {
    fn value(bytes: [u8; 8]) -> f64 {
        f64::from_le_bytes(bytes)
    }
}

macro_rules! exact_through_f32 {
    ($room:ident, $bytes:literal) => {
        impl Exact<$bytes> for $room {
            fn value(bytes: [u8; $bytes]) -> f64 {
                f32::from_bits($room::load(bytes)).into()
            }
        }
    };
}

exact_through_f32!(F32Room, 4);
exact_through_f32!(F16Room, 2);
exact_through_f32!(Bf16Room, 2);

/// From an integer to an integer, f64, f32 or a truth value.
pub(super) fn from_int<S, const N: usize>(to: DType, src: &[u8], dst: &mut [u8]) -> Option<Tally>
where
    S: Whole<N>,
    i64: TryFrom<S>,
    i32: TryFrom<S>,
    i16: TryFrom<S>,
    i8: TryFrom<S>,
    u64: TryFrom<S>,
    u32: TryFrom<S>,
    u16: TryFrom<S>,
    u8: TryFrom<S>,
{
    match to {
        DType::I64 => Some(int_to_int::<S, i64, N, 8>(src, dst)),
        DType::I32 => Some(int_to_int::<S, i32, N, 4>(src, dst)),
        DType::I16 => Some(int_to_int::<S, i16, N, 2>(src, dst)),
        DType::I8 => Some(int_to_int::<S, i8, N, 1>(src, dst)),
        DType::U64 => Some(int_to_int::<S, u64, N, 8>(src, dst)),
        DType::U32 => Some(int_to_int::<S, u32, N, 4>(src, dst)),
        DType::U16 => Some(int_to_int::<S, u16, N, 2>(src, dst)),
        DType::U8 => Some(int_to_int::<S, u8, N, 1>(src, dst)),
        DType::F64 => Some(each(src, dst, |bytes| S::read(bytes).to_f64().to_le_bytes())),
        DType::F32 => Some(each(src, dst, |bytes| S::read(bytes).to_f32().to_le_bytes())),
        DType::Bool => Some(each(src, dst, |bytes| [u8::from(S::read(bytes) != S::ZERO)])),
        _ => None,
    }
}

/// From a float to an integer or a truth value.
pub(super) fn to_int<S: Exact<N>, const N: usize>(to: DType, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    match to {
        DType::I64 => Some(float_to_int::<S, i64, N, 8>(src, dst)),
        DType::I32 => Some(float_to_int::<S, i32, N, 4>(src, dst)),
        DType::I16 => Some(float_to_int::<S, i16, N, 2>(src, dst)),
        DType::I8 => Some(float_to_int::<S, i8, N, 1>(src, dst)),
        DType::U64 => Some(float_to_int::<S, u64, N, 8>(src, dst)),
        DType::U32 => Some(float_to_int::<S, u32, N, 4>(src, dst)),
        DType::U16 => Some(float_to_int::<S, u16, N, 2>(src, dst)),
        DType::U8 => Some(float_to_int::<S, u8, N, 1>(src, dst)),
        DType::Bool => Some(float_to_bool::<S, N>(src, dst)),
        _ => None,
    }
}

/// A cast that loses nothing it would have to count.
fn each<const N: usize, const M: usize>(src: &[u8], dst: &mut [u8], one: impl Fn([u8; N]) -> [u8; M]) -> Tally {
    src.as_chunks().0.iter().zip(dst.as_chunks_mut().0).for_each(|(source, target)| *target = one(*source));
    Tally::default()
}

fn int_to_int<S, T, const N: usize, const M: usize>(src: &[u8], dst: &mut [u8]) -> Tally
where
    S: Whole<N>,
    T: Whole<M> + TryFrom<S>,
{
    let mut tally = Tally::default();
    for (source, target) in src.as_chunks().0.iter().zip(dst.as_chunks_mut().0) {
        let value = S::read(*source);
        let (near, beyond) = match T::try_from(value) {
            Ok(same) => (same, false),
            Err(_) => (if value.is_negative() { T::LEAST } else { T::MOST }, true),
        };
        tally.overflow += u64::from(beyond);
        *target = near.write();
    }
    tally
}

fn float_to_int<S, T, const N: usize, const M: usize>(src: &[u8], dst: &mut [u8]) -> Tally
where
    S: Exact<N>,
    T: Whole<M>,
{
    let mut tally = Tally::default();
    for (source, target) in src.as_chunks().0.iter().zip(dst.as_chunks_mut().0) {
        let value = S::value(*source);
        tally.overflow += u64::from(value <= T::BELOW || value >= T::ABOVE);
        tally.to_zero += u64::from(value.abs() < 1.0 && value != 0.0);
        tally.nan += u64::from(value.is_nan());
        *target = T::of(value).write();
    }
    tally
}

fn float_to_bool<S: Exact<N>, const N: usize>(src: &[u8], dst: &mut [u8]) -> Tally {
    let mut tally = Tally::default();
    for (source, target) in src.as_chunks().0.iter().zip(dst) {
        let value = S::value(*source);
        tally.nan += u64::from(value.is_nan());
        *target = u8::from(value != 0.0);
    }
    tally
}
