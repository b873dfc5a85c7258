//! Slices of partitioned tensors as boxes, and whether the boxes fill the tensor.

use crate::proto::TensorSlice;
use weightlift_core::{Error, Region, Result, Shape};

/// Boxes that are compared with each other at most, however the slices lie.
const COMPARISONS: usize = 1 << 26;
/// Slices up to which a missing range is looked for.
const SEARCHED: usize = 1 << 12;

/// The box of a slice within a tensor of this shape.
///
/// # Errors
/// `Malformed` for a slice of another rank or beyond the tensor.
pub(crate) fn region(slice: &TensorSlice, shape: &Shape) -> Result<Region> {
    let (rank, found) = (shape.rank(), slice.extent.len());
    if rank != found {
        return Err(Error::malformed(format!("a slice has {found} dimensions, its tensor {rank}")));
    }
    let mut start = Vec::with_capacity(rank);
    let mut size = Vec::with_capacity(rank);
    for (extent, &dim) in slice.extent.iter().zip(shape.dims()) {
        let length = extent.length.map_or(Some(dim), |length| u64::try_from(length).ok());
        let first = u64::try_from(extent.start).ok();
        let inside = |(first, length): &(u64, u64)| first.checked_add(*length).is_some_and(|end| end <= dim);
        let Some((first, length)) = first.zip(length).filter(inside) else {
            let length = extent.length.map_or("all".to_owned(), |length| length.to_string());
            let message = format!("a slice of {length} from {} does not fit into a dimension of {dim}", extent.start);
            return Err(Error::malformed(message));
        };
        start.push(first);
        size.push(length);
    }
    Ok(Region { start, size: Shape::new(size)? })
}

/// Checks that boxes within a shape fill it exactly once.
///
/// # Errors
/// `Malformed` that names two boxes that overlap, or a range that is missing; `Limit` for too many boxes.
pub(crate) fn check_cover(regions: &[Region], shape: &Shape) -> Result<()> {
    if let Some((a, b)) = find_overlap(regions, shape)? {
        return Err(Error::malformed(format!("slices {} and {} overlap", a.index_in(shape), b.index_in(shape))));
    }
    let filled: u128 = regions.iter().map(|region| u128::from(region.size.elements())).sum();
    if filled == u128::from(shape.elements()) {
        return Ok(());
    }
    Err(match find_gap(regions, shape) {
        Some(gap) => Error::malformed(format!("the slices leave out the range {}", gap.index_in(shape))),
        None => Error::malformed(format!("the slices hold {filled} of {} elements", shape.elements())),
    })
}

/// Two boxes that have an element in common. They are swept along the axis that tells most of them apart.
fn find_overlap<'a>(regions: &'a [Region], shape: &Shape) -> Result<Option<(&'a Region, &'a Region)>> {
    let mut sorted: Vec<&Region> = regions.iter().filter(|region| region.size.elements() > 0).collect();
    let starts = |axis: usize| {
        let mut starts: Vec<u64> = sorted.iter().map(|region| region.start[axis]).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.len()
    };
    let Some(axis) = (0..shape.rank()).max_by_key(|&axis| starts(axis)) else {
        return Ok(sorted.first().copied().zip(sorted.get(1).copied()));
    };
    let bounds = |region: &Region, axis: usize| (region.start[axis], region.start[axis] + region.size.dims()[axis]);
    sorted.sort_unstable_by_key(|region| region.start[axis]);
    let mut active: Vec<&Region> = Vec::new();
    let mut compared = 0;
    for region in sorted {
        active.retain(|other| bounds(other, axis).1 > region.start[axis]);
        compared += active.len();
        if compared > COMPARISONS {
            return Err(Error::limit(format!("{} slices lie too close together to be compared", regions.len())));
        }
        let overlaps = |other: &&&Region| {
            (0..shape.rank()).all(|axis| {
                let ((a, a_end), (b, b_end)) = (bounds(other, axis), bounds(region, axis));
                a < b_end && b < a_end
            })
        };
        if let Some(other) = active.iter().find(overlaps) {
            return Ok(Some((other, region)));
        }
        active.push(region);
    }
    Ok(None)
}

/// A box of the shape that no region touches.
fn find_gap(regions: &[Region], shape: &Shape) -> Option<Region> {
    if regions.len() > SEARCHED {
        return None;
    }
    let mut left = vec![Region::whole(shape)];
    for region in regions {
        left = left.iter().flat_map(|rest| subtract(rest, region)).collect();
        if left.len() > SEARCHED {
            return None;
        }
    }
    left.into_iter().min_by(|a, b| a.start.cmp(&b.start))
}

