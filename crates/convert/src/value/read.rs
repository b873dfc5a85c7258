//! Reading a box of a value.

use super::fill::gaussian;
use super::merge::arithmetic;
use super::{Kind, Value};
use crate::report::Losses;
use crate::selection::Run;
use crate::tiles::{each_index, flat_runs};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use weightlift_core::{Checkpoint, DType, Error, Files, Layout, Origin, Region, Result, Shape};
use weightlift_io::{Scratch, Sources, place, read_box};
use weightlift_kernels::average;
use weightlift_kernels::cast::{self, CastPair, Rule};
use weightlift_kernels::strided;

/// Bytes that are read at once where a value is not asked for by tiles.
const CHUNK: u64 = 1 << 20;

/// An input as it is read.
pub(crate) struct Source<'a> {
    pub(crate) checkpoint: &'a dyn Checkpoint,
    pub(crate) sources: Sources<'a>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(files: &'a dyn Files, checkpoint: &'a dyn Checkpoint, spill: &Path) -> Source<'a> {
        Source { checkpoint, sources: Sources::new(files, checkpoint, spill) }
    }
}

/// Reads boxes of values: what one worker needs for it.
pub(crate) struct Reader<'a> {
    inputs: &'a [Source<'a>],
    rule: Rule,
    scratch: Scratch,
    /// Buffers that are free for the next box.
    buffers: Vec<Vec<u8>>,
    /// What casts within values did since it was last taken.
    casts: Vec<(CastPair, Losses)>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(inputs: &'a [Source<'a>], rule: impl Into<Rule>) -> Reader<'a> {
        Reader { inputs, rule: rule.into(), scratch: Scratch::default(), buffers: Vec::new(), casts: Vec::new() }
    }

    /// What casts within values did since this was last asked.
    pub(crate) fn take_casts(&mut self) -> Vec<(CastPair, Losses)> {
        std::mem::take(&mut self.casts)
    }

    /// Reads the box `region` of a value into `out` as dense row-major little-endian elements.
    ///
    /// # Errors
    /// `Request` for values that are no whole bytes; `Malformed`, `Io`.
    pub(crate) fn read(&mut self, value: &Value, region: &Region, out: &mut [u8]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        match &value.0.kind {
            Kind::Entry(origin) => self.entry(*origin, region, out),
            Kind::Bytes(bytes) => {
                let strides = value.shape().contiguous_strides();
                let offset = region.start.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
                strided::gather(bytes, value.element()? as usize, &Layout { offset, strides }, region.size.dims(), out)
            }
            Kind::Text(_) => Err(Error::request(format!("{value}: texts are written as a whole"))),
            Kind::Fill(element) => {
                out.chunks_exact_mut(element.len()).for_each(|slot| slot.copy_from_slice(element));
                Ok(())
            }
            Kind::Normal { std, seed } => self.normal(value, region, (*std, *seed), out),
            Kind::Permute(of, axes) => self.permuted(of, axes, region, out),
            Kind::Reshape(of) => self.reshaped(value, of, region, out),
            Kind::Pick(of, axes) => {
                let axes: Vec<Run> = (axes.iter().enumerate())
                    .map(|(axis, run)| run.part(region.start[axis], region.size.dims()[axis]))
                    .collect();
                self.picked(of, &axes, out)
            }
            Kind::Concat(parts, axis) => self.joined(parts, *axis, region, out),
            Kind::Repeat(of) => self.repeated(of, region, out),
            Kind::Rows { base, from, map } => {
                self.read(base, region, out)?;
                let (start, rows) = (region.start[0], region.size.dims()[0]);
                let row = out.len() / rows as usize;
                for (to, source, count) in map.runs(start, start + rows) {
                    let at = (to - start) as usize * row;
                    self.read(from, &rows_of(region, source, count)?, &mut out[at..at + count as usize * row])?;
                }
                Ok(())
            }
            Kind::Patch { base, axes, with } => self.patched(base, axes, with, region, out),
            Kind::Cast(of, pair) => {
                let mut source = self.buffer(region.size.elements() * of.element()?);
                self.read(of, region, &mut source)?;
                self.cast(*pair, &source, out);
                self.give_back(source);
                Ok(())
            }
            Kind::Scaled { of, scale, blocks } => self.scaled((value, of, scale, blocks), region, out),
            Kind::Sum(parts) => self.sum(value.dtype(), parts, region, out),
            Kind::Mean(of, mean) => self.mean(value, of, mean, region, out),
        }
    }

    pub(super) fn buffer(&mut self, len: u64) -> Vec<u8> {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.resize(len as usize, 0);
        buffer
    }

    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        self.buffers.push(buffer);
    }

    fn entry(&mut self, origin: Origin, region: &Region, out: &mut [u8]) -> Result<()> {
        let input = &self.inputs[origin.input as usize];
        let entry = input.checkpoint.catalog().entry(origin.entry);
        let read = read_box(&input.sources, entry, region, out, &mut self.scratch);
        read.map_err(|error| error.in_tensor(&entry.name))
    }

    /// Casts and counts.
    pub(super) fn cast(&mut self, pair: CastPair, source: &[u8], out: &mut [u8]) {
        let losses = cast::cast_and_compare(pair, self.rule, source, out).into();
        Losses::add(&mut self.casts, pair, &losses);
    }

    fn normal(&mut self, value: &Value, region: &Region, (std, seed): (f64, u64), out: &mut [u8]) -> Result<()> {
        let strides = value.shape().contiguous_strides();
        let mut numbers = self.buffer(region.size.elements() * 8);
        let mut slots = numbers.as_chunks_mut::<8>().0.iter_mut();
        each_index(region.size.dims(), |index| {
            let at = (0..index.len()).map(|axis| (region.start[axis] + index[axis]) * strides[axis]).sum();
            if let Some(slot) = slots.next() {
                *slot = (std * gaussian(seed, at)).to_le_bytes();
            }
        });
        match CastPair::new(DType::F64, value.dtype()) {
            Some(pair) if value.dtype() != DType::F64 => self.cast(pair, &numbers, out),
            _ => out.copy_from_slice(&numbers),
        }
        self.give_back(numbers);
        Ok(())
    }

    fn permuted(&mut self, of: &Value, axes: &[usize], region: &Region, out: &mut [u8]) -> Result<()> {
        let (source_box, layout) = turned_back(axes, region)?;
        let mut source = self.buffer(out.len() as u64);
        self.read(of, &source_box, &mut source)?;
        strided::gather(&source, of.element()? as usize, &layout, region.size.dims(), out)?;
        self.give_back(source);
        Ok(())
    }

    /// Each run of the box is a row-major run of the value below, which is some boxes of it.
    fn reshaped(&mut self, value: &Value, of: &Value, region: &Region, out: &mut [u8]) -> Result<()> {
        let element = of.element()? as usize;
        for (first, count, at) in flat_runs(value.shape(), region) {
            let mut at = at as usize * element;
            for part in flat_boxes(of.shape(), first, count)? {
                let len = part.size.elements() as usize * element;
                self.read(of, &part, &mut out[at..at + len])?;
                at += len;
            }
        }
        Ok(())
    }

    /// Reads positions of every axis: the box around them, or halves of it where that is much more than is wanted.
    fn picked(&mut self, of: &Value, axes: &[Run], out: &mut [u8]) -> Result<()> {
        let element = of.element()?;
        let around = Region {
            start: axes.iter().map(|run| run.low()).collect(),
            size: Shape::new(axes.iter().map(|run| run.span()).collect::<Vec<_>>())?,
        };
        if axes.iter().all(|run| run.step == 1) {
            return self.read(of, &around, out);
        }
        let (wanted, span) = (out.len() as u64 / element, around.size.elements());
        let widest = (0..axes.len()).filter(|&axis| axes[axis].count > 1).max_by_key(|&axis| axes[axis].span());
        if span.saturating_mul(element) > CHUNK
            && span / 4 > wanted
            && let Some(axis) = widest
        {
            let half = axes[axis].count / 2;
            for (from, count) in [(0, half), (half, axes[axis].count - half)] {
                let mut part = axes.to_vec();
                part[axis] = part[axis].part(from, count);
                let mut size: Vec<u64> = axes.iter().map(|run| run.count).collect();
                let whole = Region::whole(&Shape::new(size.clone())?);
                size[axis] = count;
                let mut start = vec![0; axes.len()];
                start[axis] = from;
                let region = Region { start, size: Shape::new(size)? };
                let mut bytes = self.buffer(region.size.elements() * element);
                self.picked(of, &part, &mut bytes)?;
                place(&bytes, element, &region, &whole, out)?;
                self.give_back(bytes);
            }
            return Ok(());
        }
        let mut bytes = self.buffer(span * element);
        self.read(of, &around, &mut bytes)?;
        let strides = around.size.contiguous_strides();
        let dims: Vec<u64> = axes.iter().map(|run| run.count).collect();
        let mut slots = out.chunks_exact_mut(element as usize);
        each_index(&dims, |index| {
            let at: u64 =
                (0..index.len()).map(|axis| (axes[axis].at(index[axis]) - around.start[axis]) * strides[axis]).sum();
            let at = (at * element) as usize;
            if let Some(slot) = slots.next() {
                slot.copy_from_slice(&bytes[at..at + element as usize]);
            }
        });
        self.give_back(bytes);
        Ok(())
    }

    fn joined(&mut self, parts: &[Value], axis: usize, region: &Region, out: &mut [u8]) -> Result<()> {
        let mut from = 0;
        for part in parts {
            let mut start = vec![0; region.start.len()];
            start[axis] = from;
            from += part.shape().dims()[axis];
            let own = Region { start, size: part.shape().clone() };
            let Some(shared) = own.intersection(region) else { continue };
            let mut inner = shared.clone();
            inner.start[axis] -= own.start[axis];
            if shared == *region {
                return self.read(part, &inner, out);
            }
            let element = part.element()?;
            let mut bytes = self.buffer(shared.size.elements() * element);
            self.read(part, &inner, &mut bytes)?;
            place(&bytes, element, &shared, region, out)?;
            self.give_back(bytes);
        }
        Ok(())
    }

    fn repeated(&mut self, of: &Value, region: &Region, out: &mut [u8]) -> Result<()> {
        let row = out.len() / region.size.dims()[0] as usize;
        let (first, rest) = out.split_at_mut(row);
        self.read(of, &rows_of(region, 0, 1)?, first)?;
        rest.chunks_exact_mut(row).for_each(|slot| slot.copy_from_slice(first));
        Ok(())
    }

    fn patched(&mut self, base: &Value, axes: &[Run], with: &Value, region: &Region, out: &mut [u8]) -> Result<()> {
        self.read(base, region, out)?;
        let inside: Option<Vec<(u64, u64)>> = axes
            .iter()
            .enumerate()
            .map(|(axis, run)| covered(*run, region.start[axis], region.size.dims()[axis]))
            .collect();
        let Some(inside) = inside else { return Ok(()) };
        let part = Region {
            start: inside.iter().map(|(first, _)| *first).collect(),
            size: Shape::new(inside.iter().map(|(_, count)| *count).collect::<Vec<_>>())?,
        };
        let element = with.element()?;
        let mut bytes = self.buffer(part.size.elements() * element);
        self.read(with, &part, &mut bytes)?;
        let strides = region.size.contiguous_strides();
        let mut values = bytes.chunks_exact(element as usize);
        each_index(part.size.dims(), |index| {
            let at: u64 = (0..index.len())
                .map(|axis| (axes[axis].at(part.start[axis] + index[axis]) - region.start[axis]) * strides[axis])
                .sum();
            let at = (at * element) as usize;
            if let Some(value) = values.next() {
                out[at..at + value.len()].copy_from_slice(value);
            }
        });
        self.give_back(bytes);
        Ok(())
    }

    /// Multiplies, then adds, value after value, in f32 or f64, and rounds to the dtype at the end.
    fn sum(&mut self, dtype: DType, parts: &[(Value, f64)], region: &Region, out: &mut [u8]) -> Result<()> {
        let (wide, width) =
            arithmetic(dtype).ok_or_else(|| Error::request(format!("{dtype} values are not averaged")))?;
        let up = CastPair::new(dtype, wide).filter(|_| dtype != wide);
        let elements = region.size.elements();
        let wide_len = wide.element_bytes(weightlift_core::Packing::Dense).unwrap_or(8) * elements;
        let (mut source, mut term, mut total) = (self.buffer(out.len() as u64), self.buffer(0), self.buffer(wide_len));
        for (at, (value, weight)) in parts.iter().enumerate() {
            self.read(value, region, &mut source)?;
            if let Some(pair) = up {
                term.resize(wide_len as usize, 0);
                cast::cast(pair, self.rule, &source, &mut term);
            }
            let term = if up.is_some() { &term } else { &source };
            let add = if at == 0 { average::scale } else { average::scale_add };
            add(width, *weight, term, &mut total);
        }
        match CastPair::new(wide, dtype).filter(|_| dtype != wide) {
            Some(down) => self.cast(down, &total, out),
            None => out.copy_from_slice(&total),
        }
        [source, term, total].into_iter().for_each(|buffer| self.give_back(buffer));
        Ok(())
    }

    fn mean(
        &mut self,
        value: &Value,
        of: &Value,
        known: &Mutex<Option<Arc<[u8]>>>,
        region: &Region,
        out: &mut [u8],
    ) -> Result<()> {
        let mut slot = known.lock().unwrap_or_else(PoisonError::into_inner);
        let mean = match slot.as_ref() {
            Some(mean) => mean.clone(),
            None => slot.insert(self.mean_row(value.dtype(), of)?.into()).clone(),
        };
        drop(slot);
        let strides = value.shape().contiguous_strides();
        let offset = region.start.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
        strided::gather(&mean, value.element()? as usize, &Layout { offset, strides }, region.size.dims(), out)
    }

    /// The mean over the rows: f64, row after row.
    fn mean_row(&mut self, dtype: DType, of: &Value) -> Result<Vec<u8>> {
        let rows = of.shape().dims()[0];
        let width = of.shape().elements() / rows.max(1);
        let element = of.element()?;
        let mut total = vec![0f64; width as usize];
        let step = (CHUNK / (width * element).max(1)).max(1);
        let mut at = 0;
        let (mut source, mut wide) = (self.buffer(0), self.buffer(0));
        while at < rows {
            let count = step.min(rows - at);
            source.resize((count * width * element) as usize, 0);
            self.read(of, &rows_of(&Region::whole(of.shape()), at, count)?, &mut source)?;
            let numbers = match CastPair::new(of.dtype(), DType::F64).filter(|_| of.dtype() != DType::F64) {
                Some(pair) => {
                    wide.resize((count * width * 8) as usize, 0);
                    cast::cast(pair, self.rule, &source, &mut wide);
                    &wide
                }
                None => &source,
            };
            for (index, number) in numbers.as_chunks::<8>().0.iter().enumerate() {
                total[index % width as usize] += f64::from_le_bytes(*number);
            }
            at += count;
        }
        let means: Vec<u8> = total.iter().flat_map(|sum| (sum / rows as f64).to_le_bytes()).collect();
        let mut row = vec![0; (width * element) as usize];
        match CastPair::new(DType::F64, dtype).filter(|_| dtype != DType::F64) {
            Some(pair) => self.cast(pair, &means, &mut row),
            None => row.copy_from_slice(&means),
        }
        [source, wide].into_iter().for_each(|buffer| self.give_back(buffer));
        Ok(row)
    }
}

