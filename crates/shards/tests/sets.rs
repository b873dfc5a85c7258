//! Real sets and damaged ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use weightlift_core::{Kind, Limits};
use weightlift_shards::{Index, Set, list};
use weightlift_testkit::fixture;

fn open(name: &str) -> Result<Set, weightlift_core::Error> {
    let path = fixture(&format!("safetensors/{name}/model.safetensors.index.json")).path;
    Set::open(weightlift_io::real().as_ref(), &path, "safetensors", &Limits::default())
}

fn parse(text: &str) -> Result<Index, String> {
    Index::parse(text.as_bytes(), "safetensors", &Limits::default()).map_err(|error| error.to_string())
}

#[test]
fn a_real_set_is_found_whole() {
    let set = open("sharded").unwrap();
    let expected = fixture("safetensors/sharded/model.safetensors.index.json");
    assert_eq!(set.index.weight_map.len(), expected.tensors.len());
    for tensor in &expected.tensors {
        let file = set.index.weight_map.iter().find(|(name, _)| *name == tensor.name).map(|(_, file)| file.as_str());
        assert_eq!(file, tensor.raw["shard"].as_str());
    }
    assert!(set.files().iter().all(|(_, path)| expected.files.contains(path)));
    assert!(set.index.has_total_size(5440) && !set.index.has_total_size(5441));
    assert!(set.strays(weightlift_io::real().as_ref(), "safetensors").is_empty());
    let (text, note) = set.index.render();
    assert_eq!((text, note), (std::fs::read_to_string(&set.path).unwrap(), None));
}

#[test]
fn missing_files_are_listed() {
    let error = open("bad_shard_missing").unwrap_err();
    assert_eq!(error.message(), "1 of the 2 files of the set are missing: model-00002-of-00002.safetensors");
    let names: Vec<String> = (0..12).map(|n| n.to_string()).collect();
    assert_eq!(list(&names), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more");
}

#[test]
fn files_beside_the_set_are_strays() {
    let strays = |name: &str| open(name).unwrap().strays(weightlift_io::real().as_ref(), "safetensors");
    assert_eq!(strays("shard_stray_file"), ["model.safetensors"]);
    assert!(strays("shard_wrong_total").is_empty());
}

#[test]
fn what_is_no_index_is_refused() {
    for (text, part) in [
        ("", "byte 0: no index of a set: no JSON object"),
        ("[]", "no JSON object"),
        ("{", "no index of a set: EOF while parsing"),
        ("{}", "has no \"weight_map\""),
        (r#"{"weight_map": []}"#, "expected an object of file names by tensor"),
        (r#"{"weight_map": {"a": 1}}"#, "byte 21: no index of a set: invalid type: integer `1`"),
        (r#"{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}"#, "tensor \"a\": the tensor stands twice"),
        (r#"{"weight_map": {"a": "../x.safetensors"}}"#, "tensor \"a\": the file name \"../x.safetensors\" leads out"),
        (r#"{"weight_map": {"a": "x.bin"}}"#, "does not end in .safetensors"),
        (r#"{"weight_map": {}} x"#, "trailing characters"),
        ("{\n\"weight_map\": {\"a\":\n 1}}", "byte 23: no index"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(part), "{error}\nlacks {part}");
    }
    let mut limits = Limits::default();
    limits.tensors = 1;
    let two = br#"{"weight_map": {"a": "x.safetensors", "b": "x.safetensors"}}"#;
    assert_eq!(Index::parse(two, "safetensors", &limits).unwrap_err().kind(), Kind::Limit);
    let path = fixture("safetensors/sharded/model.safetensors.index.json").path;
    (limits.tensors, limits.header_bytes) = (100, 100);
    let error = Set::open(weightlift_io::real().as_ref(), &path, "safetensors", &limits).unwrap_err();
    assert_eq!((error.kind(), error.place().file.as_ref()), (Kind::Limit, Some(&path)));
}

#[test]
fn the_total_is_a_number_of_any_kind_or_absent() {
    let with = |metadata: &str| parse(&format!(r#"{{"metadata": {metadata}, "weight_map": {{}}}}"#)).unwrap();
    assert!(with(r#"{"total_size": 28.0}"#).has_total_size(28));
    assert!(with("null").has_total_size(28));
    assert!(with(r#"{"total_size": "many"}"#).has_total_size(28));
    assert!(!with(r#"{"total_size": 27}"#).has_total_size(28));
}

#[test]
fn an_index_cut_anywhere_or_with_a_bit_flipped_never_panics() {
    let path = fixture("safetensors/sharded/model.safetensors.index.json").path;
    let mut bytes = std::fs::read(path).unwrap();
    for len in 0..bytes.len() {
        assert!(Index::parse(&bytes[..len], "safetensors", &Limits::default()).is_err(), "cut to {len}");
    }
    let mut refused = 0;
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        refused += usize::from(Index::parse(&bytes, "safetensors", &Limits::default()).is_err());
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn a_long_index_is_noted() {
    let name = |n: usize| format!("{n:0>1000}");
    let weight_map = (0..11_000).map(|n| (name(n), "model-00001-of-00002.safetensors".to_owned())).collect();
    let (text, note) = Index { weight_map, ..Index::default() }.render();
    assert!(text.len() > 10 << 20 && note.unwrap().contains("huggingface_hub"));
}

proptest! {
    #[test]
    fn an_index_is_read_back(
        tensors in btree_map(any::<String>(), "[a-z]{1,9}", 0..8).prop_map(|map| map.into_iter().collect::<Vec<_>>()),
        keys in vec("[a-z_]{1,9}", 0..3),
        total in any::<u32>(),
    ) {
        let file = |name: String| format!("{name}.safetensors");
        let weight_map = tensors.into_iter().map(|(tensor, name)| (tensor, file(name))).rev().collect();
        let metadata = keys.into_iter().map(|key| (key, serde_json::Value::from("text"))).collect();
        let mut index = Index { metadata, weight_map };
        index.set_total_size(u64::from(total));
        let text = index.render().0;
        prop_assert_eq!(parse(&text).unwrap(), index);
    }
}