/// What is left of a box without another one, cut along one axis after the other.
fn subtract(whole: &Region, hole: &Region) -> Vec<Region> {
    let Some(hole) = whole.intersection(hole) else { return vec![whole.clone()] };
    let mut pieces = Vec::new();
    let mut rest = whole.clone();
    for axis in 0..rest.start.len() {
        let (low, size) = (rest.start[axis], rest.size.dims()[axis]);
        let (from, len) = (hole.start[axis], hole.size.dims()[axis]);
        for (start, size) in [(low, from - low), (from + len, low + size - from - len)] {
            pieces.extend((size > 0).then(|| with_axis(&rest, axis, start, size)).flatten());
        }
        match with_axis(&rest, axis, from, len) {
            Some(inner) => rest = inner,
            None => return pieces,
        }
    }
    pieces
}

fn with_axis(region: &Region, axis: usize, start: u64, size: u64) -> Option<Region> {
    let (mut starts, mut dims) = (region.start.clone(), region.size.dims().to_vec());
    starts[axis] = start;
    dims[axis] = size;
    Some(Region { start: starts, size: Shape::new(dims).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Extent;

    fn shape(dims: &[u64]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn slice(extents: &[(i64, Option<i64>)]) -> TensorSlice {
        TensorSlice { extent: extents.iter().map(|&(start, length)| Extent { start, length }).collect() }
    }

    fn cover(dims: &[u64], slices: &[&[(i64, Option<i64>)]]) -> String {
        let shape = shape(dims);
        let regions: Vec<_> = slices.iter().map(|s| region(&slice(s), &shape).unwrap()).collect();
        check_cover(&regions, &shape).map_or_else(|error| error.message().to_owned(), |()| "covered".into())
    }

    #[test]
    fn slices_become_boxes() {
        let shape = shape(&[10, 4]);
        let found = region(&slice(&[(3, Some(4)), (0, None)]), &shape).unwrap();
        assert_eq!((found.start.as_slice(), found.size.dims()), (&[3, 0][..], &[4, 4][..]));
        assert_eq!(found.index_in(&shape), "[3:7, :]");
        for bad in [
            &[(0, None)][..],
            &[(8, Some(3)), (0, None)],
            &[(-1, Some(3)), (0, None)],
            &[(1, Some(-1)), (0, None)],
            &[(i64::MAX, Some(i64::MAX)), (0, None)],
            &[(1, None), (0, None)],
        ] {
            assert!(region(&slice(bad), &shape).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn boxes_must_fill_a_tensor_once() {
        let all = (0, None);
        assert_eq!(cover(&[10, 4], &[&[(3, Some(4)), all], &[(0, Some(3)), all], &[(7, Some(3)), all]]), "covered");
        assert_eq!(
            cover(&[10, 4], &[&[(0, Some(3)), all], &[(7, Some(3)), all]]),
            "the slices leave out the range [3:7, :]"
        );
        assert_eq!(
            cover(&[10, 4], &[&[(0, Some(8)), all], &[(7, Some(3)), all]]),
            "slices [0:8, :] and [7:10, :] overlap"
        );
        assert!(cover(&[4], &[&[(0, Some(2))], &[(0, Some(2))], &[(2, Some(2))]]).contains("overlap"));
        let half = [(0, Some(2)), (2, Some(2))];
        let grid: Vec<_> = half.iter().flat_map(|&a| half.map(|b| [a, b])).collect();
        assert_eq!(cover(&[4, 4], &grid.iter().map(|s| &s[..]).collect::<Vec<_>>()), "covered");
        assert_eq!(
            cover(&[4, 4], &grid[1..].iter().map(|s| &s[..]).collect::<Vec<_>>()),
            "the slices leave out the range [0:2, 0:2]"
        );
        assert_eq!(cover(&[], &[&[]]), "covered");
        assert!(cover(&[], &[&[], &[]]).contains("overlap"));
        assert!(cover(&[], &[]).contains("leave out"));
        assert_eq!(cover(&[0, 3], &[&[all, (0, Some(1))]]), "covered");
    }

    #[test]
    fn many_slices_are_fast() {
        let rows: Vec<[(i64, Option<i64>); 2]> = (0..100_000).map(|row| [(row, Some(1)), (0, None)]).collect();
        assert_eq!(cover(&[100_000, 2], &rows.iter().map(|s| &s[..]).collect::<Vec<_>>()), "covered");
    }
}
