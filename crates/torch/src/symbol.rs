//! The names in a pickle that mean something here. All others stay names.

use weightlift_core::DType;

/// A function that makes a tensor, by what its arguments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebuild {
    /// `(storage, offset, size, stride)`.
    V1,
    /// `(storage, offset, size, stride, requires_grad, hooks[, metadata])`.
    V2,
    /// As V2, with the dtype after the hooks: over bytes.
    V3,
    /// `(tensor, …)`: a parameter, with or without attributes.
    Wrapped,
    /// `(function, type, arguments, state)`: another call, of another class.
    FromType,
    /// `(storage, offset, size, stride, quantizer, requires_grad, hooks)`.
    Quantized,
    /// `(layout, parts)`.
    Sparse,
    /// `(buffer, sizes, strides, offsets)`.
    Nested,
    /// `(array, dtype, device, requires_grad)`.
    FromNumpy,
    /// `(tensor, dtype, device, requires_grad)`.
    FromCpu,
    /// `(dtype, size, stride, requires_grad)`: no data.
    Meta,
    /// `(class, dtype, size, stride, …)`: no data.
    WrapperSubclass,
}

/// The rebuild function of this name.
pub(crate) fn rebuild(module: &[u8], name: &[u8]) -> Option<Rebuild> {
    match (module, name) {
        (b"torch._utils", name) => rebuild_util(name),
        (b"torch._tensor" | b"torch.tensor", b"_rebuild_from_type_v2" | b"_rebuild_from_type") => {
            Some(Rebuild::FromType)
        }
        (b"torch.nn.parameter", b"Parameter" | b"Buffer") => Some(Rebuild::Wrapped),
        _ => None,
    }
}

fn rebuild_util(name: &[u8]) -> Option<Rebuild> {
    Some(match name {
        b"_rebuild_tensor" => Rebuild::V1,
        b"_rebuild_tensor_v2" => Rebuild::V2,
        b"_rebuild_tensor_v3" => Rebuild::V3,
        b"_rebuild_parameter" | b"_rebuild_parameter_with_state" => Rebuild::Wrapped,
        b"_rebuild_qtensor" => Rebuild::Quantized,
        b"_rebuild_sparse_tensor" | b"_rebuild_sparse_csr_tensor" => Rebuild::Sparse,
        b"_rebuild_nested_tensor" => Rebuild::Nested,
        b"_rebuild_device_tensor_from_numpy" | b"_rebuild_xla_tensor" => Rebuild::FromNumpy,
        b"_rebuild_device_tensor_from_cpu_tensor" => Rebuild::FromCpu,
        b"_rebuild_meta_tensor_no_storage" => Rebuild::Meta,
        b"_rebuild_wrapper_subclass" => Rebuild::WrapperSubclass,
        _ => return None,
    })
}

/// What a storage's class says of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorageType {
    /// Elements of this dtype; the length counts them.
    Typed(DType),
    /// Bytes; the length counts them.
    Untyped,
}

/// Storage classes and dtypes that have one: class, dtype.
const STORAGES: &[(&str, DType)] = &[
    ("DoubleStorage", DType::F64),
    ("FloatStorage", DType::F32),
    ("HalfStorage", DType::F16),
    ("BFloat16Storage", DType::Bf16),
    ("LongStorage", DType::I64),
    ("IntStorage", DType::I32),
    ("ShortStorage", DType::I16),
    ("CharStorage", DType::I8),
    ("ByteStorage", DType::U8),
    ("BoolStorage", DType::Bool),
    ("ComplexFloatStorage", DType::C64),
    ("ComplexDoubleStorage", DType::C128),
    ("QInt8Storage", DType::Qi8),
    ("QUInt8Storage", DType::Qu8),
    ("QInt32Storage", DType::Qi32),
    ("QUInt4x2Storage", DType::Qu4),
    ("QUInt2x4Storage", DType::Qu2),
];

