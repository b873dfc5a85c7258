//! What is measured of a device leaves it as it was.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod common;

use common::{Random, each, gpu, run};
use std::time::Duration;
use weightlift_core::{DType, Kind};
use weightlift_gpu::Settings;
use weightlift_kernels::cast::{CastPair, Overflow, Tally};
use weightlift_kernels::device::{Convert, Device, Job, Kernel, Pick, Processor};

const WINDOW: Duration = Duration::from_millis(2);

fn job(from: DType, to: DType, elements: u64) -> Job {
    let convert = Convert::Cast { pair: CastPair::new(from, to).unwrap(), overflow: Overflow::Inf };
    Job::new(Kernel { convert, swap: false }, Pick::Segments(vec![elements])).unwrap()
}

/// The same tile, one at a time, is measured and used in turns.
#[test]
fn a_measured_tile_works_as_before() {
    for shared_memory in [true, false] {
        let Some(gpu) = gpu(Settings { shared_memory, tiles: Some(1), ..Settings::default() }) else { return };
        for (from, to) in [(DType::F32, DType::F16), (DType::F8E4m3fn, DType::F64)] {
            let job = job(from, to, 10_001);
            let source = Random(3).bytes(job.source_bytes() as usize);
            let mut expected = Vec::new();
            let tallies = Processor::run(&job, &source, &mut expected).unwrap();
            for _ in 0..2 {
                let rates = [gpu.kernel_rate(&job, &source, WINDOW).unwrap(), gpu.copy_rate(&job, WINDOW).unwrap()];
                assert!(rates.iter().all(|rate| rate.is_finite() && *rate > 0.0), "{rates:?}");
                assert_eq!(run(&gpu, &job, &source), (expected.clone(), tallies.clone()));
            }
        }
        assert_eq!(gpu.failure(), None);
    }
}

/// A bare tile goes the whole way, but nothing is computed.
#[test]
fn a_copy_takes_the_place_of_the_kernel() {
    each(|name, gpu| {
        let job = job(DType::F32, DType::F16, 5000);
        let source = Random(4).bytes(job.source_bytes() as usize);
        let mut tile = gpu.lease_without_kernel().unwrap();
        for _ in 0..2 {
            tile.fill(0, &source).unwrap();
            tile.submit(&job).unwrap();
            let done = tile.wait().unwrap();
            assert_eq!(done.tallies, [Tally::default()], "{name}");
            assert!(done.bytes == &source[..job.result_bytes() as usize], "{name}");
        }
        drop(tile);
        let mut expected = Vec::new();
        let tallies = Processor::run(&job, &source, &mut expected).unwrap();
        assert_eq!(run(gpu, &job, &source), (expected, tallies), "{name}: the next one computes");
    });
}

#[test]
fn a_job_that_does_not_fit_is_refused_and_the_device_lives() {
    let Some(gpu) = gpu(Settings::default()) else { return };
    let job = job(DType::F32, DType::F16, gpu.capacity().source / 4 + 1);
    for error in [gpu.kernel_rate(&job, &[], WINDOW).unwrap_err(), gpu.copy_rate(&job, WINDOW).unwrap_err()] {
        assert_eq!(error.kind(), Kind::Limit, "{error}");
    }
    assert_eq!(gpu.failure(), None);
}
