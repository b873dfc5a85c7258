//! Tensors, as the functions that rebuild them are called.

use crate::pickle::{Edit, Graph, Node, NodeId};
use crate::storage::{StorageId, natural};
use crate::symbol::{self, Rebuild, StorageType};
use crate::tree::{Child, Slot};
use weightlift_core::{DType, Error, Key, Layout, Result, Shape};

/// A strided view of a storage.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) storage: StorageId,
    /// The node that names the storage.
    pub(crate) place: Option<NodeId>,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) layout: Layout,
    /// The logical values are the complex conjugates of those stored.
    pub(crate) conj: bool,
    /// The logical values are the negatives of those stored.
    pub(crate) neg: bool,
    pub(crate) remarks: Vec<String>,
}

/// A tensor of any kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tensor {
    View(Box<View>),
    /// Dtype and shape, and why there are no values.
    Absent {
        dtype: DType,
        shape: Shape,
        why: String,
    },
    /// Tensors by name that make up one without strides: a sparse one.
    Parts {
        what: String,
        parts: Vec<Child>,
    },
    /// A NumPy array, and the dtype that the tensor has.
    Array {
        array: NodeId,
        dtype: Option<DType>,
    },
}

/// The call behind a tensor node, wrappers taken off.
struct Call<'a> {
    rebuild: Rebuild,
    args: &'a [NodeId],
    remarks: Vec<String>,
}

/// The rebuild function of this name.
pub(crate) fn rebuild_of(graph: &Graph, callable: NodeId) -> Option<Rebuild> {
    graph.global(callable).and_then(|(module, name)| symbol::rebuild(module, name))
}

/// Whether a node is a tensor, by the name of the function alone.
pub(crate) fn is_tensor(graph: &Graph, node: NodeId) -> bool {
    let Some(object) = graph.object(node) else { return false };
    rebuild_of(graph, object.callable).is_some() || legacy_state(graph, node).is_some()
}

/// The state of an object of a legacy class such as `torch.FloatTensor`: `(storage, offset, size, stride)`.
fn legacy_state(graph: &Graph, node: NodeId) -> Option<&[NodeId]> {
    let object = graph.object(node)?;
    let (module, name) = graph.global(object.callable)?;
    symbol::tensor_class(module, name)?;
    match object.edits.first()? {
        Edit::State(state) => graph.items(*state),
        _ => None,
    }
}

/// What the values of a tensor are made by, wrappers taken off.
pub(crate) fn kind(graph: &Graph, node: NodeId) -> Option<Rebuild> {
    unwrap(graph, node).ok().flatten().map(|call| call.rebuild)
}

/// Whether a tensor, wrappers taken off, requires a gradient.
pub(crate) fn requires_grad(graph: &Graph, node: NodeId) -> bool {
    let Ok(Some(call)) = unwrap(graph, node) else { return false };
    let at = match call.rebuild {
        Rebuild::V2 | Rebuild::V3 => 4,
        Rebuild::Quantized => 5,
        Rebuild::FromNumpy | Rebuild::Meta => 3,
        _ => return false,
    };
    call.args.get(at).is_some_and(|&arg| graph.node(arg) == Node::Bool(true))
}

/// Reads a tensor; `None` where the node is none.
///
/// # Errors
/// `Malformed` where its arguments make no tensor.
pub(crate) fn read(graph: &Graph, node: NodeId) -> Result<Option<Tensor>> {
    if let Some(args) = legacy_state(graph, node) {
        return view(graph, &Call { rebuild: Rebuild::V1, args, remarks: Vec::new() }).map(Some);
    }
    let Some(call) = unwrap(graph, node)? else { return Ok(None) };
    let arg = |at: usize| call.args.get(at).copied();
    match call.rebuild {
        Rebuild::V1 | Rebuild::V2 | Rebuild::V3 | Rebuild::Quantized => view(graph, &call),
        Rebuild::Meta => without_data(graph, arg(0), arg(1), "a meta tensor: the file has no data for it"),
        Rebuild::WrapperSubclass => {
            without_data(graph, arg(1), arg(2), "a wrapper subclass: the file has no data for it")
        }
        Rebuild::FromNumpy => match arg(0) {
            Some(array) => {
                let dtype = arg(1).map(|dtype| given_dtype(graph, Some(dtype))).transpose()?;
                Ok(Tensor::Array { array, dtype })
            }
            None => Err(Error::malformed("a tensor from a NumPy array without the array")),
        },
        Rebuild::Sparse => sparse(graph, call.args),
        // It has no shape of its own. Listed beside the tensors, and carried unchanged into a PyTorch file.
        Rebuild::Nested => Err(Error::unsupported("a nested tensor, whose parts differ in shape")),
        Rebuild::Wrapped | Rebuild::FromType | Rebuild::FromCpu => unreachable_wrapper(),
    }
    .map(Some)
}

