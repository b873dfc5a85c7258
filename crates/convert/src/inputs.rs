//! The checkpoints that a plan reads.

use weightlift_core::{Catalog, Entry, Extent, Layout, Origin, Packing, Shape, SourceId};

/// One checkpoint that a plan reads: the first is edited, tensors of the others are called `WORD::NAME`.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The word before `::`; empty for the first.
    pub word: &'a str,
    /// What it holds.
    pub catalog: &'a Catalog,
}

/// All of them, by position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'a>(pub(crate) &'a [Input<'a>]);

impl<'a> Inputs<'a> {
    /// The catalog of the checkpoint that is edited.
    pub(crate) fn edited(&self) -> &'a Catalog {
        self.0[0].catalog
    }

    pub(crate) fn catalog(&self, input: u32) -> &'a Catalog {
        self.0[input as usize].catalog
    }

    pub(crate) fn entry(&self, origin: Origin) -> &'a Entry {
        self.catalog(origin.input).entry(origin.entry)
    }

    /// The position of the input that bears the word.
    pub(crate) fn position(&self, word: &str) -> Option<usize> {
        self.0.iter().position(|input| !word.is_empty() && input.word == word)
    }
}

/// Where the bytes of a tensor with one extent lie, so that equal places mean tied tensors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) input: u32,
    pub(crate) source: SourceId,
    pub(crate) bytes: weightlift_core::ByteRange,
    layout: Layout,
    order: weightlift_core::ByteOrder,
    packing: Packing,
    shape: Shape,
}

impl Place {
    /// The place of an entry; `None` for one without bytes or in several pieces.
    pub(crate) fn of(input: u32, entry: &Entry) -> Option<Place> {
        let [Extent { source, bytes, layout, order, packing, .. }] = entry.extents().ok()? else { return None };
        let (layout, shape) = (layout.clone(), entry.shape.clone());
        let place = Place { input, source: *source, bytes: *bytes, layout, order: *order, packing: *packing, shape };
        (entry.bytes > 0).then_some(place)
    }
}
