//! Answers how fast a pair is cast: a line `FROM TO` on stdin, a line of JSON on stdout. `benches/compare/casts.py` asks
//! it in turns with the frameworks.
//!
//! Times are of short pieces, many of them, and the quickest quarter decides: other programs disturb the slow ones.

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};
use weightlift_benches::{Buffer, half_cast, source, width};
use weightlift_kernels::cast::{CastPair, Overflow, Room, cast_and_compare, cast_in};

/// Elements of a piece that stays in the second cache, and of a walk through memory.
const CACHE: usize = 1 << 15;
const MEMORY: usize = 1 << 24;
/// Elements of a piece of the walk.
const PIECE: usize = 1 << 18;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let pair = line.split_once(' ').and_then(|(from, to)| CastPair::new(from.parse().ok()?, to.parse().ok()?));
        match pair {
            Some(pair) => writeln!(out, "{}", answer(pair))?,
            None => writeln!(out, "{{}}")?,
        }
        out.flush()?;
    }
    Ok(())
}

/// Nanoseconds an element, by what does it: `{"cache": {"scalar": 1.5, …}, "memory": {…}}`.
fn answer(pair: CastPair) -> String {
    let places = [("cache", CACHE, CACHE), ("memory", MEMORY, PIECE)];
    let places = places.map(|(place, elements, piece)| {
        let mut times: Vec<(String, f64)> = Vec::new();
        let src = source(pair.from(), elements);
        let mut dst = Buffer::new(elements * width(pair.to()));
        let mut measure = |name: &str, work: &mut dyn FnMut(&[u8], &mut [u8])| {
            times.push((name.to_owned(), time(pair, piece, src.bytes(), dst.bytes_mut(), work)));
        };
        for room in Room::available() {
            measure(&format!("{room:?}").to_lowercase(), &mut |src, dst| {
                black_box(cast_in(room, pair, Overflow::Inf, src, dst));
            });
        }
        measure("with_errors", &mut |src, dst| {
            black_box(cast_and_compare(pair, Overflow::Inf, src, dst));
        });
        if let Some(half) = half_cast(pair) {
            measure("half", &mut |src, dst| half(src, dst));
        }
        times.push(("memcpy".to_owned(), memcpy(pair, elements, piece)));
        let times: Vec<String> = times.iter().map(|(name, time)| format!("\"{name}\": {time:.5}")).collect();
        format!("\"{place}\": {{{}}}", times.join(", "))
    });
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{{{}, \"threads\": {threads}, \"all\": {:.5}}}", places.join(", "), together(pair, threads))
}

/// Nanoseconds an element in memory where every thread has buffers of its own.
fn together(pair: CastPair, threads: usize) -> f64 {
    let alone = || {
        let src = source(pair.from(), MEMORY / threads);
        let mut dst = Buffer::new(MEMORY / threads * width(pair.to()));
        time(pair, PIECE, src.bytes(), dst.bytes_mut(), &mut |src, dst| {
            black_box(cast_in(Room::best(), pair, Overflow::Inf, src, dst));
        })
    };
    let rates: f64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(alone)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).map(|time| 1.0 / time).sum()
    });
    1.0 / rates
}

/// Nanoseconds an element of pieces that walk through the buffers.
fn time(pair: CastPair, piece: usize, src: &[u8], dst: &mut [u8], work: &mut dyn FnMut(&[u8], &mut [u8])) -> f64 {
    let (from, to) = (piece * width(pair.from()), piece * width(pair.to()));
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < 48 || (start.elapsed() < Duration::from_millis(12) && times.len() < 4096) {
        for (src, dst) in src.chunks_exact(from).zip(dst.chunks_exact_mut(to)) {
            let start = Instant::now();
            work(black_box(src), black_box(dst));
            times.push(start.elapsed());
        }
    }
    times.sort_unstable();
    times[times.len() / 4].as_secs_f64() * 1e9 / piece as f64
}

/// The same of copies that read and write as many bytes in all.
fn memcpy(pair: CastPair, elements: usize, piece: usize) -> f64 {
    let each = width(pair.from()) + width(pair.to());
    let (src, mut dst) = (Buffer::new(elements * each / 2), Buffer::new(elements * each / 2));
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < 48 || (start.elapsed() < Duration::from_millis(12) && times.len() < 4096) {
        let pieces = src.bytes().chunks_exact(piece * each / 2).zip(dst.bytes_mut().chunks_exact_mut(piece * each / 2));
        for (src, dst) in pieces {
            let start = Instant::now();
            black_box(dst).copy_from_slice(black_box(src));
            times.push(start.elapsed());
        }
    }
    times.sort_unstable();
    times[times.len() / 4].as_secs_f64() * 1e9 / piece as f64
}
