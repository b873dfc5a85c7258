//! Tensors that an input stores in pieces, and that stay in pieces where the target stores such too.

use crate::inputs::Inputs;
use crate::items::Item;
use crate::target::Target;
use crate::value::Value;
use weightlift_core::{ByteRange, Entry, Extent, Region, Shape};
use weightlift_io::run_of;

/// The pieces in which a value is written, by the extents of its entry; `None`, alone, is the whole.
pub(crate) fn of(value: &Value, inputs: Inputs<'_>, target: &Target) -> Vec<Option<usize>> {
    let found = || {
        let origin = value.entry().filter(|_| stay(value, inputs, target))?;
        let extents = inputs.entry(origin).extents().ok()?;
        let filled = |(_, extent): &(usize, &Extent)| extent.region.size.elements() > 0;
        Some(extents.iter().enumerate().filter(filled).map(|(at, _)| Some(at)).collect::<Vec<_>>())
    };
    found().filter(|pieces| pieces.len() > 1).unwrap_or_else(|| vec![None])
}

/// The boxes in which a tensor that was edited where it stands is written, cut as the one whose place it takes; none
/// where it is written whole. Where it has become longer or shorter along its first axis, the last pieces are.
pub(crate) fn kept(item: &Item, inputs: Inputs<'_>, target: &Target) -> Vec<Region> {
    let keeps = target.capabilities.joins_pieces.is_some() && !target.join_partitions;
    let origin = item.origin.filter(|_| keeps && item.in_place && item.value.entry().is_none());
    let Some(origin) = origin.filter(|origin| inputs.catalog(origin.input).format == target.id) else {
        return Vec::new();
    };
    let entry = inputs.entry(origin);
    let (before, after) = (entry.shape.dims(), item.value.shape().dims());
    let regions = entry.extents().unwrap_or_default().iter().map(|extent| &extent.region);
    let regions: Vec<&Region> = regions.filter(|region| region.size.elements() > 0).collect();
    if regions.len() < 2 || before.len() != after.len() || before.get(1..) != after.get(1..) {
        return Vec::new();
    }
    let mut starts: Vec<u64> = regions.iter().map(|region| region.start[0]).collect();
    starts.sort_unstable();
    starts.dedup();
    let last = starts.iter().rev().find(|&&start| start < after[0]).copied().unwrap_or(0);
    let cut = |region: &&Region| {
        let mut dims = region.size.dims().to_vec();
        match region.start[0] {
            start if start > last => return None,
            start if start == last => dims[0] = after[0] - start,
            _ => {}
        }
        Some(Region { start: region.start.clone(), size: Shape::new(dims).ok()? })
    };
    regions.iter().filter_map(cut).collect()
}

/// Whether a value is a tensor in several pieces that no step has touched and that stay apart in the target.
pub(crate) fn stay(value: &Value, inputs: Inputs<'_>, target: &Target) -> bool {
    let Some(origin) = value.entry() else { return false };
    let keeps = target.capabilities.joins_pieces.is_some() && !target.join_partitions;
    let entry = inputs.entry(origin);
    let apart = |extents: &[Extent]| extents.len() > 1 && extents.iter().all(|extent| run(entry, extent).is_some());
    keeps && inputs.catalog(origin.input).format == target.id && entry.extents().is_ok_and(apart)
}

/// An extent of the entry that a value is.
pub(crate) fn extent<'a>(value: &Value, at: usize, inputs: Inputs<'a>) -> Option<&'a Extent> {
    inputs.entry(value.entry()?).extents().ok()?.get(at)
}

/// The run of bytes that the elements of an extent are.
pub(crate) fn run(entry: &Entry, extent: &Extent) -> Option<ByteRange> {
    match entry.dtype.element_bytes(extent.packing) {
        Some(element) => run_of(extent, element, &extent.region),
        // Opaque bytes, and elements that are no whole bytes: the stored bytes as they are.
        None => Some(extent.bytes),
    }
}
