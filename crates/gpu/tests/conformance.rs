//! The device gives the definition's bits and counts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod common;

use common::{FLOATS, Random, codes, each, gpu, lowered, run};
use weightlift_core::{DType, Layout};
use weightlift_gpu::{Gpu, Settings};
use weightlift_kernels::cast::{CastPair, Overflow, Room, Tally, cast_in};
use weightlift_kernels::device::{Capacity, Convert, Device, GRANULE, Job, Kernel, Pick, Processor};

fn pairs() -> impl Iterator<Item = CastPair> {
    FLOATS.into_iter().flat_map(|from| FLOATS.into_iter().filter_map(move |to| CastPair::new(from, to)))
}

fn cast_kernel(pair: CastPair, overflow: Overflow) -> Kernel {
    Kernel { convert: Convert::Cast { pair, overflow }, swap: false }
}

/// Sends elements through as many jobs as it takes; compares each with the scalar room.
fn compare(gpu: &Gpu, name: &str, pair: CastPair, overflow: Overflow, source: &[u8]) {
    let kernel = cast_kernel(pair, overflow);
    let (from, to) = kernel.convert.bytes();
    let most = gpu.capacity().elements(&kernel) as usize;
    for chunk in source.chunks(most * from) {
        let count = chunk.len() / from;
        let job = Job::new(kernel, Pick::Segments(vec![count as u64])).unwrap();
        let (bytes, tallies) = run(gpu, &job, chunk);
        let mut expected = vec![0; count * to];
        let tally = cast_in(Room::Scalar, pair, overflow, chunk, &mut expected);
        let wrong = (0..count).find(|at| bytes[at * to..][..to] != expected[at * to..][..to]);
        assert_eq!(
            wrong.map(|at| (&chunk[at * from..][..from], &bytes[at * to..][..to], &expected[at * to..][..to])),
            None,
            "{name}: {} -> {} {overflow:?}: source, found, expected",
            pair.from(),
            pair.to()
        );
        assert_eq!(tallies, [tally], "{name}: {} -> {} {overflow:?}", pair.from(), pair.to());
    }
}

/// Every code of 8 and 16 bits, the boundary set and a large sample of f32 and f64, to every target.
#[test]
fn casts_equal_the_definition() {
    let Some(gpu) = gpu(Settings::default()) else { return };
    for pair in pairs() {
        let source = codes(pair.from(), 100_000);
        for overflow in [Overflow::Inf, Overflow::Saturate] {
            assert!(gpu.has(&cast_kernel(pair, overflow)));
            compare(&gpu, "as it comes", pair, overflow, &source);
        }
    }
}

/// With 64 KiB bindings and 4 workgroups a dimension, and with copies to memory apart.
#[test]
fn splitting_changes_nothing() {
    for settings in [lowered(), Settings { shared_memory: false, ..lowered() }] {
        let Some(gpu) = gpu(settings) else { return };
        for (from, to) in [
            (DType::F32, DType::F16),
            (DType::F64, DType::Bf16),
            (DType::F8E4m3fn, DType::F64),
            (DType::F16, DType::F8E5m2),
            (DType::Bf16, DType::F32),
        ] {
            let pair = CastPair::new(from, to).unwrap();
            compare(&gpu, "lowered", pair, Overflow::Inf, &codes(from, 60_000));
        }
    }
}

/// Counts that are no whole words, no whole workgroups, and those at the ends of a dispatch and of a tile.
#[test]
fn odd_counts_are_whole() {
    let edges = [1, 2, 3, 5, 25, 255, 256, 1023, 1024, 1025, 4096, 4097, 16384, 16385, 65537];
    each(|name, gpu| {
        for (from, to) in [
            (DType::F16, DType::F8E5m2),
            (DType::F8E5m2, DType::F16),
            (DType::F32, DType::Bf16),
            (DType::Bf16, DType::F64),
            (DType::F8E4m3fn, DType::F8E5m2),
            (DType::F64, DType::F8E4m3fn),
        ] {
            let pair = CastPair::new(from, to).unwrap();
            let size = sizes(pair).0;
            let capacity = gpu.capacity().elements(&cast_kernel(pair, Overflow::Inf)) as usize;
            let bytes = Random(7).bytes(capacity.min(70_000) * size + 3 * size);
            for count in edges.into_iter().chain([capacity - 1, capacity, capacity + 1]) {
                if count * size <= bytes.len() {
                    compare(gpu, name, pair, Overflow::Inf, &bytes[..count * size]);
                }
            }
        }
        for bytes in [1, 2, 4, 8] {
            let same = Kernel { convert: Convert::Same { bytes }, swap: true };
            for count in edges.into_iter().filter(|&count| count as u64 <= gpu.capacity().elements(&same)) {
                let job = Job::new(same, Pick::Segments(vec![count as u64])).unwrap();
                both(gpu, name, &job, &Random(3).bytes(count * bytes));
            }
        }
    });
}

