//! Checkpoints of version 1: found, decoded, damaged.

use crate::support::{copy_into, message, open, read, replace, strings};
use prost::Message;
use std::fs;
use std::path::{Path, PathBuf};
use weightlift_core::{BlobId, Checkpoint, DType, Format, Kind, Layout, Manifest, OpenOptions, Output, Part, Region};
use weightlift_io::{Sources, real};
use weightlift_testkit::fixture;
use weightlift_tf::proto::{Dim, SavedSliceMeta, SavedTensorSliceMeta, SavedTensorSlices, TensorShape, TensorSlice};
use weightlift_tf::table::TableWriter;
use weightlift_tf::{TensorFlow, slice_key};

const SCALAR: &str = "0000160a140a0e0a067363616c617212001801220012020801000a14007363616c617200010012120a067363616c6172\
    12001a062a040000c03f000000000100000000ec526269000000000100000000c0f2a1b0000102010042000000000100\
    000000dc6dd69e4708540e00000000000000000000000000000000000000000000000000000000000000000000000057\
    fb808b247547db";

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn recognise(path: &Path) -> Option<(PathBuf, bool)> {
    let found = TensorFlow.recognise(real().as_ref(), path, None).unwrap();
    found.map(|found| (found.path, found.by_content))
}

fn field(number: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = body.len();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    [out, body.to_vec()].concat()
}

/// A file with one-dimensional u8 tensors under these names; each value is one packed field.
fn file(tensors: &[(&str, &[u8])]) -> Vec<u8> {
    let slice = TensorSlice { extent: vec![Default::default()] };
    let meta = |(name, values): &(&str, &[u8])| SavedSliceMeta {
        name: (*name).to_owned(),
        shape: Some(TensorShape { dim: vec![Dim { size: values.len() as i64 }], unknown_rank: false }),
        dtype: 4,
        slice: vec![slice.clone()],
    };
    let meta = SavedTensorSliceMeta { tensor: tensors.iter().map(meta).collect(), versions: None };
    let mut table = TableWriter::new();
    table.add(b"", &SavedTensorSlices { meta: Some(meta) }.encode_to_vec());
    for (name, values) in tensors {
        let tensor = field(3, &field(7, values));
        table.add(&slice_key(name.as_bytes(), &slice), &field(2, &[field(1, name.as_bytes()), tensor].concat()));
    }
    table.finish()
}

#[test]
fn the_golden_file_is_read_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.ckpt");
    fs::write(&path, unhex(SCALAR)).unwrap();
    let checkpoint = open(&path).unwrap();
    assert_eq!(checkpoint.catalog().description, "TensorFlow checkpoint, version 1");
    assert_eq!(checkpoint.catalog().entries[0].dtype, DType::F32);
    assert_eq!(read(checkpoint.as_ref(), "scalar").unwrap(), 1.5f32.to_le_bytes());
    let mut table = TableWriter::new();
    let golden = unhex(SCALAR);
    table.add(b"", &golden[3..25]);
    table.add(&golden[28..38], &golden[38..58]);
    assert_eq!(table.finish(), golden);
}

#[test]
fn every_spelling_leads_to_the_files() {
    let dir = tempfile::tempdir().unwrap();
    copy_into(&fixture("tf/v1_sharded/model.ckpt-?????-of-?????"), dir.path());
    let pattern = dir.path().join("model.ckpt-?????-of-00002");
    for path in ["", "checkpoint", "model.ckpt-00001-of-00002", "model.ckpt-?????-of-00002"] {
        let path = if path.is_empty() { dir.path().to_path_buf() } else { dir.path().join(path) };
        assert_eq!(recognise(&path), Some((pattern.clone(), true)), "{}", path.display());
        let checkpoint = open(&path).unwrap();
        assert_eq!(checkpoint.files().len(), 2);
        assert_eq!(checkpoint.catalog().entries.len(), 4);
    }
    assert!(open(dir.path().join("model.ckpt-*")).is_ok());
    assert_eq!(recognise(&dir.path().join("nothing-?")), None);
    fs::remove_file(dir.path().join("model.ckpt-00001-of-00002")).unwrap();
    let names = open(&pattern).unwrap();
    assert!(names.catalog().entries.len() < 4, "a missing file takes its tensors along");
}

