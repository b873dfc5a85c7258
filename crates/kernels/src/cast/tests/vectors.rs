//! Known answers, of which all but a few are also what NumPy with ml_dtypes gives.

use super::{BOTH, cast_codes};
use crate::cast::{CastPair, Overflow, Room, Tally};
use weightlift_core::DType::{self, *};

fn check(from: DType, code: u64, to: DType, overflow: Overflow, expected: u64) {
    for room in Room::available() {
        let (got, _) = cast_codes(room, CastPair::new(from, to).unwrap(), overflow, &[code]);
        assert_eq!(got, [expected], "{room:?}: {from} {code:#x} to {to}: {:#x}", got[0]);
    }
}

/// Targets of [`FROM_F32`], in its order.
const F32_TO: [DType; 8] = [F16, Bf16, F8E4m3fn, F8E5m2, F8E4m3fnuz, F8E5m2fnuz, F4E2m1, F8E8m0fnu];

#[rustfmt::skip]
const FROM_F32: &[(u64, [u64; 8])] = &[
    (0x80000000, [0x8000, 0x8000, 0x80, 0x80, 0x00, 0x00, 0x8, 0xff]), // −0
    (0x00000001, [0x0000, 0x0000, 0x00, 0x00, 0x00, 0x00, 0x0, 0x00]), // min f32 subnormal
    (0x00400000, [0x0000, 0x0040, 0x00, 0x00, 0x00, 0x00, 0x0, 0x00]), // 2^-127
    (0x007fffff, [0x0000, 0x0080, 0x00, 0x00, 0x00, 0x00, 0x0, 0x01]), // max f32 subnormal
    (0x33000000, [0x0000, 0x3300, 0x00, 0x00, 0x00, 0x00, 0x0, 0x66]), // 2^-25
    (0x33000001, [0x0001, 0x3300, 0x00, 0x00, 0x00, 0x00, 0x0, 0x66]), // just above 2^-25
    (0x33c00000, [0x0002, 0x33c0, 0x00, 0x00, 0x00, 0x00, 0x0, 0x68]), // 1.5·2^-24
    (0x387fc000, [0x03ff, 0x3880, 0x00, 0x04, 0x00, 0x08, 0x0, 0x71]), // 1023·2^-24 (max f16 subnormal)
    (0x387fe000, [0x0400, 0x3880, 0x00, 0x04, 0x00, 0x08, 0x0, 0x71]), // 1023.5·2^-24 (tie)
    (0x37000000, [0x0080, 0x3700, 0x00, 0x00, 0x00, 0x01, 0x0, 0x6e]), // 2^-17
    (0x3a800000, [0x1400, 0x3a80, 0x00, 0x14, 0x01, 0x18, 0x0, 0x75]), // 2^-10
    (0x3a800001, [0x1400, 0x3a80, 0x01, 0x14, 0x01, 0x18, 0x0, 0x75]), // just above 2^-10
    (0x3b400000, [0x1a00, 0x3b40, 0x02, 0x1a, 0x03, 0x1e, 0x0, 0x77]), // 1.5·2^-9
    (0x3c7fffff, [0x2400, 0x3c80, 0x08, 0x24, 0x10, 0x28, 0x0, 0x79]), // just below 2^-6
    (0x3f800000, [0x3c00, 0x3f80, 0x38, 0x3c, 0x40, 0x40, 0x2, 0x7f]), // 1.0
    (0x3f801000, [0x3c00, 0x3f80, 0x38, 0x3c, 0x40, 0x40, 0x2, 0x7f]), // 1+2^-11
    (0x3f803000, [0x3c02, 0x3f80, 0x38, 0x3c, 0x40, 0x40, 0x2, 0x7f]), // 1+3·2^-11
    (0x3f808000, [0x3c04, 0x3f80, 0x38, 0x3c, 0x40, 0x40, 0x2, 0x7f]), // 1+2^-8
    (0x3f818000, [0x3c0c, 0x3f82, 0x38, 0x3c, 0x40, 0x40, 0x2, 0x7f]), // 1+3·2^-8
    (0x3f880000, [0x3c40, 0x3f88, 0x38, 0x3c, 0x40, 0x40, 0x2, 0x7f]), // 1.0625
    (0x3f980000, [0x3cc0, 0x3f98, 0x3a, 0x3d, 0x42, 0x41, 0x2, 0x7f]), // 1.1875
    (0x3fc00000, [0x3e00, 0x3fc0, 0x3c, 0x3e, 0x44, 0x42, 0x3, 0x80]), // 1.5
    (0x40a00000, [0x4500, 0x40a0, 0x4a, 0x45, 0x52, 0x49, 0x6, 0x81]), // 5.0
    (0x40e00000, [0x4700, 0x40e0, 0x4e, 0x47, 0x56, 0x4b, 0x7, 0x82]), // 7.0
    (0x43780000, [0x5bc0, 0x4378, 0x78, 0x5c, 0x80, 0x60, 0x7, 0x87]), // 248
    (0x43e00000, [0x5f00, 0x43e0, 0x7e, 0x5f, 0x80, 0x63, 0x7, 0x88]), // 448
    (0x43e80000, [0x5f40, 0x43e8, 0x7e, 0x5f, 0x80, 0x63, 0x7, 0x88]), // 464
    (0x43e80001, [0x5f40, 0x43e8, 0x7f, 0x5f, 0x80, 0x63, 0x7, 0x88]), // just above 464
    (0x43f00000, [0x5f80, 0x43f0, 0x7f, 0x60, 0x80, 0x64, 0x7, 0x88]), // 480
    (0x477fefff, [0x7bff, 0x4780, 0x7f, 0x7c, 0x80, 0x80, 0x7, 0x8f]), // just below 65520
    (0x477ff000, [0x7c00, 0x4780, 0x7f, 0x7c, 0x80, 0x80, 0x7, 0x8f]), // 65520
    (0x476fffff, [0x7b80, 0x4770, 0x7f, 0x7b, 0x80, 0x7f, 0x7, 0x8f]), // just below 61440
    (0x47700000, [0x7b80, 0x4770, 0x7f, 0x7c, 0x80, 0x80, 0x7, 0x8f]), // 61440
    (0x7f7f7fff, [0x7c00, 0x7f7f, 0x7f, 0x7c, 0x80, 0x80, 0x7, 0xff]), // just below 2^128−2^119
    (0x7f7f8000, [0x7c00, 0x7f80, 0x7f, 0x7c, 0x80, 0x80, 0x7, 0xff]), // 2^128−2^119
    (0x7f7fffff, [0x7c00, 0x7f80, 0x7f, 0x7c, 0x80, 0x80, 0x7, 0xff]), // max f32
    (0x7f800000, [0x7c00, 0x7f80, 0x7f, 0x7c, 0x80, 0x80, 0x7, 0xff]), // +inf
    (0xff800000, [0xfc00, 0xff80, 0xff, 0xfc, 0x80, 0x80, 0xf, 0xff]), // −inf
    (0xffc00000, [0xfe00, 0xffc0, 0xff, 0xfe, 0x80, 0x80, 0x0, 0xff]), // −qNaN
];

