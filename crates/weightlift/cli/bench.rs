//! `weightlift bench`: how fast this machine casts and copies, next to `memcpy`.
//!
//! A rate counts the bytes read and the bytes written. `memcpy` moves as many bytes in all, on as many threads, in
//! turns with what it is compared with, so that what slows the machine down slows both.

use super::args::{BenchArgs, BenchDevice};
use super::show::{self, Align};
use serde_json::{Value, json};
use std::hint::black_box;
use std::io::Write;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use weightlift::DType::{self, *};
use weightlift_core::{Layout, Packing};
use weightlift_kernels::cast::{CastPair, Overflow, Room, cast, cast_and_compare};
use weightlift_kernels::checksum::Algorithm;
use weightlift_kernels::strided;

/// The casts that people ask for.
const PAIRS: &[(DType, DType)] = &[
    (F32, F16),
    (F32, Bf16),
    (F32, F8E4m3fn),
    (F32, F8E5m2),
    (F16, F32),
    (Bf16, F32),
    (F8E4m3fn, F32),
    (F8E5m2, F32),
    (F64, F32),
    (F64, F16),
    (F64, Bf16),
    (F32, F64),
    (F16, Bf16),
    (Bf16, F16),
    (F16, F8E4m3fn),
    (Bf16, F8E4m3fn),
    (I64, I32),
    (I64, F32),
];

/// Bytes read and written by one pass that stays in the second-level cache.
const CACHE: usize = 256 << 10;
/// How long each side of a comparison runs at a time, and how often.
const WINDOW: Duration = Duration::from_millis(30);
const TURNS: usize = 3;

/// One pass over buffers of its own.
pub(super) type Pass = Box<dyn FnMut()>;
/// Makes a pass that reads and writes so many bytes in all; answers how many exactly.
type Work = dyn Fn(usize) -> (usize, Pass) + Sync;

/// Bytes a second of some work, and of `memcpy`.
#[derive(Debug, Clone, Copy)]
struct Rate {
    work: f64,
    memcpy: f64,
}

/// One line of the table.
struct Line {
    name: String,
    cache: Rate,
    memory: Rate,
    all: Rate,
}

/// Measures and prints.
pub(crate) fn run(args: &BenchArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(device) = args.device {
        return on_device(args, device, out);
    }
    let threads = args.threads.map_or_else(|| weightlift::Options::default().threads, usize::from);
    let size = usize::try_from(args.size)?.max(1 << 16);
    let lines: Vec<Line> = works().into_iter().map(|(name, work)| measure(name, &*work, threads, size)).collect();
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &to_json(&lines, threads, size))?;
        return Ok(writeln!(out)?);
    }
    let row = |line: &Line| {
        let [cache, memory, all] = [line.cache, line.memory, line.all].map(cell);
        [line.name.clone(), cache, memory, all]
    };
    let rows: Vec<_> = lines.iter().map(row).collect();
    let all = format!("MEMORY, {threads} THREADS");
    let align = [Align::Left, Align::Right, Align::Right, Align::Right];
    show::table(out, ["", "CACHE, 1 THREAD", "MEMORY, 1 THREAD", &all], align, &rows)?;
    let (cache, memory) = (show::bytes(CACHE as u64), show::bytes(size as u64));
    writeln!(out, "\nbytes read and written a second; in brackets, times the rate of memcpy moving as many")?;
    writeln!(out, "cache: {cache} in all, memory: {memory} a thread; kernels: {:?}", Room::best())?;
    Ok(())
}

#[cfg(feature = "gpu")]
fn on_device(args: &BenchArgs, device: BenchDevice, out: &mut dyn Write) -> anyhow::Result<()> {
    super::bench_gpu::run(args, device.0, out)
}

#[cfg(not(feature = "gpu"))]
fn on_device(_: &BenchArgs, device: BenchDevice, _: &mut dyn Write) -> anyhow::Result<()> {
    let name = device.0.map_or_else(|| "gpu".to_owned(), |number| format!("gpu:{number}"));
    anyhow::bail!("no device {name}: this program was built without compute devices (its feature gpu is off)")
}

fn cell(rate: Rate) -> String {
    format!("{}/s ({:.2})", show::bytes(rate.work as u64), rate.work / rate.memcpy)
}

/// What is measured.
fn works() -> Vec<(String, Box<Work>)> {
    let mut works: Vec<(String, Box<Work>)> = Vec::new();
    for pair in PAIRS.iter().filter_map(|&(from, to)| CastPair::new(from, to)) {
        let name = format!("{} -> {}", pair.from(), pair.to());
        works.push((name, Box::new(move |bytes| casting(pair, bytes, false))));
    }
    if let Some(pair) = CastPair::new(F32, F16) {
        works.push(("f32 -> f16, with errors".into(), Box::new(move |bytes| casting(pair, bytes, true))));
    }
    works.push(("rows of 3 kB, gathered".into(), Box::new(rows)));
    works.push(("transpose, f32".into(), Box::new(transposing)));
    works.push(("crc32c".into(), Box::new(|bytes| summing(Algorithm::Crc32c, bytes))));
    works.push(("crc32".into(), Box::new(|bytes| summing(Algorithm::Crc32, bytes))));
    works
}

pub(super) fn width(dtype: DType) -> usize {
    dtype.element_bytes(Packing::OnePerByte).unwrap_or(1) as usize
}

