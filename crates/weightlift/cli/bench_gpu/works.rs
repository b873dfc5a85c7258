//! What is measured on a device and on the processor.

use super::super::bench::{self, Pass};
use weightlift::DType::{self, *};
use weightlift::Result;
use weightlift_core::Layout;
use weightlift_kernels::cast::{CastPair, Overflow};
use weightlift_kernels::device::{Capacity, Convert, GRANULE, Job, Kernel, Pick};
use weightlift_kernels::swap;

/// The casts that people ask for.
const PAIRS: &[(&str, DType, DType)] = &[
    ("f32 -> f16", F32, F16),
    ("f32 -> bf16", F32, Bf16),
    ("f32 -> f8e4m3fn", F32, F8E4m3fn),
    ("f16 -> f32", F16, F32),
    ("bf16 -> f32", Bf16, F32),
    ("f16 -> bf16", F16, Bf16),
    ("bf16 -> f16", Bf16, F16),
    ("f8e4m3fn -> f32", F8E4m3fn, F32),
    ("f64 -> f32", F64, F32),
    ("f64 -> f16", F64, F16),
];
/// Elements of a row of 3 kB.
const ROW: u64 = 768;

#[derive(Clone, Copy)]
enum What {
    Cast(CastPair),
    Rows,
    Transpose,
    Swap,
}

/// One line of the table.
pub(super) struct Work {
    pub(super) name: &'static str,
    what: What,
}

pub(super) fn works() -> Vec<Work> {
    let cast =
        |&(name, from, to): &(&'static str, _, _)| Some(Work { name, what: What::Cast(CastPair::new(from, to)?) });
    let copies = [("rows", What::Rows), ("transpose", What::Transpose), ("byteswap", What::Swap)];
    PAIRS.iter().filter_map(cast).chain(copies.map(|(name, what)| Work { name, what })).collect()
}

impl Work {
    fn kernel(&self) -> Kernel {
        let convert = match self.what {
            What::Cast(pair) => Convert::Cast { pair, overflow: Overflow::Inf },
            _ => Convert::Same { bytes: 4 },
        };
        Kernel { convert, swap: matches!(self.what, What::Swap) }
    }

    /// The largest job that a tile holds.
    pub(super) fn job(&self, capacity: &Capacity) -> Result<Job> {
        let kernel = self.kernel();
        let words = capacity.source.min(capacity.result) / 4;
        let pick = match self.what {
            What::Cast(_) | What::Swap => Pick::Segments(vec![capacity.elements(&kernel).max(GRANULE)]),
            What::Rows => {
                let rows = (words / ROW).clamp(1, capacity.rows.max(1));
                let step = (rows as f64 * 0.618) as u64 | 1;
                Pick::Rows { row: ROW, rows, table: (0..rows).map(|at| (at * step % rows) as u32).collect() }
            }
            What::Transpose => {
                let side = words.isqrt().max(1);
                let layout = Layout { offset: 0, strides: vec![1, side] };
                Pick::Strided { elements: side * side, layout, dims: vec![side, side] }
            }
        };
        Job::new(kernel, pick)
    }

    /// So many bytes to work on.
    pub(super) fn source(&self, bytes: u64) -> Vec<u8> {
        let dtype = match self.what {
            What::Cast(pair) => pair.from(),
            _ => F32,
        };
        bench::source(dtype, bytes as usize / bench::width(dtype))
    }

    /// What the processor does for it: a pass that reads and writes about so many bytes, and how many it reads.
    pub(super) fn pass(&self, bytes: usize) -> (u64, Pass) {
        let halved = |(moved, pass): (usize, Pass)| (moved as u64 / 2, pass);
        match self.what {
            What::Cast(pair) => {
                let (from, to) = (bench::width(pair.from()), bench::width(pair.to()));
                let (moved, pass) = bench::casting(pair, bytes, false);
                ((moved / (from + to) * from) as u64, pass)
            }
            What::Rows => halved(bench::rows(bytes)),
            What::Transpose => halved(bench::transposing(bytes)),
            What::Swap => {
                let (source, mut result) = (self.source(bytes as u64 / 2), vec![0; bytes / 8 * 4]);
                let read = result.len() as u64;
                // Within the nearest cache, as tiles are swapped.
                let pass = move || {
                    for (from, to) in source.chunks(1 << 14).zip(result.chunks_mut(1 << 14)) {
                        to.copy_from_slice(&from[..to.len()]);
                        swap::byteswap(4, to);
                    }
                    std::hint::black_box(&mut result);
                };
                (read, Box::new(pass))
            }
        }
    }
}
