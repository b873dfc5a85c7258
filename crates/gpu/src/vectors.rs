//! Questions whose answers are known: a device that gets one wrong is not used.

use crate::context::{Gpu, failed};
use weightlift_core::{DType, Layout, Result};
use weightlift_kernels::cast::{CastPair, Overflow};
use weightlift_kernels::device::{Convert, Device, Job, Kernel, Pick, Processor};

/// Ties, subnormals, the last finite value and the first beyond, infinities and NaNs with payloads, as f32.
const F32: [u32; 24] = [
    0x0000_0000,
    0x8000_0000,
    0x0000_0001,
    0x8000_0032,
    0x007f_ffff,
    0x0080_0000,
    0x3300_0000,
    0x3300_0001,
    0x387f_c000,
    0x3380_0000,
    0x3f80_1000,
    0x3f80_3000,
    0x3f80_8000,
    0x3f81_8000,
    0x477f_e000,
    0x477f_efff,
    0x477f_f000,
    0xc77f_f000,
    0x7f7f_7fff,
    0x7f7f_8000,
    0x7f80_0000,
    0xff80_0000,
    0x7f80_0001,
    0xffd5_5555,
];

/// # Errors
/// `Device` for a wrong answer, or none.
pub(crate) fn check(gpu: &Gpu) -> Result<()> {
    let source: Vec<u8> = F32.iter().flat_map(|word| word.to_le_bytes()).collect();
    let count = F32.len() as u64;
    let same = Kernel { convert: Convert::Same { bytes: 2 }, swap: true };
    let layout = Layout { offset: 1, strides: vec![1, 4] };
    let mut jobs = vec![
        Job::new(same, Pick::Rows { row: 3, rows: 16, table: vec![5, 0, 15, 5] })?,
        Job::new(same, Pick::Strided { elements: 48, layout, dims: vec![3, 11] })?,
    ];
    for to in [DType::F16, DType::Bf16, DType::F8E4m3fn, DType::F64] {
        if let Some(pair) = CastPair::new(DType::F32, to) {
            let kernel = Kernel { convert: Convert::Cast { pair, overflow: Overflow::Inf }, swap: false };
            jobs.push(Job::new(kernel, Pick::Segments(vec![count]))?);
        }
    }
    for job in jobs {
        let source = &source[..job.source_bytes() as usize];
        let mut expected = Vec::new();
        let tallies = Processor::run(&job, source, &mut expected)?;
        let mut tile = gpu.lease()?;
        tile.fill(0, source)?;
        tile.submit(&job)?;
        let done = tile.wait()?;
        if done.bytes != expected || done.tallies != tallies {
            let name = gpu.name();
            return Err(failed(&format!("{name} gave wrong answers to known questions and is not used")));
        }
    }
    Ok(())
}
