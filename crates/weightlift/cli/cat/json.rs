//! Values as JSON.
//!
//! ```json
//! {"schema": "weightlift.cat/1", "name": "w", "dtype": "f32", "shape": [2], "slice": "0", "values": [0.1, "NaN"]}
//! ```
//!
//! `shape` is that of `values`, `slice` what stood between the brackets. A floating-point number has as few digits as
//! tell it from its neighbours in its own dtype; NaN and infinities are the strings `NaN`, `Infinity` and `-Infinity`.
//! Integers are exact. A complex number is a list of its halves. A string that is not UTF-8 is an object
//! `{"hex": "00ff"}`.

use super::element::Value;
use super::exact::Exact;
use super::float;
use std::io::{self, Write};
use weightlift_core::{Error, Result, Shape};

/// The most empty lists that an array without elements is written as.
const EMPTY_LISTS: u64 = 1 << 20;

/// What stands before the values.
pub(super) struct Head<'a> {
    pub(super) name: &'a str,
    pub(super) dtype: &'a str,
    pub(super) shape: &'a Shape,
    pub(super) slice: Option<&'a str>,
}

/// Writes elements in their order as nested lists, within their object.
pub(super) struct JsonWriter<'a> {
    out: &'a mut dyn Write,
    dims: Vec<u64>,
    index: Vec<u64>,
}

impl<'a> JsonWriter<'a> {
    /// Begins the object.
    ///
    /// # Errors
    /// As `out` says.
    pub(super) fn new(out: &'a mut dyn Write, head: &Head<'_>) -> io::Result<JsonWriter<'a>> {
        let dims = head.shape.dims().to_vec();
        write!(out, r#"{{"schema": "weightlift.cat/1", "name": {}, "dtype": "{}""#, quoted(head.name), head.dtype)?;
        write!(out, r#", "shape": {}"#, head.shape)?;
        if let Some(slice) = head.slice {
            write!(out, r#", "slice": {}"#, quoted(slice))?;
        }
        out.write_all(br#", "values": "#)?;
        out.write_all("[".repeat(if dims.contains(&0) { 0 } else { dims.len() }).as_bytes())?;
        let index = vec![0; dims.len()];
        Ok(JsonWriter { out, dims, index })
    }

    /// The next element.
    ///
    /// # Errors
    /// As the output says.
    pub(super) fn element(&mut self, value: &Value) -> io::Result<()> {
        self.out.write_all(text(value).as_bytes())?;
        let rank = self.dims.len();
        let next = (0..rank).rev().find(|&axis| self.index[axis] + 1 < self.dims[axis]);
        let Some(axis) = next else { return self.out.write_all("]".repeat(rank).as_bytes()) };
        self.index[axis] += 1;
        self.index[axis + 1..].fill(0);
        let deeper = rank - 1 - axis;
        write!(self.out, "{}, {}", "]".repeat(deeper), "[".repeat(deeper))
    }

    /// Ends the object.
    ///
    /// # Errors
    /// As the output says.
    pub(super) fn finish(self) -> io::Result<()> {
        if let Some(empty) = self.dims.iter().position(|&dim| dim == 0) {
            // From the innermost list outwards; the caller has checked how many that makes.
            let lists = self.dims.iter().take(empty).rev().fold("[]".to_owned(), |inner, &count| {
                let inners = vec![inner; count as usize];
                format!("[{}]", inners.join(", "))
            });
            self.out.write_all(lists.as_bytes())?;
        }
        self.out.write_all(b"}\n")
    }
}

/// Refuses an array of no elements in very many lists.
///
/// # Errors
/// `Limit`.
pub(super) fn check_empty(shape: &Shape) -> Result<()> {
    let lists: u64 = shape.dims().iter().take_while(|&&dim| dim > 0).product();
    if shape.elements() == 0 && lists > EMPTY_LISTS {
        return Err(Error::limit(format!("shape {shape} has no elements in {lists} lists")));
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn text(value: &Value) -> String {
    match value {
        Value::Float(number) => of_float(*number),
        Value::Complex(real, imaginary) => format!("[{}, {}]", of_float(*real), of_float(*imaginary)),
        Value::Integer(integer) => integer.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => quoted(text),
            Err(_) => {
                let hex: String = text.iter().map(|byte| format!("{byte:02x}")).collect();
                format!(r#"{{"hex": "{hex}"}}"#)
            }
        },
    }
}

fn of_float(number: Exact) -> String {
    float::json(number).unwrap_or_else(|| {
        let name = match number {
            Exact::Nan => "NaN",
            _ if number.is_negative() => "-Infinity",
            _ => "Infinity",
        };
        quoted(name)
    })
}
