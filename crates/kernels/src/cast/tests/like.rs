//! The manners of other programs: known answers, as the programs gave them, and equality of the rooms. The programs
//! themselves are asked by the tests of the workspace.

use super::{bytes_of, codes, decode, encode, floats, random};
use crate::cast::{CastPair, Like, Overflow, Room, Rule, Tally, cast_in};
use weightlift_core::DType::{self, *};

const ALL: [Like; 3] = [Like::NumPy, Like::TensorFlow, Like::Torch];

fn cast(room: Room, pair: CastPair, rule: Rule, codes: &[u64]) -> (Vec<u64>, Tally) {
    let mut dst = vec![0xa5; codes.len() * bytes_of(pair.to())];
    let tally = cast_in(room, pair, rule, &encode(pair.from(), codes), &mut dst);
    (decode(pair.to(), &dst), tally)
}

fn inf(like: Like) -> Rule {
    Rule { like, overflow: Overflow::Inf }
}

#[test]
fn every_room_imitates_alike() {
    let sources = floats().chain([I64, I32, U64, U32]);
    for pair in sources.flat_map(|from| floats().filter_map(move |to| CastPair::new(from, to))) {
        if bytes_of(pair.to()) > 8 || bytes_of(pair.from()) > 8 {
            continue;
        }
        let codes = codes(pair.from(), 3000);
        let codes = if codes.len() < 1 << 10 { codes.repeat(5) } else { codes };
        for rule in ALL.into_iter().flat_map(|like| super::BOTH.map(|overflow| Rule { like, overflow })) {
            if !rule.like.has(pair) {
                continue;
            }
            let expected = cast(Room::Scalar, pair, rule, &codes);
            for room in Room::available() {
                let got = cast(room, pair, rule, &codes);
                let differs = (0..codes.len()).find(|&i| got.0[i] != expected.0[i]);
                let shown = differs.map(|i| format!("{:#x} gave {:#x}, not {:#x}", codes[i], got.0[i], expected.0[i]));
                assert_eq!(shown, None, "{room:?} {pair:?} {rule:?}");
                assert_eq!(got.1, expected.1, "{room:?} {pair:?} {rule:?}");
            }
        }
    }
}

/// Source, target, code, and what becomes of it in NumPy, TensorFlow and PyTorch; `None` where there is no such cast.
#[rustfmt::skip]
const ANSWERS: &[(DType, DType, u64, [Option<u64>; 3])] = &[
    // Twice rounded where f32 comes first.
    (F64, F16, 0x3ff0_0200_0000_1000, [Some(0x3c01), Some(0x3c00), Some(0x3c00)]),
    (F64, Bf16, 0x3ff0_1000_0000_1000, [Some(0x3f81), Some(0x3f80), Some(0x3f80)]),
    (F64, F8E4m3fn, 0x3ff1_0000_0000_1000, [Some(0x39), Some(0x39), Some(0x38)]),
    (F64, F8E5m2, 0x40ed_ffff_fffe_0000, [Some(0x7b), Some(0x7b), Some(0x7c)]),
    (I64, Bf16, (1 << 40) + (1 << 32) + 1, [Some(0x5381), Some(0x5380), Some(0x5380)]),
    // Beyond f8e4m3fn.
    (F32, F8E4m3fn, 0x43e8_0001, [Some(0x7f), Some(0x7f), Some(0x7e)]),
    (F32, F8E4m3fn, 0xff80_0000, [Some(0xff), Some(0xff), Some(0xfe)]),
    (F32, F8E4m3fnuz, 0x43e8_0001, [Some(0x80), None, Some(0x80)]),
    (F32, F4E2m1, 0xc120_0000, [Some(0xf), None, None]),
    // Small numbers that TensorFlow takes for zero, up to the tie below the least normal one.
    (F64, F32, 0x3800_0000_0000_0000, [Some(0x0040_0000), Some(0), Some(0x0040_0000)]),
    (F64, F32, 0xb80f_ffff_e000_0000, [Some(0x8080_0000), Some(0x8000_0000), Some(0x8080_0000)]),
    (F64, F32, 0x380f_ffff_f000_0000, [Some(0x0080_0000), Some(0x0080_0000), Some(0x0080_0000)]),
    (F32, F64, 0x8000_0001, [Some(0xb6a0_0000_0000_0000), Some(0x8000_0000_0000_0000), Some(0xb6a0_0000_0000_0000)]),
    (Bf16, F64, 0x0001, [Some(0x37a0_0000_0000_0000), Some(0), Some(0x37a0_0000_0000_0000)]),
    (F32, Bf16, 0x0040_0000, [Some(0x40), Some(0x40), Some(0x40)]),
    // Scales.
    (F32, F8E8m0fnu, 0x8000_0000, [Some(0xff), None, Some(0)]),
    (F32, F8E8m0fnu, 0xbf80_0000, [Some(0xff), None, Some(0x7f)]),
    (F32, F8E8m0fnu, 0x0040_0001, [Some(0), None, Some(1)]),
    (F32, F8E8m0fnu, 0x0060_0000, [Some(1), None, Some(1)]),
    (F64, F8E8m0fnu, 0x3ff7_ffff_ffff_f000, [Some(0x7f), None, Some(0x80)]),
    // NaNs.
    (F32, F16, 0x7f80_0001, [Some(0x7c01), Some(0x7e00), Some(0x7e00)]),
    (F32, Bf16, 0xffc0_0000, [Some(0xffc0), Some(0x7fc0), Some(0xffff)]),
    (F16, Bf16, 0xfe00, [Some(0xffc0), Some(0xffc0), Some(0x7fc0)]),
    (F16, F32, 0x7c01, [Some(0x7f80_2000), Some(0x7fc0_2000), Some(0x7fc0_2000)]),
    (F16, F64, 0x7c01, [Some(0x7ff0_0400_0000_0000), Some(0x7ff8_0400_0000_0000), Some(0x7ff8_0400_0000_0000)]),
    (Bf16, F32, 0x7f81, [Some(0x7f81_0000), Some(0x7f81_0000), Some(0x7f81_0000)]),
    (Bf16, F16, 0x7f81, [Some(0x7e00), Some(0x7e08), Some(0x7e08)]),
    (F32, F8E5m2, 0xff80_0001, [Some(0xfe), Some(0xfe), Some(0xff)]),
    (F16, F8E5m2, 0x7d00, [Some(0x7e), Some(0x7f), Some(0x7f)]),
    (F8E5m2, F32, 0x7d, [Some(0x7fc0_0000), Some(0x7fc0_0000), Some(0x7fe0_0000)]),
    (F8E4m3fn, F32, 0xff, [Some(0xffc0_0000), Some(0xffc0_0000), Some(0xfff0_0000)]),
    (F8E4m3fnuz, F32, 0x80, [Some(0xffc0_0000), None, Some(0x7f80_0001)]),
    (F8E4m3fnuz, F8E5m2, 0x80, [Some(0xfe), None, Some(0x7f)]),
    (F32, F4E2m1, 0x7fc0_0000, [Some(8), None, None]),
    (F32, F6E3m2, 0xffc0_0000, [Some(0), None, None]),
];

