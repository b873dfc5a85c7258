//! From a job to a shader, its table and the parameters of its dispatches.

use crate::buffers::{DISPATCHES, PARAMS, Parts};
use bytemuck::{Pod, Zeroable};
use weightlift_core::{DType, Error, Result};
use weightlift_kernels::cast::Overflow;
use weightlift_kernels::device::{Convert, GRANULE, Job, Kernel, MAX_RANK, Pick};
use weightlift_shaders as shaders;

const _: () = assert!(GRANULE == shaders::GRANULE as u64 && MAX_RANK == shaders::MAX_RANK);
const _: () = assert!(size_of::<Params>() as u64 == PARAMS);

/// `Params` of the shaders.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Params {
    first: u32,
    end: u32,
    across: u32,
    elements: u32,
    row: u32,
    rank: u32,
    offset: u32,
    unused: u32,
    dims: [u32; MAX_RANK],
    strides: [u32; MAX_RANK],
}

/// One dispatch: its parameters and its workgroups along two dimensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dispatch {
    pub(crate) params: Params,
    pub(crate) groups: (u32, u32),
}

/// What of a job goes into a tile's buffers beside the source.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) shader: shaders::Shader,
    pub(crate) table: Vec<u32>,
    pub(crate) dispatches: Vec<Dispatch>,
    /// How many segments are counted.
    pub(crate) segments: usize,
}

/// The shader for a kernel, where there is one.
pub(crate) fn shader(kernel: &Kernel, pick: shaders::Pick) -> Option<shaders::Shader> {
    let convert = match kernel.convert {
        Convert::Same { bytes } if matches!(bytes, 1 | 2 | 4 | 8) => shaders::Convert::Same { bytes: bytes as u32 },
        Convert::Same { .. } => return None,
        Convert::Cast { pair, overflow } => {
            let saturate = overflow == Overflow::Saturate;
            shaders::Convert::Cast { from: coding(pair.from())?, to: coding(pair.to())?, saturate }
        }
    };
    Some(shaders::Shader { convert, pick, swap: kernel.swap })
}

fn coding(dtype: DType) -> Option<shaders::Coding> {
    Some(match dtype {
        DType::F64 => shaders::Coding::F64,
        DType::F32 => shaders::Coding::F32,
        DType::F16 => shaders::Coding::F16,
        DType::Bf16 => shaders::Coding::Bf16,
        DType::F8E5m2 => shaders::Coding::F8E5m2,
        DType::F8E4m3fn => shaders::Coding::F8E4m3fn,
        DType::F8E4m3fnuz => shaders::Coding::F8E4m3fnuz,
        DType::F8E5m2fnuz => shaders::Coding::F8E5m2fnuz,
        DType::F8E4m3b11fnuz => shaders::Coding::F8E4m3b11fnuz,
        DType::F8E8m0fnu => shaders::Coding::F8E8m0fnu,
        _ => return None,
    })
}

impl Plan {
    /// # Errors
    /// `Limit` for a job that does not fit, `Unsupported` for a kernel without a shader.
    pub(crate) fn new(job: &Job, parts: &Parts) -> Result<Plan> {
        if !parts.capacity().holds(job) {
            let (source, result) = (job.source_bytes(), job.result_bytes());
            let message = format!("a job of {source} bytes for {result} is too large for a tile of {}", parts.source);
            return Err(Error::limit(message));
        }
        let kind = match job.pick() {
            Pick::Segments(_) => shaders::Pick::Segments,
            Pick::Rows { .. } => shaders::Pick::Rows,
            Pick::Strided { .. } => shaders::Pick::Strided,
            Pick::Scatter { .. } => shaders::Pick::Scatter,
        };
        let kernel = job.kernel();
        let shader = shader(&kernel, kind)
            .ok_or_else(|| Error::unsupported(format!("the device has no shader for {:?}", kernel.convert)))?;
        let mut params = Params::default();
        let (mut table, mut segments, to) = (Vec::new(), 1, kernel.convert.bytes().1 as u64);
        // What fits into a tile is counted in 32 bits.
        let granules = match job.pick() {
            Pick::Segments(elements) => {
                segments = elements.len();
                table = granules(elements);
                table.len() as u64 / 2
            }
            Pick::Rows { row, table: rows, .. } => {
                (params.row, table) = (*row as u32, rows.clone());
                params.elements = (job.result_bytes() / to) as u32;
                u64::from(params.elements).div_ceil(GRANULE)
            }
            Pick::Strided { layout, dims, .. } => {
                params.elements = (job.result_bytes() / to) as u32;
                (params.rank, params.offset) = (dims.len() as u32, layout.offset as u32);
                params.dims.iter_mut().zip(dims).for_each(|(slot, &dim)| *slot = dim as u32);
                params.strides.iter_mut().zip(&layout.strides).for_each(|(slot, &stride)| *slot = stride as u32);
                u64::from(params.elements).div_ceil(GRANULE)
            }
            Pick::Scatter { row, table: rows, .. } => {
                (params.row, params.elements) = (*row as u32, (rows.len() as u64 * row) as u32);
                table = rows.clone();
                u64::from(params.elements).div_ceil(GRANULE)
            }
        };
        let dispatches = dispatches(params, granules, parts.groups);
        if table.len() as u64 * 4 > parts.table || dispatches.len() as u64 > DISPATCHES {
            let message = format!("a job of {} table entries in {} dispatches", table.len(), dispatches.len());
            return Err(Error::limit(message));
        }
        Ok(Plan { shader, table, dispatches, segments })
    }
}

/// For every granule its segment and how many elements of it there are.
fn granules(segments: &[u64]) -> Vec<u32> {
    let mut table = Vec::new();
    for (segment, &elements) in segments.iter().enumerate() {
        let parts = (0..elements.div_ceil(GRANULE)).map(|at| (elements - at * GRANULE).min(GRANULE));
        table.extend(parts.flat_map(|held| [segment as u32, held as u32]));
    }
    table
}

/// Granules as rows of workgroups, as many dispatches as it takes.
fn dispatches(params: Params, granules: u64, groups: u32) -> Vec<Dispatch> {
    let most = u64::from(groups) * u64::from(groups);
    let starts = (0..granules).step_by(usize::try_from(most).unwrap_or(usize::MAX));
    let dispatch = |first: u64| {
        let end = granules.min(first + most);
        let across = (end - first).min(u64::from(groups));
        let down = (end - first).div_ceil(across);
        let mut params = params;
        (params.first, params.end, params.across) = (first as u32, end as u32, across as u32);
        Dispatch { params, groups: (across as u32, down as u32) }
    };
    starts.map(dispatch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every granule is in one workgroup, and no dispatch is wider or higher than allowed.
    #[test]
    fn dispatches_cover_every_granule_once() {
        for groups in [1, 2, 4, 65535] {
            for granules in [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 4096, 65535, 65536] {
                let mut next = 0;
                for Dispatch { params, groups: (across, down) } in dispatches(Params::default(), granules, groups) {
                    assert_eq!((params.first, params.across), (next, across));
                    assert!(across <= groups && down <= groups && params.end - params.first <= across * down);
                    assert!(across * (down - 1) < params.end - params.first, "an idle row of workgroups");
                    next = params.end;
                }
                assert_eq!(u64::from(next), granules, "{groups} groups");
            }
        }
    }

    #[test]
    fn granules_belong_to_one_segment_each() {
        assert_eq!(granules(&[1025, 0, 3]), [0, 1024, 0, 1, 2, 3]);
    }
}