/// The box with other rows.
/// The box below a permutation of axes, and how the box above lies in it.
pub(super) fn turned_back(axes: &[usize], region: &Region) -> Result<(Region, Layout)> {
    let (mut start, mut dims) = (vec![0; axes.len()], vec![0; axes.len()]);
    for (to, &from) in axes.iter().enumerate() {
        (start[from], dims[from]) = (region.start[to], region.size.dims()[to]);
    }
    let size = Shape::new(dims)?;
    let own = size.contiguous_strides();
    let strides = axes.iter().map(|&axis| own[axis]).collect();
    Ok((Region { start, size }, Layout { offset: 0, strides }))
}

pub(super) fn rows_of(region: &Region, start: u64, rows: u64) -> Result<Region> {
    let (mut first, mut dims) = (region.start.clone(), region.size.dims().to_vec());
    (first[0], dims[0]) = (start, rows);
    Ok(Region { start: first, size: Shape::new(dims)? })
}

/// Which positions of a run lie in `start..start + len`: the first of them and how many; `None` for none.
fn covered(run: Run, start: u64, len: u64) -> Option<(u64, u64)> {
    if run.count == 0 || len == 0 {
        return None;
    }
    let (end, step) = (start + len, run.step.unsigned_abs());
    // Positions grow or shrink by equal steps, so those inside follow each other.
    let (first, last) = if run.step < 0 {
        let first = (run.start + 1).saturating_sub(end).div_ceil(step);
        (first, run.start.checked_sub(start)? / step)
    } else {
        (start.saturating_sub(run.start).div_ceil(step), end.checked_sub(run.start + 1)? / step)
    };
    let last = last.min(run.count - 1);
    (first <= last).then(|| (first, last - first + 1))
}

/// The boxes that hold `count` elements from the row-major element `first` on, in order.
fn flat_boxes(shape: &Shape, first: u64, count: u64) -> Result<Vec<Region>> {
    let (dims, strides) = (shape.dims(), shape.contiguous_strides());
    let (mut at, mut left) = (first, count);
    let mut boxes = Vec::new();
    while left > 0 {
        let axis = (0..dims.len()).find(|&axis| at % strides[axis] == 0 && left >= strides[axis]);
        let Some(axis) = axis else {
            boxes.push(Region::whole(shape));
            break;
        };
        let index = |axis: usize| at / strides[axis] % dims[axis];
        let taken = (left / strides[axis]).min(dims[axis] - index(axis));
        let start = (0..dims.len()).map(|other| if other <= axis { index(other) } else { 0 }).collect();
        let size: Vec<u64> = (0..dims.len())
            .map(|other| match other.cmp(&axis) {
                std::cmp::Ordering::Less => 1,
                std::cmp::Ordering::Equal => taken,
                std::cmp::Ordering::Greater => dims[other],
            })
            .collect();
        boxes.push(Region { start, size: Shape::new(size)? });
        at += taken * strides[axis];
        left -= taken * strides[axis];
    }
    Ok(boxes)
}
