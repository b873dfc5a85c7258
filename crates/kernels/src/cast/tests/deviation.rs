//! The largest errors: every room finds the definition's, to the last bit.

use super::{BOTH, bytes_of, codes, encode, random, real_pairs};
use crate::cast::format::Element;
use crate::cast::{CastPair, Deviation, Overflow, Room, Rule, cast, cast_and_compare, deviation_in};
use weightlift_core::DType::{self, *};

fn made(pair: CastPair, rule: Rule, codes: &[u64]) -> (Vec<u8>, Vec<u8>) {
    let src = encode(pair.from(), codes);
    let mut dst = vec![0; codes.len() * bytes_of(pair.to())];
    cast(pair, rule, &src, &mut dst);
    (src, dst)
}

fn of_f32(to: DType, overflow: Overflow, values: &[f32]) -> Deviation {
    let pair = CastPair::new(F32, to).unwrap();
    let codes: Vec<u64> = values.iter().map(|value| value.to_bits().into()).collect();
    let (src, dst) = made(pair, overflow.into(), &codes);
    let found = Room::available().into_iter().map(|room| deviation_in(room, pair, &src, &dst));
    let found: Vec<_> = found.collect();
    assert!(found.iter().all(|other| *other == found[0]), "{found:?}");
    found[0]
}

#[test]
fn errors_are_those_of_paper_and_pencil() {
    let found = of_f32(F16, Overflow::Inf, &[1.0, 2049.0, -0.0, 1.0 + 1.0 / 4096.0, f32::NAN, f32::INFINITY, 1e30]);
    assert_eq!(found, Deviation { absolute: 1.0, relative: f64::from(1.0f32 / 2049.0), numbers: 7, zeros: 1 });
    // A number that became zero lost all of itself; one that was saturated is compared, one that became infinite not.
    assert_eq!(of_f32(F16, Overflow::Inf, &[1e-9, 1.0]).relative, 1.0);
    assert_eq!(of_f32(F16, Overflow::Saturate, &[65536.0, 1.0]).absolute, 32.0);
    assert_eq!(of_f32(F16, Overflow::Inf, &[65536.0, 1.0]), Deviation { numbers: 2, ..Deviation::default() });
    assert_eq!(of_f32(F16, Overflow::Inf, &[0.0; 21]).zeros, 21);
    assert_eq!(of_f32(I8, Overflow::Saturate, &[1.75, 300.0, 0.0]).absolute, 173.0);
    assert_eq!(of_f32(F64, Overflow::Inf, &[0.0, 1.5]), Deviation::default(), "nothing can be lost");
    assert_eq!(of_f32(Bool, Overflow::Inf, &[0.0, 1.5]), Deviation::default());
}

#[test]
fn every_room_finds_the_same_errors() {
    for pair in CastPair::all().filter(|pair| bytes_of(pair.from()) <= 8 && !pair.is_lossless()) {
        let codes = codes(pair.from(), 500);
        let rules = BOTH.into_iter().map(Rule::from);
        for (rule, step) in rules.flat_map(|rule| [2, 17].map(|step| (rule, step))) {
            // The largest error of all hides every other one: look at parts too.
            let part: Vec<u64> = codes.iter().copied().skip(step).step_by(step * step).collect();
            let (src, dst) = made(pair, rule, &part);
            let expected = deviation_in(Room::Scalar, pair, &src, &dst);
            for room in Room::available() {
                assert_eq!(deviation_in(room, pair, &src, &dst), expected, "{room:?} {pair:?} {rule:?} {step}");
            }
        }
    }
}

