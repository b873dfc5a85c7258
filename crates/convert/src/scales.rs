//! 8-bit floats with scales beside them: which tensor is the scale of which, and what it spans.
//!
//! Tools that store weights in 8 bits keep a second tensor to multiply them with. They name it after the weight:
//!
//! | weight | scale |
//! |---|---|
//! | `P.weight` | `P.weight_scale`, `P.weight_scale_inv`, `P.scale_weight`, `P.weight_scales`, `P.weight.scale`, `P.scale` |
//! | `P.NAME` | `P.NAME_scale`, `P.NAME_scale_inv`, `P.scale_NAME`, `P.NAME_scales`, `P.NAME.scale` |
//!
//! `_inv` notwithstanding, the number is multiplied: it is the inverse of the one that the weight was multiplied with
//! when it was stored.

use crate::items::Item;
use crate::value::Value;
use std::collections::{HashMap, HashSet};
use weightlift_core::{Catalog, Class, DType, Entry, EntryId, Error, Origin, Result, Shape};

/// A weight and its scale, both tensors of one input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scaled {
    weight: EntryId,
    scale: EntryId,
}

/// Whether elements are 8-bit floats that stand for a value only together with a scale.
fn is_scaled(dtype: DType) -> bool {
    dtype.is_float() && dtype.bits() == Some(8) && dtype != DType::F8E8m0fnu
}

/// The names under which the scale of a tensor may stand, likeliest first.
fn names_of_scale(name: &str) -> Vec<String> {
    let at = name.rfind(['.', '/']).map_or(0, |at| at + 1);
    let (prefix, last) = name.split_at(at);
    let separator = prefix.chars().last().unwrap_or('.');
    let mut names = vec![
        format!("{name}_scale"),
        format!("{name}_scale_inv"),
        format!("{prefix}scale_{last}"),
        format!("{name}_scales"),
        format!("{name}{separator}scale"),
    ];
    if last == "weight" {
        names.push(format!("{prefix}scale"));
    }
    names
}

/// Every 8-bit tensor that has a floating-point tensor beside it under the name of its scale.
fn pairs(catalog: &Catalog) -> Vec<Scaled> {
    let scales: HashMap<&str, EntryId> =
        catalog.iter().filter(|(_, entry)| entry.dtype.is_float()).map(|(id, e)| (e.name.as_str(), id)).collect();
    let scale_of =
        |entry: &Entry| names_of_scale(&entry.name).iter().find_map(|name| scales.get(name.as_str()).copied());
    let weights = catalog.iter().filter(|(_, entry)| is_scaled(entry.dtype));
    weights.filter_map(|(weight, entry)| Some(Scaled { weight, scale: scale_of(entry)? })).collect()
}

/// What to say of weights that are cast to wider floats without their scales.
pub(crate) fn warning(items: &[Item], catalog: &Catalog) -> Option<String> {
    const SHOWN: usize = 3;
    let names: Vec<&str> = widened(items, catalog).map(|(at, _)| items[at].name.as_str()).collect();
    let (some, more) = (names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", "), names.len() > SHOWN);
    let more = if more { " and more" } else { "" };
    let (count, tensors) = (names.len(), if names.len() == 1 { "tensor has a scale" } else { "tensors have scales" });
    (!names.is_empty()).then(|| {
        format!("{count} 8-bit {tensors} beside it that is not applied: {some}{more}; --apply-scales multiplies")
    })
}

/// Positions of the tensors of the first input that become a wider float and have a scale.
fn widened(items: &[Item], catalog: &Catalog) -> impl Iterator<Item = (usize, Scaled)> {
    let by_weight: HashMap<EntryId, Scaled> = pairs(catalog).into_iter().map(|pair| (pair.weight, pair)).collect();
    let wider = |item: &Item| item.mark.is_some_and(|to| to.class() == Class::Float && to.bits() > Some(8));
    let found = move |(at, item): (usize, &Item)| {
        let origin = item.origin.filter(|origin| origin.input == 0 && is_scaled(item.value.dtype()))?;
        wider(item).then_some((at, *by_weight.get(&origin.entry)?))
    };
    items.iter().enumerate().filter_map(found).collect::<Vec<_>>().into_iter()
}