#[test]
fn known_answers() {
    for &(from, to, code, answers) in ANSWERS {
        let pair = CastPair::new(from, to).unwrap();
        for (like, answer) in ALL.into_iter().zip(answers) {
            assert_eq!(like.has(pair), answer.is_some(), "{like:?} {from} to {to}");
            for (room, answer) in Room::available().into_iter().flat_map(|room| answer.map(|answer| (room, answer))) {
                let (got, _) = cast(room, pair, inf(like), &[code]);
                assert_eq!(got, [answer], "{room:?} {like:?}: {from} {code:#x} to {to}: {:#x}", got[0]);
            }
        }
    }
}

/// What the manner loses is counted as what it is.
#[test]
fn counts_follow_the_manner() {
    let pair = CastPair::new(F64, F32).unwrap();
    let codes = [1e-40f64, -1e-40, 1e-50, 1.0, f64::NAN, 1e300].map(f64::to_bits).repeat(500);
    let count = |like, room| cast(room, pair, inf(like), &codes).1;
    for room in Room::available() {
        let tally = Tally { overflow: 500, to_zero: 500, subnormal: 1000, nan: 500 };
        assert_eq!(count(Like::NumPy, room), tally, "{room:?}");
        assert_eq!(count(Like::TensorFlow, room), Tally { to_zero: 1500, subnormal: 0, ..tally }, "{room:?}");
    }
}

/// To integers and truth values, and where a program has no such cast, the definition holds.
#[test]
fn what_is_not_imitated_is_exact() {
    let codes: Vec<u64> = random().take(3000).map(|code| code >> 32).collect();
    for to in [I8, I64, U32, Bool, F4E2m1, C64] {
        let pair = CastPair::new(F32, to).unwrap();
        let exact = cast(Room::best(), pair, inf(Like::Exact), &codes);
        assert_eq!(cast(Room::best(), pair, inf(Like::Torch), &codes), exact, "{to}");
    }
    assert!(!Like::Torch.has(CastPair::new(F32, F4E2m1).unwrap()));
    assert!(!Like::TensorFlow.has(CastPair::new(I32, F8E5m2).unwrap()));
}

/// Complex numbers go part by part, real ones get an imaginary part of zero.
#[test]
fn parts_are_imitated() {
    let (c64, c32) = (CastPair::new(C64, C32).unwrap(), CastPair::new(F32, C32).unwrap());
    let parts = encode(F32, &[0x7f80_0001, 0x3f80_0000]);
    for room in Room::available() {
        let mut dst = [0xa5; 4];
        cast_in(room, c64, inf(Like::Torch), &parts, &mut dst);
        assert_eq!(dst, [0x00, 0x7e, 0x00, 0x3c]);
        let mut dst = [0xa5; 8];
        cast_in(room, c32, inf(Like::Torch), &parts, &mut dst);
        assert_eq!(dst, [0x00, 0x7e, 0, 0, 0x00, 0x3c, 0, 0]);
    }
}