/// Numbers of one magnitude, so that the largest share is decided by last digits; any length, any alignment.
#[test]
fn small_sets_at_any_alignment() {
    for (from, to) in [(F32, F16), (F32, Bf16), (F32, F8E4m3fn), (F64, F32), (F64, F16), (Bf16, F16), (I32, F32)] {
        let pair = CastPair::new(from, to).unwrap();
        let (width, result) = (bytes_of(from), bytes_of(to));
        let bits = 8 * width as u32;
        for (round, magnitude) in [0x3f80u64, 0x0000, 0x0001, 0x3880, 0x4300].into_iter().enumerate() {
            let tail = |x: u64| x >> (64 - bits) & (u64::MAX >> (64 - bits) >> 14);
            let codes: Vec<u64> = random().skip(round).take(90).map(|x| magnitude << (bits - 16) | tail(x)).collect();
            let (src, dst) = made(pair, Overflow::Inf.into(), &codes);
            for len in 0..codes.len() {
                let (mut from, mut to) = (vec![0; len % 5], vec![0; len % 3]);
                from.extend_from_slice(&src[..len * width]);
                to.extend_from_slice(&dst[..len * result]);
                let find = |room| deviation_in(room, pair, &from[len % 5..], &to[len % 3..]);
                let expected = find(Room::Scalar);
                for room in Room::available() {
                    assert_eq!(find(room), expected, "{room:?} {pair:?} {len} {magnitude:#x}");
                }
            }
        }
    }
}

#[test]
fn parts_merge_in_any_order() {
    let (a, b) = (of_f32(F16, Overflow::Inf, &[2049.0, 0.0]), of_f32(F16, Overflow::Inf, &[1e-9, 0.0, 0.0]));
    let (mut ab, mut ba) = (a, b);
    ab.merge(&b);
    ba.merge(&a);
    assert_eq!((ab, ab.zeros, ab.numbers), (ba, 3, 5));
    assert_eq!((ab.absolute, ab.relative), (1.0, 1.0));
}

/// In one go or one after the other: the same bytes, counts and errors, at any length.
#[test]
fn comparing_on_the_way_changes_nothing() {
    for pair in CastPair::all().filter(|pair| matches!(pair.from(), F32 | F64 | C64 | Bf16 | I16)) {
        for len in [0, 1, 7, 2047, 2048, 2049, 5000] {
            let part = bytes_of(pair.from()) as u64 / Element::of(pair.from()).unwrap().numbers as u64;
            let src: Vec<u8> = random().skip(9).take(len * bytes_of(pair.from())).map(|x| (x >> 40) as u8).collect();
            let (mut apart, mut fused) = (vec![0; len * bytes_of(pair.to())], vec![1; len * bytes_of(pair.to())]);
            let tally = cast(pair, Overflow::Saturate, &src, &mut apart);
            let found = deviation_in(Room::best(), pair, &src, &apart);
            let (counted, compared) = cast_and_compare(pair, Overflow::Saturate, &src, &mut fused);
            assert_eq!((counted, compared, &fused), (tally, found, &apart), "{pair:?} {len}");
            let whole = pair.is_lossless() || pair.to() == Bool;
            assert_eq!(compared.numbers, if whole { 0 } else { src.len() as u64 / part });
        }
    }
}

/// A pair loses nothing exactly where every code comes back.
#[test]
fn lossless_pairs_lose_nothing() {
    for pair in real_pairs() {
        let codes = codes(pair.from(), 3000);
        let (src, dst) = made(pair, Overflow::Inf.into(), &codes);
        let Some(back) = CastPair::new(pair.to(), pair.from()) else { continue };
        let mut again = vec![0; src.len()];
        let tally = cast(pair, Overflow::Inf, &src, &mut vec![0; dst.len()]);
        cast(back, Overflow::Inf, &dst, &mut again);
        let (mut canonical, narrow) = (src.clone(), CastPair::new(pair.from(), F64));
        // Codes that mean the same, NaNs with payloads and booleans other than 1 are compared by their value.
        let mut canonical_again = again.clone();
        if let Some(wide) = narrow.filter(|_| pair.from() != I64 && pair.from() != U64) {
            canonical = vec![0; codes.len() * 8];
            canonical_again = vec![0; codes.len() * 8];
            cast(wide, Overflow::Inf, &src, &mut canonical);
            cast(wide, Overflow::Inf, &again, &mut canonical_again);
        }
        let value = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
        let same = canonical
            .chunks(8)
            .zip(canonical_again.chunks(8))
            .all(|(a, b)| a == b || (value(a).is_nan() && value(b).is_nan()) || (value(a) == 0.0 && value(b) == 0.0));
        let nans_kept = tally.nan == 0 || cast(back, Overflow::Inf, &dst, &mut again).nan == tally.nan;
        assert_eq!(
            pair.is_lossless(),
            same && nans_kept && tally.overflow == 0 && pair.to() != Bool,
            "{pair:?} {tally:?}"
        );
    }
}
