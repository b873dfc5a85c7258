//! Files known byte by byte, read and written.

use crate::support::{open, read, strings};
use std::fs;
use std::path::Path;
use weightlift_core::{Checksum, DType, Format, Layout, Manifest, Output, Part, Region, Shape, WriteOptions};
use weightlift_io::real;
use weightlift_tf::TensorFlow;

/// `a` = float32 [1, 2], `s` = string ["x", "yy"], `e` = float32 of shape [0], written by TensorFlow 1.15.
const INDEX: &str = "00000608011a02080100010f610801120412020802280835593ce53500010d65080112021200201135d8ea82a2000111\
    730807120412020802200828093538e5c24d000000000100000000a623c921000000000100000000c0f2a1b000010274\
    004a0000000001000000003e63dfd54f085c0e0000000000000000000000000000000000000000000000000000000000\
    0000000000000057fb808b247547db";
const DATA: &str = "0000803f000000400102bfdfdb7a787979";

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn write_golden(prefix: &Path) {
    let shape = |dims: &[u64]| Shape::new(dims).unwrap();
    let data = unhex(DATA);
    let mut manifest = Manifest::default();
    let a = manifest.add_tensor("a", DType::F32, shape(&[2]));
    let s = manifest.add_blob(9, Some(Checksum::OfFormat(u32::from_le_bytes([0x38, 0xe5, 0xc2, 0x4d]))));
    let two = shape(&[2]);
    let part = Part { blob: s, layout: Layout::contiguous(&two), region: Region::whole(&two) };
    let whole = manifest.tensors[0].clone();
    manifest.tensors.push(Output {
        name: "s".into(),
        path: weightlift_core::KeyPath::flat("s"),
        dtype: DType::Str,
        shape: two,
        parts: vec![part],
        ..whole
    });
    manifest.add_tensor("e", DType::F32, shape(&[0]));
    let writer = TensorFlow.create(real(), prefix, manifest, &WriteOptions::default()).unwrap();
    writer.write_at(s, 4, &data[12..]).unwrap();
    writer.write_at(a, 0, &data[..3]).unwrap();
    writer.write_at(s, 0, &data[8..12]).unwrap();
    writer.write_at(a, 3, &data[3..8]).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!(written.files[0].1, 159);
    assert_eq!(written.files[1].1, 17);
}

#[test]
fn a_bundle_is_written_byte_by_byte() {
    let dir = tempfile::tempdir().unwrap();
    write_golden(&dir.path().join("g"));
    assert_eq!(fs::read(dir.path().join("g.index")).unwrap(), unhex(INDEX));
    assert_eq!(fs::read(dir.path().join("g.data-00000-of-00001")).unwrap(), unhex(DATA));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "something was left behind");
}

#[test]
fn the_bundle_is_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("g.index"), unhex(INDEX)).unwrap();
    fs::write(dir.path().join("g.data-00000-of-00001"), unhex(DATA)).unwrap();
    let checkpoint = open(dir.path().join("g")).unwrap();
    let catalog = checkpoint.catalog();
    let listed: Vec<_> =
        catalog.entries.iter().map(|entry| (entry.name.as_str(), entry.dtype, entry.shape.dims())).collect();
    assert_eq!(listed, [("a", DType::F32, &[2][..]), ("e", DType::F32, &[0]), ("s", DType::Str, &[2])]);
    assert_eq!(read(checkpoint.as_ref(), "a").unwrap(), unhex("0000803f00000040"));
    assert_eq!(read(checkpoint.as_ref(), "e").unwrap(), b"");
    assert_eq!(strings(&read(checkpoint.as_ref(), "s").unwrap(), 2), [&b"x"[..], b"yy"]);
    assert_eq!(catalog.description, "TensorFlow bundle, 1 data file");
}