/// Names of `torch.dtype`s. The first of several spellings is the one to write.
const DTYPES: &[(&str, DType)] = &[
    ("float64", DType::F64),
    ("double", DType::F64),
    ("float32", DType::F32),
    ("float", DType::F32),
    ("float16", DType::F16),
    ("half", DType::F16),
    ("bfloat16", DType::Bf16),
    ("float8_e4m3fn", DType::F8E4m3fn),
    ("float8_e5m2", DType::F8E5m2),
    ("float8_e4m3fnuz", DType::F8E4m3fnuz),
    ("float8_e5m2fnuz", DType::F8E5m2fnuz),
    ("float8_e8m0fnu", DType::F8E8m0fnu),
    ("float4_e2m1fn_x2", DType::F4E2m1),
    ("int64", DType::I64),
    ("long", DType::I64),
    ("int32", DType::I32),
    ("int", DType::I32),
    ("int16", DType::I16),
    ("short", DType::I16),
    ("int8", DType::I8),
    ("uint64", DType::U64),
    ("uint32", DType::U32),
    ("uint16", DType::U16),
    ("uint8", DType::U8),
    ("bool", DType::Bool),
    ("complex128", DType::C128),
    ("cdouble", DType::C128),
    ("complex64", DType::C64),
    ("cfloat", DType::C64),
    ("complex32", DType::C32),
    ("chalf", DType::C32),
    ("bcomplex32", DType::Bc32),
    ("qint8", DType::Qi8),
    ("quint8", DType::Qu8),
    ("qint32", DType::Qi32),
    ("quint4x2", DType::Qu4),
    ("quint2x4", DType::Qu2),
    ("bits8", DType::Bits8),
    ("bits16", DType::Bits16),
    ("bits1x8", DType::Bits1x8),
    ("bits2x4", DType::Bits2x4),
    ("bits4x2", DType::Bits4x2),
];

fn named(table: &[(&str, DType)], name: &[u8]) -> Option<DType> {
    table.iter().find(|(other, _)| other.as_bytes() == name).map(|&(_, dtype)| dtype)
}

fn name_in(table: &'static [(&'static str, DType)], dtype: DType) -> Option<&'static str> {
    table.iter().find(|&&(_, other)| other == dtype).map(|&(name, _)| name)
}

/// The storage class of this name.
pub(crate) fn storage_type(module: &[u8], name: &[u8]) -> Option<StorageType> {
    match (module, name) {
        (b"torch.storage", b"UntypedStorage" | b"_UntypedStorage") | (b"torch" | b"torch.cuda", b"UntypedStorage") => {
            Some(StorageType::Untyped)
        }
        (b"torch" | b"torch.cuda" | b"torch.storage", name) => named(STORAGES, name).map(StorageType::Typed),
        _ => None,
    }
}

/// The `torch.dtype` of this name.
pub(crate) fn dtype(module: &[u8], name: &[u8]) -> Option<DType> {
    if module == b"torch" { named(DTYPES, name) } else { None }
}

/// The element type of a legacy tensor class such as `torch.FloatTensor`.
pub(crate) fn tensor_class(module: &[u8], name: &[u8]) -> Option<DType> {
    if !matches!(module, b"torch" | b"torch.cuda") {
        return None;
    }
    let stem = name.strip_suffix(b"Tensor")?;
    named(STORAGES, &[stem, b"Storage"].concat())
}

/// The storage class to write, in module `torch`; `None` for dtypes that are written over bytes.
pub(crate) fn storage_class(dtype: DType) -> Option<&'static str> {
    name_in(STORAGES, dtype)
}

/// The name to write of a `torch.dtype`; `None` for dtypes that PyTorch does not have.
pub(crate) fn dtype_name(dtype: DType) -> Option<&'static str> {
    name_in(DTYPES, dtype)
}

/// Whether PyTorch has files of tensors of this dtype that anyone can load.
pub(crate) fn holds(dtype: DType) -> bool {
    dtype_name(dtype).is_some() && dtype.class() != weightlift_core::Class::Quantized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for &dtype in DType::ALL {
            if let Some(name) = dtype_name(dtype) {
                assert_eq!(super::dtype(b"torch", name.as_bytes()), Some(dtype));
            }
            if let Some(name) = storage_class(dtype) {
                assert_eq!(storage_type(b"torch", name.as_bytes()), Some(StorageType::Typed(dtype)));
            }
        }
        assert_eq!(storage_type(b"torch.cuda", b"HalfStorage"), Some(StorageType::Typed(DType::F16)));
        assert_eq!(storage_type(b"os", b"HalfStorage"), None);
        assert_eq!(tensor_class(b"torch", b"FloatTensor"), Some(DType::F32));
        assert!(!holds(DType::I4) && !holds(DType::Qi8) && holds(DType::F8E5m2));
    }
}
