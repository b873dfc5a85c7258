//! Damaged and hostile files: an error or the truth, never a panic.

use crate::support::{copy_into, ids, listing, message, open, read, replace, write};
use prost::Message;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{DType, Files, Format, Kind, Limits, Manifest, OpenOptions, Shape, WriteOptions};
use weightlift_io::{read_entry, real};
use weightlift_testkit::{FaultyFiles, fixture};
use weightlift_tf::proto::{BundleEntry, BundleHeader, Dim, Extent, TensorShape, TensorSlice};
use weightlift_tf::table::TableWriter;
use weightlift_tf::{Index, TensorFlow, slice_key};

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

/// How many flips of every `step`-th bit of `bytes` are not seen by `read`.
fn harmless_flips<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    step: usize,
    read: impl Fn(&[u8]) -> Option<T>,
) -> usize {
    let truth = read(bytes);
    assert!(truth.is_some());
    let flip = |bit: &usize| {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let found = read(&flipped);
        assert!(found.is_none() || found == truth, "bit {bit}: {found:?}");
        found.is_some()
    };
    (0..bytes.len() * 8).step_by(step).filter(flip).count()
}

/// Bits of the metaindex block, of its handle and of the padding of the footer.
const UNREAD: usize = 60 * 8;

#[test]
fn a_flipped_bit_of_the_index_is_an_error_or_nothing() {
    for name in INDEXES {
        let bytes = index_of(name);
        let parse = |bytes: &[u8]| Index::parse(bytes, &Limits::default()).ok();
        assert!(harmless_flips(&bytes, if bytes.len() > 500 { 9 } else { 1 }, parse) < UNREAD, "{name}");
    }
    let (_dir, prefix) = copied(SMALL);
    let index = file(&prefix, ".index");
    let bytes = fs::read(&index).unwrap();
    let open = |bytes: &[u8]| {
        fs::write(&index, bytes).unwrap();
        open(&prefix).ok().map(|checkpoint| listing(checkpoint.catalog()))
    };
    assert!(harmless_flips(&bytes, 9, open) < UNREAD);
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

/// The index of a tensor in two slices whose entries a test can spoil.
fn sliced(spoil: impl FnOnce(&mut BundleEntry, &mut BundleEntry)) -> (tempfile::TempDir, PathBuf) {
    let slice = |start, length| TensorSlice {
        extent: vec![Extent { start, length: Some(length) }, Extent { start: 0, length: None }],
    };
    let entry = |rows: i64, offset: i64| BundleEntry {
        dtype: 4,
        shape: Some(TensorShape { dim: vec![Dim { size: rows }, Dim { size: 4 }], unknown_rank: false }),
        offset,
        size: rows * 4,
        ..BundleEntry::default()
    };
    let (mut whole, mut part) = (entry(10, 0), entry(4, 0));
    (whole.size, whole.slices) = (0, vec![slice(0, 4), slice(4, 6)]);
    spoil(&mut whole, &mut part);
    let mut rows = vec![(Vec::new(), BundleHeader { num_shards: 1, ..BundleHeader::default() }.encode_to_vec())];
    rows.push((slice_key(b"w", &slice(0, 4)), part.encode_to_vec()));
    rows.push((slice_key(b"w", &slice(4, 6)), entry(6, 16).encode_to_vec()));
    rows.push((b"other".to_vec(), entry(1, 0).encode_to_vec()));
    rows.push((b"w".to_vec(), whole.encode_to_vec()));
    rows.sort();
    let mut table = TableWriter::new();
    rows.iter().for_each(|(key, value)| table.add(key, value));
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("m");
    fs::write(file(&prefix, ".index"), table.finish()).unwrap();
    fs::write(file(&prefix, ".data-00000-of-00001"), [0; 40]).unwrap();
    (dir, prefix)
}

#[test]
fn slices_that_do_not_fit_spoil_their_tensor_alone() {
    let said = |part: &str, spoil: fn(&mut BundleEntry, &mut BundleEntry)| {
        let (_dir, prefix) = sliced(spoil);
        let checkpoint = open(&prefix).unwrap();
        let names: Vec<_> = checkpoint.catalog().entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["other", "w"]);
        assert!(checkpoint.catalog().entries[0].extents().is_ok());
        match checkpoint.catalog().entries[1].extents() {
            Ok(extents) => assert_eq!((part, extents.len()), ("", 2)),
            Err(error) => assert!(!part.is_empty() && error.to_string().contains(part), "{error}"),
        }
    };
    said("", |_, _| {});
    said("is stored as u8 of shape [1, 4], but should be u8 of [4, 4]", |_, part| {
        part.shape.as_mut().unwrap().dim[0].size = 1;
        part.size = 4;
    });
    said("is stored as i8", |_, part| part.dtype = 6);
    said("has 16 bytes, but 12 are stored", |_, part| part.size = 12);
    said("slice [0:4, :]", |_, part| part.offset = 39);
    said("overlap", |whole, _| whole.slices[1] = whole.slices[0].clone());
    said("does not fit into a dimension of 10", |whole, _| whole.slices[1].extent[0].start = 5);
    said("does not fit into a dimension of 10", |whole, _| whole.slices[1].extent[0].start = -4);
    said("leave out the range [4:10, :]", |whole, _| whole.slices.truncate(1));
    said("missing from the index", |whole, _| whole.slices[1].extent[1].length = Some(4));
    said("a slice has 1 dimensions", |whole, _| whole.slices[1].extent.truncate(1));
}

