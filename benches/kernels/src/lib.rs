//! What the benchmarks share: values to cast, and the `half` crate as a rival.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use weightlift_core::{DType, Packing};
use weightlift_kernels::cast::{CastPair, Overflow, cast};

/// Bytes of an element, one a byte for narrow ones.
pub fn width(dtype: DType) -> usize {
    dtype.element_bytes(Packing::OnePerByte).unwrap_or(1) as usize
}

/// Memory that any element type may lie in.
pub struct Buffer(Vec<u64>, usize);

impl Buffer {
    /// So many bytes, all of them touched.
    pub fn new(bytes: usize) -> Buffer {
        Buffer(vec![1; bytes.div_ceil(8)], bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.0)[..self.1]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.0)[..self.1]
    }
}

/// Values like those of weights: bell-shaped about zero, few of them out of range of anything.
pub fn source(dtype: DType, elements: usize) -> Buffer {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let scale = if dtype.is_float() { 0.1 } else { 60.0 };
    // A period is enough, and large buffers are filled soon.
    let period = elements.min(1 << 18);
    let values: Vec<u8> =
        (0..period).flat_map(|_| ((0..4).map(|_| uniform()).sum::<f32>() * scale).to_le_bytes()).collect();
    let mut first = vec![0; period * width(dtype)];
    match CastPair::new(DType::F32, dtype) {
        Some(pair) => {
            cast(pair, Overflow::Saturate, &values, &mut first);
        }
        None => first.copy_from_slice(&values),
    }
    let mut buffer = Buffer::new(elements * width(dtype));
    if !first.is_empty() {
        buffer.bytes_mut().chunks_mut(first.len()).for_each(|part| part.copy_from_slice(&first[..part.len()]));
    }
    buffer
}

/// A cast of whole elements.
pub type Cast = fn(&[u8], &mut [u8]);

/// The cast of the `half` crate, where it has one.
pub fn half_cast(pair: CastPair) -> Option<Cast> {
    use DType::{Bf16, F16, F32, F64};
    let cast: Cast = match (pair.from(), pair.to()) {
        (F32, F16) => |a, b| bytemuck::cast_slice_mut::<u8, f16>(b).convert_from_f32_slice(bytemuck::cast_slice(a)),
        (F64, F16) => |a, b| bytemuck::cast_slice_mut::<u8, f16>(b).convert_from_f64_slice(bytemuck::cast_slice(a)),
        (F32, Bf16) => |a, b| bytemuck::cast_slice_mut::<u8, bf16>(b).convert_from_f32_slice(bytemuck::cast_slice(a)),
        (F64, Bf16) => |a, b| bytemuck::cast_slice_mut::<u8, bf16>(b).convert_from_f64_slice(bytemuck::cast_slice(a)),
        (F16, F32) => |a, b| bytemuck::cast_slice::<u8, f16>(a).convert_to_f32_slice(bytemuck::cast_slice_mut(b)),
        (F16, F64) => |a, b| bytemuck::cast_slice::<u8, f16>(a).convert_to_f64_slice(bytemuck::cast_slice_mut(b)),
        (Bf16, F32) => |a, b| bytemuck::cast_slice::<u8, bf16>(a).convert_to_f32_slice(bytemuck::cast_slice_mut(b)),
        (Bf16, F64) => |a, b| bytemuck::cast_slice::<u8, bf16>(a).convert_to_f64_slice(bytemuck::cast_slice_mut(b)),
        _ => return None,
    };
    Some(cast)
}
