//! The functions whose calls are written back: they make a value and do nothing else.

use crate::symbol;

/// Modules and their names.
const INERT: &[(&str, &[&str])] = &[
    ("collections", &["OrderedDict", "Counter", "defaultdict", "deque"]),
    (
        "builtins",
        &[
            "set",
            "frozenset",
            "list",
            "dict",
            "tuple",
            "bytes",
            "bytearray",
            "complex",
            "slice",
            "range",
            "int",
            "float",
            "str",
            "bool",
            "object",
            "xrange",
            "long",
            "unicode",
        ],
    ),
    ("datetime", &["datetime", "date", "time", "timedelta", "timezone"]),
    ("decimal", &["Decimal"]),
    ("fractions", &["Fraction"]),
    ("uuid", &["UUID"]),
    ("argparse", &["Namespace"]),
    ("types", &["SimpleNamespace"]),
    ("pathlib", &["Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath"]),
    ("pathlib._local", &["Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath"]),
    ("_codecs", &["encode"]),
    ("copyreg", &["_reconstructor"]),
    ("numpy", &["ndarray", "dtype"]),
    ("numpy.core.multiarray", &["_reconstruct", "scalar"]),
    ("numpy._core.multiarray", &["_reconstruct", "scalar"]),
    ("numpy.core.numeric", &["_frombuffer"]),
    ("numpy._core.numeric", &["_frombuffer"]),
    ("torch", &["Size", "device", "Generator"]),
    ("torch.serialization", &["_get_layout"]),
    ("torch.nn.backends.thnn", &["_get_thnn_function_backend"]),
];

/// Whether a call of this function only makes a value.
pub(super) fn is_inert(module: &[u8], name: &[u8]) -> bool {
    // Names of Python 2.
    let module: &[u8] = match module {
        b"__builtin__" => b"builtins",
        b"copy_reg" => b"copyreg",
        module => module,
    };
    let listed = INERT.iter().filter(|(listed, _)| listed.as_bytes() == module);
    let mut names = listed.flat_map(|(_, names)| names.iter());
    names.any(|listed| listed.as_bytes() == name)
        || symbol::rebuild(module, name).is_some()
        || symbol::tensor_class(module, name).is_some()
}

#[cfg(test)]
mod tests {
    use super::is_inert;

    #[test]
    fn what_runs_something_is_not_inert() {
        for (module, name) in [("os", "system"), ("posix", "system"), ("builtins", "eval"), ("builtins", "getattr")] {
            assert!(!is_inert(module.as_bytes(), name.as_bytes()));
        }
        for (module, name) in [("functools", "partial"), ("__builtin__", "apply"), ("torch", "load")] {
            assert!(!is_inert(module.as_bytes(), name.as_bytes()));
        }
        for (module, name) in [("__builtin__", "set"), ("copy_reg", "_reconstructor"), ("torch", "FloatTensor")] {
            assert!(is_inert(module.as_bytes(), name.as_bytes()));
        }
    }
}
