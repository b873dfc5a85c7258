//! Values whose elements are those of others at other places.

use super::{Kind, Value};
use crate::selection::{Run, Selection};
use crate::step::axis::Axis;
use weightlift_core::{Error, Region, Result, Shape};

impl Value {
    /// The axes in another order; without one, the order reversed.
    ///
    /// # Errors
    /// `Request` where `axes` is no order of the axes.
    pub(crate) fn permute(&self, axes: Option<&[usize]>) -> Result<Value> {
        self.element()?;
        let rank = self.shape().rank();
        let axes = axes.map_or_else(|| (0..rank).rev().collect(), <[usize]>::to_vec);
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        if sorted != (0..rank).collect::<Vec<_>>() {
            let message = format!("{self}: the axes {axes:?} are no order of the {rank} of shape {}", self.shape());
            return Err(Error::request(message));
        }
        let dims: Vec<u64> = axes.iter().map(|&axis| self.shape().dims()[axis]).collect();
        let text = format!("{self} transposed {axes:?}");
        // Two orders after each other are one, and an order that changes nothing is none.
        if let Kind::Permute(of, inner) = &self.0.kind {
            let joined: Vec<usize> = axes.iter().map(|&axis| inner[axis]).collect();
            if joined.iter().copied().eq(0..rank) {
                return Ok(of.clone());
            }
            return Ok(Value::new(self.dtype(), Shape::new(dims)?, Kind::Permute(of.clone(), joined), text));
        }
        if axes.iter().copied().eq(0..rank) {
            return Ok(self.clone());
        }
        Ok(Value::new(self.dtype(), Shape::new(dims)?, Kind::Permute(self.clone(), axes), text))
    }

    /// The same elements under another shape; one dimension may be -1.
    ///
    /// # Errors
    /// `Request` where the shapes have different numbers of elements.
    pub(crate) fn reshape(&self, dims: &[i64]) -> Result<Value> {
        self.element()?;
        let wrong = || {
            let message = format!("{self}: shape {} cannot become {dims:?}", self.shape());
            Error::request(message).help("the numbers of elements must agree; one dimension may be -1")
        };
        let unknown = dims.iter().filter(|&&dim| dim == -1).count();
        if unknown > 1 || dims.iter().any(|&dim| dim < -1) {
            return Err(wrong());
        }
        let known: u64 =
            Shape::new(dims.iter().filter_map(|&dim| u64::try_from(dim).ok()).collect::<Vec<_>>())?.elements();
        let elements = self.shape().elements();
        let rest = if unknown == 1 { elements.checked_div(known).ok_or_else(wrong)? } else { 1 };
        let dims: Vec<u64> = dims.iter().map(|&dim| u64::try_from(dim).unwrap_or(rest)).collect();
        let shape = Shape::new(dims)?;
        if shape.elements() != elements {
            return Err(wrong());
        }
        self.shaped(shape)
    }

    /// The same elements under a shape of as many.
    fn shaped(&self, shape: Shape) -> Result<Value> {
        if shape == *self.shape() {
            return Ok(self.clone());
        }
        let text = format!("{self} as {shape}");
        Ok(Value::new(self.dtype(), shape, Kind::Reshape(self.clone()), text))
    }

    /// The part that a slice selects; an index drops its axis.
    ///
    /// # Errors
    /// `Request` for elements that are no whole bytes.
    pub(crate) fn select(&self, selection: &Selection, slice: &str) -> Result<Value> {
        let picked = self.pick(selection.runs())?;
        let value = picked.shaped(selection.shape()?)?;
        Ok(value.named(format!("{self}[{slice}]")))
    }

    /// Positions of every axis.
    pub(crate) fn pick(&self, axes: Vec<Run>) -> Result<Value> {
        self.element()?;
        let shape = Shape::new(axes.iter().map(|run| run.count).collect::<Vec<_>>())?;
        let text = format!("a part of {self}");
        Ok(Value::new(self.dtype(), shape, Kind::Pick(self.clone(), axes), text))
    }

    /// A box of it.
    pub(crate) fn boxed(&self, region: &Region) -> Result<Value> {
        let runs = region.start.iter().zip(region.size.dims());
        self.pick(runs.map(|(&start, &count)| Run { start, step: 1, count }).collect())
    }

    /// Positions `start..start + len` of one axis.
    pub(crate) fn narrow(&self, axis: usize, start: u64, len: u64) -> Result<Value> {
        let whole = |&count: &u64| Run { start: 0, step: 1, count };
        let mut axes: Vec<Run> = self.shape().dims().iter().map(whole).collect();
        axes[axis] = Run { start, step: 1, count: len };
        let text = format!("{self} {start}:{} of axis {axis}", start + len);
        Ok(self.pick(axes)?.named(text))
    }

