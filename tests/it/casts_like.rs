//! Casts judged by the frameworks: `exact` equals them in every finite value they round once, `--like` in every bit.

use crate::peers::{ask, judge};
use serde_json::json;
use std::path::Path;
use weightlift::DType::{self, *};
use weightlift_core::Packing;
use weightlift_kernels::cast::{CastPair, Like, Overflow, Rule, cast};

const FLOATS: [DType; 13] =
    [F64, F32, F16, Bf16, F8E4m3fn, F8E5m2, F8E4m3fnuz, F8E5m2fnuz, F8E4m3b11fnuz, F8E8m0fnu, F6E2m3, F6E3m2, F4E2m1];
const WHOLE: [DType; 9] = [I64, I32, I16, I8, U64, U32, U16, U8, Bool];

fn width(dtype: DType) -> usize {
    dtype.element_bytes(Packing::OnePerByte).unwrap() as usize
}

/// A sequence without a pattern, the same every time.
fn random() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(0x2545_f491_4f6c_dd1du64), |&x| {
        let x = x ^ x << 13;
        let x = x ^ x >> 7;
        Some(x ^ x << 17)
    })
}

/// Every upper half of an f32 with lower halves on both sides of where halves and eighths of an f32 turn, and a sample.
fn f32_codes() -> Vec<u32> {
    let lower = [0, 1, 0xfff, 0x1000, 0x1001, 0x2000, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff];
    let near = (0..1u32 << 16).flat_map(|upper| lower.map(|lower| upper << 16 | lower));
    // A f16 turns at multiples of 2^12 only; those of its subnormals lie at any power of two.
    let small = (0..1u32 << 16).flat_map(|code| {
        let turn = ((code as f32 + 0.5) * (1.0 / (1 << 24) as f32)).to_bits();
        [turn - 1, turn, turn + 1]
    });
    near.chain(small).chain(random().take(500_000).map(|x| (x >> 32) as u32)).collect()
}

/// f32 values as f64, their neighbours on both sides, the ties between them, and a sample.
fn f64_codes() -> Vec<u64> {
    let values = f32_codes().into_iter().step_by(3).map(f32::from_bits).filter(|value| !value.is_nan());
    let around = [0i64, 1, -1, 1 << 28, (1 << 28) + 1, (1 << 28) - 1];
    let near = values.flat_map(|value| around.map(|step| f64::from(value).to_bits().wrapping_add_signed(step)));
    let nans = (0..52).flat_map(|bit| [0x7ff0_0000_0000_0000 | 1 << bit, 0xfff0_0000_0000_0000 | 1 << bit]);
    let edge = [0x36a0u64, 0x3690, 0x37ff, 0x3800, 0x380f, 0x3810, 0x47ef, 0x47f0];
    let edges = edge
        .into_iter()
        .flat_map(|upper| [0, 1, (1 << 48) - 1, 0xffff_f000_0000, 0xffff_efff_ffff].map(|low| upper << 48 | low));
    near.chain(nans).chain(edges).chain(random().take(300_000)).collect()
}

/// Codes of a dtype, a multiple of 64 of them: loops of vectors leave nothing over then.
fn codes(dtype: DType) -> Vec<u64> {
    let mut codes: Vec<u64> = match dtype {
        F32 => f32_codes().into_iter().map(u64::from).collect(),
        F64 => f64_codes(),
        Bool => vec![0, 1],
        narrow if width(narrow) < 4 => (0..1u64 << narrow.bits().unwrap()).collect(),
        whole => {
            let bits = whole.bits().unwrap();
            let sums = (0..bits).flat_map(|high| (0..=high).map(move |low| (1u64 << high).wrapping_add(1 << low)));
            let near = sums.flat_map(|sum| [sum.wrapping_sub(1), sum, sum.wrapping_add(1), sum.wrapping_neg()]);
            near.chain(random().take(100_000)).map(|code| code & u64::MAX >> (64 - bits)).collect()
        }
    };
    codes.resize(codes.len().next_multiple_of(64), 0);
    codes
}

fn encode(dtype: DType, codes: &[u64]) -> Vec<u8> {
    codes.iter().flat_map(|code| code.to_le_bytes().into_iter().take(width(dtype))).collect()
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks(width(dtype))
        .map(|chunk| chunk.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte)))
        .collect()
}

/// The pairs that a framework has, with floats as targets.
fn pairs(like: Like) -> impl Iterator<Item = CastPair> {
    let sources = FLOATS.into_iter().chain(WHOLE);
    let all = sources.flat_map(|from| FLOATS.into_iter().filter_map(move |to| CastPair::new(from, to)));
    all.filter(move |&pair| like.has(pair))
}

