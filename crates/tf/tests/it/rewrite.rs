//! What is read and written again is the same, byte by byte.

use crate::support::{BUNDLES, of_kinds, open, replace, verbatim, write};
use std::fs;
use weightlift_core::{
    BlobId, ByteOrder, Catalog, DType, Entry, Error, Extent, FileRange, Format, Manifest, Shape, Source, WriteOptions,
};
use weightlift_io::{Sources, real};
use weightlift_kernels::swap::byteswap;
use weightlift_testkit::fixture;
use weightlift_tf::TensorFlow;

/// Fixtures whose layout or index no writer of TensorFlow makes: other block sizes, compression, gaps, byte order.
const NOT_TENSORFLOWS: &[&str] =
    &["aligned64_gaps", "big_endian", "many_blocks", "snappy_index", "sharded", "max_shard", "data_reordered"];

fn rewritten(name: &str, by_system: bool) -> (tempfile::TempDir, Vec<u8>, Vec<u8>) {
    let checkpoint = open(&fixture(name).path).unwrap();
    let (manifest, extents) = verbatim(checkpoint.as_ref());
    let dir = tempfile::tempdir().unwrap();
    let writer = TensorFlow.create(real(), &dir.path().join("out"), manifest, &replace()).unwrap();
    let files = real();
    let sources = Sources::new(files.as_ref(), checkpoint.as_ref(), dir.path());
    for (blob, extent) in extents.iter().enumerate().rev() {
        let blob = BlobId(blob as u32);
        if let (true, Source::File { path, .. }) = (by_system, checkpoint.catalog().source(extent.source)) {
            let range = FileRange { path: path.clone(), bytes: extent.bytes };
            if writer.copy_from(blob, 0, &range).unwrap() {
                continue;
            }
        }
        let mut bytes = sources.get(extent.source).unwrap().read_vec(extent.bytes, u64::MAX).unwrap();
        if extent.order == ByteOrder::Big {
            byteswap(swap_unit(checkpoint.catalog(), extent), &mut bytes);
        }
        let size = bytes.len() / 3 + 1;
        for (n, piece) in bytes.chunks(size).enumerate().rev() {
            writer.write_at(blob, (n * size) as u64, piece).unwrap();
        }
    }
    writer.finish().unwrap();
    let index = fs::read(dir.path().join("out.index")).unwrap();
    let data = fs::read(dir.path().join("out.data-00000-of-00001")).unwrap();
    (dir, index, data)
}

fn swap_unit(catalog: &Catalog, extent: &Extent) -> usize {
    let holds = |entry: &&Entry| entry.extents().unwrap().contains(extent);
    catalog.entries.iter().find(holds).unwrap().dtype.swap_unit()
}

#[test]
fn fixtures_are_rewritten_byte_by_byte() {
    let mut count = 0;
    for fixture in of_kinds(BUNDLES).into_iter().filter(|fixture| fixture.expect == "ok") {
        if NOT_TENSORFLOWS.iter().any(|name| fixture.name.contains(name)) {
            continue;
        }
        let stored = |suffix: &str| fs::read(format!("{}{suffix}", fixture.path.display())).unwrap();
        let (index, data) = (stored(".index"), stored(".data-00000-of-00001"));
        let several = fixture.tensors.len() > 1000;
        for by_system in [false, true].into_iter().take(if several { 1 } else { 2 }) {
            let (_dir, new_index, new_data) = rewritten(&fixture.name, by_system);
            assert!(new_data == data, "{}: the data differ", fixture.name);
            assert!(new_index == index, "{}: the index differs", fixture.name);
        }
        count += 1;
    }
    assert!(count >= 20, "only {count} fixtures");
}

#[test]
fn other_fixtures_keep_their_values() {
    for fixture in of_kinds(BUNDLES).into_iter().filter(|fixture| fixture.expect == "ok") {
        if !NOT_TENSORFLOWS.iter().any(|name| fixture.name.contains(name)) {
            continue;
        }
        let (dir, ..) = rewritten(&fixture.name, false);
        let (old, new) = (open(&fixture.path).unwrap(), open(dir.path()).unwrap());
        for tensor in &fixture.tensors {
            let read = |checkpoint| crate::support::read(checkpoint, &tensor.name).unwrap();
            assert_eq!(read(old.as_ref()), read(new.as_ref()), "{}: {}", fixture.name, tensor.name);
        }
    }
}

#[test]
fn a_replaced_bundle_leaves_no_stale_data_files() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("m");
    for name in ["m.data-00000-of-00002", "m.data-00001-of-00002", "m2.data-00000-of-00002", "m.data", "m.meta"] {
        fs::write(dir.path().join(name), "old").unwrap();
    }
    fs::write(dir.path().join("m.index"), "old").unwrap();
    let mut manifest = Manifest::default();
    manifest.add_tensor("w", DType::U8, Shape::scalar());
    let error = TensorFlow.create(real(), &prefix, manifest, &WriteOptions::default()).map(drop).unwrap_err();
    assert!(error.message().contains("exists already"), "{error}");
    let written = write(&prefix, &[("w", DType::U8, &[], &[5])]).unwrap();
    assert!(written.notes[0].contains("m.meta"));
    let mut left: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["m.data", "m.data-00000-of-00001", "m.index", "m.meta", "m2.data-00000-of-00002"]);
}

fn refused(change: impl FnOnce(&mut Manifest)) -> Error {
    let mut manifest = Manifest::default();
    manifest.add_tensor("w", DType::F32, Shape::new([2, 3]).unwrap());
    change(&mut manifest);
    let dir = tempfile::tempdir().unwrap();
    let error =
        TensorFlow.create(real(), &dir.path().join("m"), manifest, &WriteOptions::default()).map(drop).unwrap_err();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    error
}

