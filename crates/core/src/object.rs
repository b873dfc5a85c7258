//! What stands around the tensors of a checkpoint, to be looked at.

use crate::Key;

/// One object. A checkpoint gives its objects as a list: what an object holds follows it, one level deeper.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// How many objects hold it; 0 for the outermost.
    pub depth: usize,
    /// Its key in what holds it; `None` for the outermost.
    pub key: Option<Key>,
    /// What it is.
    pub value: ObjectValue,
}

/// What an object is.
#[derive(Debug, Clone, PartialEq)]
pub enum ObjectValue {
    /// Nothing.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer beyond 64 bits, in decimal.
    Long(String),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A tensor, by the name under which it is listed.
    Tensor(String),
    /// Keys and what they lead to: a dict, or an object with attributes. The name of its class, and how many follow.
    Keyed(String, usize),
    /// Values in order: a list, tuple, set, or an object made of some. The name of its class, and how many follow.
    Sequence(String, usize),
    /// An object that stands elsewhere too, by its joined path there.
    Same(String),
    /// Any other value, in words.
    Other(String),
}