#[test]
fn from_f32() {
    for (code, expected) in FROM_F32 {
        F32_TO.iter().zip(expected).for_each(|(&to, &expected)| check(F32, *code, to, Overflow::Inf, expected));
    }
}

/// Targets of [`FROM_F64`], in its order.
const F64_TO: [DType; 5] = [F32, F16, Bf16, F8E4m3fn, F8E5m2];

/// Among them the values that come out otherwise when they are rounded to f32 first.
#[rustfmt::skip]
const FROM_F64: &[(u64, [u64; 5])] = &[
    (0x3ff0020000001000, [0x3f801000, 0x3c01, 0x3f80, 0x38, 0x3c]), // 1+2^-11+2^-40
    (0x3ff001fffffff000, [0x3f801000, 0x3c00, 0x3f80, 0x38, 0x3c]), // 1+2^-11−2^-40
    (0x3ff005fffffff000, [0x3f803000, 0x3c01, 0x3f80, 0x38, 0x3c]), // 1+3·2^-11−2^-40
    (0x3ff0100000001000, [0x3f808000, 0x3c04, 0x3f81, 0x38, 0x3c]), // 1+2^-8+2^-40
    (0x3ff02ffffffff000, [0x3f818000, 0x3c0c, 0x3f81, 0x38, 0x3c]), // 1+3·2^-8−2^-40
    (0x3ff1000000001000, [0x3f880000, 0x3c40, 0x3f88, 0x39, 0x3c]), // 1+2^-4+2^-40
    (0x3ff2fffffffff000, [0x3f980000, 0x3cc0, 0x3f98, 0x39, 0x3d]), // 1.1875−2^-40
    (0x3ff2000000001000, [0x3f900000, 0x3c80, 0x3f90, 0x39, 0x3d]), // 1.125+2^-40
    (0x40effdfffffe0000, [0x477ff000, 0x7bff, 0x4780, 0x7f, 0x7c]), // 65520−2^-20
    (0x407d000001000000, [0x43e80000, 0x5f40, 0x43e8, 0x7f, 0x5f]), // 464+2^-20
    (0x40edfffffffe0000, [0x47700000, 0x7b80, 0x4770, 0x7f, 0x7b]), // 61440−2^-20
    (0x406effffffff8000, [0x43780000, 0x5bc0, 0x4378, 0x77, 0x5c]), // 248−2^-30
    (0x3e60000000020000, [0x33000000, 0x0001, 0x3300, 0x00, 0x00]), // 2^-25+2^-60
    (0x3f50000000000004, [0x3a800000, 0x1400, 0x3a80, 0x01, 0x14]), // 2^-10+2^-60
    (0x3ff0000010000004, [0x3f800001, 0x3c00, 0x3f80, 0x38, 0x3c]), // 1+2^-24+2^-50
    (0x47effffff0000000, [0x7f800000, 0x7c00, 0x7f80, 0x7f, 0x7c]), // f32 overflow tie 2^128−2^103
    (0x47efffffefffffff, [0x7f7fffff, 0x7c00, 0x7f80, 0x7f, 0x7c]), // just below that tie
    (0x3690000000000000, [0x00000000, 0x0000, 0x0000, 0x00, 0x00]), // 2^-150
    (0x3690000000000001, [0x00000001, 0x0000, 0x0000, 0x00, 0x00]), // just above 2^-150
    (0x0000000000000001, [0x00000000, 0x0000, 0x0000, 0x00, 0x00]), // min f64 subnormal
];

