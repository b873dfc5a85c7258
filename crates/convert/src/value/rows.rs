//! Rows of matrices: copied, added, taken away.

use super::{Kind, Value};
use crate::selection::Run;
use std::sync::{Arc, Mutex};
use weightlift_core::{DType, Error, Result, Shape};
use weightlift_kernels::cast::CastPair;

/// Which row of another value each replaced row comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowMap {
    /// Pairs of target and source row, by target.
    pairs: Vec<(u64, u64)>,
}

impl RowMap {
    /// Row `from[i]` of the source becomes row `to[i]` of the target.
    ///
    /// # Errors
    /// `Request` where the lists have different lengths or a target row is named twice.
    pub fn new(from: &[u64], to: &[u64]) -> Result<RowMap> {
        if from.len() != to.len() {
            return Err(Error::request(format!("{} rows for {} places", from.len(), to.len())));
        }
        let mut pairs: Vec<(u64, u64)> = to.iter().copied().zip(from.iter().copied()).collect();
        pairs.sort_unstable();
        match pairs.windows(2).find(|two| two[0].0 == two[1].0) {
            Some(two) => Err(Error::request(format!("row {} is the target of two copies", two[0].0))),
            None => Ok(RowMap { pairs }),
        }
    }

    /// How many rows are replaced.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The copies whose targets lie in `start..end`, as (target, source, rows), neighbours together.
    pub(super) fn runs(&self, start: u64, end: u64) -> Vec<(u64, u64, u64)> {
        let low = self.pairs.partition_point(|pair| pair.0 < start);
        let high = self.pairs.partition_point(|pair| pair.0 < end);
        let mut runs: Vec<(u64, u64, u64)> = Vec::new();
        for &(to, from) in &self.pairs[low..high] {
            match runs.last_mut() {
                Some((first, source, count)) if *first + *count == to && *source + *count == from => *count += 1,
                _ => runs.push((to, from, 1)),
            }
        }
        runs
    }

    fn check(&self, rows_from: u64, rows_to: u64) -> Result<()> {
        if let Some((to, _)) = self.pairs.last().filter(|(to, _)| *to >= rows_to) {
            return Err(Error::request(format!("row {to} is out of range: the target has {rows_to} rows")));
        }
        match self.pairs.iter().find(|(_, from)| *from >= rows_from) {
            Some((_, from)) => {
                Err(Error::request(format!("row {from} is out of range: the source has {rows_from} rows")))
            }
            None => Ok(()),
        }
    }
}

impl Value {
    /// The value with rows replaced by those of `from`, which are cast to its dtype.
    ///
    /// # Errors
    /// `Request` where rows do not exist or have another shape, or cannot be cast.
    pub(crate) fn with_rows(&self, from: &Value, map: Arc<RowMap>) -> Result<Value> {
        self.element()?;
        let row = |value: &Value| value.shape().dims().get(1..).map(<[u64]>::to_vec);
        let (Some(own), Some(theirs)) = (row(self), row(from)) else {
            return Err(Error::request(format!("{self} or {from} is a scalar and has no rows")));
        };
        if own != theirs {
            let shapes = format!("{} and {}", from.shape(), self.shape());
            return Err(Error::request(format!("rows of {from} and {self} differ in shape: {shapes}")));
        }
        map.check(from.shape().dims()[0], self.shape().dims()[0])?;
        let text = format!("{self} with {} rows of {from}", map.len());
        let kind = Kind::Rows { base: self.clone(), from: from.cast(self.dtype())?, map };
        Ok(Value::new(self.dtype(), self.shape().clone(), kind, text))
    }

    /// The one row of a value `rows` times.
    ///
    /// # Errors
    /// `Request` for a value of more than one row.
    pub(crate) fn repeat(&self, rows: u64) -> Result<Value> {
        let mut dims = self.shape().dims().to_vec();
        match dims.first_mut() {
            Some(first) if *first == 1 => *first = rows,
            _ => return Err(Error::request(format!("{self} is not one row"))),
        }
        let text = self.to_string();
        Ok(Value::new(self.dtype(), Shape::new(dims)?, Kind::Repeat(self.clone()), text))
    }

    /// Row `at` as a value of one row.
    ///
    /// # Errors
    /// `Request` where there is no such row.
    pub(crate) fn row(&self, at: u64) -> Result<Value> {
        let rows = self.shape().dims().first().copied().unwrap_or(0);
        if at >= rows {
            return Err(Error::request(format!("{self}: row {at} is out of range: there are {rows} rows")));
        }
        self.narrow(0, at, 1)
    }

    /// The mean of all rows as one row: summed in f64 in row order, rounded once.
    ///
    /// # Errors
    /// `Request` for a dtype that is no floating-point one, or without rows.
    pub(crate) fn mean(&self) -> Result<Value> {
        let mut dims = self.shape().dims().to_vec();
        let rows = dims.first().copied().unwrap_or(0);
        let known = self.dtype() == DType::F64 || CastPair::new(DType::F64, self.dtype()).is_some();
        if rows == 0 || !self.dtype().is_float() || !known {
            return Err(Error::request(format!("{self}: there is no mean of {} {}", self.dtype(), self.shape())));
        }
        dims[0] = 1;
        let text = format!("the mean row of {self}");
        Ok(Value::new(self.dtype(), Shape::new(dims)?, Kind::Mean(self.clone(), Mutex::new(None)), text))
    }

    /// The first `rows` rows, or all of them and then `more`.
    ///
    /// # Errors
    /// As [`Value::concat`].
    pub(crate) fn resize_rows(&self, rows: u64, more: impl FnOnce(u64) -> Result<Value>) -> Result<Value> {
        let Some(&own) = self.shape().dims().first() else {
            return Err(Error::request(format!("{self} is a scalar and has no rows")));
        };
        if rows == own {
            return Ok(self.clone());
        }
        if rows < own {
            let whole = |&count: &u64| Run { start: 0, step: 1, count };
            let mut axes: Vec<Run> = self.shape().dims().iter().map(whole).collect();
            axes[0].count = rows;
            return Ok(self.pick(axes)?.named(format!("the first {rows} rows of {self}")));
        }
        Value::concat(vec![self.clone(), more(rows - own)?], 0)
    }
}
