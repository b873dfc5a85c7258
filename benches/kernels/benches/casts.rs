//! Bytes a second, read and written, of every cast in every room, beside `memcpy` moving as many bytes and the `half`
//! crate; in the second-level cache and in memory.
//!
//! `cargo bench --manifest-path benches/kernels/Cargo.toml -- 'f32-f16'`; without a filter all pairs, which takes long.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use weightlift_benches::{Buffer, half_cast, source, width};
use weightlift_kernels::cast::{CastPair, Overflow, Room, cast_and_compare, cast_in};

/// Bytes read and written: held by the second cache, and by none.
const SIZES: [(&str, usize); 2] = [("cache", 256 << 10), ("memory", 96 << 20)];

fn casts(criterion: &mut Criterion) {
    for pair in CastPair::all() {
        for (place, size) in SIZES {
            one(criterion, pair, place, size);
        }
    }
}

fn one(criterion: &mut Criterion, pair: CastPair, place: &str, size: usize) {
    let each = width(pair.from()) + width(pair.to());
    let elements = size / each;
    let name = format!("{}-{}/{place}", pair.from(), pair.to());
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes((elements * each) as u64));
    // Buffers are made when the first function of the group passes the filter.
    let mut buffers: Option<(Buffer, Buffer)> = None;
    let make = || (source(pair.from(), elements), Buffer::new(elements * width(pair.to())));
    for room in Room::available() {
        group.bench_function(BenchmarkId::from_parameter(format!("{room:?}").to_lowercase()), |bencher| {
            let (src, dst) = buffers.get_or_insert_with(make);
            bencher.iter(|| black_box(cast_in(room, pair, Overflow::Inf, black_box(src.bytes()), dst.bytes_mut())));
        });
    }
    group.bench_function("best, with errors", |bencher| {
        let (src, dst) = buffers.get_or_insert_with(make);
        bencher.iter(|| black_box(cast_and_compare(pair, Overflow::Inf, black_box(src.bytes()), dst.bytes_mut())));
    });
    if let Some(half) = half_cast(pair) {
        group.bench_function("half", |bencher| {
            let (src, dst) = buffers.get_or_insert_with(make);
            bencher.iter(|| half(black_box(src.bytes()), black_box(dst.bytes_mut())));
        });
    }
    let mut copies: Option<(Buffer, Buffer)> = None;
    group.bench_function("memcpy", |bencher| {
        let copy = elements * each / 2;
        let (src, dst) = copies.get_or_insert_with(|| (Buffer::new(copy), Buffer::new(copy)));
        bencher.iter(|| black_box(dst.bytes_mut()).copy_from_slice(black_box(src.bytes())));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(250))
        .sample_size(10);
    targets = casts
}
criterion_main!(benches);
