//! How the elements of a tensor lie in a range of bytes.

use crate::{Error, Result, Shape};

/// Byte order of multi-byte elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ByteOrder {
    /// Low byte first.
    #[default]
    Little,
    /// High byte first.
    Big,
}

/// How elements narrower than a byte are stored. Elements of whole bytes are always [`Packing::Dense`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Packing {
    /// No bits between elements; the first element has the low bits of the first byte.
    #[default]
    Dense,
    /// One element a byte, in its low bits, high bits zero (TensorFlow, NumPy).
    OnePerByte,
}

/// A strided layout over a range of bytes; offset and strides count elements of the tensor's dtype.
///
/// Strides may be 0 (expanded) or overlap; they are never negative.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Layout {
    /// Elements between the start of the range and element `[0, 0, …]`.
    pub offset: u64,
    /// Elements between neighbours along each axis.
    pub strides: Vec<u64>,
}

impl Layout {
    /// Row-major and dense, from the start of the range.
    pub fn contiguous(shape: &Shape) -> Layout {
        Layout { offset: 0, strides: shape.contiguous_strides() }
    }

    /// Whether the elements of `shape` follow each other row-major without gaps. Axes of one element have no say.
    pub fn is_contiguous(&self, shape: &Shape) -> bool {
        shape.elements() == 0
            || shape
                .contiguous_strides()
                .iter()
                .zip(&self.strides)
                .zip(shape.dims())
                .all(|((a, b), &d)| d == 1 || a == b)
    }

    /// How many elements the range must hold: one more than the furthest element reached, 0 for an empty shape.
    ///
    /// # Errors
    /// `Malformed` when ranks differ or the sum does not fit into 63 bits.
    pub fn reach(&self, shape: &Shape) -> Result<u64> {
        if self.strides.len() != shape.rank() {
            let (strides, rank) = (self.strides.len(), shape.rank());
            return Err(Error::malformed(format!("{strides} strides for a tensor of rank {rank}")));
        }
        if shape.elements() == 0 {
            return Ok(0);
        }
        let last = self
            .strides
            .iter()
            .zip(shape.dims())
            .try_fold(self.offset, |at, (&stride, &dim)| at.checked_add(stride.checked_mul(dim - 1)?));
        match last.and_then(|last| last.checked_add(1)).filter(|&reach| reach <= i64::MAX as u64) {
            Some(reach) => Ok(reach),
            None => Err(Error::malformed(format!("strides {:?} of shape {shape} reach beyond 2^63", self.strides))),
        }
    }
}

/// A box of a tensor: from `start`, `size` elements along each axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    /// First index along each axis.
    pub start: Vec<u64>,
    /// Extent along each axis.
    pub size: Shape,
}

impl Region {
    /// The whole tensor.
    pub fn whole(shape: &Shape) -> Region {
        Region { start: vec![0; shape.rank()], size: shape.clone() }
    }

    /// Whether this box is all of `shape`.
    pub fn is_whole(&self, shape: &Shape) -> bool {
        self.size == *shape && self.start.iter().all(|&s| s == 0)
    }

    /// The box as an index expression into a tensor of `shape`: `[0:3, 2:4]`, with `:` for a whole dimension.
    pub fn index_in(&self, shape: &Shape) -> String {
        let axis = |((&start, &size), &dim): ((&u64, &u64), &u64)| match (start, size) {
            (0, size) if size == dim => ":".to_owned(),
            _ => format!("{start}:{}", start.saturating_add(size)),
        };
        let axes = self.start.iter().zip(self.size.dims()).zip(shape.dims()).map(axis);
        format!("[{}]", axes.collect::<Vec<_>>().join(", "))
    }

    /// Whether this box lies within `shape`.
    pub fn lies_within(&self, shape: &Shape) -> bool {
        self.start.len() == shape.rank()
            && self.size.rank() == shape.rank()
            && (0..shape.rank()).all(|axis| {
                self.start[axis].checked_add(self.size.dims()[axis]).is_some_and(|end| end <= shape.dims()[axis])
            })
    }

    /// The box cut in two in the middle of an axis, of which it has more than one position.
    pub fn halves(&self, axis: usize) -> Option<(Region, Region)> {
        let len = *self.size.dims().get(axis).filter(|&&len| len > 1)?;
        let part = |from: u64, len: u64| {
            let (mut start, mut dims) = (self.start.clone(), self.size.dims().to_vec());
            (start[axis], dims[axis]) = (start[axis] + from, len);
            Some(Region { start, size: Shape::new(dims).ok()? })
        };
        Some((part(0, len / 2)?, part(len / 2, len - len / 2)?))
    }

    /// The box both have in common, if it is not empty.
    pub fn intersection(&self, other: &Region) -> Option<Region> {
        let mut start = Vec::with_capacity(self.start.len());
        let mut size = Vec::with_capacity(self.start.len());
        for axis in 0..self.start.len() {
            let low = self.start[axis].max(other.start[axis]);
            let high = (self.start[axis] + self.size.dims()[axis]).min(other.start[axis] + other.size.dims()[axis]);
            if low >= high {
                return None;
            }
            start.push(low);
            size.push(high - low);
        }
        Some(Region { start, size: Shape::new(size).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[u64]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn contiguity_ignores_axes_of_one() {
        let layout = Layout { offset: 0, strides: vec![7, 3, 1] };
        assert!(layout.is_contiguous(&shape(&[1, 2, 3])));
        assert!(!layout.is_contiguous(&shape(&[2, 2, 3])));
        assert!(layout.is_contiguous(&shape(&[2, 0, 3])));
    }

    #[test]
    fn reach_is_checked() {
        let layout = |offset, strides: &[u64]| Layout { offset, strides: strides.to_vec() };
        assert_eq!(layout(5, &[3, 1]).reach(&shape(&[2, 3])).unwrap(), 11);
        assert_eq!(layout(5, &[0, 1]).reach(&shape(&[9, 3])).unwrap(), 8);
        assert_eq!(layout(5, &[3, 1]).reach(&shape(&[0, 3])).unwrap(), 0);
        assert!(layout(0, &[u64::MAX, 1]).reach(&shape(&[3, 3])).is_err());
        assert!(layout(u64::MAX, &[1]).reach(&shape(&[1])).is_err());
        assert!(layout(0, &[1]).reach(&shape(&[3, 3])).is_err());
    }

    #[test]
    fn boxes_intersect() {
        let a = Region { start: vec![0, 2], size: shape(&[4, 4]) };
        let b = Region { start: vec![3, 0], size: shape(&[4, 3]) };
        assert_eq!(a.intersection(&b).unwrap(), Region { start: vec![3, 2], size: shape(&[1, 1]) });
        assert!(Region::whole(&shape(&[4, 6])).is_whole(&shape(&[4, 6])));
        assert!(a.lies_within(&shape(&[4, 6])));
        assert!(!a.lies_within(&shape(&[4, 5])));
        assert!(!Region { start: vec![u64::MAX], size: shape(&[2]) }.lies_within(&shape(&[9])));
    }
}
