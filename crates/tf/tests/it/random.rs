//! Generated tables, indexes and bytes: what is written is read again, and nothing panics.

use crate::support::{ids, open};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use prost::Message;
use std::collections::BTreeMap;
use std::fs;
use weightlift_core::Limits;
use weightlift_io::{read_entry, real};
use weightlift_tf::graph::ObjectGraph;
use weightlift_tf::proto::{BundleEntry, BundleHeader, Dim, Extent, TensorShape, TensorSlice};
use weightlift_tf::record::{check_strings, check_variants};
use weightlift_tf::state::StateFile;
use weightlift_tf::table::{Block, TableWriter, read};
use weightlift_tf::{Index, slice_key};

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof!["[ab/]{0,4}".prop_map(String::into_bytes), vec(any::<u8>(), 0..40), vec(Just(0xffu8), 0..3)]
}

/// Numbers near the edges, where checks go wrong.
fn edge() -> impl Strategy<Value = i64> {
    let edges = vec![0, 1, 2, 3, 4, 8, 16, -1, i64::MAX, i64::MIN, 1 << 31, 1 << 32, 1 << 62, -1 << 31];
    prop_oneof![3 => 0..5i64, 1 => prop::sample::select(edges), 1 => any::<i64>()]
}

fn slice() -> impl Strategy<Value = TensorSlice> {
    let extent = (edge(), prop::option::of(edge())).prop_map(|(start, length)| Extent { start, length });
    vec(extent, 0..3).prop_map(|extent| TensorSlice { extent })
}

fn entry() -> impl Strategy<Value = BundleEntry> {
    let dims = vec(edge().prop_map(|size| Dim { size }), 0..3);
    let shape = prop::option::of((dims, prop::bool::weighted(0.02)));
    let shape = shape.prop_map(|shape| shape.map(|(dim, unknown_rank)| TensorShape { dim, unknown_rank }));
    let dtype = prop_oneof![8 => 1..34i32, 1 => any::<i32>()];
    let shard = prop_oneof![8 => Just(0), 1 => any::<i32>()];
    (dtype, shape, shard, edge(), edge(), any::<u32>(), vec(slice(), 0..3)).prop_map(
        |(dtype, shape, shard_id, offset, size, crc32c, slices)| BundleEntry {
            dtype,
            shape,
            shard_id,
            offset,
            size,
            crc32c,
            slices,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn tables_survive(pairs in btree_map(key(), vec(any::<u8>(), 0..200), 0..200), large in 0usize..600_000) {
        let mut pairs: BTreeMap<Vec<u8>, Vec<u8>> = pairs;
        pairs.insert(b"large".to_vec(), vec![7; large]);
        let mut table = TableWriter::new();
        pairs.iter().for_each(|(key, value)| table.add(key, value));
        let mut found = Vec::new();
        read(&table.finish(), &Limits::default(), |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .unwrap();
        prop_assert!(found.into_iter().eq(pairs));
    }

    #[test]
    fn hostile_indexes_open_or_not(
        entries in btree_map("[a-c]{1,2}", entry(), 1..6),
        data in vec(any::<u8>(), 0..40),
        shards in prop_oneof![4 => Just(1), 1 => any::<i32>()],
        endianness in 0..2i32,
    ) {
        let header = BundleHeader { num_shards: shards, endianness, version: None };
        let mut rows = BTreeMap::from([(Vec::new(), header.encode_to_vec())]);
        for (name, entry) in &entries {
            rows.insert(name.clone().into_bytes(), entry.encode_to_vec());
            for slice in &entry.slices {
                let part = BundleEntry { slices: Vec::new(), ..entry.clone() };
                rows.insert(slice_key(name.as_bytes(), slice), part.encode_to_vec());
            }
        }
        let mut table = TableWriter::new();
        rows.iter().for_each(|(key, value)| table.add(key, value));
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("m.index"), table.finish()).unwrap();
        fs::write(dir.path().join("m.data-00000-of-00001"), &data).unwrap();
        let Ok(checkpoint) = open(dir.path().join("m")) else { return Ok(()) };
        for id in ids(checkpoint.catalog()) {
            let entry = checkpoint.catalog().entry(id);
            if let Ok(values) = read_entry(real().as_ref(), checkpoint.as_ref(), id) {
                prop_assert!(entry.dtype.is_opaque() || values.len() <= data.len(), "{}", entry.name);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..300), elements in 0u64..20) {
        let _ = Index::parse(&bytes, &Limits::default());
        let _ = StateFile::parse(&bytes);
        let _ = check_strings(&*bytes, elements, bytes.len() as u64);
        let _ = check_variants(&*bytes, elements, bytes.len() as u64);
        if let Ok(block) = Block::parse(&bytes) {
            let mut entries = block.entries();
            while let Ok(Some(_)) = entries.next_entry() {}
        }
        if let Ok(graph) = ObjectGraph::parse(&bytes, &Limits::default()) {
            prop_assert_eq!(ObjectGraph::parse(&graph.to_bytes(), &Limits::default()).unwrap(), graph);
        }
    }

    #[test]
    fn state_files_survive(latest in ".*", all in vec(".*", 0..4), times in vec(any::<f64>(), 0..4)) {
        let timestamps = times.into_iter().filter(|time| !time.is_nan()).collect();
        let state = StateFile { latest, all, timestamps, last_preserved: None };
        prop_assert_eq!(StateFile::parse(state.to_text().as_bytes()).unwrap(), state);
    }
}