#[test]
fn what_a_bundle_cannot_hold_is_refused() {
    let said = |part: &str, change: fn(&mut Manifest)| {
        let error = refused(change);
        assert_eq!(error.kind(), weightlift_core::Kind::Request);
        assert!(error.message().contains(part), "{error}");
    };
    said("is empty", |m| m.tensors[0].name.clear());
    said("two tensors", |m| {
        m.add_tensor("w", DType::F32, Shape::scalar());
    });
    said("has no c32", |m| m.tensors[0].dtype = DType::C32);
    said("row by row", |m| m.tensors[0].dtype = DType::F64);
    said("row by row", |m| m.tensors[0].parts[0].layout.strides = vec![1, 2]);
    said("row by row", |m| m.tensors[0].parts[0].layout.offset = 1);
    said("not there", |m| m.tensors[0].parts[0].blob = BlobId(9));
    said("only be copied", |m| m.tensors[0].dtype = DType::Variant);
    said("leave out", |m| m.tensors[0].parts.clear());
    said("a part is empty", |m| {
        let mut part = m.tensors[0].parts[0].clone();
        part.region.size = shape(&[0, 3]);
        m.tensors[0].parts.push(part);
    });
    said("outside", |m| m.tensors[0].parts[0].region.start[0] = 1);
    said("2^63", |m| m.blobs[0].bytes = u64::MAX);
}

#[test]
fn every_byte_must_come_once() {
    let dir = tempfile::tempdir().unwrap();
    let create = || {
        let mut manifest = Manifest::default();
        let blob = manifest.add_tensor("w", DType::U8, Shape::new([4]).unwrap());
        (TensorFlow.create(real(), &dir.path().join("m"), manifest, &WriteOptions::default()).unwrap(), blob)
    };
    for writes in [&[][..], &[(0, 3)], &[(1, 3)], &[(0, 4), (0, 4)], &[(0, 2), (1, 3)]] {
        let (writer, blob) = create();
        for &(offset, len) in writes {
            writer.write_at(blob, offset, &vec![1; len]).unwrap();
        }
        let error = writer.finish().unwrap_err();
        assert!(error.to_string().contains("\"w\""), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "something was left behind");
    }
    let (writer, blob) = create();
    assert!(writer.write_at(blob, 3, &[1, 2]).is_err());
    assert!(writer.write_at(blob, u64::MAX, &[1, 2]).is_err());
    assert!(writer.write_at(BlobId(1), 0, &[1]).is_err());
}

#[test]
fn a_folder_is_no_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let error = write(dir.path(), &[("w", DType::U8, &[], &[5])]).unwrap_err();
    assert!(error.to_string().contains("model.ckpt"), "{error}");
    write(&dir.path().join("m.index"), &[("w", DType::U8, &[], &[5])]).unwrap();
    assert!(dir.path().join("m.data-00000-of-00001").exists());
}

#[test]
fn tensors_are_spread_over_data_files() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("m");
    let mut options = replace();
    options.shard_size = Some(10);
    let mut manifest = Manifest::default();
    let blobs: Vec<_> = (0..5u64).map(|n| manifest.add_tensor(&format!("w{n}"), DType::U8, shape(&[n * 3]))).collect();
    let writer = TensorFlow.create(real(), &prefix, manifest, &options).unwrap();
    for (n, &blob) in blobs.iter().enumerate() {
        writer.write_at(blob, 0, &vec![n as u8; n * 3]).unwrap();
    }
    let written = writer.finish().unwrap();
    let sizes: Vec<_> =
        written.files.iter().skip(1).map(|(path, len)| (path.extension().unwrap().to_owned(), *len)).collect();
    let mut expected = vec![("data-00000-of-00003".into(), 9), ("data-00001-of-00003".into(), 9)];
    expected.push(("data-00002-of-00003".into(), 12));
    let mut found = sizes;
    found.sort();
    assert_eq!(found, expected);
    let checkpoint = open(&prefix).unwrap();
    assert_eq!(checkpoint.catalog().description, "TensorFlow bundle, 3 data files");
    for n in 0..5 {
        assert_eq!(crate::support::read(checkpoint.as_ref(), &format!("w{n}")).unwrap(), vec![n as u8; n * 3]);
    }
    write(&prefix, &[("w", DType::U8, &[], &[5])]).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "stale data files");
}

#[test]
fn strings_without_a_checksum_get_one() {
    let dir = tempfile::tempdir().unwrap();
    let record = [0x01, 0x02, 0xbf, 0xdf, 0xdb, 0x7a, 0x78, 0x79, 0x79];
    let attempt = |bytes: &[u8]| {
        let mut manifest = Manifest::default();
        let blob = manifest.add_tensor("s", DType::Str, shape(&[2]));
        manifest.blobs[0].bytes = bytes.len() as u64;
        let writer = TensorFlow.create(real(), &dir.path().join("m"), manifest, &replace()).unwrap();
        writer.write_at(blob, 5, &bytes[5..]).unwrap();
        writer.write_at(blob, 0, &bytes[..5]).unwrap();
        writer.finish()
    };
    attempt(&record).unwrap();
    let checkpoint = open(dir.path().join("m")).unwrap();
    assert_eq!(crate::support::read(checkpoint.as_ref(), "s").unwrap(), record);
    assert!(attempt(&record[..8]).unwrap_err().to_string().contains("\"s\""));
    assert!(attempt(b"no strings").is_err());
}

fn shape(dims: &[u64]) -> Shape {
    Shape::new(dims).unwrap()
}
