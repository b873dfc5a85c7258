//! How a source spells the slices of its partitioned tensors. One box has several spellings, and its key depends on
//! it; written back into a bundle, slices keep theirs.

use crate::bundle::Index;
use crate::proto::TensorSlice;
use crate::slices;
use std::collections::BTreeMap;
use weightlift_core::{Catalog, EntryId, Extras, Origin, Region, Shape};

/// The slices of each partitioned tensor, as they stand in the file.
#[derive(Debug, Default)]
pub(crate) struct Spellings(BTreeMap<EntryId, Vec<TensorSlice>>);

impl Spellings {
    /// Those of a bundle; `None` where nothing is partitioned.
    pub(crate) fn of(index: &Index, catalog: &Catalog) -> Option<Extras> {
        let slices = |(id, entry): (EntryId, &weightlift_core::Entry)| {
            let found = &index.get(entry.name.as_bytes())?.slices;
            (!found.is_empty()).then(|| (id, found.clone()))
        };
        let spellings: BTreeMap<_, _> = catalog.iter().filter_map(slices).collect();
        (!spellings.is_empty()).then(|| Extras::new(Spellings(spellings)))
    }

    /// How the source of a tensor spells its slices; none where it has none.
    pub(crate) fn of_origin(extras: &[(u32, Extras)], origin: Option<Origin>) -> &[TensorSlice] {
        let find = || {
            let origin = origin?;
            let (_, extras) = extras.iter().find(|(input, _)| *input == origin.input)?;
            extras.get::<Spellings>()?.0.get(&origin.entry)
        };
        find().map(Vec::as_slice).unwrap_or_default()
    }
}

/// The spelling of a box among some slices, where it is likely to stand at `likely`.
pub(crate) fn find<'a>(
    slices: &'a [TensorSlice],
    likely: usize,
    region: &Region,
    shape: &Shape,
) -> Option<&'a TensorSlice> {
    let (before, after) = slices.split_at_checked(likely).unwrap_or((slices, &[]));
    let fits = |slice: &&TensorSlice| slices::region(slice, shape).is_ok_and(|found| found == *region);
    after.iter().chain(before).find(fits)
}
