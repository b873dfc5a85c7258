//! Tensors that are views of one storage, written as views of one storage again.
//!
//! Views that are treated alike stay together. Of the storage only what they reach is written, in its order: views
//! that overlap keep their distance and strides, what lies between them goes. A view that overlaps no other and leaves
//! gaps is written dense.

use crate::inputs::Inputs;
use crate::plan::{Change, OutputSpec, Resolved};
use crate::target::Target;
use std::collections::HashMap;
use weightlift_core::{ByteOrder, ByteRange, DType, Extent, Layout, Region, Result, Shape, SourceId};

/// What becomes one blob.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) input: u32,
    pub(crate) source: SourceId,
    pub(crate) order: ByteOrder,
    /// The first of its tensors.
    pub(crate) output: usize,
    pub(crate) segments: Vec<Segment>,
    /// Elements of all segments.
    pub(crate) elements: u64,
    /// Bytes of the input's storage that no tensor reaches and that are not written.
    pub(crate) dropped: u64,
}

/// A run of elements of a blob.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The first tensor in it.
    pub(crate) output: usize,
    /// Its first element in the blob.
    pub(crate) at: u64,
    /// The bytes that it is, as they are stored; `None` for a view that is written dense.
    pub(crate) run: Option<ByteRange>,
}

/// All storages, and for each output its own and where it lies there.
#[derive(Debug, Default)]
pub(crate) struct Storages {
    pub(crate) storages: Vec<Storage>,
    pub(crate) of_output: Vec<Option<(usize, Layout)>>,
}

/// Tensors that can share a storage: one byte space, one byte order, one dtype, and the same done to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    input: u32,
    source: SourceId,
    order: ByteOrder,
    from: DType,
    to: DType,
    cast: bool,
}

/// A tensor in its storage. Positions count elements from the start of the byte space of a [`Cluster`].
#[derive(Debug, Clone)]
struct View<'a> {
    output: usize,
    extent: &'a Extent,
    shape: &'a Shape,
    /// From its first element to one behind its furthest.
    low: u64,
    high: u64,
}

/// Storages of the input that have bytes in common: one, but for views of storages in old files.
struct Cluster<'a> {
    bytes: ByteRange,
    views: Vec<View<'a>>,
}

impl Storages {
    /// The storages of all outputs that are tensors of an input as they are, or cast. `whole` are stored ranges that
    /// something else than tensors has a share in: they stay as they are where nothing is cast.
    pub(crate) fn of(resolved: &Resolved, inputs: Inputs<'_>, target: &Target) -> Result<Storages> {
        let mut found = Storages { storages: Vec::new(), of_output: vec![None; resolved.outputs.len()] };
        if !target.capabilities.strides {
            return Ok(found);
        }
        let mut kinds: HashMap<Kind, Vec<View<'_>>> = HashMap::new();
        let mut order = Vec::new();
        for (output, spec) in resolved.outputs.iter().enumerate() {
            if let Some((kind, view)) = view(output, spec, inputs) {
                let views = kinds.entry(kind).or_default();
                if views.is_empty() {
                    order.push(kind);
                }
                views.push(view);
            }
        }
        for kind in order {
            let element = kind.from.element_bytes(Default::default()).unwrap_or(1);
            for cluster in clusters(kinds.remove(&kind).unwrap_or_default(), element) {
                let shared = &inputs.catalog(kind.input).shared;
                let held = resolved.carries_extras && !kind.cast && shared.contains(&(kind.source, cluster.bytes));
                found.add(kind, cluster, element, target.keep_storages || held)?;
            }
        }
        Ok(found)
    }

