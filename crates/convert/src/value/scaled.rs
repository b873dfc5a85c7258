//! Weights of 8 bits times the scales that are kept beside them.

use super::read::Reader;
use super::{Kind, Value};
use crate::scales::blocks;
use crate::tiles::each_index;
use weightlift_core::{DType, Error, Packing, Region, Result, Shape};
use weightlift_kernels::average::{self, Width};
use weightlift_kernels::cast::{self, CastPair, Overflow};

impl Value {
    /// Every element times the number of the scale that is for it, in f32 or f64: one product, rounded once.
    ///
    /// # Errors
    /// `Request` where the shape of the scale fits neither one number, nor one a row, nor one a block.
    pub(crate) fn scaled(&self, scale: &Value, wide: DType) -> Result<Value> {
        let blocks = blocks(self.shape(), scale.shape()).ok_or_else(|| {
            let message = format!("{scale} of shape {} is no scale for {}", scale.shape(), self.shape());
            Error::request(message).help("a scale has one number, one a row, or one a block of the weight")
        })?;
        scale.element()?;
        let text = format!("{self} times {scale}");
        let kind = Kind::Scaled { of: self.clone(), scale: scale.clone(), blocks };
        Ok(Value::new(wide, self.shape().clone(), kind, text))
    }
}

impl Reader<'_> {
    /// A box of a scaled value.
    pub(super) fn scaled(
        &mut self,
        (value, of, scale, blocks): (&Value, &Value, &Value, &[u64]),
        region: &Region,
        out: &mut [u8],
    ) -> Result<()> {
        let dtype = value.dtype();
        let (elements, width) = (region.size.elements(), if dtype == DType::F64 { Width::F64 } else { Width::F32 });
        let mut weights = self.buffer(out.len() as u64);
        self.widened(of, region, elements, dtype, &mut weights, true)?;
        let (around, axes) = box_of_scale(scale.shape(), blocks, region)?;
        let mut numbers = self.buffer(around.size.elements() * dtype.element_bytes(Packing::Dense).unwrap_or(8));
        self.widened(scale, &around, around.size.elements(), dtype, &mut numbers, false)?;
        let strides = around.size.contiguous_strides();
        let number = |index: &[u64]| -> f64 {
            let part = |(axis, own): (usize, &Option<usize>)| {
                own.map_or(0, |own| {
                    ((region.start[axis] + index[axis]) / blocks[axis] - around.start[own]) * strides[own]
                })
            };
            let at = axes.iter().enumerate().map(part).sum::<u64>() as usize;
            match width {
                Width::F32 => numbers.as_chunks::<4>().0.get(at).map_or(1.0, |bytes| f32::from_le_bytes(*bytes).into()),
                Width::F64 => numbers.as_chunks::<8>().0.get(at).map_or(1.0, |bytes| f64::from_le_bytes(*bytes)),
            }
        };
        let element = out.len() / elements.max(1) as usize;
        each_run(region, blocks, |index, first, count| {
            let bytes = first as usize * element..(first + count) as usize * element;
            average::scale(width, number(index), &weights[bytes.clone()], &mut out[bytes]);
        });
        self.give_back(weights);
        self.give_back(numbers);
        Ok(())
    }

    /// A box of a value, cast to a dtype that has all its values or, for a scale in f64, to the nearest.
    fn widened(
        &mut self,
        of: &Value,
        region: &Region,
        elements: u64,
        to: DType,
        out: &mut [u8],
        reported: bool,
    ) -> Result<()> {
        let Some(pair) = CastPair::new(of.dtype(), to) else { return self.read(of, region, out) };
        let mut source = self.buffer(elements * of.element()?);
        self.read(of, region, &mut source)?;
        if reported {
            self.cast(pair, &source, out);
        } else {
            cast::cast(pair, Overflow::Inf, &source, out);
        }
        self.give_back(source);
        Ok(())
    }
}

/// The numbers of a scale that a box of the weight needs, and which axis of the scale goes with each of the weight's.
fn box_of_scale(scale: &Shape, blocks: &[u64], region: &Region) -> Result<(Region, Vec<Option<usize>>)> {
    let rank = scale.rank();
    let axis = |axis: usize| match rank {
        _ if scale.elements() == 1 => None,
        rank if rank == blocks.len() => Some(axis),
        _ => (axis == 0).then_some(0),
    };
    let axes: Vec<Option<usize>> = (0..blocks.len()).map(axis).collect();
    let (mut start, mut size) = (vec![0; rank], vec![1; rank]);
    for (axis, own) in axes.iter().enumerate().filter_map(|(axis, own)| Some((axis, (*own)?))) {
        let (first, len) = (region.start[axis], region.size.dims()[axis]);
        start[own] = first / blocks[axis];
        size[own] = (first + len).div_ceil(blocks[axis]) - start[own];
    }
    Ok((Region { start, size: Shape::new(size)? }, axes))
}

/// Calls `work` with every run of a box along its last axis that lies in one block: index, first element, length.
fn each_run(region: &Region, blocks: &[u64], mut work: impl FnMut(&[u64], u64, u64)) {
    let dims = region.size.dims();
    let (Some((&row, outer)), Some(&block)) = (dims.split_last(), blocks.last()) else { return work(&[], 0, 1) };
    let (mut first, start) = (0, region.start[dims.len() - 1]);
    each_index(outer, |index| {
        let mut at = 0;
        while at < row {
            let count = (block - (start + at) % block).min(row - at);
            work(&[index, &[at]].concat(), first + at, count);
            at += count;
        }
        first += row;
    });
}
