//! Boxes that a device picks: what it is given to pick from, and how.

use super::read::{rows_of, turned_back};
use super::{Kind, Reader, RowMap, Value};
use weightlift_core::{Region, Result};
use weightlift_kernels::device::Pick;

/// How the elements of a value are picked from others, where a device can do that.
pub(crate) enum Picked<'v> {
    /// Axis `k` is axis `axes[k]` of the value.
    Permuted(&'v Value, &'v [usize]),
    /// Rows of the base, some of them replaced.
    Rows { base: &'v Value, from: &'v Value, map: &'v RowMap },
}

impl Value {
    /// The last thing that is done to it, where it is picking elements.
    pub(crate) fn picked(&self) -> Option<Picked<'_>> {
        match &self.0.kind {
            Kind::Permute(of, axes) => Some(Picked::Permuted(of, axes)),
            Kind::Rows { base, from, map } if !self.shape().dims().is_empty() => Some(Picked::Rows { base, from, map }),
            _ => None,
        }
    }
}

impl Picked<'_> {
    /// Bytes that [`Reader::pool`] reads for a box at most, of elements of so many bytes.
    pub(crate) fn pool_bytes(&self, region: &Region, element: u64) -> u64 {
        let bytes = region.size.elements() * element;
        match self {
            Picked::Permuted(..) => bytes,
            Picked::Rows { .. } => 2 * bytes,
        }
    }
}

impl Reader<'_> {
    /// Reads what a box is picked from into `pool`, and says how it is picked.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub(crate) fn pool(
        &mut self,
        picked: &Picked<'_>,
        region: &Region,
        element: u64,
        pool: &mut Vec<u8>,
    ) -> Result<Pick> {
        let elements = region.size.elements();
        match picked {
            Picked::Permuted(of, axes) => {
                let (source_box, layout) = turned_back(axes, region)?;
                pool.resize((elements * element) as usize, 0);
                self.read(of, &source_box, pool)?;
                Ok(Pick::Strided { elements, layout, dims: region.size.dims().to_vec() })
            }
            Picked::Rows { base, from, map } => {
                let (start, count) = (region.start[0], region.size.dims()[0]);
                let row = elements / count.max(1);
                let runs = map.runs(start, start + count);
                let replaced: u64 = runs.iter().map(|(_, _, count)| count).sum();
                pool.resize(((count + replaced) * row * element) as usize, 0);
                let (own, mut rest) = pool.split_at_mut((count * row * element) as usize);
                self.read(base, region, own)?;
                let mut table: Vec<u32> = (0..count as u32).collect();
                let mut next = count as u32;
                for (to, source, count) in runs {
                    let (part, behind) = rest.split_at_mut((count * row * element) as usize);
                    self.read(from, &rows_of(region, source, count)?, part)?;
                    let at = (to - start) as usize;
                    table[at..at + count as usize].iter_mut().zip(next..).for_each(|(slot, row)| *slot = row);
                    (rest, next) = (behind, next + count as u32);
                }
                Ok(Pick::Rows { row, rows: count + replaced, table })
            }
        }
    }
}