fn unreachable_wrapper() -> Result<Tensor> {
    Err(Error::malformed("a tensor that is wrapped without end"))
}

/// Takes parameters, subclasses and devices off, down to the call that makes the values. Arguments are always made
/// before the call, so this comes to an end.
fn unwrap(graph: &Graph, node: NodeId) -> Result<Option<Call<'_>>> {
    let mut node = node;
    let mut remarks = Vec::new();
    loop {
        let Some(object) = graph.object(node) else { return Ok(None) };
        let Some(mut rebuild) = rebuild_of(graph, object.callable) else { return Ok(None) };
        let mut args = graph.items(object.args).unwrap_or_default();
        while rebuild == Rebuild::FromType {
            let &[function, class, inner, ..] = args else {
                return Err(Error::malformed("a tensor of another type with fewer than three arguments"));
            };
            remark_class(graph, class, &mut remarks);
            args = graph.items(inner).unwrap_or_default();
            match rebuild_of(graph, function) {
                Some(inner) => rebuild = inner,
                None => {
                    let what = graph.describe(function);
                    return Err(Error::unsupported(format!("a tensor that is made by {what}")));
                }
            }
        }
        match (rebuild, args.first()) {
            (Rebuild::Wrapped | Rebuild::FromCpu, Some(&inner)) if is_tensor(graph, inner) => node = inner,
            (Rebuild::Wrapped | Rebuild::FromCpu, inner) => {
                let what = inner.map_or("nothing".into(), |&inner| graph.describe(inner));
                return Err(Error::malformed(format!("a parameter is made from {what} instead of a tensor")));
            }
            _ => return Ok(Some(Call { rebuild, args, remarks })),
        }
    }
}

fn remark_class(graph: &Graph, class: NodeId, remarks: &mut Vec<String>) {
    let name = graph.dotted(class).unwrap_or_default();
    if !matches!(name.as_str(), "" | "torch.Tensor" | "torch.nn.parameter.Parameter") {
        remarks.push(format!("class {name}"));
    }
}

/// A tuple, list or `torch.Size` of numbers that are not negative.
pub(crate) fn naturals(graph: &Graph, node: NodeId, what: &str) -> Result<Vec<u64>> {
    let tuple = match graph.object(node) {
        Some(object) if graph.global(object.callable) == Some((b"torch", b"Size")) => {
            graph.items(object.args).and_then(|args| args.first()).copied().unwrap_or(object.args)
        }
        _ => node,
    };
    let Some(items) = graph.items(tuple) else {
        return Err(Error::malformed(format!("{what} is {} instead of a tuple", graph.describe(node))));
    };
    items.iter().map(|&item| natural(graph, item, what)).collect()
}

fn view(graph: &Graph, call: &Call<'_>) -> Result<Tensor> {
    let (&[storage, offset, size, stride], rest) = call.args.split_first_chunk().ok_or_else(|| {
        Error::malformed(format!("a tensor is rebuilt from {} arguments; four are needed", call.args.len()))
    })?;
    let (place, storage) = (Some(storage), StorageId::read(graph, storage)?);
    let shape = Shape::new(naturals(graph, size, "the size of a tensor")?)?;
    let strides = naturals(graph, stride, "the stride of a tensor")?;
    let layout = Layout { offset: natural(graph, offset, "the storage offset of a tensor")?, strides };
    let typed = match storage.class {
        StorageType::Typed(dtype) => Some(dtype),
        StorageType::Untyped => None,
    };
    let (dtype, metadata) = match call.rebuild {
        Rebuild::V3 => (given_dtype(graph, rest.get(2).copied())?, rest.get(3)),
        _ => (typed.unwrap_or(DType::U8), rest.get(2)),
    };
    let mut remarks = call.remarks.clone();
    if call.rebuild == Rebuild::Quantized {
        remarks.extend(rest.first().map(|&quantizer| quantization(graph, quantizer)));
    }
    let flag = |name: &[u8]| metadata.is_some_and(|&metadata| is_set(graph, metadata, name));
    let (conj, neg) = match call.rebuild {
        Rebuild::V2 | Rebuild::V3 => (flag(b"conj"), flag(b"neg")),
        _ => (false, false),
    };
    let view = View { storage, place, dtype, shape, layout, conj, neg, remarks };
    Ok(Tensor::View(Box::new(unpacked(view)?)))
}

