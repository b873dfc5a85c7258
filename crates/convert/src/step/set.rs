//! Values given from outside: `--set` and `--add`.

use super::cut::cuts;
use crate::items::{Item, Items};
use crate::selection::Selection;
use crate::value::Value;
use std::fmt;
use weightlift_core::{DType, Error, Result, Shape};

/// What a rule says: as one text that is cut when the names are known, or in parts that need no cutting.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Words {
    Text(String),
    Parts(String, String),
    Values(String, Array),
}

/// A small tensor in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    dtype: DType,
    shape: Shape,
    bytes: Vec<u8>,
}

impl Array {
    /// Dense row-major little-endian elements.
    ///
    /// # Errors
    /// `Request` where their number is not that of the shape.
    pub fn new(dtype: DType, shape: &[u64], bytes: Vec<u8>) -> Result<Array> {
        let shape = Shape::new(shape)?;
        let array = Array { dtype, shape, bytes };
        array.value().map(|_| array)
    }

    /// Numbers of f32.
    ///
    /// # Errors
    /// As [`Array::new`].
    pub fn of_f32(shape: &[u64], values: &[f32]) -> Result<Array> {
        Array::new(DType::F32, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn value(&self) -> Result<Value> {
        Value::of_bytes(self.dtype, self.shape.clone(), self.bytes.clone(), format!("{} {}", self.dtype, self.shape))
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Words::Text(text) => f.write_str(text),
            Words::Parts(name, value) => write!(f, "{name}={value}"),
            Words::Values(name, array) => write!(f, "{name}={} {}", array.dtype, array.shape),
        }
    }
}

/// `NAME[SLICE]=VALUE|FILE.npy|WORD::NAME[SLICE]`: sets a tensor, or a part of it. It keeps its dtype; set as a whole,
/// it takes the shape of the array or tensor. Every element of a tensor of texts becomes VALUE as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set(Words);

impl Set {
    /// A rule as it is written on the command line; it is cut at the first `=` that has an existing tensor on its left.
    pub fn parse(text: &str) -> Set {
        Set(Words::Text(text.to_owned()))
    }

    /// `target` is `NAME` or `NAME[SLICE]`, `value` a number, `true`, `false`, a `.npy` file or `WORD::NAME[SLICE]`.
    pub fn new(target: &str, value: &str) -> Set {
        Set(Words::Parts(target.to_owned(), value.to_owned()))
    }

    /// The values of `target` from memory.
    pub fn values(target: &str, array: Array) -> Set {
        Set(Words::Values(target.to_owned(), array))
    }

    /// The `.npy` files that it may name.
    pub(crate) fn arrays(&self) -> Vec<&str> {
        arrays_of(&self.0)
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `NAME=FILE.npy|WORD::NAME[SLICE]`: a tensor that was not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Add(Words);

impl Add {
    /// Parses `NAME=FILE.npy|WORD::NAME[SLICE]`, cut at the first `=`.
    ///
    /// # Errors
    /// `Request` without a `=`.
    pub fn parse(text: &str) -> Result<Add> {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Error::request(format!("--add {text:?} has no '='")).help("write NAME=FILE.npy or NAME=WORD::NAME")
        })?;
        Ok(Add::new(name, value))
    }

    /// A tensor called `name` from a `.npy` file or `WORD::NAME[SLICE]`.
    pub fn new(name: &str, value: &str) -> Add {
        Add(Words::Parts(name.to_owned(), value.to_owned()))
    }

    /// A tensor called `name` with values from memory.
    pub fn values(name: &str, array: Array) -> Add {
        Add(Words::Values(name.to_owned(), array))
    }

    /// The `.npy` file that it may name.
    pub(crate) fn array(&self) -> Option<&str> {
        arrays_of(&self.0).into_iter().next()
    }
}

impl fmt::Display for Add {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn arrays_of(words: &Words) -> Vec<&str> {
    let values = match words {
        Words::Text(text) => cuts(text).map(|(_, value)| value).collect(),
        Words::Parts(_, value) => vec![value.as_str()],
        Words::Values(..) => Vec::new(),
    };
    values.into_iter().filter(|value| value.ends_with(".npy")).collect()
}

/// What a tensor is set to.
enum Given<'a> {
    Text(&'a str),
    Array(&'a Array),
}

impl Items<'_> {
    /// Sets a tensor or a part of it.
    pub(crate) fn set(&mut self, rule: &Set) -> Result<usize> {
        let (target, value) = match &rule.0 {
            Words::Parts(target, value) => (target.as_str(), Given::Text(value)),
            Words::Values(target, array) => (target.as_str(), Given::Array(array)),
            Words::Text(text) => {
                let (target, value) = self.cut_at_name("--set", text)?;
                (target, Given::Text(value))
            }
        };
        let (at, slice) = self.find(target, "--set")?;
        let base = self.edited()[at].value.clone();
        let changed = self.changed(&base, slice, &value).map_err(|error| error.in_tensor(&self.edited()[at].name))?;
        self.lists[0][at].value = changed;
        Ok(1)
    }

    fn changed(&mut self, base: &Value, slice: Option<&str>, value: &Given<'_>) -> Result<Value> {
        let selection = match slice {
            Some(slice) => Selection::parse(slice, base.shape())?,
            None => Selection::whole(base.shape()),
        };
        let with = match value {
            Given::Text(text) if base.dtype() == DType::Str && !self.names_tensor(text) => {
                if slice.is_some() {
                    return Err(Error::request("a tensor of texts is set as a whole").help("leave out the slice"));
                }
                return Value::text(base.shape().clone(), text);
            }
            Given::Array(array) => array.value()?,
            Given::Text(text) if matches!(*text, "true" | "false") || text.parse::<f64>().is_ok() => {
                Value::filled(base.dtype(), selection.shape()?, text)?
            }
            Given::Text(text) => self.operand(text, "--set")?,
        };
        match slice {
            Some(slice) => base.patch(&selection, slice, &with),
            None => with.cast(base.dtype()),
        }
    }

    /// Adds a tensor at the end.
    pub(crate) fn add(&mut self, rule: &Add) -> Result<usize> {
        let (name, value) = match &rule.0 {
            Words::Parts(name, value) => (name, self.operand(value, "--add")?),
            Words::Values(name, array) => (name, array.value()?),
            Words::Text(text) => return Err(Error::request(format!("--add {text:?} has no '='"))),
        };
        if self.names().any(|known| known == name) {
            return Err(Error::request("there is such a tensor").in_tensor(name).help("--set changes it"));
        }
        self.lists[0].push(Item::made(name.clone(), value));
        Ok(1)
    }
}
