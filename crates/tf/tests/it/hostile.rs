//! Damaged and hostile files: an error or the truth, never a panic.

use crate::support::{copy_into, ids, listing, message, open, read};
use std::fs;
use std::path::Path;
use weightlift_core::{Format, Kind, Limits, OpenOptions};
use weightlift_io::{read_entry, real};
use weightlift_testkit::fixture;
use weightlift_tf::{Index, TensorFlow};

const SMALL: &str = "tf/foo_dense/model.ckpt";

/// A fixture in a folder of its own, and the path of one of its files.
fn copied(name: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let prefix = copy_into(&fixture(name), dir.path());
    let _ = fs::remove_file(dir.path().join("checkpoint"));
    (dir, prefix)
}

fn file(prefix: &Path, suffix: &str) -> std::path::PathBuf {
    format!("{}{suffix}", prefix.display()).into()
}

/// Indexes of several blocks, with slices, compressed.
const INDEXES: &[&str] =
    &[SMALL, "tf/partitioned/model.ckpt", "tf/snappy_index/model.ckpt", "tf/many_blocks/model.ckpt"];

fn index_of(name: &str) -> Vec<u8> {
    fs::read(file(&fixture(name).path, ".index")).unwrap()
}

#[test]
fn an_index_cut_anywhere_is_refused() {
    for name in INDEXES {
        let bytes = index_of(name);
        for len in 0..bytes.len() {
            assert!(Index::parse(&bytes[..len], &Limits::default()).is_err(), "{name} cut to {len}");
        }
    }
    let (_dir, prefix) = copied(SMALL);
    let index = file(&prefix, ".index");
    let bytes = fs::read(&index).unwrap();
    for len in 0..bytes.len() {
        fs::write(&index, &bytes[..len]).unwrap();
        let text = message(&prefix);
        assert!(text.contains("model.ckpt.index"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

/// How many flips of a bit of `bytes` are not seen by `read`.
fn harmless_flips<T: PartialEq + std::fmt::Debug>(bytes: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> usize {
    let truth = read(bytes);
    assert!(truth.is_some());
    let flip = |bit: &usize| {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let found = read(&flipped);
        assert!(found.is_none() || found == truth, "bit {bit}: {found:?}");
        found.is_some()
    };
    (0..bytes.len() * 8).filter(flip).count()
}

/// Bits of the metaindex block, of its handle and of the padding of the footer.
const UNREAD: usize = 60 * 8;

#[test]
fn a_flipped_bit_of_the_index_is_an_error_or_nothing() {
    for name in INDEXES {
        let parse = |bytes: &[u8]| Index::parse(bytes, &Limits::default()).ok();
        assert!(harmless_flips(&index_of(name), parse) < UNREAD, "{name}");
    }
    let (_dir, prefix) = copied(SMALL);
    let index = file(&prefix, ".index");
    let bytes = fs::read(&index).unwrap();
    let open = |bytes: &[u8]| {
        fs::write(&index, bytes).unwrap();
        open(&prefix).ok().map(|checkpoint| listing(checkpoint.catalog()))
    };
    assert!(harmless_flips(&bytes, open) < UNREAD);
}

#[test]
fn data_cut_anywhere_lose_what_is_cut_off() {
    let (_dir, prefix) = copied(SMALL);
    let data = file(&prefix, ".data-00000-of-00001");
    let bytes = fs::read(&data).unwrap();
    for len in 0..bytes.len() {
        fs::write(&data, &bytes[..len]).unwrap();
        let checkpoint = match open(&prefix) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                assert!(error.to_string().contains(&format!("the file ends at {len}")), "{error}");
                continue;
            }
        };
        let warning = format!("has {len} bytes where the index needs {}", bytes.len());
        assert!(checkpoint.catalog().warnings.iter().any(|line| line.contains(&warning)));
        let read: Vec<_> = ids(checkpoint.catalog())
            .into_iter()
            .map(|id| read_entry(real().as_ref(), checkpoint.as_ref(), id))
            .collect();
        assert!(read.iter().any(Result::is_ok) && read.iter().any(Result::is_err));
        assert!(read.iter().flatten().map(Vec::len).sum::<usize>() <= len);
    }
}

#[test]
fn a_flipped_bit_of_the_data_spoils_one_tensor() {
    for name in [SMALL, "tf/variant/model.ckpt", "tf/big_endian/model.ckpt"] {
        let (_dir, prefix) = copied(name);
        let data = file(&prefix, ".data-00000-of-00001");
        let bytes = fs::read(&data).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            fs::write(&data, flipped).unwrap();
            let checkpoint = open(&prefix).unwrap();
            let results =
                ids(checkpoint.catalog()).into_iter().map(|id| read_entry(real().as_ref(), checkpoint.as_ref(), id));
            let errors: Vec<_> = results.filter_map(Result::err).collect();
            assert_eq!(errors.len(), 1, "{name}: byte {at}");
            let place = errors[0].place();
            assert!(place.tensor.is_some() && place.file.is_some() && place.offset.is_some(), "{}", errors[0]);
        }
    }
}

#[test]
fn limits_are_kept() {
    let (_dir, prefix) = copied("tf/unicode_names/model.ckpt");
    let refused = |change: fn(&mut weightlift_core::Limits)| {
        let mut options = OpenOptions::default();
        change(&mut options.limits);
        let error = TensorFlow.open(real(), &prefix, &options).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Limit, "{error}");
        assert!(error.place().file.is_some());
    };
    refused(|limits| limits.header_bytes = 100);
    refused(|limits| limits.tensors = 3);
    refused(|limits| limits.name_bytes = 700);
    refused(|limits| limits.rank = 0);
}

#[test]
fn a_file_of_another_step_fails_for_every_tensor() {
    let swapped = fixture("tf/bad_swapped_data/model.ckpt");
    let checkpoint = open(&swapped.path).unwrap();
    for entry in &checkpoint.catalog().entries {
        let sound = swapped.tensors.iter().any(|tensor| tensor.name == entry.name);
        let error = read(checkpoint.as_ref(), &entry.name).err();
        assert_eq!(error.map(|error| error.kind()), (!sound).then_some(Kind::Checksum), "{}", entry.name);
    }
}

#[test]
fn missing_and_misnamed_data_files_are_named() {
    let text = message(&fixture("tf/bad_data_renamed/model.ckpt").path);
    assert!(text.contains("model.ckpt.data-00000-of-00001 is missing, but model.ckpt.data is there"), "{text}");
    let text = message(&fixture("tf/bad_no_data/model.ckpt").path);
    assert!(text.contains("model.ckpt.data-00000-of-00001 is missing"), "{text}");

    let (_dir, prefix) = copied("tf/sharded/model.ckpt");
    fs::rename(file(&prefix, ".data-00001-of-00002"), file(&prefix, ".data-00001-of-00003")).unwrap();
    let checkpoint = open(&prefix).unwrap();
    let absent: Vec<_> = checkpoint.catalog().entries.iter().filter_map(|entry| entry.extents().err()).collect();
    assert!(!absent.is_empty() && absent.len() < checkpoint.catalog().entries.len());
    let text = absent[0].to_string();
    assert!(text.contains("00001-of-00002 is missing") && text.contains("model.ckpt.data-00001-of-00003"), "{text}");
}

#[test]
fn damaged_tensors_leave_the_others_readable() {
    let said = |name: &str, tensor: &str, part: &str| {
        let checkpoint = open(&fixture(name).path).unwrap();
        let error = read(checkpoint.as_ref(), tensor).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(tensor), "{error}");
    };
    said("tf/bad_missing_slice/model.ckpt", "tab/weight", "leave out the range");
    said("tf/bad_offset_beyond/model.ckpt", "far", "but the file ends at");
    said("tf/bad_shard_id/model.ckpt", "sh", "data file 5 of a bundle that has 1");
    said("tf/bad_size_mismatch/model.ckpt", "sz", "has 32 bytes, but 24 are stored");
    assert!(message(&fixture("tf/bad_dtype/model.ckpt").path).contains("data type 99"));
    assert!(message(&fixture("tf/bad_negative_dim/model.ckpt").path).contains("a dimension of the shape is -1"));
}
