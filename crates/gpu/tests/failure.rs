//! A device that fails says so, once and for good; nothing hangs and nothing panics.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod common;

use common::{Random, gpu};
use std::time::{Duration, Instant};
use weightlift_core::{DType, Kind, Result};
use weightlift_gpu::{Adapter, Choice, Faults, Gpu, Settings};
use weightlift_kernels::cast::{CastPair, Overflow};
use weightlift_kernels::device::{Convert, Device, Job, Kernel, Pick};

fn job() -> Job {
    let pair = CastPair::new(DType::F32, DType::F16).unwrap();
    let convert = Convert::Cast { pair, overflow: Overflow::Inf };
    Job::new(Kernel { convert, swap: false }, Pick::Segments(vec![1000])).unwrap()
}

fn one(gpu: &Gpu, source: &[u8]) -> Result<Vec<u8>> {
    let mut tile = gpu.lease()?;
    tile.fill(0, source)?;
    tile.submit(&job())?;
    Ok(tile.wait()?.bytes.to_vec())
}

/// The jobs before the k-th are right, the k-th and all after it are errors of kind `Device`.
#[test]
fn every_failure_ends_the_device() {
    let source = Random(1).bytes(4000);
    let Some(sound) = gpu(Settings::default()) else { return };
    let expected = one(&sound, &source).unwrap();
    let mut kinds = 0;
    for shared_memory in [true, false] {
        for k in 1..5 {
            let only = Some(k);
            for faults in [
                Faults { submit: only, ..Faults::default() },
                Faults { map: only, ..Faults::default() },
                Faults { lose: only, ..Faults::default() },
                Faults { hang: only, ..Faults::default() },
                Faults { panic: only, ..Faults::default() },
            ] {
                let timeout = Duration::from_millis(300);
                let settings = Settings { shared_memory, faults, ..Settings::default() };
                let timeout = if faults.hang.is_some() { timeout } else { settings.timeout };
                let gpu = Gpu::open(&Choice::Any, Settings { timeout, ..settings }).unwrap();
                for at in 1..7 {
                    let found = one(&gpu, &source);
                    match found {
                        Ok(bytes) if at < k => assert!(bytes == expected),
                        Ok(bytes) => panic!("{faults:?}: job {at} gave {} bytes", bytes.len()),
                        Err(error) => {
                            assert!(at >= k, "{faults:?}: job {at}: {error}");
                            assert_eq!(error.kind(), Kind::Device, "{error}");
                        }
                    }
                }
                assert!(gpu.failure().is_some());
                kinds += 1;
            }
        }
    }
    assert_eq!(kinds, 40);
}

/// A thread that waits for a tile is woken when the device dies.
#[test]
fn nobody_waits_for_a_dead_device() {
    let faults = Faults { lose: Some(1), ..Faults::default() };
    let Some(gpu) = gpu(Settings { tiles: Some(1), faults, ..Settings::default() }) else { return };
    let (source, start) = (Random(1).bytes(4000), Instant::now());
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| one(&gpu, &source).is_ok())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(results, [false; 4]);
}

/// What the driver itself refuses is a failure too, not a panic and not a wrong result.
#[test]
fn memory_that_runs_out_is_an_error() {
    let settings = Settings { tile_bytes: Some(1 << 29), tiles: Some(512), ..Settings::default() };
    let Some(gpu) = gpu(settings) else { return };
    let mut tiles = Vec::new();
    // Software adapters take memory only as it is touched, so that this may also just succeed.
    while tiles.len() < 4 {
        match gpu.lease() {
            Ok(tile) => tiles.push(tile),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Device);
                return;
            }
        }
    }
}

#[test]
fn a_device_that_is_not_there_is_named_with_what_was_found() {
    if gpu(Settings::default()).is_none() {
        return;
    }
    let error = Gpu::open(&Choice::Index(999), Settings::default()).err().unwrap().to_string();
    assert!(error.contains("no compute device with number 999: found: "), "{error}");
}

/// Many threads poll at once, each for its own job; none takes another's news for a failure.
#[test]
fn threads_do_not_take_each_others_news_for_failures() {
    let Some(gpu) = gpu(Settings { tiles: Some(4), ..Settings::default() }) else { return };
    let source = Random(1).bytes(4000);
    let expected = one(&gpu, &source).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..2000).for_each(|_| assert!(one(&gpu, &source).unwrap() == expected)));
        }
    });
    assert_eq!(gpu.failure(), None);
}

/// What was measured in software must not speak for hardware.
#[test]
fn an_identity_says_whether_it_is_software() {
    for adapter in weightlift_gpu::adapters() {
        assert_eq!(Adapter::is_software_identity(&adapter.identity()), adapter.is_software(), "{}", adapter.identity());
        assert_eq!(adapter.is_software(), adapter.name().contains("llvmpipe"), "{adapter}");
    }
    assert!(!Adapter::is_software_identity("discrete Vulkan 10de:2335 a software card"));
}