fn ours(like: Like, pair: CastPair, codes: &[u64]) -> Vec<u64> {
    let mut dst = vec![0; codes.len() * width(pair.to())];
    cast(pair, Rule { like, overflow: Overflow::Inf }, &encode(pair.from(), codes), &mut dst);
    decode(pair.to(), &dst)
}

/// The codes that a framework makes of each code, for many pairs at once.
fn theirs(judge: &std::sync::Mutex<crate::peers::Judge>, name: &str, pair: CastPair, dir: &Path) -> Vec<u64> {
    let (source, target) = (dir.join(pair.from().name()), dir.join("target"));
    if !source.exists() {
        std::fs::write(&source, encode(pair.from(), &codes(pair.from()))).unwrap();
    }
    let request = json!({
        "ask": "cast", "framework": name, "from": pair.from().name(), "to": pair.to().name(),
        "source": source, "target": target,
    });
    ask(judge, request);
    decode(pair.to(), &std::fs::read(&target).unwrap())
}

/// The exact value of a code, by a cast that loses nothing.
fn value(dtype: DType, code: u64) -> f64 {
    match CastPair::new(dtype, F64) {
        Some(pair) => f64::from_bits(ours(Like::Exact, pair, &[code])[0]),
        None => f64::from_bits(code),
    }
}

fn imitates(like: Like, name: &str, test: &str) {
    let Some(judge) = judge(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for pair in pairs(like) {
        let (codes, theirs) = (codes(pair.from()), theirs(judge, name, pair, dir.path()));
        let ours = ours(like, pair, &codes);
        assert_eq!(ours.len(), theirs.len());
        let differs: Vec<usize> = (0..codes.len()).filter(|&at| ours[at] != theirs[at]).collect();
        let some: Vec<String> = differs
            .iter()
            .step_by(differs.len() / 8 + 1)
            .map(|&at| format!("{:#x}: {:#x}, {name} {:#x}", codes[at], ours[at], theirs[at]))
            .collect();
        assert!(differs.is_empty(), "{pair:?}: {} of {} differ: {some:?}", differs.len(), codes.len());
        seen += codes.len();
    }
    println!("{name}: {seen} numbers, {} pairs", pairs(like).count());
}

#[test]
fn like_numpy_gives_numpys_bits() {
    imitates(Like::NumPy, "numpy", "like_numpy_gives_numpys_bits");
}

#[test]
fn like_torch_gives_torchs_bits() {
    imitates(Like::Torch, "torch", "like_torch_gives_torchs_bits");
}

#[test]
fn like_tf_gives_tensorflows_bits() {
    imitates(Like::TensorFlow, "tf", "like_tf_gives_tensorflows_bits");
}

/// Whether a framework rounds this number by a rule that is known to differ from the definition: PyTorch goes through
/// f32 and saturates f8e4m3fn, and scales have no agreed meaning for what is no power of two in their range.
fn known_to_differ(name: &str, pair: CastPair, code: u64, source: f64) -> bool {
    let through_f32 = match pair.from() {
        I64 => code as i64 as f32 as i128 != i128::from(code as i64),
        U64 => code as f32 as u128 != u128::from(code),
        _ => f64::from(source as f32) != source,
    };
    let scale = pair.to() == F8E8m0fnu && (source <= 0.0 || source < 2f64.powi(-126));
    let saturated = name == "torch" && pair.to() == F8E4m3fn && source.abs() > 464.0;
    scale || name == "torch" && through_f32 || saturated
}

fn agrees(like: Like, name: &str, test: &str) {
    let Some(judge) = judge(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (mut compared, mut left_out) = (0, 0);
    for pair in pairs(like) {
        let (codes, theirs) = (codes(pair.from()), theirs(judge, name, pair, dir.path()));
        let values =
            CastPair::new(pair.from(), F64).map_or_else(|| codes.clone(), |wide| ours(Like::Exact, wide, &codes));
        let ours = ours(Like::Exact, pair, &codes);
        for (at, &code) in codes.iter().enumerate() {
            let source = f64::from_bits(values[at]);
            if !source.is_finite() || known_to_differ(name, pair, code, source) {
                left_out += 1;
                continue;
            }
            compared += 1;
            assert_eq!(ours[at], theirs[at], "{name} {pair:?} {code:#x} = {source}: {}", value(pair.to(), theirs[at]));
        }
    }
    println!("{name}: {compared} numbers compared, {left_out} left out");
    assert!(compared > 10_000_000);
}

#[test]
fn exact_equals_numpy_in_finite_values() {
    agrees(Like::NumPy, "numpy", "exact_equals_numpy_in_finite_values");
}

#[test]
fn exact_equals_torch_in_finite_values() {
    agrees(Like::Torch, "torch", "exact_equals_torch_in_finite_values");
}