    fn add(&mut self, kind: Kind, mut cluster: Cluster<'_>, element: u64, keep: bool) -> Result<()> {
        let Kind { input, source, order, .. } = kind;
        let (mut segments, mut at): (Vec<Segment>, u64) = (Vec::new(), 0);
        cluster.views.sort_by_key(|view| (view.low, view.high));
        let output = cluster.views.iter().map(|view| view.output).min().unwrap_or(0);
        let number = self.storages.len();
        let whole = (0, cluster.bytes.len() / element);
        let mut written = 0;
        for part in parts(&cluster.views, keep.then_some(whole)) {
            let Part { low, high, views, dense } = part;
            for view in views {
                let layout = match dense {
                    true => Layout { offset: at, strides: view.shape.contiguous_strides() },
                    false => {
                        let Layout { strides, .. } = view.extent.layout.clone();
                        Layout { offset: view.low - low + at, strides }
                    }
                };
                self.of_output[view.output] = Some((number, layout));
            }
            let first = views.iter().map(|view| view.output).min().unwrap_or(output);
            if dense {
                segments.push(Segment { output: first, at, run: None });
                at += views[0].shape.elements();
                continue;
            }
            let bytes = ByteRange::new(cluster.bytes.start() + low * element, (high - low) * element)?;
            written += bytes.len();
            match segments.last_mut() {
                // What lies side by side is read in one go.
                Some(Segment { run: Some(before), .. }) if before.end() == bytes.start() => {
                    *before = ByteRange::new(before.start(), before.len() + bytes.len())?;
                }
                _ => segments.push(Segment { output: first, at, run: Some(bytes) }),
            }
            at += high - low;
        }
        let dense = segments.iter().filter(|segment| segment.run.is_none()).count() as u64;
        let dropped = if dense > 0 { unreached(&cluster, element) } else { cluster.bytes.len() - written };
        self.storages.push(Storage { input, source, order, output, segments, elements: at, dropped });
        Ok(())
    }
}

/// The view that an output is of its storage, where it is one.
fn view<'a>(output: usize, spec: &'a OutputSpec, inputs: Inputs<'a>) -> Option<(Kind, View<'a>)> {
    let origin = spec.value.entry()?;
    let [extent] = inputs.entry(origin).extents().ok()? else { return None };
    spec.from.element_bytes(extent.packing)?;
    spec.to.element_bytes(spec.packing)?;
    if spec.bytes == 0 || extent.region != Region::whole(&spec.shape) {
        return None;
    }
    let (low, high) = (extent.layout.offset, extent.layout.reach(&spec.shape).ok()?);
    let cast = matches!(spec.change, Change::Cast(_));
    let (source, order) = (extent.source, extent.order);
    let kind = Kind { input: origin.input, source, order, from: spec.from, to: spec.to, cast };
    Some((kind, View { output, extent, shape: &spec.shape, low, high }))
}

/// Puts views over one range of bytes together. Ranges that overlap, but not by whole elements, stay apart.
fn clusters(mut views: Vec<View<'_>>, element: u64) -> Vec<Cluster<'_>> {
    let mut clusters: Vec<Cluster<'_>> = Vec::new();
    views.sort_by_key(|view| (view.extent.bytes.start(), std::cmp::Reverse(view.extent.bytes.len())));
    for mut view in views {
        let bytes = view.extent.bytes;
        match clusters.last_mut() {
            Some(Cluster { bytes: known, views })
                if bytes.start() < known.end() && (bytes.start() - known.start()) % element == 0 =>
            {
                let shift = (bytes.start() - known.start()) / element;
                (view.low, view.high) = (view.low + shift, view.high + shift);
                let end = known.end().max(bytes.end());
                *known = ByteRange::new(known.start(), end - known.start()).unwrap_or(*known);
                views.push(view);
            }
            _ => clusters.push(Cluster { bytes, views: vec![view] }),
        }
    }
    clusters
}

/// Views that lie over each other.
struct Part<'a, 'b> {
    low: u64,
    high: u64,
    views: &'b [View<'a>],
    /// One view that leaves gaps, which nothing else fills.
    dense: bool,
}

/// Cuts sorted views where none reaches from one side to the other; `whole` keeps all in one.
fn parts<'a, 'b>(views: &'b [View<'a>], whole: Option<(u64, u64)>) -> Vec<Part<'a, 'b>> {
    if let Some((low, high)) = whole {
        return vec![Part { low, high, views, dense: false }];
    }
    let mut parts = Vec::new();
    let mut first = 0;
    while let Some(view) = views.get(first) {
        let (low, mut high, mut end) = (view.low, view.high, first + 1);
        while let Some(next) = views.get(end).filter(|next| next.low < high) {
            high = high.max(next.high);
            end += 1;
        }
        let views = &views[first..end];
        let same = |other: &View<'_>| other.extent.layout == view.extent.layout && other.shape == view.shape;
        let dense = view.shape.elements() < high - low && views.iter().all(same);
        parts.push(Part { low, high, views, dense });
        first = end;
    }
    parts
}

/// Bytes of a storage that no view reaches, counted as if no two views but equal ones had an element in common.
fn unreached(cluster: &Cluster<'_>, element: u64) -> u64 {
    let reached = parts(&cluster.views, None).into_iter().map(|part| match part.dense {
        true => part.views[0].shape.elements(),
        false => part.high - part.low,
    });
    cluster.bytes.len().saturating_sub(reached.sum::<u64>() * element)
}