#[test]
fn an_index_under_another_name_is_no_version_1() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.idx");
    fs::copy(fixture("tf/foo_dense/model.ckpt").path.with_extension("ckpt.index"), &path).unwrap();
    let text = message(&path);
    assert!(text.contains("no TensorFlow checkpoint of version 1") && text.contains(".index"), "{text}");
}

#[test]
fn large_values_are_read_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.ckpt");
    let large: Vec<u8> = (0..6_000_000u32).map(|n| (n % 127) as u8).collect();
    let tensors: [(&str, &[u8]); 4] = [("a", &[1]), ("b", &large), ("c", &[2, 3]), ("d", &large[..5_000_001])];
    let bytes = file(&tensors);
    fs::write(&path, &bytes).unwrap();
    let checkpoint = open(&path).unwrap();
    for (name, values) in tensors {
        assert!(read(checkpoint.as_ref(), name).unwrap() == values, "{name}");
    }
    for at in [1_000_000, 5_999_000] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let checkpoint = open(&path).unwrap();
        assert_eq!(read(checkpoint.as_ref(), "b").unwrap_err().kind(), Kind::Checksum);
        assert!(read(checkpoint.as_ref(), "d").is_ok());
    }
}

/// Entries of a block larger than what is held in memory are walked over one by one.
#[test]
fn large_blocks_of_small_values_are_walked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.ckpt");
    let (large, small) = (vec![5; 5_000_000], vec![6; 70_000]);
    let bytes = one_block(&[("a", &[1]), ("b", &large), ("c", &small), ("d", &[9, 8])]);
    fs::write(&path, &bytes).unwrap();
    let checkpoint = open(&path).unwrap();
    for (name, values) in [("a", &[1][..]), ("b", &large), ("c", &small), ("d", &[9, 8])] {
        assert!(read(checkpoint.as_ref(), name).unwrap() == values, "{name}");
    }
}

/// Looked through for each of them, the block would be read 24 billion bytes long, and given up.
#[test]
fn a_block_of_many_values_is_looked_through_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.ckpt");
    let names: Vec<String> = (0..20_000).map(|n| format!("layer_{n:05}/bias")).collect();
    let tensors: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &[1, 2, 3][..])).collect();
    fs::write(&path, one_block(&tensors)).unwrap();
    let checkpoint = open(&path).unwrap();
    let files = real();
    for id in crate::support::ids(checkpoint.catalog()) {
        assert_eq!(weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), id).unwrap(), [1, 2, 3]);
    }
}

/// The same file with all entries in one block.
fn one_block(tensors: &[(&str, &[u8])]) -> Vec<u8> {
    use weightlift_kernels::checksum::{crc32c, mask_crc32c};
    use weightlift_tf::table::{Footer, Handle};
    let mut pairs = Vec::new();
    weightlift_tf::table::read(&file(tensors), &Default::default(), |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        Ok(())
    })
    .unwrap();
    let put = |out: &mut Vec<u8>, mut number: usize| {
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
    };
    let mut out = Vec::new();
    let block = |out: &mut Vec<u8>, pairs: &[(Vec<u8>, Vec<u8>)]| {
        let start = out.len();
        for (key, value) in pairs {
            out.push(0);
            put(out, key.len());
            put(out, value.len());
            out.extend([key.as_slice(), value].concat());
            if pairs.len() == 1 {
                break;
            }
        }
        out.extend([0, 0, 0, 0, 1, 0, 0, 0]);
        let size = out.len() - start;
        out.push(0);
        let crc = mask_crc32c(crc32c(&out[start..]));
        out.extend(crc.to_le_bytes());
        Handle { offset: start as u64, size: size as u64 }
    };
    let data = block(&mut out, &pairs);
    let mut handle = Vec::new();
    data.put(&mut handle);
    let index = block(&mut out, &[(vec![0xff], handle)]);
    out.extend(Footer { metaindex: Handle::default(), index }.to_bytes());
    out
}

