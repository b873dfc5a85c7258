//! Arrays as `print` of NumPy 2.4 shows them.
//!
//! Numbers of one array share a width, the points of floating-point ones stand below one another, and all or none have
//! a power of ten. They have as many digits as tell each from its neighbours in its own dtype, at most the precision.
//! Lines are broken at 75 characters. Of more than a thousand elements the three first and last of every axis are
//! shown. A tensor without axes is shown like a scalar, in full precision.
//!
//! bf16, the types of 8 bits and less, `c32` and `bc32` look as `ml_dtypes` prints them: not aligned, and
//! floating-point numbers in six digits. Quantized integers and bits, which neither has, look like integers.

use super::element::{Elements, Value};
use super::exact::FloatFormat;
use super::float::{Floats, complex_scalar, scalar, short};
use super::texts;
use std::io::{self, Write};
use weightlift_core::{Class, DType};

/// Elements above which an array is summarised.
pub(super) const THRESHOLD: u64 = 1000;
/// Elements shown at both ends of an axis of a summary.
pub(super) const EDGE: u64 = 3;
/// Characters on a line.
const WIDTH: usize = 75;

/// The form of the elements of one array. It is made in two looks at all that is shown and used in a third.
#[derive(Debug, Clone)]
pub(super) enum Form {
    /// Every element as long as it comes.
    Plain,
    /// Integers aligned to the right.
    Integers {
        /// Characters of the longest.
        width: usize,
    },
    /// `True` with a blank before it.
    Bools,
    /// Floating-point numbers.
    Floats(Floats),
    /// Complex ones.
    Complex(Floats, Floats),
    /// A scalar.
    Scalar(Option<FloatFormat>),
}

impl Form {
    /// For elements of `dtype`, and whether there are axes.
    pub(super) fn new(dtype: DType, elements: Elements, precision: usize, axes: usize) -> Form {
        let own = is_numpys(dtype);
        match elements {
            Elements::Float(format) | Elements::Complex(format) if axes == 0 => Form::Scalar(own.then_some(format)),
            _ if axes == 0 => Form::Scalar(None),
            Elements::Float(format) if own => Form::Floats(Floats::new(format, precision, false)),
            Elements::Complex(format) if own => {
                Form::Complex(Floats::new(format, precision, false), Floats::new(format, precision, true))
            }
            Elements::Integer if own => Form::Integers { width: 0 },
            Elements::Bool => Form::Bools,
            _ => Form::Plain,
        }
    }

    /// The first look.
    pub(super) fn look(&mut self, value: &Value) {
        match (self, value) {
            (Form::Integers { width }, Value::Integer(integer)) => *width = (*width).max(integer.to_string().len()),
            (Form::Floats(floats), Value::Float(number)) => floats.look(*number),
            (Form::Complex(real, imaginary), Value::Complex(re, im)) => {
                real.look(*re);
                imaginary.look(*im);
            }
            _ => {}
        }
    }

    /// Whether a second look is of use.
    pub(super) fn measures(&self) -> bool {
        matches!(self, Form::Floats(_) | Form::Complex(..))
    }

    /// The second look.
    pub(super) fn measure(&mut self, value: &Value) {
        match (self, value) {
            (Form::Floats(floats), Value::Float(number)) => floats.measure(*number),
            (Form::Complex(real, imaginary), Value::Complex(re, im)) => {
                real.measure(*re);
                imaginary.measure(*im);
            }
            _ => {}
        }
    }

    /// An element in words.
    pub(super) fn text(&self, value: &Value) -> String {
        match (self, value) {
            (Form::Integers { width }, Value::Integer(integer)) => format!("{integer:>width$}"),
            (Form::Bools, Value::Bool(true)) => " True".to_owned(),
            (Form::Floats(floats), Value::Float(number)) => floats.text(*number),
            (Form::Complex(real, imaginary), Value::Complex(re, im)) => {
                let imaginary = imaginary.text(*im);
                let number = imaginary.trim_end();
                format!("{}{number}j{}", real.text(*re), &imaginary[number.len()..])
            }
            (Form::Scalar(Some(format)), Value::Float(number)) => scalar(*number, *format),
            (Form::Scalar(Some(format)), Value::Complex(re, im)) => complex_scalar(*re, *im, *format),
            (_, value) => plain(value),
        }
    }
}

