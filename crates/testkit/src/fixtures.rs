//! The fixtures: real files by real frameworks, and what those frameworks read back from them.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use weightlift_core::DType;

/// A tensor as the framework that wrote the file reads it back.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Its name; keys of nested files are joined with dots.
    pub name: String,
    /// Its dtype; `None` where the manifest names one that weightlift does not know.
    pub dtype: Option<DType>,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// SHA-256 of its dense row-major little-endian bytes; absent where the manifest has none.
    pub sha256: Option<String>,
    /// The number of the storage it lies in, for torch files.
    pub storage: Option<u64>,
    /// Everything the manifest says of it.
    pub raw: Value,
}

/// One checkpoint of the fixtures.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// What to open, relative to the fixtures' folder: `tf/foo_dense/model.ckpt`.
    pub name: String,
    /// What to open.
    pub path: PathBuf,
    /// All files that belong to it.
    pub files: Vec<PathBuf>,
    /// `tf-bundle-v2`, `torch-zip`, `safetensors`, …
    pub kind: String,
    /// `ok`, `error`, `ok-or-error`, …
    pub expect: String,
    /// The tensors.
    pub tensors: Vec<Expected>,
    /// Everything the manifest says of it.
    pub raw: Value,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/fixtures")
}

/// All fixtures of the manifest.
///
/// # Panics
/// Where the manifest cannot be read: then no test can say anything.
pub fn fixtures() -> Vec<Fixture> {
    let path = root().join("manifest.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // One file holds half a surrogate pair, which JSON can spell and a Rust string cannot hold.
    let text = text.replace(r"\ud800lone", r"\ufffdlone");
    let manifest: Value = serde_json::from_str(&text).expect("the manifest is JSON");
    let checkpoints = manifest["checkpoints"].as_array().expect("the manifest lists checkpoints");
    checkpoints.iter().map(read_fixture).collect()
}

/// The fixture opened by `name`, as `tf/foo_dense/model.ckpt`.
///
/// # Panics
/// Where there is none.
pub fn fixture(name: &str) -> Fixture {
    let found = fixtures().into_iter().find(|fixture| fixture.name == name);
    found.unwrap_or_else(|| panic!("no fixture is called {name}"))
}

/// SHA-256 in hexadecimal digits, as the manifest has it.
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The dtype behind a framework's name for it, as the manifest spells it.
pub fn manifest_dtype(name: &str) -> Option<DType> {
    let numpy = match name.trim_start_matches(['<', '>', '|', '=']) {
        "f2" => Some(DType::F16),
        "f4" if name.len() == 3 => Some(DType::F32),
        "f8" if name.len() == 3 => Some(DType::F64),
        "f16" if name.len() == 4 => Some(DType::F80),
        "c8" => Some(DType::C64),
        "c16" => Some(DType::C128),
        "b1" => Some(DType::Bool),
        "i1" => Some(DType::I8),
        "i2" if name.len() == 3 => Some(DType::I16),
        "i4" if name.len() == 3 => Some(DType::I32),
        "i8" if name.len() == 3 => Some(DType::I64),
        "u1" => Some(DType::U8),
        "u2" if name.len() == 3 => Some(DType::U16),
        "u4" if name.len() == 3 => Some(DType::U32),
        "u8" if name.len() == 3 => Some(DType::U64),
        _ => None,
    };
    match name {
        "F4" => Some(DType::F4E2m1),
        _ => numpy.or_else(|| name.parse().ok()),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn read_fixture(raw: &Value) -> Fixture {
    let items = |key: &str| raw[key].as_array().cloned().unwrap_or_default();
    Fixture {
        name: text(&raw["path"]),
        path: root().join(text(&raw["path"])),
        files: items("files").iter().map(|file| root().join(text(file))).collect(),
        kind: text(&raw["kind"]),
        expect: text(&raw["expect"]),
        tensors: items("tensors").iter().map(read_tensor).collect(),
        raw: raw.clone(),
    }
}

fn read_tensor(raw: &Value) -> Expected {
    let dims = raw["shape"].as_array().cloned().unwrap_or_default();
    Expected {
        name: text(&raw["name"]),
        dtype: manifest_dtype(&text(&raw["dtype"])),
        shape: dims.iter().filter_map(Value::as_u64).collect(),
        sha256: raw["sha256"].as_str().map(str::to_owned),
        storage: raw["storage"].as_u64(),
        raw: raw.clone(),
    }
}
