//! One suite for every room: equal bits and equal counts.

mod deviation;
mod like;
mod oracle;
mod vectors;

use super::format::{Coding, Element, Float};
use super::{CastPair, Overflow, Room, Tally, cast, cast_in, run_fast, scalar};
use weightlift_core::DType;

const BOTH: [Overflow; 2] = [Overflow::Inf, Overflow::Saturate];

fn bytes_of(dtype: DType) -> usize {
    Element::of(dtype).unwrap().size()
}

/// The pairs whose elements are one number.
fn real_pairs() -> impl Iterator<Item = CastPair> {
    CastPair::all().filter(|pair| Element::of(pair.to).unwrap().numbers == 1)
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

/// Codes of `dtype`: every one where there are at most 2^16; else all that lie on or next to where a cast may turn, and
/// `extra` more from everywhere.
fn codes(dtype: DType, extra: usize) -> Vec<u64> {
    let width = 8 * bytes_of(dtype) as u32;
    if width <= 16 {
        return (0..1 << width).collect();
    }
    let (mask, sign) = (u64::MAX >> (64 - width), 1 << (width - 1));
    let mut centres = match float(dtype) {
        Some(own) => [turns_of_float(dtype, &own), whole_numbers(&own)].concat(),
        None => turns_of_int(width),
    };
    centres.sort_unstable();
    centres.dedup();
    let around = |code: u64| (0..5).map(move |i| code.wrapping_add(i).wrapping_sub(2));
    let near = centres.into_iter().flat_map(around);
    let anywhere = random().take(extra).map(|x| x >> (64 - width));
    let in_range = random().skip(extra).take(extra).map(|x| match float(dtype) {
        // Exponents near those of the narrow formats, with every kind of fraction.
        Some(own) => {
            let exponent = own.bias.max(160) as u64 - 160 + x % 320;
            (exponent << own.fraction_bits) & (own.sign() - 1) | x >> (64 - own.fraction_bits)
        }
        None => x >> (x % 64),
    });
    near.chain(anywhere).chain(in_range).flat_map(|code| [code & mask, (code ^ sign) & mask]).collect()
}

/// Values of narrower formats, their means and quarters, the ends of the own range, every bit of a NaN.
fn turns_of_float(dtype: DType, own: &Float) -> Vec<u64> {
    let mut turns = vec![0, own.min_normal(), own.infinity(), own.sign()];
    for narrow in floats().filter(|&narrow| bytes_of(narrow) < bytes_of(dtype) && bytes_of(narrow) < 4) {
        let narrow = float(narrow).unwrap();
        let widened = |magnitude| scalar::convert_float(&narrow, own, Overflow::Inf, magnitude).0;
        let step = if narrow.sign() > 1 << 12 { 5 } else { 1 };
        for magnitude in (0..=narrow.max_finite()).filter(|m| m % step == 0 || narrow.max_finite() - m < 9 || *m < 9) {
            let (low, high) = (widened(magnitude), widened(magnitude + 1));
            // Between the codes of two neighbours lies that of their mean, or one quarter on at a change of binade.
            let distance = high.max(low) - low;
            turns.extend([low, low + distance / 2, low + distance / 4]);
        }
    }
    if dtype == DType::F64 {
        let f32 = float(DType::F32).unwrap();
        for magnitude in [0, 1, 2, f32.min_normal() - 1, f32.min_normal(), f32.max_finite() - 1, f32.max_finite()] {
            let low = scalar::convert_float(&f32, own, Overflow::Inf, magnitude).0;
            turns.extend([low, low + (1 << 28), low + (1 << 29), low.wrapping_sub(1 << 29)]);
        }
        turns.extend([0x3690, 0x36a0, 0x36a8, 0x36b0].map(|upper| upper << 48));
    }
    turns.extend((0..own.fraction_bits).flat_map(|i| [own.infinity() | 1 << i, own.infinity() | own.sign() | 1 << i]));
    turns
}

/// Small whole numbers, halves and quarters, and powers of two with the numbers next to them, as far as 2^70.
fn whole_numbers(own: &Float) -> Vec<u64> {
    let number = |significand: u64, exponent: i32| {
        let magnitude = scalar::Magnitude::Finite { significand, exponent };
        scalar::encode_float(own, scalar::Number { negative: false, magnitude, subnormal: false }, Overflow::Inf).0
    };
    let small = (0..1100).map(|quarters| number(quarters, -2));
    let powers = (2..70).flat_map(|k| [number((1 << 20) - 1, k - 20), number(1, k), number((1 << 20) + 1, k - 20)]);
    small.chain(powers).collect()
}

/// Powers of two and halves of the last digits a float of so many digits keeps of them.
fn turns_of_int(width: u32) -> Vec<u64> {
    let sums = |high: u32| (0..high).map(move |low| (1 << high) + (1 << low));
    let triples = |high: u32| (1..high).map(move |low| (1u64 << high).wrapping_add(3 << (low - 1)));
    (0..width).flat_map(|high| sums(high).chain(triples(high)).chain([1u64 << high, (1 << high) - 1])).collect()
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
    for pair in real_pairs() {
        let codes = codes(pair.from, 5_000);
        for overflow in BOTH {
            let (got, tally) = cast_codes(Room::Scalar, pair, overflow, &codes);
            let mut expected = Tally::default();
            for (&code, got) in codes.iter().zip(got) {
                let (code_expected, lost) = oracle::cast(pair.from, pair.to, overflow, code);
                assert_eq!(got, code_expected, "{} {code:#x} to {}, {overflow:?}", pair.from, pair.to);
                expected.merge(&lost);
            }
            assert_eq!(tally, expected, "{pair:?} {overflow:?}");
        }
    }
}

#[test]
fn every_room_equals_the_definition() {
    for pair in real_pairs() {
        let (src, mut dst) = (vec![0; 4096 * bytes_of(pair.from)], vec![0; 4096 * bytes_of(pair.to)]);
        let mut fast = |room: &Room| run_fast(*room, pair, Overflow::Inf, false, &src, &mut dst).is_some();
        let rooms: Vec<Room> = Room::available().into_iter().filter(&mut fast).collect();
        let codes = if rooms.is_empty() { vec![] } else { codes(pair.from, 100_000) };
        let codes = if codes.len() < 1 << 10 { codes.repeat(5) } else { codes };
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

/// Not from f64, which `half` rounds twice or cuts off, and not NaNs, whose bits are by our own rule.
#[test]
fn halves_of_f32_are_those_of_half() {
    let all = codes(DType::F32, 100_000);
    let finite: Vec<u64> = all.into_iter().filter(|&code| f32::from_bits(code as u32).is_finite()).collect();
    let values = || finite.iter().map(|&code| f32::from_bits(code as u32));
    let f16: Vec<u64> = values().map(|value| half::f16::from_f32(value).to_bits().into()).collect();
    let bf16: Vec<u64> = values().map(|value| half::bf16::from_f32(value).to_bits().into()).collect();
    let cast = |to| cast_codes(Room::best(), CastPair::new(DType::F32, to).unwrap(), Overflow::Inf, &finite).0;
    assert!(cast(DType::F16) == f16 && cast(DType::Bf16) == bf16);
}

#[test]
fn any_length_and_alignment_and_nothing_beside() {
    for pair in real_pairs() {
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
fn complex_numbers_go_part_by_part() {
    let (c64, c32) = (DType::C64, DType::C32);
    let src = encode(DType::F32, &codes(DType::F32, 1000));
    for (room, overflow) in Room::available().into_iter().flat_map(|room| BOTH.map(|overflow| (room, overflow))) {
        let mut parts = vec![0; src.len() / 2];
        let tally = cast_in(room, CastPair::new(DType::F32, DType::F16).unwrap(), overflow, &src, &mut parts);
        let mut complex = vec![0xa5; src.len() / 2];
        assert_eq!(cast_in(room, CastPair::new(c64, c32).unwrap(), overflow, &src, &mut complex), tally);
        assert_eq!(complex, parts);

        let mut widened = vec![0xa5; src.len()];
        assert_eq!(cast_in(room, CastPair::new(DType::F32, c32).unwrap(), overflow, &src, &mut widened), tally);
        let expected: Vec<u8> = parts.chunks(2).flat_map(|part| [part[0], part[1], 0, 0]).collect();
        assert_eq!(widened, expected);
    }
    assert_eq!(CastPair::new(c64, DType::F32), None);
    assert_eq!(CastPair::new(c64, DType::Bool), None);
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