/// Whether NumPy itself prints numbers of this dtype, or would if it knew it.
fn is_numpys(dtype: DType) -> bool {
    match dtype.class() {
        Class::Float => FloatFormat::of(dtype).is_some_and(|format| format.precision >= 11),
        Class::Complex => FloatFormat::of(dtype).is_some_and(|format| format.precision >= 24),
        Class::Int | Class::UInt => dtype.bits() >= Some(8),
        _ => true,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Float(number) => short(*number, false),
        Value::Complex(real, imaginary) if real.is_positive_zero() => format!("{}j", short(*imaginary, false)),
        Value::Complex(real, imaginary) => format!("({}{}j)", short(*real, false), short(*imaginary, true)),
        Value::Integer(integer) => integer.to_string(),
        Value::Bool(truth) => if *truth { "True" } else { "False" }.to_owned(),
        Value::Text(text) => texts::literal(text),
    }
}

/// Writes elements in their order as a nested array.
pub(super) struct Printer<'a> {
    out: &'a mut dyn Write,
    dims: Vec<u64>,
    /// Axes of which the middle is left out.
    gaps: Vec<bool>,
    index: Vec<u64>,
    /// The line under way, without its indent.
    line: String,
    width: usize,
}

impl<'a> Printer<'a> {
    /// A printer of an array with these dimensions as they are shown.
    ///
    /// # Errors
    /// As `out` says.
    pub(super) fn new(out: &'a mut dyn Write, dims: Vec<u64>, gaps: Vec<bool>) -> io::Result<Printer<'a>> {
        if dims.contains(&0) {
            out.write_all(b"[]")?;
        } else {
            out.write_all("[".repeat(dims.len()).as_bytes())?;
        }
        let index = vec![0; dims.len()];
        Ok(Printer { out, dims, gaps, index, line: String::new(), width: 0 })
    }

    /// The next element.
    ///
    /// # Errors
    /// As the output says.
    pub(super) fn element(&mut self, word: &str) -> io::Result<()> {
        let (Some(&index), Some(&dim), Some(&gap)) = (self.index.last(), self.dims.last(), self.gaps.last()) else {
            return self.out.write_all(word.as_bytes());
        };
        if gap && index == EDGE {
            self.word("...")?;
            self.blank();
        }
        self.word(word)?;
        if index + 1 < dim {
            self.blank();
            if let Some(index) = self.index.last_mut() {
                *index += 1;
            }
            return Ok(());
        }
        self.end_row()
    }

    /// Appends a word to the line, or begins another where it would be too long; no line is left empty for that.
    fn word(&mut self, word: &str) -> io::Result<()> {
        let (indent, width) = (self.dims.len(), word.chars().count());
        if indent + self.width + width > WIDTH.saturating_sub(indent) && self.width > 0 {
            writeln!(self.out, "{}", self.line.trim_end())?;
            write!(self.out, "{:indent$}", "")?;
            self.line.clear();
            self.width = 0;
        }
        self.line.push_str(word);
        self.width += width;
        Ok(())
    }

    fn blank(&mut self) {
        self.line.push(' ');
        self.width += 1;
    }

    /// Closes as many brackets as end here and opens as many anew.
    fn end_row(&mut self) -> io::Result<()> {
        self.out.write_all(self.line.as_bytes())?;
        self.line.clear();
        self.width = 0;
        let rank = self.dims.len();
        let next = (0..rank).rev().find(|&axis| self.index[axis] + 1 < self.dims[axis]);
        let Some(axis) = next else { return self.out.write_all("]".repeat(rank).as_bytes()) };
        self.index[axis] += 1;
        self.index[axis + 1..].fill(0);
        let deeper = rank - 1 - axis;
        let between = format!("{}{:indent$}", "\n".repeat(deeper), "", indent = axis + 1);
        write!(self.out, "{}{between}", "]".repeat(deeper))?;
        if self.gaps[axis] && self.index[axis] == EDGE {
            write!(self.out, "...{between}")?;
        }
        self.out.write_all("[".repeat(deeper).as_bytes())
    }
}
