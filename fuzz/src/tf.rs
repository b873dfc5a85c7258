//! TensorFlow's files.

use crate::memory::Folder;
use crate::seeds::Seeds;
use crate::walk::walk;
use crate::{Target, pairs, tables};
use prost::Message;
use std::collections::BTreeMap;
use weightlift_core::Limits;
use weightlift_kernels::checksum::{Algorithm, crc32c, mask_crc32c};
use weightlift_tf::graph::{self, ObjectGraph};
use weightlift_tf::proto::{BundleEntry, BundleHeader, Dim, TensorShape};
use weightlift_tf::record::{check_strings, check_variants};
use weightlift_tf::state::{FILE_NAME, StateFile};
use weightlift_tf::{TensorFlow, table};

const INDEX_NAME: &str = "model.ckpt.index";
const DATA_NAME: &str = "model.ckpt.data-00000-of-00001";
const DATA_LEN: usize = 4096;

/// An index beside a sound data file, through its table.
pub const INDEX: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| of_index(name, bytes, tables::seeds)),
    run: |data| walk_bundle(&tables::of_input(data), &[0x3c; DATA_LEN]),
};

/// The entries of an index as pairs; the checksums of those that lie in the data file are made right.
pub const ENTRIES: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| of_index(name, bytes, |file| vec![tables::all_pairs(file)])),
    run: run_entries,
};

/// A tensor of strings or variants. The first byte has 1 for variants, 2 for a big-endian file, 4 where the checksum of
/// the lengths is to be made right; the second byte is their number.
pub const RECORDS: Target = Target { seeds: Seeds::Fixtures(record_seeds), run: run_records };

/// A file of version 1, through its table.
pub const VERSION_1: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| {
        let is_ours = !name.ends_with(".index") && table::Footer::is_at_end_of(bytes);
        if is_ours { tables::seeds(bytes) } else { Vec::new() }
    }),
    run: |data| walk(&TensorFlow, Folder::of("model", &tables::of_input(data)), "model"),
};

/// A state file beside a checkpoint.
pub const STATE: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| crate::seeds::ending(name, bytes, &["/checkpoint"])),
    run: run_state,
};

/// An object graph. What is read must be written so that it reads the same.
pub const GRAPH: Target = Target { seeds: Seeds::Fixtures(graph_seeds), run: run_graph };

fn of_index(name: &str, bytes: &[u8], seeds: fn(&[u8]) -> Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if name.ends_with(".index") { seeds(bytes) } else { Vec::new() }
}

fn walk_bundle(index: &[u8], data: &[u8]) {
    walk(&TensorFlow, Folder::of(INDEX_NAME, index).with(DATA_NAME, data), INDEX_NAME);
}

fn run_entries(input: &[u8]) {
    let data = [0x3c; DATA_LEN];
    let repaired = |value: &[u8]| {
        let mut entry = BundleEntry::decode(value).ok()?;
        let (start, len) = (usize::try_from(entry.offset).ok()?, usize::try_from(entry.size).ok()?);
        entry.crc32c = mask_crc32c(crc32c(data.get(start..start.checked_add(len)?)?));
        Some(entry.encode_to_vec())
    };
    let value = |key: &[u8], value: &[u8]| match key {
        [] => value.to_vec(),
        _ => repaired(value).unwrap_or_else(|| value.to_vec()),
    };
    let pairs = pairs::split(input).into_iter().map(|(key, bytes)| (key.to_vec(), value(key, bytes)));
    walk_bundle(&tables::of_sorted(&pairs.collect()), &data);
}

/// An index of one tensor `w` that takes the whole data file.
fn index_of_one(dtype: i32, count: u8, big: bool, size: usize, crc: u32) -> Vec<u8> {
    let header = BundleHeader { num_shards: 1, endianness: i32::from(big), version: None };
    let shape = TensorShape { dim: vec![Dim { size: count.into() }], unknown_rank: false };
    let entry = BundleEntry { dtype, shape: Some(shape), size: size as i64, crc32c: crc, ..BundleEntry::default() };
    tables::of_sorted(&BTreeMap::from([(Vec::new(), header.encode_to_vec()), (b"w".to_vec(), entry.encode_to_vec())]))
}