#[test]
fn from_f64_rounds_once() {
    for (code, expected) in FROM_F64 {
        F64_TO.iter().zip(expected).for_each(|(&to, &expected)| check(F64, *code, to, Overflow::Inf, expected));
    }
}

/// Code and f32; NaNs are compared as such, since no two libraries agree on their bits.
#[rustfmt::skip]
const TO_F32: &[(DType, &[(u64, u64)])] = &[
    (F16, &[(0x0001, 0x33800000), (0x03ff, 0x387fc000), (0x0400, 0x38800000), (0x7bff, 0x477fe000), (0x7c00, 0x7f800000), (0x7c01, 0x7f802000), (0xfe00, 0xffc00000), (0x3555, 0x3eaaa000)]),
    (Bf16, &[(0x0001, 0x00010000), (0x007f, 0x007f0000), (0x0080, 0x00800000), (0x7f7f, 0x7f7f0000), (0x7f81, 0x7f810000)]),
    (F8E4m3fn, &[(0x01, 0x3b000000), (0x07, 0x3c600000), (0x08, 0x3c800000), (0x38, 0x3f800000), (0x7e, 0x43e00000), (0x7f, 0x7fc00000), (0xff, 0xffc00000), (0x80, 0x80000000)]),
    (F8E5m2, &[(0x01, 0x37800000), (0x03, 0x38400000), (0x04, 0x38800000), (0x3c, 0x3f800000), (0x7b, 0x47600000), (0x7c, 0x7f800000), (0x7d, 0x7fc00000), (0xff, 0xffc00000)]),
    (F8E4m3fnuz, &[(0x01, 0x3a800000), (0x07, 0x3be00000), (0x08, 0x3c000000), (0x40, 0x3f800000), (0x7f, 0x43700000), (0x80, 0xffc00000), (0xff, 0xc3700000)]),
    (F8E5m2fnuz, &[(0x01, 0x37000000), (0x04, 0x38000000), (0x40, 0x3f800000), (0x7f, 0x47600000), (0x80, 0xffc00000)]),
    (F8E8m0fnu, &[(0x00, 0x00400000), (0x01, 0x00800000), (0x7f, 0x3f800000), (0xfe, 0x7f000000), (0xff, 0x7fc00000)]),
    (F4E2m1, &[(0x1, 0x3f000000), (0x2, 0x3f800000), (0x7, 0x40c00000), (0x8, 0x80000000), (0x9, 0xbf000000), (0xf, 0xc0c00000)]),
];

