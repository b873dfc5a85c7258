//! What a tensor of the output is made of: a tensor of an input, or what the steps made of some.
//!
//! A [`Value`] is a small expression. Any box of it can be read by itself ([`Reader`]), in memory that does not grow
//! with the tensor, so the pipeline asks for tiles of it as it does for tensors that are only copied.

mod fill;
mod layout;
mod merge;
mod pool;
mod read;
mod rows;
mod scaled;

#[cfg(test)]
mod tests;

pub(crate) use pool::Picked;
pub(crate) use read::{Reader, Source};
pub use rows::RowMap;

use crate::selection::Run;
use std::fmt;
use std::sync::{Arc, Mutex};
use weightlift_core::{Class, DType, Entry, Error, Origin, Packing, Result, Shape};
use weightlift_kernels::cast::CastPair;

/// A tensor of the output before its last cast: dtype, shape, and how its elements are made.
#[derive(Clone)]
pub struct Value(Arc<Node>);

struct Node {
    dtype: DType,
    shape: Shape,
    kind: Kind,
    /// What it is, for people.
    text: String,
}

/// How the elements are made.
enum Kind {
    /// Read from an input.
    Entry(Origin),
    /// These dense little-endian bytes.
    Bytes(Vec<u8>),
    /// This text as every element; a target's own encoding takes its place before it is read.
    Text(String),
    /// One element again and again.
    Fill(Vec<u8>),
    /// Normally distributed around 0, each element made of the seed and its position alone.
    Normal { std: f64, seed: u64 },
    /// Axis `k` of the result is axis `axes[k]` of the value.
    Permute(Value, Vec<usize>),
    /// The same elements in row-major order.
    Reshape(Value),
    /// Positions of every axis.
    Pick(Value, Vec<Run>),
    /// One after the other along an axis.
    Concat(Vec<Value>, usize),
    /// The one row of the value as every row.
    Repeat(Value),
    /// Rows of the base, some of them replaced by rows of another value.
    Rows { base: Value, from: Value, map: Arc<RowMap> },
    /// The base, the positions of every axis replaced by another value.
    Patch { base: Value, axes: Vec<Run>, with: Value },
    /// Every element cast.
    Cast(Value, CastPair),
    /// Every element times the number of the scale for its block; so many positions of each axis are a block.
    Scaled { of: Value, scale: Value, blocks: Vec<u64> },
    /// Each value times its weight, added in order.
    Sum(Vec<(Value, f64)>),
    /// The mean over the rows, as one row; computed when it is first read.
    Mean(Value, Mutex<Option<Arc<[u8]>>>),
}

impl Value {
    fn new(dtype: DType, shape: Shape, kind: Kind, text: String) -> Value {
        Value(Arc::new(Node { dtype, shape, kind, text }))
    }