fn sizes(pair: CastPair) -> (usize, usize) {
    cast_kernel(pair, Overflow::Inf).convert.bytes()
}

/// What the device and the processor make of a job.
fn both(gpu: &Gpu, name: &str, job: &Job, source: &[u8]) {
    let mut expected = Vec::new();
    let tallies = Processor::run(job, source, &mut expected).unwrap();
    let (found, counted) = run(gpu, job, source);
    if let Pick::Segments(segments) = job.pick() {
        let to = job.kernel().convert.bytes().1;
        for (at, elements) in job.result_offsets().zip(segments) {
            let part = at as usize..at as usize + *elements as usize * to;
            assert_eq!(found[part.clone()], expected[part], "{name}: {job:?}");
        }
    } else {
        assert!(found == expected, "{name}: {job:?}");
    }
    assert_eq!(counted, tallies, "{name}: {job:?}");
}

/// Many small tensors in one job, each counted by itself, with nothing written between them: what stood in the result
/// before stays behind each segment, up to the end of its last group of words.
#[test]
fn segments_are_counted_apart_and_keep_to_themselves() {
    each(|name, gpu| {
        let pair = CastPair::new(DType::F32, DType::F16).unwrap();
        let kernel = cast_kernel(pair, Overflow::Inf);
        let segments = vec![1, 3, 1024, 0, 1025, 5, 2, 7];
        let job = Job::new(kernel, Pick::Segments(segments.clone())).unwrap();
        let mut numbers = Random(11);
        let source: Vec<u8> =
            (0..job.source_bytes() / 4).flat_map(|_| (numbers.next() as u32 & 0xffff_c000).to_le_bytes()).collect();
        both(gpu, name, &job, &source);

        let guard = Job::new(
            Kernel { convert: Convert::Same { bytes: 1 }, swap: false },
            Pick::Segments(vec![job.result_bytes()]),
        )
        .unwrap();
        let mut tile = gpu.lease().unwrap();
        tile.fill(0, &vec![0xa5; guard.source_bytes() as usize]).unwrap();
        tile.submit(&guard).unwrap();
        assert!(tile.wait().unwrap().bytes.iter().all(|&byte| byte == 0xa5));
        tile.fill(0, &source).unwrap();
        tile.submit(&job).unwrap();
        let bytes = tile.wait().unwrap().bytes.to_vec();
        let ends = job.result_offsets().skip(1).chain([job.result_bytes()]);
        for ((at, end), elements) in job.result_offsets().zip(ends).zip(&segments) {
            let behind = (at + elements * 2).next_multiple_of(4).min(end);
            let rest = &bytes[behind as usize..end as usize];
            assert!(rest.iter().all(|&byte| byte == 0xa5), "{name}: behind {elements} elements at {at}");
        }
    });
}

#[test]
fn rows_are_gathered_and_scattered() {
    each(|name, gpu| {
        let mut numbers = Random(5);
        let converts = [
            Convert::Same { bytes: 1 },
            Convert::Same { bytes: 2 },
            Convert::Same { bytes: 4 },
            Convert::Same { bytes: 8 },
            cast_kernel(CastPair::new(DType::F32, DType::F16).unwrap(), Overflow::Inf).convert,
            cast_kernel(CastPair::new(DType::F8E4m3fn, DType::F32).unwrap(), Overflow::Inf).convert,
            cast_kernel(CastPair::new(DType::F64, DType::F8E5m2).unwrap(), Overflow::Saturate).convert,
        ];
        for convert in converts {
            for (rows, row) in [(1, 1), (7, 3), (40, 5), (33, 64), (9, 127), (3, 300)] {
                let kernel = Kernel { convert, swap: numbers.below(2) == 1 };
                let table: Vec<u32> = (0..numbers.below(60) + 1).map(|_| numbers.below(rows) as u32).collect();
                let job = Job::new(kernel, Pick::Rows { row, rows, table }).unwrap();
                if gpu.capacity().holds(&job) {
                    both(gpu, name, &job, &numbers.bytes(job.source_bytes() as usize));
                }
                let mut table: Vec<u32> = (0..rows as u32).collect();
                (1..table.len()).rev().for_each(|at| table.swap(at, numbers.below(at as u64 + 1) as usize));
                table.truncate(numbers.below(rows) as usize + 1);
                let job = Job::new(kernel, Pick::Scatter { row, rows, table }).unwrap();
                both(gpu, name, &job, &numbers.bytes(job.source_bytes() as usize));
            }
        }
    });
}

