//! Rates of checksums, byte swaps and strided copies, beside `memcpy` of the same bytes in the same run.
//!
//! `cargo run --release -p weightlift-kernels --example kernel_rates [BYTES]`; without BYTES for 256 KiB.
#![allow(clippy::print_stdout)] // it is what this program is for

mod rate;

use rate::rate;
use std::hint::black_box;
use weightlift_core::Layout;
use weightlift_kernels::average::{self, Width};
use weightlift_kernels::checksum::Algorithm;
use weightlift_kernels::{pack, strided, swap};

fn main() {
    let bytes = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1 << 18);
    let src: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
    let mut dst = vec![0; bytes];
    println!("{bytes} bytes; GB/s");
    let copied = rate(bytes, || black_box(&mut dst).copy_from_slice(black_box(&src)));
    println!("{:>24} {copied:6.2}", "memcpy");
    for algorithm in [Algorithm::Crc32c, Algorithm::Crc32] {
        let rate = rate(bytes, || {
            black_box(algorithm.of(black_box(&src)));
        });
        println!("{:>24} {rate:6.2}", format!("{algorithm:?}"));
    }
    for unit in [2, 4, 8, 16] {
        let rate = rate(bytes, || swap::byteswap(unit, black_box(&mut dst)));
        println!("{:>24} {rate:6.2}", format!("swap {unit}"));
    }
    for element in [1, 2, 4, 8] {
        let side = (bytes as f64 / element as f64).sqrt() as u64;
        let used = side as usize * side as usize * element;
        let transposed = Layout { offset: 0, strides: vec![1, side] };
        let rate = rate(used, || {
            let done = strided::gather(&src[..used], element, &transposed, &[side, side], black_box(&mut dst[..used]));
            black_box(done.is_ok());
        });
        println!("{:>24} {rate:6.2}", format!("transpose {side}x{side} of {element}"));
    }
    for bits in [2, 4] {
        let elements = &mut vec![0; bytes * 8 / bits as usize];
        let unpacked = rate(bytes, || pack::unpack(bits, black_box(&src), elements));
        let packed = rate(bytes, || pack::pack(bits, elements, black_box(&mut dst)));
        println!("{:>24} {unpacked:6.2} of packed bytes, pack {packed:6.2}", format!("unpack {bits}"));
    }
    let added = rate(bytes, || average::scale_add(Width::F32, 0.5, black_box(&src), black_box(&mut dst)));
    println!("{:>24} {added:6.2}", "scale_add f32");
    for len in [1u64 << 18, 1_000_003, (1 << 40) - 1] {
        let rate = rate(1, || {
            black_box(Algorithm::Crc32c.combine(black_box(1), 2, black_box(len)));
        });
        println!("{:>24} {:6.1} ns", format!("combine {len}"), 1.0 / rate);
    }
}