/// Two values of `float4_e2m1fn_x2` share a byte that torch counts as one element: here each counts.
fn unpacked(mut view: View) -> Result<View> {
    let per_byte = match view.dtype {
        DType::F4E2m1 => 2,
        _ => return Ok(view),
    };
    let mut dims = view.shape.dims().to_vec();
    let mut strides = view.layout.strides.clone();
    if dims.len() != strides.len() {
        let (strides, rank) = (strides.len(), dims.len());
        return Err(Error::malformed(format!("{strides} strides for a tensor of rank {rank}")));
    }
    if dims.is_empty() {
        (dims, strides) = (vec![1], vec![1]);
    }
    let last = dims.len() - 1;
    if dims[last] > 1 && strides[last] != 1 {
        return Err(Error::unsupported(format!("a {} tensor with strides {strides:?}", view.dtype)));
    }
    let times = |n: u64| n.checked_mul(per_byte).ok_or_else(|| Error::malformed("a packed tensor beyond 2^63"));
    for stride in &mut strides[..last] {
        *stride = times(*stride)?;
    }
    strides[last] = 1;
    dims[last] = times(dims[last])?;
    view.layout = Layout { offset: times(view.layout.offset)?, strides };
    view.shape = Shape::new(dims)?;
    Ok(view)
}

fn given_dtype(graph: &Graph, node: Option<NodeId>) -> Result<DType> {
    let known = node.and_then(|node| graph.global(node)).and_then(|(module, name)| symbol::dtype(module, name));
    known.ok_or_else(|| {
        let what = node.map_or("nothing".into(), |node| graph.describe(node));
        Error::unsupported(format!("a tensor of dtype {what}"))
    })
}

/// Whether a dict sets a key to true.
fn is_set(graph: &Graph, dict: NodeId, key: &[u8]) -> bool {
    let pairs = graph.pairs(dict).unwrap_or_default();
    pairs.chunks_exact(2).any(|pair| graph.raw(pair[0]) == Some(key) && graph.node(pair[1]) == Node::Bool(true))
}

/// What there is to say of a quantizer: `(scheme, scale, zero point)`, or tensors of both and an axis.
fn quantization(graph: &Graph, quantizer: NodeId) -> String {
    let items = graph.items(quantizer).unwrap_or_default();
    let word = |at: usize| items.get(at).map_or(String::new(), |&item| graph.describe(item));
    match items.first().and_then(|&scheme| graph.global(scheme)) {
        Some((_, b"per_tensor_affine")) => format!("scale={} zero_point={}", word(1), word(2)),
        Some((_, name)) => format!("{} axis={}", String::from_utf8_lossy(name), word(3)),
        None => "quantized".into(),
    }
}

fn without_data(graph: &Graph, dtype: Option<NodeId>, size: Option<NodeId>, why: &str) -> Result<Tensor> {
    let dtype = given_dtype(graph, dtype)?;
    let Some(size) = size else { return Err(Error::malformed("a tensor without a size")) };
    let shape = Shape::new(naturals(graph, size, "the size of a tensor")?)?;
    Ok(Tensor::Absent { dtype, shape, why: why.into() })
}

/// The tensors that a sparse one is made of: `(layout, (indices, values, size, …))`.
fn sparse(graph: &Graph, args: &[NodeId]) -> Result<Tensor> {
    let &[layout, data, ..] = args else {
        return Err(Error::malformed(format!("a sparse tensor is rebuilt from {} arguments", args.len())));
    };
    let layout = match graph.object(layout) {
        // `torch.serialization._get_layout("torch.sparse_coo")`
        Some(object) => graph.items(object.args).and_then(|args| args.first()).and_then(|&name| graph.text(name)),
        None => None,
    };
    let layout = layout.unwrap_or_else(|| "torch.sparse".into()).into_owned();
    let names: &[&'static str] = match layout.as_str() {
        "torch.sparse_csr" | "torch.sparse_bsr" => &["crow_indices", "col_indices", "values"],
        "torch.sparse_csc" | "torch.sparse_bsc" => &["ccol_indices", "row_indices", "values"],
        _ => &["indices", "values"],
    };
    let items = graph.items(data).unwrap_or_default();
    let size = items.get(names.len()).copied().and_then(|size| naturals(graph, size, "size").ok());
    let size = size.map_or(String::new(), |size| format!(" of shape {size:?}"));
    let what = format!("{}{size}", layout.trim_start_matches("torch."));
    Ok(Tensor::Parts { what, parts: parts(graph, names, data) })
}

/// The tensors among the items of a tuple, by name.
fn parts(graph: &Graph, names: &[&str], holder: NodeId) -> Vec<Child> {
    let items = graph.items(holder).unwrap_or_default().iter().zip(names).enumerate();
    let child = |(at, (&value, &name)): (usize, (&NodeId, &&str))| Child {
        key: Key::Text(name.into()),
        value,
        slot: Slot { holder, part: at as u32 },
    };
    items.map(child).filter(|child| is_tensor(graph, child.value)).collect()
}
