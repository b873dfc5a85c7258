//! Reading the selected elements, a block at a time.

use super::element::element_bytes;
use weightlift::Opened;
use weightlift_convert::{Axis, Run, Selection};
use weightlift_core::{ByteRange, Checkpoint, Checksum, Entry, EntryId, Error, Extent, Region, Result, Shape};
use weightlift_io::{Scratch, Sources, read_box, verify_range};

/// The most elements of a block, those between selected ones counted in.
const BLOCK: u64 = 1 << 16;
/// A stored sum over so many bytes is checked even where the tensor is a small part of them.
const CHEAP: u64 = 1 << 20;

/// A tensor under reading.
pub(super) struct Reader<'a> {
    checkpoint: &'a dyn Checkpoint,
    sources: Sources<'a>,
    id: EntryId,
    entry: &'a Entry,
    /// Bytes of an element as blocks have it.
    unit: usize,
    scratch: Scratch,
    cover: Vec<u8>,
}

impl<'a> Reader<'a> {
    /// A reader of a tensor that is not opaque.
    pub(super) fn new(opened: &'a Opened, id: EntryId) -> Reader<'a> {
        let checkpoint = opened.checkpoint();
        let entry = checkpoint.catalog().entry(id);
        let sources = Sources::new(opened.files().as_ref(), checkpoint, &std::env::temp_dir());
        let (unit, scratch) = (element_bytes(entry.dtype), Scratch::default());
        Reader { checkpoint, sources, id, entry, unit, scratch, cover: Vec::new() }
    }

    /// Checks the stored sums where all of the tensor is `shown`. Answers that they were not checked where they cover
    /// more than what is.
    ///
    /// # Errors
    /// `Checksum` where one differs; `Malformed`, `Io`.
    pub(super) fn verify(&self, shown: &Selection) -> Result<Option<String>> {
        let name = &self.entry.name;
        let sums = self.entry.extents()?.iter().filter(|extent| extent.checksum.is_some());
        let sums: Vec<&Extent> = sums.collect();
        let covered = sums.iter().map(|extent| extent.bytes.len()).fold(0, u64::saturating_add);
        let whole = shown.elements() == self.entry.shape.elements();
        if whole && covered <= self.entry.bytes.saturating_mul(4).max(CHEAP) {
            sums.iter().try_for_each(|extent| self.verify_extent(extent)).map_err(|error| error.in_tensor(name))?;
            return Ok(None);
        }
        let unknown = !sums.is_empty() && shown.elements() > 0;
        Ok(unknown.then(|| format!("{name}: not verified, its checksum covers more than what was read")))
    }

    fn verify_extent(&self, extent: &Extent) -> Result<()> {
        match extent.checksum {
            Some(Checksum::OfFormat(_)) => self.checkpoint.verify(self.id),
            Some(checksum) => verify_range(&self.sources.get(extent.source)?, extent.bytes, checksum),
            None => Ok(()),
        }
    }

    /// Shows the selected elements in their order, dense and little-endian, at least a byte each.
    ///
    /// # Errors
    /// `Malformed`, `Io`, and what `visit` says.
    pub(super) fn blocks<E: From<Error>>(
        &mut self,
        selection: &Selection,
        visit: &mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut block = Vec::new();
        each_block(&selection.axes, BLOCK, &mut |axes| {
            self.gather(axes, &mut block).map_err(|error| error.in_tensor(&self.entry.name))?;
            visit(&block)
        })
    }

    /// Reads the elements at every combination of positions.
    fn gather(&mut self, axes: &Block, block: &mut Vec<u8>) -> Result<()> {
        let dims: Vec<u64> = axes.iter().map(|runs| runs.iter().map(|run| run.count).sum()).collect();
        let shape = Shape::new(dims)?;
        block.clear();
        block.resize(shape.elements() as usize * self.unit, 0);
        let combinations: Vec<u64> = axes.iter().map(|runs| runs.len() as u64).collect();
        each_index(&combinations, &mut |choice| {
            let runs: Vec<Run> =
                axes.iter().zip(choice).filter_map(|(runs, &at)| runs.get(at as usize).copied()).collect();
            let before = axes.iter().zip(choice);
            let before = before.map(|(runs, &at)| runs.iter().take(at as usize).map(|run| run.count).sum());
            self.gather_runs(&runs, &before.collect::<Vec<u64>>(), &shape, block)
        })
    }

    /// Reads the box around one run an axis and picks its elements into the block, where they begin at `before`.
    fn gather_runs(&mut self, runs: &[Run], before: &[u64], shape: &Shape, block: &mut [u8]) -> Result<()> {
        let size = Shape::new(runs.iter().map(|run| run.span()).collect::<Vec<_>>())?;
        let region = Region { start: runs.iter().map(|run| run.low()).collect(), size };
        if region.size == *shape && runs.iter().all(|run| run.step == 1 || run.count == 1) {
            return self.read(&region, block);
        }
        let mut cover = std::mem::take(&mut self.cover);
        cover.clear();
        cover.resize(region.size.elements() as usize * self.unit, 0);
        let done = self.read(&region, &mut cover);
        let (from, to) = (region.size.contiguous_strides(), shape.contiguous_strides());
        let counts: Vec<u64> = runs.iter().map(|run| run.count).collect();
        let unit = self.unit;
        let picked = done.and_then(|()| {
            each_index(&counts, &mut |index| {
                let mut source = 0;
                let mut target = 0;
                for (axis, (run, &at)) in runs.iter().zip(index).enumerate() {
                    source += (run.at(at) - region.start[axis]) * from[axis];
                    target += (before[axis] + at) * to[axis];
                }
                let (source, target) = (source as usize * unit, target as usize * unit);
                block[target..target + unit].copy_from_slice(&cover[source..source + unit]);
                Ok(())
            })
        });
        self.cover = cover;
        picked
    }

    /// Reads a box.
    fn read(&mut self, region: &Region, out: &mut [u8]) -> Result<()> {
        match self.entry.extents()? {
            [extent] if self.entry.dtype.element_bytes(extent.packing).is_none() => {
                self.read_packed(extent, region, out)
            }
            _ => read_box(&self.sources, self.entry, region, out, &mut self.scratch),
        }
    }

    /// Reads a box of elements narrower than a byte that lie without gaps, to one a byte.
    fn read_packed(&self, extent: &Extent, region: &Region, out: &mut [u8]) -> Result<()> {
        let bits = u64::from(self.entry.dtype.bits().unwrap_or(8));
        if !extent.region.is_whole(&self.entry.shape) || !extent.layout.is_contiguous(&self.entry.shape) {
            return Err(Error::unsupported(format!("a strided view of packed {} elements", self.entry.dtype)));
        }
        let source = self.sources.get(extent.source)?;
        let strides = self.entry.shape.contiguous_strides();
        let (&row, outer) = region.size.dims().split_last().unwrap_or((&1, &[]));
        let mut rows = out.chunks_exact_mut(row.max(1) as usize);
        each_index(outer, &mut |index| {
            let index = index.iter().chain([&0]);
            let at = region.start.iter().zip(index).zip(&strides);
            let first = extent.layout.offset + at.map(|((start, index), stride)| (start + index) * stride).sum::<u64>();
            let (low, high) = (first * bits / 8, ((first + row) * bits).div_ceil(8));
            let range = extent.bytes.slice(low, high - low);
            let range: ByteRange = range.ok_or_else(|| Error::malformed("a tensor ends before its last element"))?;
            let bytes = source.read_vec(range, u64::MAX)?;
            for (at, element) in rows.next().unwrap_or_default().iter_mut().enumerate() {
                *element = unpack(&bytes, (first + at as u64) * bits - low * 8, bits);
            }
            Ok(())
        })
    }
}

/// The `bits` bits at a bit offset, the first one lowest.
fn unpack(bytes: &[u8], offset: u64, bits: u64) -> u8 {
    let at = (offset / 8) as usize;
    let byte = |at: usize| u16::from(bytes.get(at).copied().unwrap_or(0));
    ((byte(at) | byte(at + 1) << 8) >> (offset % 8) & ((1 << bits) - 1)) as u8
}

/// Shows every index of an array of these dimensions, the last axis running fastest.
pub(super) fn each_index<E>(
    dims: &[u64],
    visit: &mut dyn FnMut(&[u64]) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    if dims.contains(&0) {
        return Ok(());
    }
    let mut index = vec![0; dims.len()];
    loop {
        visit(&index)?;
        let Some(axis) = (0..dims.len()).rev().find(|&axis| index[axis] + 1 < dims[axis]) else { return Ok(()) };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

/// The runs of every axis that a block has.
type Block = [Vec<Run>];

/// Cuts a selection into blocks that follow each other: some last axes whole, a part of the one before, one position
/// of the rest.
fn each_block<E>(
    axes: &[Axis],
    most: u64,
    visit: &mut dyn FnMut(&Block) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let (cut, cover) = cut_axis(axes, most);
    let outer: Vec<u64> = axes.iter().take(cut).map(Axis::count).collect();
    let Some(axis) = axes.get(cut) else { return visit(&[]) };
    if axes.iter().any(|axis| axis.count() == 0) {
        return Ok(());
    }
    each_index(&outer, &mut |index| {
        let mut block: Vec<Vec<Run>> =
            axes.iter().zip(index).map(|(axis, &at)| vec![Run { start: axis.at(at), step: 1, count: 1 }]).collect();
        block.push(Vec::new());
        block.extend(axes.iter().skip(cut + 1).map(|axis| axis.runs.clone()));
        for run in &axis.runs {
            let step = (most / cover.max(1)).saturating_sub(1) / run.step.unsigned_abs() + 1;
            let mut at = 0;
            while at < run.count {
                let count = step.min(run.count - at);
                block[cut] = vec![run.part(at, count)];
                visit(&block)?;
                at += count;
            }
        }
        Ok(())
    })
}

/// The first axis behind which all axes together fit into a block, and how much they cover.
fn cut_axis(axes: &[Axis], most: u64) -> (usize, u64) {
    let mut cover = 1u64;
    for (at, axis) in axes.iter().enumerate().rev() {
        let own: u64 = axis.runs.iter().map(|run| run.span()).fold(0, u64::saturating_add);
        match cover.checked_mul(own.max(1)) {
            Some(more) if more <= most && at > 0 => cover = more,
            _ => return (at, cover),
        }
    }
    (0, cover)
}