#[test]
fn tensors_beyond_2_gib_are_read_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("m");
    let (large, small) = ((1i64 << 31) + 8, 4);
    let entry = |offset, size| BundleEntry {
        dtype: 4,
        shape: Some(TensorShape { dim: vec![Dim { size }], unknown_rank: false }),
        offset,
        size,
        ..BundleEntry::default()
    };
    let mut table = TableWriter::new();
    table.add(b"", &BundleHeader { num_shards: 1, ..BundleHeader::default() }.encode_to_vec());
    table.add(b"large", &entry(0, large).encode_to_vec());
    table.add(b"small", &entry(large, small).encode_to_vec());
    fs::write(file(&prefix, ".index"), table.finish()).unwrap();
    let data = fs::File::create(file(&prefix, ".data-00000-of-00001")).unwrap();
    data.set_len((large + small) as u64).unwrap();
    let checkpoint = open(&prefix).unwrap();
    let entry = &checkpoint.catalog().entries[0];
    assert_eq!((entry.bytes, entry.shape.dims()), (2_147_483_656, &[2_147_483_656][..]));
    assert_eq!(checkpoint.catalog().entries[1].extents().unwrap()[0].bytes.start(), 2_147_483_656);
    let extent = &checkpoint.catalog().entries[0].extents().unwrap()[0];
    assert_eq!((extent.bytes.start(), extent.bytes.len()), (0, 2_147_483_656));
    data.set_len((large + small) as u64 - 1).unwrap();
    let error = open(&prefix).unwrap().catalog().entries[1].extents().unwrap_err().to_string();
    assert!(error.contains("the file ends at 2147483659"), "{error}");
}

#[test]
fn short_reads_and_writes_change_nothing() {
    let small = fixture("tf/strings/model.ckpt");
    let slow: Arc<dyn Files> = Arc::new(FaultyFiles::short(real(), 7));
    let checkpoint = TensorFlow.open(slow.clone(), &small.path, &OpenOptions::default()).unwrap();
    let whole = open(&small.path).unwrap();
    assert_eq!(listing(checkpoint.catalog()), listing(whole.catalog()));
    for id in ids(whole.catalog()) {
        let slowly = read_entry(slow.as_ref(), checkpoint.as_ref(), id).unwrap();
        assert_eq!(slowly, read_entry(real().as_ref(), whole.as_ref(), id).unwrap());
    }
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = Manifest::default();
    let blob = manifest.add_tensor("w", DType::U8, Shape::new([1000]).unwrap());
    let writer = TensorFlow.create(slow, &dir.path().join("m"), manifest, &WriteOptions::default()).unwrap();
    writer.write_at(blob, 0, &[3; 1000]).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(open(dir.path().join("m")).unwrap().as_ref(), "w").unwrap(), [3; 1000]);
}

