//! What is written, read back; the layout of nested paths; and what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests say what they expect"
)]

use std::path::Path;
use weightlift_core::{
    BlobId, ByteRange, Checkpoint, Checksum, DType, EntryId, FileRange, Format, Key, KeyPath, Kind, Layout, Manifest,
    OpenOptions, Output, Packing, Part, Region, Result, Shape, WriteOptions,
};
use weightlift_torch::Torch;

fn shape(dims: &[u64]) -> Shape {
    Shape::new(dims).unwrap()
}

fn output(path: &[Key], dtype: DType, dims: &[u64], blob: BlobId, offset: u64, strides: &[u64]) -> Output {
    let path = KeyPath(path.to_vec());
    let layout = Layout { offset, strides: strides.to_vec() };
    let parts = vec![Part { blob, layout, region: Region::whole(&shape(dims)) }];
    Output { name: path.joined(), path, dtype, packing: Packing::Dense, shape: shape(dims), parts, origin: None }
}

fn text(key: &str) -> Key {
    Key::Text(key.into())
}

/// Writes a manifest whose blobs hold these bytes, in pieces, the last first.
fn write(path: &Path, manifest: Manifest, blobs: &[Vec<u8>]) -> Result<()> {
    let writer = Torch.create(weightlift_io::real(), path, manifest, &WriteOptions::default())?;
    for (at, bytes) in blobs.iter().enumerate() {
        for (piece, chunk) in bytes.chunks(10).enumerate().rev() {
            writer.write_at(BlobId(at as u32), piece as u64 * 10, chunk)?;
        }
    }
    writer.finish().map(drop)
}

fn open(path: &Path) -> Box<dyn Checkpoint> {
    Torch.open(weightlift_io::real(), path, &OpenOptions::default()).unwrap()
}

fn values(checkpoint: &dyn Checkpoint, id: u32) -> Vec<u8> {
    weightlift_io::read_entry(weightlift_io::real().as_ref(), checkpoint, EntryId(id)).unwrap()
}

#[test]
fn ties_views_and_dtypes_survive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.pt");
    let mut manifest = Manifest::default();
    let shared = manifest.add_blob(48, None);
    let tensors = [
        output(&[text("a")], DType::F32, &[3, 4], shared, 0, &[4, 1]),
        output(&[text("a.t")], DType::F32, &[4, 3], shared, 0, &[1, 4]),
        output(&[text("tied")], DType::F32, &[3, 4], shared, 0, &[4, 1]),
        output(&[text("last")], DType::F32, &[], shared, 11, &[]),
    ];
    manifest.tensors.extend(tensors);
    let mut blobs = vec![(0..48).collect::<Vec<u8>>()];
    for &dtype in DType::ALL {
        let capabilities = Torch.capabilities().unwrap();
        let Some(Packing::Dense) = (capabilities.holds)(dtype) else { continue };
        let blob = manifest.add_tensor(dtype.name(), dtype, shape(&[2, 2]));
        blobs.push((0..manifest.blobs[blob.0 as usize].bytes as u8).collect());
    }
    let empty = manifest.add_tensor("empty", DType::F16, shape(&[0, 3]));
    assert_eq!(empty.0 as usize, blobs.len());
    let expected = manifest.clone();
    write(&path, manifest, &blobs).unwrap();
    let checkpoint = open(&path);
    let catalog = checkpoint.catalog();
    assert!(blobs.len() > 24, "only {} dtypes", blobs.len());
    assert_eq!(catalog.entries.len(), expected.tensors.len());
    for ((id, entry), output) in catalog.iter().zip(&expected.tensors) {
        let part = &output.parts[0];
        let extent = &entry.extents().unwrap()[0];
        assert_eq!((&entry.path, entry.dtype, &entry.shape), (&output.path, output.dtype, &output.shape));
        assert_eq!(extent.layout, part.layout, "{}", entry.name);
        assert_eq!(extent.bytes.start() % 64, 0);
        assert!(matches!(extent.checksum, Some(Checksum::Crc32(_))));
        if part.layout.is_contiguous(&output.shape) && part.layout.offset == 0 && output.shape.elements() > 0 {
            assert_eq!(values(checkpoint.as_ref(), id.0), blobs[part.blob.0 as usize], "{}", entry.name);
        }
    }
    let range = |at: usize| catalog.entries[at].extents().unwrap()[0].bytes;
    assert_eq!((range(0), range(0), range(0)), (range(1), range(2), range(3)));
    assert_eq!(catalog.entries[2].remarks, ["tied to a"]);
    assert_eq!(catalog.entries[3].remarks, ["view of 48 bytes"]);
}

