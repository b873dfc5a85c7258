//! One suite for every room: equal bits and equal counts.

mod oracle;
mod vectors;

use super::format::{Coding, Element, Float};
use super::{CastPair, Overflow, Room, Tally, cast, cast_in, run_fast, scalar};
use weightlift_core::DType;

const BOTH: [Overflow; 2] = [Overflow::Inf, Overflow::Saturate];

fn bytes_of(dtype: DType) -> usize {
    Element::of(dtype).unwrap().bytes
}

fn float(dtype: DType) -> Option<Float> {
    match Element::of(dtype)?.coding {
        Coding::Float(float) => Some(float),
        _ => None,
    }
}

fn floats() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|&dtype| float(dtype).is_some())
}

/// A sequence without a pattern, the same every time.
fn random() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(0x9e37_79b9_7f4a_7c15u64), |&x| {
        let x = x ^ x << 13;
        let x = x ^ x >> 7;
        Some(x ^ x << 17)
    })
}

/// Codes of `dtype`: every one where there are at most 2^16; else all that lie on or next to a value of a narrower
/// format, half way between two, or at an end of the own range, and `extra` more from everywhere.
fn codes(dtype: DType, extra: usize) -> Vec<u64> {
    let width = 8 * bytes_of(dtype) as u32;
    if width <= 16 {
        return (0..1 << width).collect();
    }
    let own = float(dtype).unwrap();
    let mut codes = vec![];
    let mut around = |code: u64| (0..5).for_each(|i| codes.push(code.wrapping_add(i).wrapping_sub(2)));
    for narrow in floats().filter(|&narrow| bytes_of(narrow) < bytes_of(dtype) && bytes_of(narrow) < 4) {
        let narrow = float(narrow).unwrap();
        let widened = |magnitude| scalar::convert_float(&narrow, &own, Overflow::Inf, magnitude).0;
        let step = if narrow.sign() > 1 << 12 { 5 } else { 1 };
        for magnitude in (0..=narrow.max_finite()).filter(|m| m % step == 0 || narrow.max_finite() - m < 9 || *m < 9) {
            let (low, high) = (widened(magnitude), widened(magnitude + 1));
            around(low);
            // The codes of two neighbours' mean: the halfway code, or within a code of it at a change of binade.
            around(low + (high.max(low) - low) / 2);
            around(low + (high.max(low) - low) / 4);
        }
    }
    [0, own.min_normal(), own.infinity(), own.sign()].into_iter().for_each(&mut around);
    if dtype == DType::F64 {
        let f32 = float(DType::F32).unwrap();
        for magnitude in [0, 1, 2, f32.min_normal() - 1, f32.min_normal(), f32.max_finite() - 1, f32.max_finite()] {
            let low = scalar::convert_float(&f32, &own, Overflow::Inf, magnitude).0;
            let digit = scalar::convert_float(&f32, &own, Overflow::Inf, 1).0.min(1 << 28);
            [low, low + digit / 2, low + digit, low.wrapping_sub(digit)].into_iter().for_each(&mut around);
        }
    }
    codes.extend((0..own.fraction_bits).flat_map(|i| [own.infinity() | 1 << i, own.infinity() | own.sign() | 1 << i]));
    codes.extend(random().take(extra).map(|x| x >> (64 - width)));
    // Exponents near those of the narrow formats, with every kind of fraction.
    codes.extend(random().skip(extra).take(extra).map(|x| {
        let exponent = own.bias.max(160) as u64 - 160 + x % 320;
        (exponent << own.fraction_bits) & (own.sign() - 1) | x >> (64 - own.fraction_bits)
    }));
    let mask = u64::MAX >> (64 - width);
    codes.iter().flat_map(|&code| [code & mask, (code ^ own.sign()) & mask]).collect()
}

fn encode(dtype: DType, codes: &[u64]) -> Vec<u8> {
    let (width, mut bytes) = (bytes_of(dtype), vec![]);
    codes.iter().for_each(|code| bytes.extend_from_slice(&code.to_le_bytes()[..width]));
    bytes
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<u64> {
    let code = |chunk: &[u8]| chunk.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte));
    bytes.chunks(bytes_of(dtype)).map(code).collect()
}

fn cast_codes(room: Room, pair: CastPair, overflow: Overflow, codes: &[u64]) -> (Vec<u64>, Tally) {
    let mut dst = vec![0xa5; codes.len() * bytes_of(pair.to)];
    let tally = cast_in(room, pair, overflow, &encode(pair.from, codes), &mut dst);
    (decode(pair.to, &dst), tally)
}

