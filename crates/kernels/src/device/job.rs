//! What a device is told to do.

use crate::cast::{CastPair, Overflow};
use weightlift_core::{DType, Error, Layout, Packing, Result};

/// Segments begin at multiples of so many elements, in the source and in the result.
pub const GRANULE: u64 = 1024;
/// Most axes of a strided box.
pub const MAX_RANK: usize = 8;

/// What becomes of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Convert {
    /// It keeps its bits; it has 1, 2, 4 or 8 bytes.
    Same {
        /// Bytes of an element.
        bytes: usize,
    },
    /// It is cast, as the definition of casts has it.
    Cast {
        /// From what to what.
        pair: CastPair,
        /// What becomes of values beyond the target.
        overflow: Overflow,
    },
}

impl Convert {
    /// Bytes of an element before and after.
    pub fn bytes(&self) -> (usize, usize) {
        let of = |dtype: DType| dtype.element_bytes(Packing::Dense).map_or(1, |bytes| bytes as usize);
        match self {
            Convert::Same { bytes } => (*bytes, *bytes),
            Convert::Cast { pair, .. } => (of(pair.from()), of(pair.to())),
        }
    }
}

/// What becomes of each element, and how it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// What becomes of it.
    pub convert: Convert,
    /// Whether its bytes come in reverse order.
    pub swap: bool,
}

/// Which elements of the source make the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// All of them, one after the other, in segments of so many elements that are counted apart. Each begins at a
    /// multiple of [`GRANULE`] elements.
    Segments(Vec<u64>),
    /// Gathered rows: row `r` of the result is row `table[r]` of a source of so many rows.
    Rows {
        /// Elements of a row.
        row: u64,
        /// Rows of the source.
        rows: u64,
        /// Which of them.
        table: Vec<u32>,
    },
    /// A box of strided storage, in row-major order.
    Strided {
        /// Elements of the source.
        elements: u64,
        /// Where the box lies in it, in elements.
        layout: Layout,
        /// The box.
        dims: Vec<u64>,
    },
    /// Scattered rows: row `r` of the source, converted, becomes row `table[r]` of a result of so many rows, the other
    /// rows of which are those that follow the source, at the next multiple of [`GRANULE`] elements, as they are.
    Scatter {
        /// Elements of a row.
        row: u64,
        /// Rows of the result.
        rows: u64,
        /// Where each row of the source goes; no row twice.
        table: Vec<u32>,
    },
}

/// A kernel over elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub(super) kernel: Kernel,
    pub(super) pick: Pick,
    source: u64,
    result: u64,
}

impl Job {
    /// Checks that every element which is picked exists.
    ///
    /// # Errors
    /// `Request` for rows, boxes or sizes that do not fit together.
    pub fn new(kernel: Kernel, pick: Pick) -> Result<Job> {
        let (from, to) = kernel.convert.bytes();
        let refused = |what: &str| Error::request(format!("a job for a device: {what}"));
        let bytes = |elements: Option<u64>, of: usize| {
            let bytes = elements.and_then(|elements| elements.checked_mul(of as u64));
            bytes.filter(|bytes| usize::try_from(*bytes).is_ok()).ok_or_else(|| refused("too many elements"))
        };
        let (source, result) = match &pick {
            Pick::Segments(segments) => {
                let end = segments.iter().try_fold((0u64, 0u64), |(_, next), &elements| {
                    let end = next.checked_add(elements)?;
                    Some((end, end.checked_next_multiple_of(GRANULE)?))
                });
                let end = end.map(|(end, _)| end);
                (bytes(end, from)?, bytes(end, to)?)
            }
            Pick::Rows { row, rows, table } => {
                if table.iter().any(|&at| u64::from(at) >= *rows) || *row == 0 {
                    return Err(refused("a row that the source does not have"));
                }
                (bytes(rows.checked_mul(*row), from)?, bytes((table.len() as u64).checked_mul(*row), to)?)
            }
            Pick::Strided { elements, layout, dims } => {
                if dims.len() > MAX_RANK || dims.len() != layout.strides.len() {
                    return Err(refused("a box of too many axes, or without as many strides"));
                }
                let count = dims.iter().try_fold(1u64, |count, &dim| count.checked_mul(dim));
                let far = dims.iter().zip(&layout.strides).try_fold(layout.offset, |far, (&dim, &stride)| {
                    far.checked_add(stride.checked_mul(dim.saturating_sub(1))?)
                });
                if count != Some(0) && far.is_none_or(|far| far >= *elements) {
                    return Err(refused("a box that leaves the source"));
                }
                (bytes(Some(*elements), from)?, bytes(count, to)?)
            }
            Pick::Scatter { row, rows, table } => {
                let mut seen = vec![false; usize::try_from(*rows).unwrap_or(0)];
                let twice = |&at: &u32| seen.get_mut(at as usize).is_none_or(|seen| std::mem::replace(seen, true));
                if table.iter().any(twice) || *row == 0 {
                    return Err(refused("a row that the result does not have, or one that is the target of two"));
                }
                let result = bytes(rows.checked_mul(*row), to)?;
                let moved = (table.len() as u64).checked_mul(*row).and_then(|n| n.checked_next_multiple_of(GRANULE));
                let source = bytes(moved, from)?.checked_add(result).ok_or_else(|| refused("too many elements"))?;
                (source, result)
            }
        };
        Ok(Job { kernel, pick, source, result })
    }

    /// What becomes of each element.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Which elements.
    pub fn pick(&self) -> &Pick {
        &self.pick
    }

    /// Bytes that are to be filled in, gaps between segments included.
    pub fn source_bytes(&self) -> u64 {
        self.source
    }

    /// Bytes of the result, gaps between segments included.
    pub fn result_bytes(&self) -> u64 {
        self.result
    }

    /// The first element of each segment.
    fn starts(&self) -> impl Iterator<Item = u64> {
        let segments = match &self.pick {
            Pick::Segments(segments) => segments.as_slice(),
            _ => &[0],
        };
        segments.iter().scan(0, |next: &mut u64, elements| {
            let start = *next;
            *next = (start + elements).next_multiple_of(GRANULE);
            Some(start)
        })
    }

    /// Where each segment begins in the source, in bytes.
    pub fn source_offsets(&self) -> impl Iterator<Item = u64> {
        let from = self.kernel.convert.bytes().0 as u64;
        self.starts().map(move |start| start * from)
    }

    /// Where each segment begins in the result, in bytes.
    pub fn result_offsets(&self) -> impl Iterator<Item = u64> {
        let to = self.kernel.convert.bytes().1 as u64;
        self.starts().map(move |start| start * to)
    }

    /// Where the rows that stay begin in the source of scattered rows, in bytes.
    pub fn base_offset(&self) -> u64 {
        self.source - self.result
    }
}
