//! Devices to test on, and bytes to test with.
#![allow(dead_code)] // Each test file uses its part.

use weightlift_core::DType;
use weightlift_gpu::{Choice, Gpu, Settings};
use weightlift_kernels::device::{Device, Job};

/// A device on whatever adapter there is. Without one the test says so, and fails where `WEIGHTLIFT_GPU_TESTS=require`.
pub(crate) fn gpu(settings: Settings) -> Option<Gpu> {
    match Gpu::open(&Choice::Any, settings) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            let required = std::env::var("WEIGHTLIFT_GPU_TESTS").is_ok_and(|value| value == "require");
            assert!(!required, "{error}");
            eprintln!("not tested: {error}");
            None
        }
    }
}

/// As it comes, with copies to memory of its own, and with limits so low that everything is split.
pub(crate) fn settings() -> Vec<(&'static str, Settings)> {
    let apart = Settings { shared_memory: false, ..Settings::default() };
    vec![("as it comes", Settings::default()), ("apart", apart), ("lowered", lowered())]
}

/// 64 KiB bindings and 4 workgroups along a dimension.
pub(crate) fn lowered() -> Settings {
    Settings { max_binding: Some(64 << 10), max_groups: Some(4), ..Settings::default() }
}

pub(crate) fn each(mut test: impl FnMut(&str, &Gpu)) {
    for (name, settings) in settings() {
        if let Some(gpu) = gpu(settings) {
            test(name, &gpu);
        }
    }
}

/// Carries out a job; gives the result and the counts.
pub(crate) fn run(gpu: &Gpu, job: &Job, source: &[u8]) -> (Vec<u8>, Vec<weightlift_kernels::cast::Tally>) {
    let mut tile = gpu.lease().unwrap();
    // In pieces, one of which is empty, at odd places.
    let (a, b) = source.split_at(source.len() / 3);
    tile.fill(0, a).unwrap();
    tile.fill(a.len() as u64, &[]).unwrap();
    tile.fill(a.len() as u64, b).unwrap();
    tile.submit(job).unwrap();
    let done = tile.wait().unwrap();
    (done.bytes.to_vec(), done.tallies)
}

/// Random numbers that are the same every time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(count).collect()
    }
}

pub(crate) const FLOATS: [DType; 10] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::F8E5m2,
    DType::F8E4m3fn,
    DType::F8E4m3fnuz,
    DType::F8E5m2fnuz,
    DType::F8E4m3b11fnuz,
    DType::F8E8m0fnu,
];

/// Every code of a format of at most 16 bits; of others all exponents with fractions at the edges of every narrower
/// format, and random codes.
pub(crate) fn codes(dtype: DType, random: usize) -> Vec<u8> {
    let mut numbers = Random(dtype as u64);
    match dtype {
        DType::F64 => {
            let mut codes = Vec::new();
            for high in 0..4096u64 {
                for fraction in edges(52) {
                    codes.extend(((high << 52) | fraction).to_le_bytes());
                }
            }
            codes.extend(numbers.bytes(8 * random));
            // Random fractions where the narrower formats have their ends.
            for _ in 0..random {
                let exponent = 1023 - 152 + numbers.below(152 + 130);
                let code = numbers.next() & 0x800f_ffff_ffff_ffff | exponent << 52;
                codes.extend(code.to_le_bytes());
            }
            codes
        }
        DType::F32 => {
            let mut codes = Vec::new();
            for high in 0..512u32 {
                for fraction in edges(23) {
                    codes.extend(((high << 23) | fraction as u32).to_le_bytes());
                }
            }
            codes.extend(numbers.bytes(4 * random));
            codes
        }
        DType::F16 | DType::Bf16 => (0..=u16::MAX).flat_map(u16::to_le_bytes).collect(),
        _ => (0..=u8::MAX).collect(),
    }
}

/// Fractions around every bit: the bit alone, one less, one more, all above it.
fn edges(bits: u32) -> Vec<u64> {
    let most = (1u64 << bits) - 1;
    let around = (0..bits).flat_map(|bit| {
        let one = 1u64 << bit;
        [one - 1, one, one + 1, most - one, most - one + 1, one | one >> 1, one | (one << 1), most & !(one - 1)]
    });
    let mut edges: Vec<u64> = around.map(|fraction| fraction & most).chain([0, most, most - 1]).collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}
