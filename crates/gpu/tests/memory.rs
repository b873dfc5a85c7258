//! Memory does not grow with the number of jobs. A file of its own, so that no other test runs in the process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod common;

use common::{Random, gpu, run};
use weightlift_core::DType;
use weightlift_gpu::Settings;
use weightlift_kernels::cast::{CastPair, Overflow};
use weightlift_kernels::device::{Convert, Job, Kernel, Pick};

/// Thousands of jobs take no more memory than the first few.
#[cfg(target_os = "linux")]
#[test]
fn jobs_take_no_memory() {
    let resident = || -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let Some(gpu) = gpu(Settings::default()) else { return };
    let pair = CastPair::new(DType::F32, DType::F16).unwrap();
    let convert = Convert::Cast { pair, overflow: Overflow::Inf };
    let job = Job::new(Kernel { convert, swap: false }, Pick::Segments(vec![1000])).unwrap();
    let source = Random(1).bytes(4000);
    (0..200).for_each(|_| drop(run(&gpu, &job, &source)));
    let before = resident();
    (0..2000).for_each(|_| drop(run(&gpu, &job, &source)));
    // Buffers for 2,000 results of 2 kB alone would be 4 MB.
    let grown = resident().saturating_sub(before);
    assert!(grown < 2_000, "{grown} kB more after 2,000 jobs");
}