/// Values like those of weights, so that few are out of range.
pub(super) fn source(dtype: DType, elements: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let scale = if dtype.is_float() { 0.2 } else { 1000.0 };
    // A period of them is enough, and soon made.
    let period = elements.min(1 << 16);
    let values: Vec<u8> = (0..period).flat_map(|_| ((next() + next()) * scale).to_le_bytes()).collect();
    let mut first = vec![0; period * width(dtype)];
    match CastPair::new(F32, dtype) {
        Some(pair) => {
            cast(pair, Overflow::Saturate, &values, &mut first);
        }
        None => first.copy_from_slice(&values),
    }
    let mut bytes = vec![0; elements * width(dtype)];
    bytes.chunks_mut(first.len().max(1)).for_each(|part| part.copy_from_slice(&first[..part.len()]));
    bytes
}

pub(super) fn casting(pair: CastPair, bytes: usize, compare: bool) -> (usize, Pass) {
    let elements = bytes / (width(pair.from()) + width(pair.to()));
    let src = source(pair.from(), elements);
    let mut dst = vec![0; elements * width(pair.to())];
    let pass = move || {
        if compare {
            black_box(cast_and_compare(pair, Overflow::Inf, black_box(&src), black_box(&mut dst)));
        } else {
            black_box(cast(pair, Overflow::Inf, black_box(&src), black_box(&mut dst)));
        }
    };
    (elements * (width(pair.from()) + width(pair.to())), Box::new(pass))
}

/// Rows of a matrix in an order without a pattern.
pub(super) fn rows(bytes: usize) -> (usize, Pass) {
    const ROW: usize = 3072;
    let count = (bytes / 2 / ROW).max(1);
    let (src, mut dst) = (vec![1u8; count * ROW], vec![0u8; count * ROW]);
    let step = (count as f64 * 0.618) as usize | 1;
    let pass = move || {
        for (at, to) in dst.chunks_exact_mut(ROW).enumerate() {
            let from = at * step % count * ROW;
            to.copy_from_slice(black_box(&src[from..from + ROW]));
        }
        black_box(&mut dst);
    };
    (2 * count * ROW, Box::new(pass))
}

pub(super) fn transposing(bytes: usize) -> (usize, Pass) {
    let side = (bytes as f64 / 8.0).sqrt() as usize;
    let (src, mut dst) = (vec![1u8; side * side * 4], vec![0u8; side * side * 4]);
    let layout = Layout { offset: 0, strides: vec![1, side as u64] };
    let pass = move || {
        let done = strided::gather(black_box(&src), 4, &layout, &[side as u64, side as u64], black_box(&mut dst));
        black_box(done.is_ok());
    };
    (2 * side * side * 4, Box::new(pass))
}

/// A checksum only reads; `memcpy` reads half as much and writes the other half.
fn summing(algorithm: Algorithm, bytes: usize) -> (usize, Pass) {
    let src = vec![1u8; bytes];
    let pass = move || {
        black_box(algorithm.of(black_box(&src)));
    };
    (bytes, Box::new(pass))
}

fn copying(bytes: usize) -> (usize, Pass) {
    let (src, mut dst) = (vec![1u8; bytes / 2], vec![0u8; bytes / 2]);
    let pass = move || black_box(&mut dst).copy_from_slice(black_box(&src));
    (bytes / 2 * 2, Box::new(pass))
}

fn measure(name: String, work: &Work, threads: usize, size: usize) -> Line {
    let (cache, memory) = (compare(work, 1, CACHE), compare(work, 1, size));
    let all = if threads == 1 { memory } else { compare(work, threads, size) };
    Line { name, cache, memory, all }
}

/// Work and `memcpy` in turns on every thread; the best turn of each.
fn compare(work: &Work, threads: usize, bytes: usize) -> Rate {
    let barrier = Barrier::new(threads);
    let turns = || {
        let ((count, mut pass), (copied, mut copy)) = (work(bytes), copying(bytes));
        let mut rates = [(0.0, 0.0); TURNS];
        for (ours, theirs) in &mut rates {
            *theirs = turn(&barrier, copied, &mut copy);
            *ours = turn(&barrier, count, &mut pass);
        }
        rates
    };
    let rates: Vec<[(f64, f64); TURNS]> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(turns)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    let sum = |turn: usize, of: fn(&(f64, f64)) -> f64| rates.iter().map(|rates| of(&rates[turn])).sum::<f64>();
    let best = |of: fn(&(f64, f64)) -> f64| (0..TURNS).map(|turn| sum(turn, of)).fold(0.0, f64::max);
    Rate { work: best(|(ours, _)| *ours), memcpy: best(|(_, theirs)| *theirs) }
}

/// Bytes a second of passes that follow each other until the time is over.
fn turn(barrier: &Barrier, bytes: usize, pass: &mut Pass) -> f64 {
    pass();
    barrier.wait();
    let (start, mut passes) = (Instant::now(), 0);
    while start.elapsed() < WINDOW || passes == 0 {
        pass();
        passes += 1;
    }
    passes as f64 * bytes as f64 / start.elapsed().as_secs_f64()
}

fn to_json(lines: &[Line], threads: usize, size: usize) -> Value {
    let rate = |rate: Rate| json!({"bytes_per_second": rate.work, "memcpy": rate.memcpy});
    let line = |line: &Line| json!({"name": line.name, "cache": rate(line.cache), "memory": rate(line.memory), "all": rate(line.all)});
    json!({
        "schema": "weightlift.bench/1",
        "kernels": format!("{:?}", Room::best()).to_lowercase(),
        "threads": threads,
        "cache_bytes": CACHE,
        "memory_bytes": size,
        "lines": lines.iter().map(line).collect::<Vec<_>>(),
    })
}