fn run_records(input: &[u8]) {
    let [flags, count, record @ ..] = input else { return };
    let (variants, big, repaired) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    let mut record = record.to_vec();
    if repaired && !variants {
        repair_lengths(&mut record, *count);
    }
    let (size, elements) = (record.len() as u64, u64::from(*count));
    let (dtype, crc) = match variants {
        true => (21, check_variants(&*record, elements, size)),
        false => (7, check_strings(&*record, elements, size)),
    };
    let index = index_of_one(dtype, *count, big, record.len(), mask_crc32c(crc.unwrap_or_default()));
    walk_bundle(&index, &record);
}

/// Puts the right checksum behind the lengths of strings.
fn repair_lengths(record: &mut [u8], count: u8) {
    let (mut at, mut crc) = (0, 0);
    for _ in 0..count {
        let mut len = 0u64;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = record.get(at) else { return };
            at += 1;
            len |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        crc = match u32::try_from(len) {
            Ok(len) => Algorithm::Crc32c.extend(crc, &len.to_le_bytes()),
            Err(_) => Algorithm::Crc32c.extend(crc, &len.to_le_bytes()),
        };
    }
    if let Some(place) = record.get_mut(at..at + 4) {
        place.copy_from_slice(&mask_crc32c(crc).to_le_bytes());
    }
}

/// The records of small string and variant tensors, told by their entries.
fn record_seeds(name: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    let Some(prefix) = name.strip_suffix(".index") else { return Vec::new() };
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/fixtures");
    let data = std::fs::read(root.join(format!("{prefix}.data-00000-of-00001"))).unwrap_or_default();
    let mut seeds = Vec::new();
    let _ = table::read(bytes, &Limits::default(), |_, value| {
        let entry = BundleEntry::decode(value).unwrap_or_default();
        let shape = entry.shape.unwrap_or_default();
        let count: i64 = shape.dim.iter().map(|dim| dim.size).product();
        let record = data.get(entry.offset as usize..).and_then(|rest| rest.get(..entry.size as usize));
        if let (7 | 21, Ok(count), Some(record)) = (entry.dtype, u8::try_from(count), record) {
            let flags = [u8::from(entry.dtype == 21), 4, 6];
            let flags = if entry.dtype == 21 { &flags[..1] } else { &flags[1..] };
            seeds.extend(flags.iter().map(|&flag| [&[flag, count], record].concat()));
        }
        Ok(())
    });
    seeds
}

fn run_state(data: &[u8]) {
    if let Ok(state) = StateFile::parse(data) {
        let again = StateFile::parse(state.to_text().as_bytes()).expect("a state file reads its own text");
        assert_eq!(again.to_text(), state.to_text());
    }
    let index = index_of_one(1, 1, false, 4, mask_crc32c(crc32c(&[0; 4])));
    let folder = Folder::of(FILE_NAME, data).with(INDEX_NAME, &index).with(DATA_NAME, &[0; 4]);
    walk(&TensorFlow, folder.clone(), FILE_NAME);
    walk(&TensorFlow, folder, "");
}

fn run_graph(data: &[u8]) {
    let Ok(mut graph) = ObjectGraph::parse(data, &Limits::default()) else { return };
    let _ = graph.object_names();
    let bytes = graph.to_bytes();
    let again = ObjectGraph::parse(&bytes, &Limits::default()).expect("a graph reads its own bytes");
    assert_eq!(again.to_bytes(), bytes);
    graph.rewrite_keys(|attribute| Some(graph::unescape(&graph::escape(&attribute.checkpoint_key))));
    assert_eq!(graph.to_bytes(), bytes);
}

/// The graph of an index lies in its data file, as the one string of its tensor.
fn graph_seeds(name: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    let records = record_seeds(name, bytes);
    let graph = |seed: Vec<u8>| {
        let [4, 1, record @ ..] = seed.as_slice() else { return None };
        let lengths = record.iter().position(|&byte| byte < 0x80)? + 1;
        let graph = record.get(lengths + 4..)?;
        ObjectGraph::parse(graph, &Limits::default()).is_ok().then(|| graph.to_vec())
    };
    records.into_iter().filter_map(graph).collect()
}
