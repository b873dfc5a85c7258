//! NumPy arrays and scalars in a pickle.

use crate::pickle::{Edit, Graph, Node, NodeId};
use crate::tensor::naturals;
use weightlift_core::{ByteOrder, DType, Error, Layout, Packing, Result, Shape};

/// An array whose values are in the pickle.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Array {
    /// Type, as NumPy names it: `<f8`.
    pub(crate) name: String,
    /// The type here; `None` for texts, records and objects.
    pub(crate) dtype: Option<DType>,
    pub(crate) order: ByteOrder,
    pub(crate) shape: Shape,
    /// Whether the first axis runs fastest.
    pub(crate) fortran: bool,
    /// The node of the bytes.
    bytes: NodeId,
}

/// The `dtype` object of a node: name, type and byte order.
fn dtype(graph: &Graph, node: NodeId) -> Option<(String, Option<DType>, ByteOrder)> {
    let object = graph.object(node)?;
    if graph.global(object.callable) != Some((b"numpy", b"dtype")) {
        return None;
    }
    let code = graph.text(*graph.items(object.args)?.first()?)?.into_owned();
    let state = object.edits.iter().find_map(|edit| match edit {
        Edit::State(state) => graph.items(*state),
        _ => None,
    });
    let order = state.and_then(|state| graph.text(*state.get(1)?)).unwrap_or_else(|| "|".into()).into_owned();
    let known = match code.as_str() {
        "f2" => Some(DType::F16),
        "f4" => Some(DType::F32),
        "f8" => Some(DType::F64),
        "b1" => Some(DType::Bool),
        "i1" => Some(DType::I8),
        "i2" => Some(DType::I16),
        "i4" => Some(DType::I32),
        "i8" => Some(DType::I64),
        "u1" => Some(DType::U8),
        "u2" => Some(DType::U16),
        "u4" => Some(DType::U32),
        "u8" => Some(DType::U64),
        "c8" => Some(DType::C64),
        "c16" => Some(DType::C128),
        _ => None,
    };
    let byte_order = if order == ">" { ByteOrder::Big } else { ByteOrder::Little };
    Some((format!("{order}{code}"), known, byte_order))
}

fn is_multiarray(module: &[u8]) -> bool {
    matches!(module, b"numpy.core.multiarray" | b"numpy._core.multiarray")
}

/// Reads an array; `None` where the node is none.
pub(crate) fn array(graph: &Graph, node: NodeId) -> Option<Array> {
    let object = graph.object(node)?;
    match graph.global(object.callable)? {
        (module, b"_reconstruct") if is_multiarray(module) => {
            let state = object.edits.iter().find_map(|edit| match edit {
                Edit::State(state) => graph.items(*state),
                _ => None,
            });
            let &[_version, shape, kind, fortran, bytes] = state? else { return None };
            made(graph, shape, kind, graph.int(fortran) == Some(1), bytes)
        }
        // Protocol 5: `_frombuffer(buffer, dtype, shape, order)`.
        (b"numpy.core.numeric" | b"numpy._core.numeric", b"_frombuffer") => {
            let &[bytes, kind, shape, order] = graph.items(object.args)? else { return None };
            made(graph, shape, kind, graph.raw(order) == Some(b"F"), bytes)
        }
        _ => None,
    }
}

fn made(graph: &Graph, shape: NodeId, kind: NodeId, fortran: bool, bytes: NodeId) -> Option<Array> {
    let (name, dtype, order) = dtype(graph, kind)?;
    let shape = Shape::new(naturals(graph, shape, "the shape of an array").ok()?).ok()?;
    Some(Array { name, dtype, order, shape, fortran, bytes })
}

/// The bytes of a node: bytes, or a call that encodes text of the same code points.
pub(crate) fn bytes(graph: &Graph, node: NodeId) -> Option<Vec<u8>> {
    if let Node::Bytes(_) | Node::ByteArray(_) | Node::OldString(_) = graph.node(node) {
        return graph.raw(node).map(<[u8]>::to_vec);
    }
    let object = graph.object(node)?;
    let &[text, ..] = graph.items(object.args)? else { return None };
    match graph.global(object.callable)? {
        (b"_codecs", b"encode") => {
            let text = std::str::from_utf8(graph.raw(text)?).ok()?;
            text.chars().map(|char| u8::try_from(char).ok()).collect()
        }
        (b"builtins" | b"__builtin__", b"bytes" | b"bytearray") => graph.raw(text).map(<[u8]>::to_vec),
        _ => None,
    }
}

impl Array {
    /// The values as they are in the pickle: the bytes of all elements.
    ///
    /// # Errors
    /// `Malformed` where they are fewer or more; `Unsupported` for arrays of no numbers.
    pub(crate) fn values(&self, graph: &Graph) -> Result<(DType, Vec<u8>)> {
        let dtype = self.dtype.ok_or_else(|| Error::unsupported(format!("a NumPy array of {}", self.name)))?;
        let bytes = bytes(graph, self.bytes)
            .ok_or_else(|| Error::unsupported(format!("a NumPy array kept as {}", graph.describe(self.bytes))))?;
        let wanted = dtype.bytes(self.shape.elements(), Packing::Dense);
        if wanted != Some(bytes.len() as u64) {
            let message = format!("a NumPy array {} of shape {} in {} bytes", self.name, self.shape, bytes.len());
            return Err(Error::malformed(message));
        }
        Ok((dtype, bytes))
    }

    /// Where the elements lie.
    pub(crate) fn layout(&self) -> Layout {
        if !self.fortran {
            return Layout::contiguous(&self.shape);
        }
        let axes = self.shape.dims().iter();
        let strides = axes.scan(1u64, |next, &dim| {
            let stride = *next;
            *next = next.saturating_mul(dim.max(1));
            Some(stride)
        });
        Layout { offset: 0, strides: strides.collect() }
    }
}

/// An array or scalar in a few words: `numpy <f8 [2, 3]`, or the value.
pub(crate) fn describe(graph: &Graph, node: NodeId) -> Option<String> {
    if let Some(array) = array(graph, node) {
        return Some(format!("numpy {} {}", array.name, array.shape));
    }
    let object = graph.object(node)?;
    let (module, name) = graph.global(object.callable)?;
    if !is_multiarray(module) || name != b"scalar" {
        return None;
    }
    let &[kind, value] = graph.items(object.args)? else { return None };
    let (name, dtype, order) = dtype(graph, kind)?;
    let value = bytes(graph, value).and_then(|bytes| scalar(dtype?, order, bytes));
    Some(value.map_or(format!("numpy {name}"), |value| format!("{value} (numpy {name})")))
}

fn scalar(dtype: DType, order: ByteOrder, mut bytes: Vec<u8>) -> Option<String> {
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    let bytes = bytes.as_slice();
    Some(match dtype {
        DType::F64 => format!("{:?}", f64::from_le_bytes(bytes.try_into().ok()?)),
        DType::F32 => format!("{:?}", f32::from_le_bytes(bytes.try_into().ok()?)),
        DType::I64 => i64::from_le_bytes(bytes.try_into().ok()?).to_string(),
        DType::I32 => i32::from_le_bytes(bytes.try_into().ok()?).to_string(),
        DType::Bool => if bytes == [1] { "True" } else { "False" }.into(),
        _ => return None,
    })
}