#[test]
fn paths_nest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.pt");
    let mut manifest = Manifest::default();
    let blob = manifest.add_blob(4, None);
    let paths = [
        vec![text("model"), text("a.b")],
        vec![text("opt"), text("state"), Key::Int(0), text("exp")],
        vec![text("opt"), text("state"), Key::Int(7), text("exp")],
        vec![text("list"), Key::Index(0)],
        vec![text("model"), text("a")],
        vec![text("list"), Key::Index(1), text("x")],
        vec![text("holes"), Key::Index(3)],
    ];
    manifest.tensors = paths.iter().map(|path| output(path, DType::F32, &[1], blob, 0, &[1])).collect();
    write(&path, manifest, &[vec![0; 4]]).unwrap();
    let found: Vec<KeyPath> = open(&path).catalog().entries.iter().map(|entry| entry.path.clone()).collect();
    let order = [0, 4, 1, 2, 3, 5];
    let mut expected: Vec<KeyPath> = order.iter().map(|&at| KeyPath(paths[at].clone())).collect();
    expected.push(KeyPath(vec![text("holes"), Key::Int(3)]));
    assert_eq!(found, expected);
}

#[test]
fn a_lone_tensor_needs_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.pt");
    let mut manifest = Manifest::default();
    let blob = manifest.add_blob(6, None);
    manifest.tensors.push(output(&[], DType::U8, &[2, 3], blob, 0, &[3, 1]));
    write(&path, manifest, &[vec![1, 2, 3, 4, 5, 6]]).unwrap();
    let checkpoint = open(&path);
    assert!(checkpoint.catalog().entries[0].path.0.is_empty());
    assert_eq!(values(checkpoint.as_ref(), 0), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn what_cannot_be_written_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.pt");
    let refused = |outputs: &[Output]| {
        let mut manifest = Manifest::default();
        manifest.add_blob(16, None);
        manifest.tensors = outputs.to_vec();
        let error = write(&path, manifest, &[vec![0; 16]]).unwrap_err();
        assert_eq!(error.kind(), Kind::Request);
        assert!(error.place().tensor.is_some(), "{error}");
        error.to_string()
    };
    let f32 = |path: &[Key]| output(path, DType::F32, &[4], BlobId(0), 0, &[1]);
    let a = || text("a");
    assert!(refused(&[f32(&[a()]), f32(&[a()])]).contains("same path"));
    assert!(refused(&[f32(&[a()]), f32(&[a(), text("b")])]).contains("through another tensor"));
    assert!(refused(&[f32(&[a(), text("b")]), f32(&[a()])]).contains("same path"));
    assert!(refused(&[f32(&[]), f32(&[a()])]).contains("without a name"));
    assert!(refused(&[f32(&[Key::Other("(1,)".into())])]).contains("neither text nor a number"));
    assert!(refused(&[output(&[a()], DType::F32, &[5], BlobId(0), 0, &[1])]).contains("over a blob of 16"));
    assert!(refused(&[output(&[a()], DType::F32, &[5], BlobId(1), 0, &[1])]).contains("no blob"));
    assert!(refused(&[output(&[a()], DType::I4, &[4], BlobId(0), 0, &[1])]).contains("hold no i4"));
    assert!(refused(&[output(&[a()], DType::F4E2m1, &[3], BlobId(0), 0, &[1])]).contains("pairs"));
    assert!(refused(&[output(&[a()], DType::F4E2m1, &[2], BlobId(0), 1, &[1])]).contains("within a byte"));
    let two = [f32(&[a()]), output(&[text("b")], DType::I32, &[4], BlobId(0), 0, &[1])];
    assert!(refused(&two).contains("a i32 view of a storage of f32"));
    let mut parts = f32(&[a()]);
    parts.parts.clear();
    assert!(refused(&[parts]).contains("0 parts"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn whole_storages_are_copied_with_their_sum() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to.pt"));
    let bytes: Vec<u8> = (0..200).collect();
    std::fs::write(&from, &bytes).unwrap();
    let crc = weightlift_kernels::checksum::crc32(&bytes[8..]);
    let mut manifest = Manifest::default();
    let blob = manifest.add_blob(192, Some(Checksum::Crc32(crc)));
    manifest.tensors.push(output(&[text("w")], DType::F32, &[48], blob, 0, &[1]));
    let writer = Torch.create(weightlift_io::real(), &to, manifest, &WriteOptions::default()).unwrap();
    let range = |start, len| FileRange { path: from.clone(), bytes: ByteRange::new(start, len).unwrap() };
    assert!(!writer.copy_from(blob, 0, &range(8, 100)).unwrap(), "the sum of a part is not known");
    if !writer.copy_from(blob, 0, &range(8, 192)).unwrap() {
        writer.write_at(blob, 0, &bytes[8..]).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(values(open(&to).as_ref(), 0), bytes[8..]);
}

#[test]
fn an_existing_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.pt");
    std::fs::write(&path, "precious").unwrap();
    let mut manifest = Manifest::default();
    manifest.add_tensor("w", DType::F32, shape(&[1]));
    assert!(write(&path, manifest.clone(), &[vec![0; 4]]).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let mut options = WriteOptions::default();
    options.replace = true;
    let writer = Torch.create(weightlift_io::real(), &path, manifest, &options).unwrap();
    assert!(writer.finish().is_err(), "four bytes are missing");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}