    /// Values one after the other along an axis.
    ///
    /// # Errors
    /// `Request` where dtypes, ranks or the other dimensions differ, or there is no such axis.
    pub(crate) fn concat(parts: Vec<Value>, axis: usize) -> Result<Value> {
        let first = parts.first().ok_or_else(|| Error::request("there is nothing to concatenate"))?;
        let mut dims = first.shape().dims().to_vec();
        if axis >= dims.len() {
            return Err(Error::request(format!("{first}: shape {} has no axis {axis}", first.shape())));
        }
        let mut total = 0u64;
        for part in &parts {
            part.element()?;
            let fits = part.shape().rank() == dims.len()
                && part.dtype() == first.dtype()
                && (0..dims.len()).all(|at| at == axis || part.shape().dims()[at] == dims[at]);
            if !fits {
                let (a, b) = (format!("{first:?}"), format!("{part:?}"));
                return Err(Error::request(format!("{a} and {b} cannot be joined along axis {axis}")));
            }
            total = total.saturating_add(part.shape().dims()[axis]);
        }
        dims[axis] = total;
        let (dtype, text) =
            (first.dtype(), format!("{} tensors from {first} on joined along axis {axis}", parts.len()));
        Ok(Value::new(dtype, Shape::new(dims)?, Kind::Concat(parts, axis), text))
    }

    /// The value with an axis as two: its blocks, and the positions in each.
    fn in_blocks(&self, axis: Axis) -> Result<Value> {
        let block = axis.block(self.shape())?;
        let mut dims = self.shape().dims().to_vec();
        dims.splice(axis.axis..=axis.axis, [axis.blocks, block]);
        Ok(self.shaped(Shape::new(dims)?)?.named(self.0.text.clone()))
    }

    /// The value with the axis behind another in it again.
    fn out_of_blocks(&self, axis: usize) -> Result<Value> {
        let mut dims = self.shape().dims().to_vec();
        let joined = dims[axis].saturating_mul(dims[axis + 1]);
        dims.splice(axis..=axis + 1, [joined]);
        self.shaped(Shape::new(dims)?)
    }

    /// [`Value::concat`] within each block of the axis.
    ///
    /// # Errors
    /// As [`Value::concat`]; `Request` where a value does not fall into equal blocks.
    pub(crate) fn concat_in(parts: Vec<Value>, axis: Axis) -> Result<Value> {
        if axis.blocks == 1 {
            return Value::concat(parts, axis.axis);
        }
        let parts = parts.iter().map(|part| part.in_blocks(axis)).collect::<Result<_>>()?;
        Value::concat(parts, axis.axis + 1)?.out_of_blocks(axis.axis)
    }

    /// [`Value::narrow`] within each block of the axis; `start` and `len` count the positions of all blocks together.
    ///
    /// # Errors
    /// `Request` where they do not fall into equal blocks.
    pub(crate) fn narrow_in(&self, axis: Axis, start: u64, len: u64) -> Result<Value> {
        if axis.blocks == 1 {
            return self.narrow(axis.axis, start, len);
        }
        if !start.is_multiple_of(axis.blocks) || !len.is_multiple_of(axis.blocks) {
            let message = format!("a part of {len} at {start} does not fall into {} equal blocks", axis.blocks);
            return Err(Error::request(message));
        }
        let part = self.in_blocks(axis)?.narrow(axis.axis + 1, start / axis.blocks, len / axis.blocks)?;
        part.out_of_blocks(axis.axis)
    }

    /// Values of one shape as the positions of a new axis.
    ///
    /// # Errors
    /// As [`Value::concat`].
    pub(crate) fn stack(parts: Vec<Value>, axis: usize) -> Result<Value> {
        let deeper = |part: Value| {
            let mut dims = part.shape().dims().to_vec();
            if axis > dims.len() {
                return Err(Error::request(format!("{part}: shape {} has no place for axis {axis}", part.shape())));
            }
            dims.insert(axis, 1);
            let text = part.0.text.clone();
            Ok(part.shaped(Shape::new(dims)?)?.named(text))
        };
        Value::concat(parts.into_iter().map(deeper).collect::<Result<_>>()?, axis)
    }

    /// The value with some positions replaced by those of another, which is cast to its dtype.
    ///
    /// # Errors
    /// `Request` where `with` has not the shape of the selection, or cannot be cast.
    pub(crate) fn patch(&self, selection: &Selection, slice: &str, with: &Value) -> Result<Value> {
        self.element()?;
        let (wanted, axes) = (selection.shape()?, selection.runs());
        if *with.shape() != wanted {
            let message = format!("{self}[{slice}] has shape {wanted}, but {with} has {}", with.shape());
            return Err(Error::request(message));
        }
        let full = Shape::new(axes.iter().map(|run| run.count).collect::<Vec<_>>())?;
        let text = format!("{self} with [{slice}] set to {with}");
        let with = with.cast(self.dtype())?.shaped(full)?;
        Ok(Value::new(self.dtype(), self.shape().clone(), Kind::Patch { base: self.clone(), axes, with }, text))
    }

    /// The same value under other words.
    pub(crate) fn named(&self, text: String) -> Value {
        match &self.0.kind {
            Kind::Entry(origin) => Value::new(self.dtype(), self.shape().clone(), Kind::Entry(*origin), text),
            Kind::Reshape(of) => Value::new(self.dtype(), self.shape().clone(), Kind::Reshape(of.clone()), text),
            Kind::Pick(of, axes) => {
                Value::new(self.dtype(), self.shape().clone(), Kind::Pick(of.clone(), axes.clone()), text)
            }
            // Expressions that are read as a whole keep their own words.
            _ => self.clone(),
        }
    }
}
