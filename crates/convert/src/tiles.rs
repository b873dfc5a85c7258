//! How a tensor is cut into tiles.

use weightlift_core::{Region, Shape};

/// Bytes of input that a tile of consecutive elements aims at: large enough to make system calls cheap, small enough
/// that reading, checking, casting and writing it stay in the second-level cache.
pub(crate) const RUN_TILE: u64 = 512 << 10;
/// How much larger tiles are of tensors that are picked together from strided storage, where larger boxes read less
/// twice.
pub(crate) const BOX_TILES: u64 = 4;

/// Equal boxes that a tensor is cut into, in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tiles {
    shape: Shape,
    /// The dimensions of a box; those at the ends may be smaller.
    block: Vec<u64>,
}

impl Tiles {
    /// Boxes that are runs of at most `budget` consecutive elements, but at least one: cut along one axis, the axes
    /// before it walked one index at a time, those after it whole.
    pub(crate) fn of(shape: &Shape, budget: u64) -> Tiles {
        let dims = shape.dims();
        let inner_of = |axis: usize| dims[axis + 1..].iter().map(|&dim| dim.max(1)).product::<u64>();
        let cut = (0..dims.len()).find(|&axis| inner_of(axis) <= budget.max(1)).unwrap_or(0);
        let block = dims.iter().enumerate().map(|(axis, &dim)| match axis.cmp(&cut) {
            std::cmp::Ordering::Less => 1,
            std::cmp::Ordering::Equal => (budget / inner_of(axis)).clamp(1, dim.max(1)),
            std::cmp::Ordering::Greater => dim.max(1),
        });
        Tiles { shape: shape.clone(), block: block.collect() }
    }

    /// Boxes of at most `budget` elements, but at least one, about as long along every axis: for tensors whose
    /// neighbours lie far apart in the source.
    pub(crate) fn square(shape: &Shape, budget: u64) -> Tiles {
        let mut block: Vec<u64> = shape.dims().iter().map(|&dim| dim.max(1)).collect();
        while block.iter().product::<u64>() > budget.max(1) {
            let Some(longest) = block.iter_mut().max() else { break };
            *longest = longest.div_ceil(2);
        }
        Tiles { shape: shape.clone(), block }
    }

    /// How many tiles there are; none for a tensor without elements.
    pub(crate) fn count(&self) -> u64 {
        match self.shape.elements() {
            0 => 0,
            _ => (0..self.block.len()).map(|axis| self.along(axis)).product(),
        }
    }

    /// Elements of all tiles.
    pub(crate) fn elements(&self) -> u64 {
        self.shape.elements()
    }

    /// Boxes along an axis.
    fn along(&self, axis: usize) -> u64 {
        self.shape.dims()[axis].div_ceil(self.block[axis])
    }

    /// The runs of consecutive elements of a tile: first element, length, and where it begins in the dense tile.
    pub(crate) fn runs(&self, tile: u64) -> Vec<(u64, u64, u64)> {
        flat_runs(&self.shape, &self.region(tile))
    }

    /// The box of a tile.
    pub(crate) fn region(&self, tile: u64) -> Region {
        let (mut start, mut dims) = (vec![0; self.block.len()], vec![0; self.block.len()]);
        let mut rest = tile;
        for axis in (0..self.block.len()).rev() {
            start[axis] = rest % self.along(axis) * self.block[axis];
            rest /= self.along(axis);
            dims[axis] = self.block[axis].min(self.shape.dims()[axis] - start[axis]);
        }
        // A part of a shape has no more elements than the shape.
        Region { start, size: Shape::new(dims).unwrap_or_default() }
    }
}

/// Calls `work` with every index of a box in row-major order.
pub(crate) fn each_index(dims: &[u64], mut work: impl FnMut(&[u64])) {
    if dims.contains(&0) {
        return;
    }
    let mut index = vec![0; dims.len()];
    loop {
        work(&index);
        let Some(axis) = (0..dims.len()).rev().find(|&axis| index[axis] + 1 < dims[axis]) else { return };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

/// The row-major runs of a box: first element, length, and where it begins in the dense box.
pub(crate) fn flat_runs(shape: &Shape, region: &Region) -> Vec<(u64, u64, u64)> {
    let (dims, size) = (shape.dims(), region.size.dims());
    // Axes from here on are whole, and one more may be a part.
    let whole = (0..dims.len()).rev().find(|&axis| size[axis] != dims[axis]).unwrap_or(0);
    let strides = shape.contiguous_strides();
    let len: u64 = size.iter().skip(whole).product();
    let base: u64 = region.start.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    let mut placed = 0;
    each_index(size.get(..whole).unwrap_or_default(), |index| {
        let first = base + index.iter().zip(&strides).map(|(at, stride)| at * stride).sum::<u64>();
        match runs.last_mut() {
            Some((start, count, _)) if *start + *count == first => *count += len,
            _ => runs.push((first, len, placed)),
        }
        placed += len;
    });
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The runs of all tiles, in order.
    fn runs(tiles: &Tiles) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        for tile in 0..tiles.count() {
            let region = tiles.region(tile);
            assert!(region.lies_within(&tiles.shape));
            let mut placed = 0;
            for (first, len, at) in tiles.runs(tile) {
                assert_eq!(at, placed);
                placed += len;
                runs.push((first, len));
            }
            assert_eq!(region.size.elements(), placed);
        }
        runs
    }

    fn check(dims: &[u64], budget: u64) {
        let shape = Shape::new(dims).unwrap();
        let mut next = 0;
        for (first, len) in runs(&Tiles::of(&shape, budget)) {
            assert_eq!(first, next, "{dims:?} of {budget}");
            assert!(len > 0 && len <= budget.max(1), "{dims:?}: {len} elements of {budget}");
            next += len;
        }
        assert_eq!(next, shape.elements());
        let square = Tiles::square(&shape, budget);
        assert!((0..square.count()).all(|tile| square.region(tile).size.elements() <= budget.max(1)));
        let mut runs = runs(&square);
        runs.sort_unstable();
        let mut next = 0;
        for (first, len) in runs {
            assert_eq!(first, next, "{dims:?} of {budget}");
            next += len;
        }
        assert_eq!(next, shape.elements());
    }

    #[test]
    fn tiles_cover_every_element_once() {
        for budget in [0, 1, 2, 3, 7, 12, 100, 1000] {
            for dims in
                [&[][..], &[1], &[7], &[0], &[3, 0, 2], &[3, 5], &[2, 3, 4], &[1, 1, 9, 2], &[100, 7], &[5, 1, 1]]
            {
                check(dims, budget);
            }
        }
    }
}