#[test]
fn cut_files_are_refused_and_flipped_bits_seen() {
    for name in ["tf/v1_strings/model.ckpt", "tf/v1_sliced/model.ckpt"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.ckpt");
        let bytes = fs::read(&fixture(name).path).unwrap();
        for len in 0..bytes.len() {
            fs::write(&path, &bytes[..len]).unwrap();
            assert!(open(&path).is_err(), "{name} cut to {len}");
        }
        let values = |path: &Path| -> weightlift_core::Result<Vec<(String, Vec<u8>)>> {
            let checkpoint = open(path)?;
            let names = checkpoint.catalog().entries.iter().map(|entry| entry.name.clone());
            names.map(|name| Ok((name.clone(), read(checkpoint.as_ref(), &name)?))).collect()
        };
        fs::write(&path, &bytes).unwrap();
        let truth = values(&path).unwrap();
        let mut harmless = 0;
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, &flipped).unwrap();
            if let Ok(found) = values(&path) {
                assert_eq!(found, truth, "{name}: byte {at}");
                harmless += 1;
            }
        }
        assert!(harmless < 60, "{name}: {harmless} flips were not seen");
    }
    let text = message(&fixture("tf/bad_v1_cut/model.ckpt").path);
    assert!(text.contains("last 8 bytes"), "{text}");
}

#[test]
fn limits_are_kept() {
    let path = fixture("tf/v1/model.ckpt").path;
    let refused = |change: fn(&mut weightlift_core::Limits)| {
        let mut options = OpenOptions::default();
        change(&mut options.limits);
        let error = TensorFlow.open(real(), &path, &options).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Limit, "{error}");
        assert!(error.place().file.is_some());
    };
    refused(|limits| limits.header_bytes = 20);
    refused(|limits| limits.tensors = 3);
    refused(|limits| limits.name_bytes = 5);
    refused(|limits| limits.rank = 1);
}

/// Writes a checkpoint of version 1 as a bundle.
fn to_bundle(checkpoint: &dyn Checkpoint, path: &Path) {
    let catalog = checkpoint.catalog();
    let (mut manifest, mut extents) = (Manifest::default(), Vec::new());
    for entry in &catalog.entries {
        let [extent] = entry.extents().unwrap() else { continue };
        let blob: BlobId = manifest.add_blob(extent.bytes.len(), extent.checksum);
        let (shape, layout) = (entry.shape.clone(), Layout::contiguous(&entry.shape));
        let parts = vec![Part { blob, layout, region: Region::whole(&shape) }];
        let (path, name, dtype, packing) = (entry.path.clone(), entry.name.clone(), entry.dtype, extent.packing);
        manifest.tensors.push(Output { path, name, dtype, packing, shape, parts, origin: None });
        extents.push((blob, extent.clone()));
    }
    let files = real();
    let sources = Sources::new(files.as_ref(), checkpoint, path.parent().unwrap());
    let writer = TensorFlow.create(real(), path, manifest, &replace()).unwrap();
    for (blob, extent) in extents {
        let bytes = sources.get(extent.source).unwrap().read_vec(extent.bytes, u64::MAX).unwrap();
        writer.write_at(blob, 0, &bytes).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn version_1_becomes_a_bundle() {
    for name in ["tf/v1/model.ckpt", "tf/v1_strings/model.ckpt", "tf/tf115_v1/model.ckpt"] {
        let dir = tempfile::tempdir().unwrap();
        let old = open(&fixture(name).path).unwrap();
        to_bundle(old.as_ref(), &dir.path().join("new"));
        let new = open(dir.path().join("new")).unwrap();
        assert_eq!(new.catalog().entries.len(), old.catalog().entries.len());
        for entry in &old.catalog().entries {
            let values = read(new.as_ref(), &entry.name).unwrap();
            assert_eq!(values, read(old.as_ref(), &entry.name).unwrap(), "{name}: {}", entry.name);
            if entry.dtype == DType::Str {
                assert_eq!(strings(&values, entry.shape.elements()).len() as u64, entry.shape.elements());
            }
        }
    }
}
