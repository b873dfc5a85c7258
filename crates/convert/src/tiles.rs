//! How a tensor is cut into tiles.

use weightlift_core::{Region, Shape};

/// Bytes of input that a tile of consecutive elements aims at: large enough to make system calls cheap, small enough
/// that reading, checking, casting and writing it stay in the second-level cache.
pub(crate) const RUN_TILE: u64 = 512 << 10;
/// The same for tensors that are picked together from strided storage, where larger boxes read less twice.
pub(crate) const BOX_TILE: u64 = 2 << 20;

/// Boxes of a tensor, each a run of consecutive elements in row-major order.
///
/// The tensor is cut along one axis; the axes before it are walked one index at a time, those after it are whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tiles {
    shape: Shape,
    axis: usize,
    /// Indices along the axis a tile.
    chunk: u64,
    /// Elements of one index along the axis.
    inner: u64,
}

impl Tiles {
    /// Tiles of at most `budget` elements, but at least one.
    pub(crate) fn of(shape: &Shape, budget: u64) -> Tiles {
        let dims = shape.dims();
        let inner_of = |axis: usize| dims[axis + 1..].iter().map(|&dim| dim.max(1)).product::<u64>();
        let axis = (0..dims.len()).find(|&axis| inner_of(axis) <= budget.max(1)).unwrap_or(0);
        let inner = if dims.is_empty() { 1 } else { inner_of(axis) };
        Tiles { shape: shape.clone(), axis, chunk: (budget / inner).max(1), inner }
    }

    /// How many tiles there are; none for a tensor without elements.
    pub(crate) fn count(&self) -> u64 {
        match self.shape.elements() {
            0 => 0,
            _ => self.outer() * self.per_outer(),
        }
    }

    /// Elements of all tiles.
    pub(crate) fn elements(&self) -> u64 {
        self.shape.elements()
    }

    fn outer(&self) -> u64 {
        self.shape.dims().get(..self.axis).unwrap_or_default().iter().product()
    }

    fn length(&self) -> u64 {
        self.shape.dims().get(self.axis).copied().unwrap_or(1)
    }

    fn per_outer(&self) -> u64 {
        self.length().div_ceil(self.chunk)
    }

    /// First element and number of elements of a tile.
    pub(crate) fn run(&self, tile: u64) -> (u64, u64) {
        let (outer, from) = (tile / self.per_outer(), tile % self.per_outer() * self.chunk);
        let len = self.chunk.min(self.length() - from);
        ((outer * self.length() + from) * self.inner, len * self.inner)
    }

    /// The box of a tile.
    pub(crate) fn region(&self, tile: u64) -> Region {
        let mut region = Region::whole(&self.shape);
        if self.shape.rank() == 0 {
            return region;
        }
        let mut dims = self.shape.dims().to_vec();
        let (mut outer, from) = (tile / self.per_outer(), tile % self.per_outer() * self.chunk);
        for axis in (0..self.axis).rev() {
            region.start[axis] = outer % dims[axis];
            outer /= dims[axis];
            dims[axis] = 1;
        }
        region.start[self.axis] = from;
        dims[self.axis] = self.chunk.min(self.length() - from);
        // A part of a shape has no more elements than the shape.
        region.size = Shape::new(dims).unwrap_or_default();
        region
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tiles follow each other, cover everything, stay below the budget, and boxes and runs agree.
    fn check(dims: &[u64], budget: u64) {
        let shape = Shape::new(dims).unwrap();
        let tiles = Tiles::of(&shape, budget);
        let strides = shape.contiguous_strides();
        let mut next = 0;
        for tile in 0..tiles.count() {
            let (first, len) = tiles.run(tile);
            assert_eq!(first, next, "{dims:?} tile {tile} of {budget}");
            assert!(len > 0 && len <= budget.max(1), "{dims:?}: {len} elements of {budget}");
            let region = tiles.region(tile);
            assert!(region.lies_within(&shape));
            assert_eq!(region.size.elements(), len);
            assert_eq!(region.start.iter().zip(&strides).map(|(i, s)| i * s).sum::<u64>(), first);
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