/// Multiplies every weight that is widened with its scale, and takes the scales that were applied out. A scale that
/// also belongs to a weight which stays as it is stays too. Answers how many were applied.
///
/// # Errors
/// `Request` for a scale whose shape fits none of: one number, one a row, one a block; and for a weight that steps have
/// already taken apart.
pub(crate) fn apply(items: &mut Vec<Item>, catalog: &Catalog) -> Result<usize> {
    let found: Vec<(usize, Scaled)> = widened(items, catalog).collect();
    for (at, pair) in &found {
        let item = &mut items[*at];
        if item.value.entry().is_none() {
            let error = Error::request("its scale can only be applied before steps change it").in_tensor(&item.name);
            return Err(error.help("convert twice: first with --apply-scales, then with the other steps"));
        }
        let scale = catalog.entry(pair.scale);
        let origin = Origin { input: 0, entry: pair.scale };
        let scale = Value::of_entry(origin, scale, scale.name.clone());
        let wide = if item.mark == Some(DType::F64) { DType::F64 } else { DType::F32 };
        item.value = item.value.scaled(&scale, wide).map_err(|error| error.in_tensor(&item.name))?;
    }
    let applied: HashSet<EntryId> = found.iter().map(|(_, pair)| pair.scale).collect();
    let weights: HashSet<EntryId> = found.iter().map(|(_, pair)| pair.weight).collect();
    let needed: HashSet<EntryId> =
        pairs(catalog).iter().filter(|pair| !weights.contains(&pair.weight)).map(|pair| pair.scale).collect();
    let dropped = |item: &Item| {
        let scale = item.origin.filter(|origin| origin.input == 0).map(|origin| origin.entry);
        scale.is_some_and(|scale| applied.contains(&scale) && !needed.contains(&scale))
    };
    items.retain(|item| !dropped(item));
    Ok(found.len())
}

/// How many positions of each axis of the weight share a number of the scale; a whole axis where it has one number.
///
/// A scale with one number is for all, one along the first axis is one a row, one of the same rank is one a block. The
/// last block of an axis may be cut short: then blocks have the power of two that gives as many, as all known tools
/// have it; where the axis divides evenly and no power of two fits, its share.
pub(crate) fn blocks(weight: &Shape, scale: &Shape) -> Option<Vec<u64>> {
    let (dims, numbers) = (weight.dims(), scale.dims());
    if scale.elements() == 1 {
        return Some(dims.iter().map(|&dim| dim.max(1)).collect());
    }
    let along = |axis: usize| match numbers.len() {
        rank if rank == dims.len() => Some(numbers[axis]),
        1 => Some(if axis == 0 { numbers[0] } else { 1 }),
        _ => None,
    };
    let block = |axis: usize| match (dims[axis], along(axis)?) {
        (0, _) | (_, 0) => None,
        (dim, 1) => Some(dim),
        (dim, count) => {
            let power = (0..63).map(|k| 1u64 << k).find(|&power| dim.div_ceil(power) == count);
            power.or_else(|| dim.is_multiple_of(count).then(|| dim / count))
        }
    };
    (0..dims.len()).map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_bear_the_names_that_tools_give_them() {
        let names = names_of_scale("layers.0.mlp.weight");
        for name in ["weight_scale", "weight_scale_inv", "scale_weight", "weight_scales", "weight.scale", "scale"] {
            assert!(names.contains(&format!("layers.0.mlp.{name}")), "{name}");
        }
        assert!(names_of_scale("a/kernel").contains(&"a/kernel_scale".to_owned()));
        assert!(names_of_scale("a/kernel").contains(&"a/kernel/scale".to_owned()));
        assert!(names_of_scale("w").contains(&"scale_w".to_owned()));
        assert!(!names_of_scale("a.w").contains(&"a.scale".to_owned()));
    }

    #[test]
    fn blocks_follow_from_shapes() {
        let blocks = |weight: &[u64], scale: &[u64]| blocks(&Shape::new(weight).unwrap(), &Shape::new(scale).unwrap());
        assert_eq!(blocks(&[3, 5], &[]), Some(vec![3, 5]));
        assert_eq!(blocks(&[3, 5], &[1, 1]), Some(vec![3, 5]));
        assert_eq!(blocks(&[3, 5], &[3]), Some(vec![1, 5]));
        assert_eq!(blocks(&[3, 5], &[3, 1]), Some(vec![1, 5]));
        assert_eq!(blocks(&[256, 512], &[2, 4]), Some(vec![128, 128]));
        assert_eq!(blocks(&[576, 7168], &[5, 56]), Some(vec![128, 128]), "the last block is cut short");
        assert_eq!(blocks(&[4, 96], &[4, 3]), Some(vec![1, 32]));
        assert_eq!(blocks(&[6, 9], &[2, 3]), Some(vec![4, 4]));
        assert_eq!(blocks(&[12, 12], &[4, 1]), Some(vec![3, 12]), "no power of two gives four of twelve");
        assert_eq!(blocks(&[3, 5], &[5]), None);
        assert_eq!(blocks(&[3, 5], &[2, 2, 2]), None);
        assert_eq!(blocks(&[0, 5], &[0]), None);
    }
}