#[test]
fn the_definition_is_the_oracles() {
    for pair in CastPair::all().filter(|pair| float(pair.from).is_some() && float(pair.to).is_some()) {
        let codes = codes(pair.from, 20_000);
        for overflow in BOTH {
            let (got, tally) = cast_codes(Room::Scalar, pair, overflow, &codes);
            let mut expected = Tally::default();
            for (&code, got) in codes.iter().zip(got) {
                let (code_expected, lost) = oracle::float_to_float(pair.from, pair.to, overflow, code);
                assert_eq!(got, code_expected, "{} {code:#x} to {}, {overflow:?}", pair.from, pair.to);
                expected.merge(&lost);
            }
            assert_eq!(tally, expected, "{pair:?} {overflow:?}");
        }
    }
}

#[test]
fn every_room_equals_the_definition() {
    for pair in CastPair::all() {
        let fast = |&room: &Room| run_fast(room, pair, Overflow::Inf, &[], &mut []).is_some();
        let rooms: Vec<Room> = Room::available().into_iter().filter(fast).collect();
        let codes = if rooms.is_empty() { vec![] } else { codes(pair.from, 100_000) };
        for overflow in BOTH {
            let expected = cast_codes(Room::Scalar, pair, overflow, &codes);
            for &room in &rooms {
                let got = cast_codes(room, pair, overflow, &codes);
                let differs = (0..codes.len()).find(|&i| got.0[i] != expected.0[i]);
                let shown = differs.map(|i| format!("{:#x} gave {:#x}, not {:#x}", codes[i], got.0[i], expected.0[i]));
                assert_eq!(shown, None, "{room:?} {pair:?} {overflow:?}");
                assert_eq!(got.1, expected.1, "{room:?} {pair:?} {overflow:?}");
            }
        }
    }
}

#[test]
fn any_length_and_alignment_and_nothing_beside() {
    for pair in CastPair::all() {
        let (from, to) = (bytes_of(pair.from), bytes_of(pair.to));
        let codes: Vec<u64> = random().skip(3).take(80).collect();
        let source = encode(pair.from, &codes);
        for (room, len) in Room::available().into_iter().flat_map(|room| (0..70).map(move |len| (room, len))) {
            let shift = len % 7;
            let mut src = vec![0; shift];
            src.extend_from_slice(&source[..len * from]);
            let mut dst = vec![0xa5; shift + len * to + 40];
            let written = shift..shift + len * to;
            let tally = cast_in(room, pair, Overflow::Inf, &src[shift..], &mut dst[written.clone()]);
            let expected = cast_codes(Room::Scalar, pair, Overflow::Inf, &decode(pair.from, &src[shift..]));
            assert_eq!((decode(pair.to, &dst[written.clone()]), tally), expected, "{room:?} {pair:?} {len}");
            let beside = dst[..shift].iter().chain(&dst[written.end..]);
            assert!(beside.copied().all(|byte| byte == 0xa5), "{room:?} {pair:?} {len} wrote beside");
        }
    }
}

#[test]
fn counts_do_not_overflow_their_lanes() {
    let pair = CastPair::new(DType::F32, DType::F16).unwrap();
    let src: Vec<u8> = [1e6f32, f32::NAN, 1e-9, 1e-6].iter().flat_map(|x| x.to_le_bytes()).collect();
    let src = src.repeat(300_000);
    for room in Room::available() {
        let tally = cast_in(room, pair, Overflow::Inf, &src, &mut vec![0; src.len() / 2]);
        assert_eq!(tally, Tally { overflow: 300_000, to_zero: 300_000, subnormal: 300_000, nan: 300_000 }, "{room:?}");
    }
}

#[test]
fn pairs_know_their_ends() {
    assert_eq!(CastPair::new(DType::F32, DType::F32), None);
    assert_eq!(CastPair::new(DType::Str, DType::F32), None);
    assert_eq!(CastPair::new(DType::F32, DType::Qi8), None);
    let pair = CastPair::new(DType::F64, DType::Bf16).unwrap();
    assert_eq!((pair.from(), pair.to()), (DType::F64, DType::Bf16));
    assert!(CastPair::all().any(|other| other == pair));
    assert!(Room::best().is_available() && Room::available().contains(&Room::Portable));
}

#[test]
#[should_panic(expected = "7 bytes of f32")]
fn half_an_element_is_refused() {
    cast(CastPair::new(DType::F32, DType::F16).unwrap(), Overflow::Inf, &[0; 7], &mut [0; 2]);
}

#[test]
#[should_panic(expected = "for 4 of f16")]
fn different_lengths_are_refused() {
    cast(CastPair::new(DType::F32, DType::F16).unwrap(), Overflow::Inf, &[0; 4], &mut [0; 4]);
}
