//! What the tests of edits share: small files, and the command run on them.

use crate::command::{path, stderr, weightlift};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weightlift::{DType, Format, Shape};
use weightlift_core::{BlobId, Manifest, WriteOptions};

/// A tensor of a test: name, dtype, dimensions, bytes.
pub type Tensor = (&'static str, DType, Vec<u64>, Vec<u8>);

pub fn f32s(name: &'static str, dims: &[u64], values: impl IntoIterator<Item = f32>) -> Tensor {
    (name, DType::F32, dims.to_vec(), values.into_iter().flat_map(f32::to_le_bytes).collect())
}

/// Numbers from 0 on.
pub fn counted(name: &'static str, dims: &[u64]) -> Tensor {
    f32s(name, dims, (0..dims.iter().product::<u64>()).map(|at| at as f32))
}

pub fn write(file: PathBuf, tensors: &[Tensor]) -> PathBuf {
    let mut manifest = Manifest::default();
    for (name, dtype, dims, _) in tensors {
        manifest.add_tensor(name, *dtype, Shape::new(dims.clone()).unwrap());
    }
    let format = &weightlift_safetensors::Safetensors;
    let writer = format.create(weightlift_io::real(), &file, manifest, &WriteOptions::default()).unwrap();
    for (index, (.., bytes)) in tensors.iter().enumerate() {
        writer.write_at(BlobId(index as u32), 0, bytes).unwrap();
    }
    writer.finish().unwrap();
    file
}

/// Runs `convert` with these arguments before the output; it must succeed.
pub fn convert(input: &[&Path], output: &Path, steps: &[&str]) -> String {
    let mut arguments = vec!["convert"];
    arguments.extend(input.iter().map(|input| path(input)));
    arguments.extend([path(output), "--force"]);
    arguments.extend(steps);
    let done = weightlift(&arguments);
    assert!(done.status.success(), "{steps:?}: {}", stderr(&done));
    stderr(&done)
}

/// The same where it must fail; answers the message.
pub fn refused(input: &[&Path], output: &Path, steps: &[&str]) -> String {
    let mut arguments = vec!["convert"];
    arguments.extend(input.iter().map(|input| path(input)));
    arguments.push(path(output));
    arguments.extend(steps);
    let done = weightlift(&arguments);
    assert_eq!(done.status.code(), Some(2), "{steps:?}");
    assert!(!output.exists(), "{steps:?} left an output");
    stderr(&done)
}

/// Name, shape and bytes of every tensor.
pub fn contents(file: &Path) -> BTreeMap<String, (Vec<u64>, Vec<u8>)> {
    let opened = weightlift::open(file).unwrap();
    let entry = |entry: &weightlift::Entry| {
        (entry.name.clone(), (entry.shape.dims().to_vec(), opened.read(&entry.name).unwrap()))
    };
    opened.catalog().entries.iter().map(entry).collect()
}

pub fn floats(file: &Path, name: &str) -> Vec<f32> {
    let bytes = weightlift::open(file).unwrap().read(name).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

pub fn names(file: &Path) -> Vec<String> {
    weightlift::open(file).unwrap().catalog().entries.iter().map(|entry| entry.name.clone()).collect()
}
