//! Rates of every cast in every room, as multiples of copying the source bytes by `memcpy` in the same run.
//!
//! `cargo run --release -p weightlift-kernels --example cast_rates [ELEMENTS]`; without ELEMENTS for 32768, which a
//! processor's second cache holds. Values are like weights: normally distributed about zero, a few of them odd.
#![allow(clippy::print_stdout)] // it is what this program is for

mod rate;

use rate::rate;
use std::hint::black_box;
use weightlift_core::{DType, Packing};
use weightlift_kernels::cast::{CastPair, Overflow, Room, cast_in};

fn main() {
    let elements = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(32_768);
    println!("{elements} elements; input GB/s, and input rate over memcpy's");
    for pair in CastPair::all().filter(|pair| pair.from() == DType::F32 || pair.to() == DType::F32 || wide(*pair)) {
        let src = source(pair.from(), elements);
        let mut dst = vec![0; bytes(pair.to(), elements)];
        let mut copy = vec![0; src.len()];
        let copied = rate(src.len(), || black_box(&mut copy).copy_from_slice(black_box(&src)));
        print!("{:>14} -> {:14}", pair.from().name(), pair.to().name());
        for room in Room::available() {
            let rate = rate(src.len(), || {
                black_box(cast_in(room, pair, Overflow::Inf, black_box(&src), &mut dst));
            });
            print!("  {room:?} {rate:6.2} ({:4.2})", rate / copied);
        }
        println!("  memcpy {copied:6.2}");
    }
}

/// Whether neither side is narrower than sixteen bits.
fn wide(pair: CastPair) -> bool {
    [pair.from(), pair.to()].iter().all(|dtype| dtype.is_float() && dtype.bits() >= Some(16))
}

fn bytes(dtype: DType, elements: usize) -> usize {
    dtype.bytes(elements as u64, Packing::OnePerByte).map_or(0, |bytes| bytes as usize)
}

fn source(dtype: DType, elements: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let values: Vec<f32> = (0..elements).map(|_| (0..4).map(|_| uniform()).sum::<f32>() * 0.1).collect();
    let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut bytes = vec![0; bytes(dtype, elements)];
    match CastPair::new(DType::F32, dtype) {
        Some(pair) => {
            cast_in(Room::best(), pair, Overflow::Saturate, &values, &mut bytes);
        }
        None => bytes.copy_from_slice(&values),
    }
    bytes
}