#[test]
fn a_failed_write_leaves_the_old_bundle_or_none() {
    let mut outcomes = [0; 2];
    for k in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("m");
        write(&prefix, &[("w", DType::U8, &[1], &[1])]).unwrap();
        let faulty = FaultyFiles::failing_from(real(), k, ErrorKind::StorageFull);
        let attempt = || -> weightlift_core::Result<()> {
            let mut manifest = Manifest::default();
            let blob = manifest.add_tensor("w", DType::U8, Shape::new([2]).unwrap());
            let writer = TensorFlow.create(Arc::new(faulty.clone()), &prefix, manifest, &replace())?;
            writer.write_at(blob, 0, &[2, 2])?;
            writer.finish().map(drop)
        };
        let done = attempt().is_ok();
        let found = open(&prefix).and_then(|checkpoint| read(checkpoint.as_ref(), "w"));
        match found {
            Ok(values) => {
                assert!(values == [2, 2] || values == [1] && !done, "{k}: {values:?}");
                outcomes[usize::from(values == [2, 2])] += 1;
            }
            Err(error) => assert!(!done && error.kind() != Kind::Checksum, "{k}: {error}"),
        }
        if done {
            break;
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}

fn salvaged(prefix: &Path) -> weightlift_core::Result<Box<dyn weightlift_core::Checkpoint>> {
    let mut options = OpenOptions::default();
    options.salvage = true;
    TensorFlow.open(real(), prefix, &options)
}

/// Tensors of other blocks are healthy; a slice whose entry is lost spoils its tensor.
#[test]
fn a_damaged_block_of_the_index_costs_its_own_tensors() {
    let (_dir, prefix) = copied("tf/many_blocks/model.ckpt");
    let whole = open(&prefix).unwrap();
    let index = file(&prefix, ".index");
    let bytes = fs::read(&index).unwrap();
    let (mut kept, mut refused) = (Vec::new(), 0);
    for at in (0..bytes.len()).step_by(40) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        fs::write(&index, flipped).unwrap();
        let Ok(checkpoint) = salvaged(&prefix) else {
            refused += 1;
            continue;
        };
        let entries = &checkpoint.catalog().entries;
        let healthy: Vec<_> = entries.iter().filter(|entry| entry.extents().is_ok()).collect();
        if healthy.len() == whole.catalog().entries.len() {
            continue;
        }
        assert!(open(&prefix).is_err(), "byte {at}");
        let lost: Vec<_> = entries.iter().filter(|entry| entry.extents().is_err()).collect();
        assert!(matches!(lost.as_slice(), [only] if only.name.contains("index block at byte")), "byte {at}: {lost:?}");
        for entry in &healthy {
            assert_eq!(whole.catalog().named(&entry.name).next().map(|(_, known)| &known.data), Some(&entry.data));
        }
        kept.push(healthy.len());
    }
    // The first block holds the header and the index block the handles: without them nothing is left.
    assert!(kept.len() > 20 && kept.iter().all(|&count| count > 0), "{kept:?}, {refused} refused");
    assert!(refused < kept.len() / 2, "{refused} refused");
}

#[test]
fn where_all_tensors_are_damaged_they_are_listed_on_request() {
    let (_dir, prefix) = copied("tf/bad_no_data/model.ckpt");
    assert!(open(&prefix).is_err());
    let checkpoint = salvaged(&prefix).unwrap();
    assert!(!checkpoint.catalog().entries.is_empty());
    assert!(checkpoint.catalog().entries.iter().all(|entry| entry.extents().is_err()));
}