#[test]
fn to_f32() {
    for &(from, vectors) in TO_F32 {
        for (&(code, expected), room) in vectors.iter().flat_map(|v| Room::available().into_iter().map(move |r| (v, r)))
        {
            let (got, tally) = cast_codes(room, CastPair::new(from, F32).unwrap(), Overflow::Inf, &[code]);
            let nan = |bits: u64| bits & 0x7fff_ffff > 0x7f80_0000;
            let same = if nan(expected) { nan(got[0]) && tally.nan == 1 } else { got[0] == expected };
            assert!(same, "{room:?}: {from} {code:#x} gave {:#x}, not {expected:#x}", got[0]);
        }
    }
}

#[test]
fn nans_keep_sign_and_payload_and_become_quiet() {
    for (code, expected) in [(0x7f80_0001, 0x7e00), (0x7fc0_2000, 0x7e01), (0x7fa0_0000, 0x7f00), (0xff80_0001, 0xfe00)]
    {
        check(F32, code, F16, Overflow::Inf, expected);
    }
    for (code, expected) in [(0x7f80_0001, 0x7fc0), (0x7fff_ffff, 0x7fff), (0xffff_ffff, 0xffff), (0xffa1_2345, 0xffe1)]
    {
        check(F32, code, Bf16, Overflow::Inf, expected);
    }
    check(F64, 0x7ff0_0000_0000_0001, F32, Overflow::Inf, 0x7fc0_0000);
    check(F64, 0xfff4_0000_2000_0000, F32, Overflow::Saturate, 0xffe0_0001);
    check(F64, 0xfff4_0000_0000_0001, F16, Overflow::Saturate, 0xff00);
    check(F32, 0x7f80_0001, F64, Overflow::Inf, 0x7ff8_0000_2000_0000);
    check(F16, 0x7c01, F32, Overflow::Inf, 0x7fc0_2000);
    check(Bf16, 0xff81, F32, Overflow::Inf, 0xffc1_0000);
    check(F16, 0xfc01, Bf16, Overflow::Inf, 0xffc0);
}

/// f32 to f16 and what is counted: overflow, zero, subnormal, NaN.
#[test]
fn counts() {
    let count = |values: &[f32], to| {
        let codes: Vec<u64> = values.iter().map(|x| u64::from(x.to_bits())).collect();
        let tallies = Room::available().into_iter().flat_map(|room| BOTH.map(|overflow| (room, overflow)));
        let pair = CastPair::new(F32, to).unwrap();
        let mut tallies = tallies.map(|(room, overflow)| cast_codes(room, pair, overflow, &codes).1);
        let first = tallies.next().unwrap();
        assert!(tallies.all(|tally| tally == first));
        let Tally { overflow, to_zero, subnormal, nan } = first;
        [overflow, to_zero, subnormal, nan]
    };
    assert_eq!(count(&[65504.0, 65519.996, 65520.0, 1e30, -1e30, f32::INFINITY, f32::NAN], F16), [3, 0, 0, 1]);
    assert_eq!(count(&[0.0, -0.0, 1e-45, 2.9e-8, -1e-8, 6e-8, 6.1e-5, 6.2e-5], F16), [0, 3, 2, 0]);
    assert_eq!(count(&[1e-45, 1e-40, -1e-39, f32::MAX, f32::MIN_POSITIVE], Bf16), [1, 1, 0, 0]);
    assert_eq!(count(&[447.0, 448.0, 464.0, 465.0, 1e4, -1e4, f32::INFINITY, f32::NAN], F8E4m3fn), [4, 0, 0, 1]);
    assert_eq!(count(&[57344.0, 61439.0, 61440.0, f32::NEG_INFINITY], F8E5m2), [1, 0, 0, 0]);
    assert_eq!(count(&[f32::NAN, 7.0, 6.9, 0.25, 0.3], F4E2m1), [1, 1, 1, 1]);
}

