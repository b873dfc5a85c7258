//! Casts all 2^32 f32 codes in every room, by both rules of overflow, and compares bits and counts with the
//! definition.
//!
//! `cargo run --release -p weightlift-kernels --example sweep_f32 [DTYPE…]`; without DTYPE to f16, bf16, f8e4m3fn and
//! f8e5m2. Takes some minutes a dtype. Exits with 1 at the first difference.
#![allow(clippy::print_stdout)] // it is what this program is for

use std::process::exit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use weightlift_core::{DType, Packing};
use weightlift_kernels::cast::{CastPair, Overflow, Room, Tally, cast_in};

/// Codes a piece.
const PIECE: u32 = 1 << 20;

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let usual = ["f16", "bf16", "f8e4m3fn", "f8e5m2"].map(String::from);
    for name in if names.is_empty() { usual.to_vec() } else { names } {
        let Some(pair) = name.parse().ok().and_then(|to| CastPair::new(DType::F32, to)) else {
            println!("no cast leads from f32 to {name}");
            exit(1);
        };
        let tally = sweep(pair);
        println!("f32 -> {name}: all 2^32 codes equal in {:?}; {tally:?}", Room::available());
    }
}

/// Every piece on some thread; what the definition counted by the first rule.
fn sweep(pair: CastPair) -> Tally {
    let next = AtomicU32::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let worker = || {
        let mut tally = Tally::default();
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if u64::from(piece) * u64::from(PIECE) > u64::from(u32::MAX) {
                return tally;
            }
            tally.merge(&compare(pair, piece * PIECE));
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

fn compare(pair: CastPair, first: u32) -> Tally {
    let src: Vec<u8> = (first..=first + (PIECE - 1)).flat_map(u32::to_le_bytes).collect();
    let bytes = pair.to().bytes(PIECE.into(), Packing::OnePerByte).map_or(0, |bytes| bytes as usize);
    let (mut expected, mut got) = (vec![0; bytes], vec![0; bytes]);
    let mut counted = Tally::default();
    for overflow in [Overflow::Saturate, Overflow::Inf] {
        counted = cast_in(Room::Scalar, pair, overflow, &src, &mut expected);
        for room in Room::available() {
            let tally = cast_in(room, pair, overflow, &src, &mut got);
            if got != expected || tally != counted {
                let at = got.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(0) * PIECE as usize / bytes;
                println!("{room:?} {pair:?} {overflow:?}: differs at {:#010x} or in {tally:?}", first + at as u32);
                exit(1);
            }
        }
    }
    counted
}
