//! An axis as an argument names it: `@AXIS`, or `@AXISxBLOCKS` for one whose equal blocks are cut or joined each.

use std::fmt;
use weightlift_core::{Error, Result, Shape};

/// An axis, and into how many equal blocks it falls: the heads of fused projections that lie head by head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Its number, from 0.
    pub axis: usize,
    /// How many blocks; 1 for the axis as a whole.
    pub blocks: u64,
}

impl Axis {
    /// Reads `0`, or `0x16`.
    pub fn parse(text: &str) -> Option<Axis> {
        let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse::<u64>().ok(),
            false => None,
        };
        let (axis, blocks) = text.split_once('x').unwrap_or((text, "1"));
        let blocks = number(blocks).filter(|&blocks| blocks > 0)?;
        Some(Axis { axis: usize::try_from(number(axis)?).ok()?, blocks })
    }

    /// Takes `@AXIS` off the end of an argument; the whole of axis 0 where there is none.
    pub(super) fn cut(text: &str) -> Result<(&str, Axis)> {
        let whole = Axis { axis: 0, blocks: 1 };
        let Some((rest, axis)) = text.rsplit_once('@') else { return Ok((text, whole)) };
        match Axis::parse(axis) {
            Some(axis) => Ok((rest, axis)),
            None if axis.parse::<i64>().is_ok() => Err(Error::request(format!("{text:?}: axes are counted from 0"))),
            None => Ok((text, whole)),
        }
    }

    /// How long one block of a shape is along the axis.
    ///
    /// # Errors
    /// `Request` where there is no such axis, or it does not fall into equal blocks.
    pub(crate) fn block(self, shape: &Shape) -> Result<u64> {
        let Some(&dim) = shape.dims().get(self.axis) else {
            return Err(Error::request(format!("shape {shape} has no axis {}", self.axis)));
        };
        if !dim.is_multiple_of(self.blocks) {
            let message = format!("axis {} of {dim} does not fall into {} equal blocks", self.axis, self.blocks);
            return Err(Error::request(message));
        }
        Ok(dim / self.blocks)
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.blocks {
            1 => write!(f, "axis {}", self.axis),
            blocks => write!(f, "axis {} in {blocks} blocks", self.axis),
        }
    }
}
