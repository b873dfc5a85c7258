//! A tensor as the call that rebuilds it.

use crate::pickle::{Emitter, opcode as op};
use crate::symbol;
use weightlift_core::{DType, Error, Layout, Manifest, Output, Packing, Result};

/// What the pickle says of a tensor, checked against its blob.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Placed {
    /// The storage's record.
    key: u32,
    /// Length of the storage in elements of its class.
    numel: u64,
    offset: u64,
    size: Vec<u64>,
    stride: Vec<u64>,
    dtype: DType,
}

/// Checks that a tensor is one view of one blob.
///
/// # Errors
/// `Request` where it is not, or PyTorch has no such dtype.
pub(crate) fn place(manifest: &Manifest, output: &Output) -> Result<Placed> {
    let dtype = output.dtype;
    let wrong = |what: String| Error::request(what).in_tensor(&output.name);
    if !symbol::holds(dtype) {
        return Err(wrong(format!("PyTorch files hold no {dtype}")));
    }
    let part = match output.parts.as_slice() {
        [part] if part.region.is_whole(&output.shape) => part,
        parts => return Err(wrong(format!("a PyTorch tensor is one view of one storage, not {} parts", parts.len()))),
    };
    let Some(blob) = manifest.blobs.get(part.blob.0 as usize) else {
        return Err(wrong(format!("no blob has number {}", part.blob.0)));
    };
    let reach = part.layout.reach(&output.shape).map_err(|error| error.in_tensor(&output.name))?;
    let bytes = blob.bytes;
    if dtype.bytes(reach, Packing::Dense).is_none_or(|needed| needed > bytes) {
        return Err(wrong(format!("a view of {reach} {dtype} elements over a blob of {bytes} bytes")));
    }
    let (size, Layout { offset, strides }) = (output.shape.dims().to_vec(), part.layout.clone());
    let (offset, size, stride) = packed(dtype, offset, size, strides).map_err(wrong)?;
    let unit = match symbol::storage_class(dtype) {
        Some(_) => u64::from(dtype.bits().unwrap_or(8).div_ceil(8)),
        None => 1,
    };
    if bytes % unit != 0 {
        return Err(wrong(format!("a blob of {bytes} bytes is no whole number of {dtype} elements")));
    }
    Ok(Placed { key: part.blob.0, numel: bytes / unit, offset, size, stride, dtype })
}

type View = (u64, Vec<u64>, Vec<u64>);

/// torch counts a byte of two values as one element.
fn packed(dtype: DType, offset: u64, mut size: Vec<u64>, mut stride: Vec<u64>) -> std::result::Result<View, String> {
    if dtype != DType::F4E2m1 {
        return Ok((offset, size, stride));
    }
    let odd = |n: &u64| n % 2 == 1;
    let (Some(last), Some(step)) = (size.last_mut(), stride.last_mut()) else {
        return Err(format!("torch pairs {dtype} values in the last dimension, and a scalar has none"));
    };
    if odd(last) || *step != 1 && *last > 0 {
        return Err(format!("torch pairs {dtype} values in the last dimension, here {last} with stride {step}"));
    }
    *last /= 2;
    *step = 2;
    if stride.iter().any(odd) || odd(&offset) {
        return Err(format!("a view of {dtype} values that begins within a byte"));
    }
    Ok((offset / 2, size, stride.iter().map(|stride| stride / 2).collect()))
}

/// Writes the call.
pub(crate) fn emit(out: &mut Emitter, tensor: &Placed, requires_grad: bool) {
    function(out, tensor);
    arguments(out, tensor, requires_grad);
    out.op(op::REDUCE);
}

/// Writes the name of the function that is called.
pub(crate) fn function(out: &mut Emitter, tensor: &Placed) {
    let over_bytes = symbol::storage_class(tensor.dtype).is_none();
    out.global(b"torch._utils", if over_bytes { b"_rebuild_tensor_v3" } else { b"_rebuild_tensor_v2" });
}

/// Writes the arguments of the call, a tuple.
pub(crate) fn arguments(out: &mut Emitter, tensor: &Placed, requires_grad: bool) {
    let class = symbol::storage_class(tensor.dtype);
    out.op(op::MARK);
    view(out, tensor, class.map_or((b"torch.storage", b"UntypedStorage"), |class| (b"torch", class.as_bytes())));
    out.bool(requires_grad);
    out.ordered_dict();
    if class.is_none() {
        out.global(b"torch", symbol::dtype_name(tensor.dtype).unwrap_or_default().as_bytes());
    }
    out.op(op::TUPLE);
}

/// Writes storage, offset, size and stride; `class` is that of the storage, module and name.
pub(crate) fn view(out: &mut Emitter, tensor: &Placed, class: (&[u8], &[u8])) {
    out.op(op::MARK);
    out.text(b"storage");
    out.global(class.0, class.1);
    out.text(tensor.key.to_string().as_bytes());
    out.text(b"cpu");
    out.number(tensor.numel);
    out.op(op::TUPLE);
    out.op(op::BINPERSID);
    out.number(tensor.offset);
    out.numbers(&tensor.size);
    out.numbers(&tensor.stride);
}

impl Placed {
    /// Equal for tensors that may be one object.
    pub(crate) fn identity(&self) -> Placed {
        match self.size.contains(&0) {
            true => Placed { key: 0, numel: 0, offset: 0, ..self.clone() },
            false => self.clone(),
        }
    }

    /// The storage's record.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Length of the whole storage in bytes.
    pub(crate) fn storage_bytes(&self) -> u64 {
        let unit = match symbol::storage_class(self.dtype) {
            Some(_) => u64::from(self.dtype.bits().unwrap_or(8).div_ceil(8)),
            None => 1,
        };
        self.numel * unit
    }

    /// The element type.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }
}
