//! Casts all 2^32 codes of f32, or 10^8 of f64, in every room, by both rules of overflow, and compares bits and
//! counts with the definition.
//!
//! `cargo run --release -p weightlift-kernels --example sweep [f32|f64 [DTYPE…]]`; without DTYPE to f16, bf16,
//! f8e4m3fn and f8e5m2. Takes some minutes a dtype. Exits with 1 at the first difference.
#![allow(clippy::print_stdout)] // it is what this program is for

use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use weightlift_core::{DType, Packing};
use weightlift_kernels::cast::{CastPair, Overflow, Room, Tally, cast_in};

/// Codes a piece.
const PIECE: u64 = 1 << 20;

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let from = names.first().map_or("f32", String::as_str);
    let usual = ["f16", "bf16", "f8e4m3fn", "f8e5m2"].map(String::from);
    for to in if names.len() < 2 { &usual } else { &names[1..] } {
        let pair = from.parse().ok().zip(to.parse().ok()).and_then(|(from, to)| CastPair::new(from, to));
        let Some((pair, codes)) = pair.and_then(|pair| Some((pair, codes(pair.from())?))) else {
            println!("no sweep leads from {from} to {to}");
            exit(1);
        };
        let tally = sweep(pair, codes);
        println!("{from} -> {to}: {codes} codes equal in {:?}; {tally:?}", Room::available());
    }
}

/// How many codes of a source are looked at.
fn codes(from: DType) -> Option<u64> {
    match from {
        DType::F32 => Some(1 << 32),
        DType::F64 => Some(96 * PIECE),
        _ => None,
    }
}

/// Every piece on some thread; what the definition counted by the last rule.
fn sweep(pair: CastPair, codes: u64) -> Tally {
    let next = AtomicU64::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let worker = || {
        let mut tally = Tally::default();
        loop {
            let first = next.fetch_add(PIECE, Ordering::Relaxed);
            if first >= codes {
                return tally;
            }
            tally.merge(&compare(pair, first));
        }
    };
    let mut total = Tally::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            match worker.join() {
                Ok(tally) => total.merge(&tally),
                Err(_) => exit(1),
            }
        }
    });
    total
}

/// The source elements with numbers `first` to `first + PIECE`.
fn source(from: DType, first: u64) -> Vec<u8> {
    let numbers = first..first + PIECE;
    match from {
        DType::F32 => numbers.flat_map(|number| (number as u32).to_le_bytes()).collect(),
        _ => numbers.flat_map(|number| f64_code(number).to_le_bytes()).collect(),
    }
}

/// Scattered bits; for every other number with an exponent that narrower formats have or nearly have.
fn f64_code(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mixed = mixed ^ mixed >> 31;
    let exponent = 1023 - 160 + mixed % 320;
    if number.is_multiple_of(2) { mixed } else { mixed & !(0x7ff << 52) | exponent << 52 }
}

fn compare(pair: CastPair, first: u64) -> Tally {
    let src = source(pair.from(), first);
    let bytes = pair.to().bytes(PIECE, Packing::OnePerByte).map_or(0, |bytes| bytes as usize);
    let (mut expected, mut got) = (vec![0; bytes], vec![0; bytes]);
    let mut counted = Tally::default();
    for overflow in [Overflow::Saturate, Overflow::Inf] {
        counted = cast_in(Room::Scalar, pair, overflow, &src, &mut expected);
        for room in Room::available() {
            let tally = cast_in(room, pair, overflow, &src, &mut got);
            if got != expected || tally != counted {
                let byte = got.iter().zip(&expected).position(|(a, b)| a != b);
                let number = byte.map(|byte| first + byte as u64 * PIECE / bytes as u64);
                println!("{room:?} {pair:?} {overflow:?} differs at number {number:?}, counted {tally:?}");
                exit(1);
            }
        }
    }
    counted
}