    /// A tensor of an input; `text` names it.
    pub(crate) fn of_entry(origin: Origin, entry: &Entry, text: String) -> Value {
        Value::new(entry.dtype, entry.shape.clone(), Kind::Entry(origin), text)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The dimensions.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The tensor of an input that it is, where nothing was done to it.
    pub fn entry(&self) -> Option<Origin> {
        match self.0.kind {
            Kind::Entry(origin) => Some(origin),
            _ => None,
        }
    }

    /// Whether it is a weight times its scale.
    pub(crate) fn is_scaled(&self) -> bool {
        matches!(self.0.kind, Kind::Scaled { .. })
    }

    /// Whether both are the same node.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Bytes of one element.
    ///
    /// # Errors
    /// `Request` for elements that are no whole bytes, which no step can take apart.
    pub(crate) fn element(&self) -> Result<u64> {
        self.dtype().element_bytes(Packing::Dense).ok_or_else(|| {
            let (dtype, text) = (self.dtype(), &self.0.text);
            Error::request(format!("{text}: {dtype} elements are no whole bytes; steps can only copy and cast them"))
        })
    }

    /// The values that this one is made of.
    fn parts(&self) -> Vec<&Value> {
        match &self.0.kind {
            Kind::Entry(_) | Kind::Bytes(_) | Kind::Text(_) | Kind::Fill(_) | Kind::Normal { .. } => Vec::new(),
            Kind::Permute(of, _) | Kind::Reshape(of) | Kind::Pick(of, _) | Kind::Repeat(of) => vec![of],
            Kind::Cast(of, _) | Kind::Mean(of, _) => vec![of],
            Kind::Concat(parts, _) => parts.iter().collect(),
            Kind::Rows { base, from, .. } => vec![base, from],
            Kind::Patch { base, with, .. } => vec![base, with],
            Kind::Scaled { of, scale, .. } => vec![of, scale],
            Kind::Sum(parts) => parts.iter().map(|(value, _)| value).collect(),
        }
    }

    /// Every tensor of an input that it reads, in the order of first use.
    pub fn entries(&self) -> Vec<Origin> {
        let mut found = Vec::new();
        let mut pending = vec![self];
        while let Some(value) = pending.pop() {
            if let Some(origin) = value.entry()
                && !found.contains(&origin)
            {
                found.push(origin);
            }
            pending.extend(value.parts().into_iter().rev());
        }
        found
    }

    /// About how many bytes of inputs are read for all of it; `of` says how many a tensor of an input has.
    pub(crate) fn reads(&self, of: &dyn Fn(Origin) -> u64) -> u64 {
        let part = |of: u64, some: u64, all: u64| (u128::from(of) * u128::from(some) / u128::from(all.max(1))) as u64;
        let all = || self.parts().into_iter().fold(0, |sum: u64, part| sum.saturating_add(part.reads(of)));
        match &self.0.kind {
            Kind::Entry(origin) => of(*origin),
            Kind::Pick(of_value, _) => part(all(), self.shape().elements(), of_value.shape().elements()),
            Kind::Rows { base, from, map } => {
                let rows = from.shape().dims().first().copied().unwrap_or(1);
                base.reads(of).saturating_add(part(from.reads(of), map.len() as u64, rows))
            }
            _ => all(),
        }
    }

    /// How many steps made it, one on the other.
    pub(crate) fn depth(&self) -> u64 {
        let below = self.parts().into_iter().map(Value::depth).max();
        below.map_or(0, |below| below + 1)
    }

    /// Whether neighbours in the result come from elements far apart, so that square boxes read less than runs.
    pub(crate) fn crosses(&self) -> bool {
        let own = matches!(&self.0.kind, Kind::Permute(_, axes) if axes.last() != Some(&(axes.len() - 1)));
        own || self.parts().into_iter().any(Value::crosses)
    }

    /// The value cast to another dtype; itself where that is its own.
    ///
    /// # Errors
    /// `Request` where there is no such cast.
    pub(crate) fn cast(&self, to: DType) -> Result<Value> {
        if self.dtype() == to {
            return Ok(self.clone());
        }
        self.element()?;
        let loses_its_kind = (self.dtype().is_float() || self.dtype().class() == Class::Complex)
            && !(to.is_float() || to.class() == Class::Complex);
        if loses_its_kind {
            let error =
                Error::request(format!("{self} is {}, and integers are not made of it by the way", self.dtype()));
            return Err(error.help("give integers, or cast it in a conversion of its own"));
        }
        let pair = CastPair::new(self.dtype(), to).filter(|_| to.element_bytes(Packing::Dense).is_some());
        let pair = pair.ok_or_else(|| Error::request(format!("{self}: there is no cast to {to}")))?;
        Ok(Value::new(to, self.shape().clone(), Kind::Cast(self.clone(), pair), self.0.text.clone()))
    }
}

/// What it is made of, in words: `a/kernel transposed`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.0.text, self.dtype(), self.shape())
    }
}