#[test]
fn saturated_values_are_the_largest() {
    for (to, value, expected) in [
        (F16, 1e30f32, 0x7bff),
        (F16, -65520.0, 0xfbff),
        (F16, f32::INFINITY, 0x7c00),
        (Bf16, f32::MAX, 0x7f7f),
        (Bf16, f32::NEG_INFINITY, 0xff80),
        (F8E4m3fn, 465.0, 0x7e),
        (F8E4m3fn, f32::NEG_INFINITY, 0xfe),
        (F8E5m2, 61440.0, 0x7b),
        (F8E4m3fnuz, -1e9, 0xff),
        (F4E2m1, 7.0, 7),
        (F4E2m1, f32::NAN, 0),
    ] {
        check(F32, u64::from(value.to_bits()), to, Overflow::Saturate, expected);
    }
    check(F64, 1e300f64.to_bits(), F32, Overflow::Saturate, 0x7f7f_ffff);
    check(F64, (-1e300f64).to_bits(), F32, Overflow::Saturate, 0xff7f_ffff);
    check(F64, f64::INFINITY.to_bits(), F32, Overflow::Saturate, 0x7f80_0000);
    check(Bf16, 0x7f7f, F16, Overflow::Saturate, 0x7bff);
}

/// Integers and truth values as every framework has them, and as none has them where they disagree.
#[test]
fn whole_numbers_and_truth() {
    let f32 = |value: f32| u64::from(value.to_bits());
    for (value, to, expected) in [
        (1.9, I8, 1),
        (-0.5, I8, 0),
        (-1.9, I8, 0xff),
        (300.0, I8, 127),
        (-129.0, I8, 0x80),
        (-128.9, I8, 0x80),
        (-1.0, U8, 0),
        (-0.9, U8, 0),
        (70000.0, I16, 0x7fff),
        (2147483648.0, I32, 0x7fff_ffff),
        (-2147483648.0, I32, 0x8000_0000),
        (f32::NAN, I32, 0),
        (f32::NEG_INFINITY, I64, 0x8000_0000_0000_0000),
        (1e20, U64, u64::MAX),
        (9.0, I4, 7),
        (-9.0, I4, 8),
        (f32::NAN, Bool, 1),
        (-0.0, Bool, 0),
        (1e-45, Bool, 1),
    ] {
        check(F32, f32(value), to, Overflow::Saturate, expected);
    }
    check(I64, (1 << 53) + (1 << 29) + 1, F32, Overflow::Inf, f32(9007200328482816.0));
    check(I64, (1 << 40) + (1 << 32) + 1, Bf16, Overflow::Inf, 0x5381);
    check(I32, (1 << 24) + 1, F32, Overflow::Inf, f32(16777216.0));
    check(I32, 65519, F16, Overflow::Inf, 0x7bff);
    check(U16, 65520, F16, Overflow::Inf, 0x7c00);
    check(I32, 300, I8, Overflow::Inf, 127);
    check(I32, u64::from(u32::MAX), U64, Overflow::Inf, 0);
    check(U8, 255, I8, Overflow::Inf, 127);
    check(Bool, 7, F16, Overflow::Inf, 0x3c00);
    check(I4, 0xf, I64, Overflow::Inf, u64::MAX);
    check(F8E8m0fnu, 0x00, F64, Overflow::Inf, 0x3800_0000_0000_0000);
    check(F32, 0x0040_0001, F8E8m0fnu, Overflow::Inf, 1);
    check(F32, 0, F8E8m0fnu, Overflow::Saturate, 0);
}
