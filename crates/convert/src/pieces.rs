//! Tensors that an input stores in pieces, and that stay in pieces where the target stores such too.

use crate::inputs::Inputs;
use crate::target::Target;
use crate::value::Value;
use weightlift_core::{ByteRange, Entry, Extent};
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