#[test]
fn boxes_are_picked_from_strided_storage() {
    each(|name, gpu| {
        let mut numbers = Random(6);
        for round in 0..60 {
            let rank = numbers.below(6) as usize;
            let dims: Vec<u64> = (0..rank).map(|_| numbers.below(9) + 1).collect();
            // A permuted dense layout, now and then with steps or with an axis that stands still.
            let mut axes: Vec<usize> = (0..rank).collect();
            (1..rank).rev().for_each(|at| axes.swap(at, numbers.below(at as u64 + 1) as usize));
            let (mut strides, mut next) = (vec![0; rank], numbers.below(2) + 1);
            for axis in axes {
                strides[axis] = if numbers.below(8) == 0 { 0 } else { next };
                next *= dims[axis];
            }
            let offset = numbers.below(5);
            let far: u64 = dims.iter().zip(&strides).map(|(dim, stride)| (dim - 1) * stride).sum();
            let bytes = 1 << (round % 4);
            let pick = Pick::Strided { elements: offset + far + 1, layout: Layout { offset, strides }, dims };
            let job = Job::new(Kernel { convert: Convert::Same { bytes }, swap: round % 3 == 0 }, pick).unwrap();
            if gpu.capacity().holds(&job) {
                both(gpu, name, &job, &numbers.bytes(job.source_bytes() as usize));
            }
        }
        let layout = Layout { offset: 0, strides: vec![1, 100] };
        let pair = CastPair::new(DType::Bf16, DType::F32).unwrap();
        let pick = Pick::Strided { elements: 9900, layout, dims: vec![100, 99] };
        let job = Job::new(cast_kernel(pair, Overflow::Inf), pick).unwrap();
        both(gpu, name, &job, &numbers.bytes(19_800));
    });
}

/// As many workgroups of 64 as fit along a dimension, and one element or one workgroup more.
#[test]
fn the_end_of_a_dimension_is_no_end() {
    let Some(gpu) = gpu(Settings { tile_bytes: Some(8 << 20), ..Settings::default() }) else { return };
    let same = Kernel { convert: Convert::Same { bytes: 1 }, swap: false };
    for count in [65535 * 64, 65535 * 64 + 1, 65536 * 64] {
        let job = Job::new(same, Pick::Segments(vec![count])).unwrap();
        both(&gpu, "a dimension", &job, &Random(count).bytes(count as usize));
    }
}

#[test]
fn what_does_not_fit_is_refused_before_the_device_sees_it() {
    let Some(gpu) = gpu(lowered()) else { return };
    let Capacity { source, segments, .. } = gpu.capacity();
    assert_eq!(source, 64 << 10);
    let same = Kernel { convert: Convert::Same { bytes: 1 }, swap: false };
    let mut tile = gpu.lease().unwrap();
    assert!(tile.fill(source, &[0]).unwrap_err().to_string().contains("65537 bytes for a tile of 65536"));
    for pick in [Pick::Segments(vec![source + 1]), Pick::Segments(vec![1; segments as usize + 1])] {
        let job = Job::new(same, pick).unwrap();
        assert!(tile.submit(&job).unwrap_err().to_string().contains("too large for a tile"));
    }
    assert_eq!(gpu.failure(), None);
    let job = Job::new(same, Pick::Segments(vec![source])).unwrap();
    drop(tile);
    both(&gpu, "whole", &job, &Random(2).bytes(source as usize));
    let odd = CastPair::new(DType::F32, DType::I8).unwrap();
    assert!(!gpu.has(&cast_kernel(odd, Overflow::Inf)));
}

/// Words that are subnormals or NaNs as floats survive a copy.
#[test]
fn a_copy_takes_words_for_words() {
    let Some(gpu) = gpu(Settings::default()) else { return };
    let same = Kernel { convert: Convert::Same { bytes: 4 }, swap: false };
    let mut source = codes(DType::F32, 0);
    // A subnormal, and NaNs that signal or carry something.
    source.extend([50u32, 0x8000_0032, 0x7f80_0001, 0xffd5_5555].map(u32::to_le_bytes).concat());
    let words = source.len() as u64 / 4;
    let job = Job::new(same, Pick::Segments(vec![words])).unwrap();
    let (bytes, tallies) = run(&gpu, &job, &source);
    assert!(bytes == source && tallies == [Tally::default()]);
    assert_eq!(GRANULE, 1024);
}
