//! Dimensions whose product is known to fit.

use crate::{Error, Result};
use std::fmt;

/// The dimensions of a tensor, outermost first; empty for a scalar.
///
/// The product of the dimensions, with zeros counted as one, is known to fit into 63 bits, so element counts and
/// contiguous strides never overflow.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Box<[u64]>);

impl Shape {
    /// Checks the product.
    ///
    /// # Errors
    /// `Malformed` when the product of the dimensions does not fit into 63 bits.
    pub fn new(dims: impl Into<Vec<u64>>) -> Result<Shape> {
        let dims: Vec<u64> = dims.into();
        let fits = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d.max(1)).filter(|&n| n <= i64::MAX as u64));
        match fits {
            Some(_) => Ok(Shape(dims.into())),
            None => Err(Error::malformed(format!("shape {dims:?} has more elements than 2^63"))),
        }
    }

    /// The shape of a scalar: no dimensions, one element.
    pub fn scalar() -> Shape {
        Shape::default()
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[u64] {
        &self.0
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The number of elements: 1 for a scalar, 0 where a dimension is 0.
    pub fn elements(&self) -> u64 {
        self.0.iter().product()
    }

    /// Strides in elements of the row-major, densely packed layout; a dimension of 0 counts as 1.
    pub fn contiguous_strides(&self) -> Vec<u64> {
        let mut strides = vec![1; self.rank()];
        for axis in (1..self.rank()).rev() {
            strides[axis - 1] = strides[axis] * self.0[axis].max(1);
        }
        strides
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if axis == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_checked_with_zeros_as_one() {
        assert_eq!(Shape::new([2, 0, 5]).unwrap().elements(), 0);
        assert_eq!(Shape::scalar().elements(), 1);
        assert!(Shape::new([u64::MAX]).is_err());
        assert!(Shape::new([1 << 32, 1 << 31]).is_err());
        assert!(Shape::new([0, 1 << 62, 4]).is_err(), "strides of it would overflow");
        assert_eq!(Shape::new([1 << 31, 1 << 31]).unwrap().elements(), 1 << 62);
    }

    #[test]
    fn strides_are_row_major() {
        assert_eq!(Shape::new([2, 3, 4]).unwrap().contiguous_strides(), [12, 4, 1]);
        assert_eq!(Shape::new([2, 0, 4]).unwrap().contiguous_strides(), [4, 4, 1]);
        assert!(Shape::scalar().contiguous_strides().is_empty());
    }
}
