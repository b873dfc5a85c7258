//! Sharded sets: indexes that do not fit, joining, cutting anew, the index made anew.

use crate::command::{names_in, path, stderr, weightlift};
use serde_json::Value;
use std::path::{Path, PathBuf};
use weightlift_testkit::{Fixture, fixture, sha256_hex};

const INDEX: &str = "model.safetensors.index.json";

fn set(name: &str) -> Fixture {
    fixture(&format!("safetensors/{name}/{INDEX}"))
}

/// A copy of a set of the fixtures that may be changed.
fn copy(name: &str, dir: &Path) -> PathBuf {
    let from = set(name).path;
    for file in names_in(from.parent().unwrap()) {
        std::fs::copy(from.with_file_name(&file), dir.join(&file)).unwrap();
    }
    dir.join(INDEX)
}

fn stdout(arguments: &[&str]) -> String {
    let result = weightlift(arguments);
    assert!(result.status.success(), "{arguments:?}: {}", stderr(&result));
    String::from_utf8(result.stdout).unwrap()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Every tensor of a fixture is there with its bytes.
fn check(fixture: &Fixture, written: &Path) {
    let opened = weightlift::open(written).unwrap();
    assert_eq!(opened.catalog().entries.len(), fixture.tensors.len());
    for expected in &fixture.tensors {
        assert_eq!(Some(sha256_hex(&opened.read(&expected.name).unwrap())), expected.sha256, "{}", expected.name);
    }
}

/// A file of the set is gone, or a tensor is not where the index has it: the list, and nothing is written.
#[test]
fn sets_with_gaps_are_refused_with_the_list_before_anything_is_written() {
    for (name, part) in [
        ("bad_shard_missing", "1 of the 2 files of the set are missing: model-00002-of-00002.safetensors"),
        ("bad_shard_moved_key", "model.layer.0.weight (model-00002-of-00002.safetensors; it is in model-00001"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out.safetensors");
        let result = weightlift(&["convert", path(&set(name).path), path(&out), "--shard-size", "1kB"]);
        assert_eq!(result.status.code(), Some(2));
        assert!(stderr(&result).contains(part), "{}", stderr(&result));
        assert!(stderr(&result).contains("reindex"), "a way out: {}", stderr(&result));
        assert_eq!(names_in(dir.path()), [] as [&str; 0]);
    }
}

/// What the index does not name is left aside with a warning; --strict refuses it.
#[test]
fn the_index_wins_and_strictness_refuses() {
    for (name, part) in [
        ("shard_stray_file", "model.safetensors left aside: the index does not name it"),
        ("shard_unlisted_key", "left aside: the index does not name it"),
        ("shard_wrong_total", "total_size 6440, but its tensors have 5440 bytes"),
    ] {
        let index = set(name).path;
        let warned = weightlift(&["ls", path(&index)]);
        assert!(warned.status.success() && stderr(&warned).contains(part), "{name}: {}", stderr(&warned));
        let strict = weightlift(&["ls", path(&index), "--strict"]);
        assert_eq!(strict.status.code(), Some(2), "{name}");
        assert!(stderr(&strict).contains(part), "{name}: {}", stderr(&strict));
    }
    let sound = weightlift(&["ls", path(&set("sharded").path), "--strict"]);
    assert!(sound.status.success(), "{}", stderr(&sound));
}

#[test]
fn a_stale_index_is_made_anew_from_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let index = copy("bad_shard_moved_key", dir.path());
    assert!(weightlift::open(&index).is_err());
    let before = std::fs::read(&index).unwrap();
    let dry = stdout(&["reindex", path(dir.path()), "--dry-run"]);
    assert!(dry.contains("moved 1: model.layer.0.weight (model-00001-of-00002.safetensors)"), "{dry}");
    assert_eq!(std::fs::read(&index).unwrap(), before, "a dry run writes nothing");
    assert_eq!(weightlift(&["reindex", path(dir.path())]).status.code(), Some(2), "it exists");
    stdout(&["reindex", path(dir.path()), "--force"]);
    let strict = weightlift(&["ls", path(&index), "--strict"]);
    assert!(strict.status.success(), "{}", stderr(&strict));

    // The index of the original again, byte for byte, from the files alone.
    let dir = tempfile::tempdir().unwrap();
    let index = copy("sharded", dir.path());
    let original = json(&index);
    std::fs::remove_file(&index).unwrap();
    let made: Value = serde_json::from_str(&stdout(&["reindex", path(&index), "--json"])).unwrap();
    assert_eq!((&made["schema"], &made["tensors"]), (&"weightlift.reindex/1".into(), &9.into()));
    assert_eq!(json(&index)["weight_map"], original["weight_map"]);
    assert_eq!(json(&index)["metadata"]["total_size"], original["metadata"]["total_size"]);
}

/// An index of half a set would hide what is missing.
#[test]
fn no_index_is_made_of_half_a_set_or_of_two() {
    let dir = tempfile::tempdir().unwrap();
    let index = copy("sharded", dir.path());
    std::fs::remove_file(dir.path().join("model-00001-of-00002.safetensors")).unwrap();
    let result = weightlift(&["reindex", path(&index), "--force"]);
    assert_eq!(result.status.code(), Some(2));
    assert!(stderr(&result).contains("are missing: model-00001-of-00002.safetensors"), "{}", stderr(&result));
    let twice = tempfile::tempdir().unwrap();
    let index = copy("sharded", twice.path());
    let (one, two) = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
    std::fs::copy(twice.path().join(one), twice.path().join(two)).unwrap();
    let result = weightlift(&["reindex", path(&index), "--force"]);
    assert!(stderr(&result).contains("has a tensor of this name too"), "{}", stderr(&result));
}

#[test]
fn sets_are_joined_and_cut_anew_with_order_and_sizes_kept() {
    let fixture = set("sharded");
    let dir = tempfile::tempdir().unwrap();
    let joined = dir.path().join("joined.safetensors");
    stdout(&["convert", path(&fixture.path), path(&joined)]);
    check(&fixture, &joined);
    let order = |path: &Path| -> Vec<String> {
        weightlift::open(path).unwrap().catalog().entries.iter().map(|entry| entry.name.clone()).collect()
    };
    assert_eq!(order(&joined), order(&fixture.path));
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let target = out.join("model.safetensors");
    for (size, most) in [("1500B", 1500), ("1KiB", 1024), ("2kB", 2000)] {
        stdout(&["convert", path(&joined), path(&target), "--shard-size", size, "--force"]);
        check(&fixture, &out.join(INDEX));
        assert_eq!(order(&out.join(INDEX)), order(&fixture.path), "{size}");
        let index = json(&out.join(INDEX));
        assert_eq!(index["metadata"]["total_size"], 5440, "{size}");
        let files = names_in(&out).into_iter().filter(|name| name.ends_with(".safetensors"));
        for file in files {
            let opened = weightlift::open(out.join(&file)).unwrap();
            let bytes: u64 = opened.catalog().entries.iter().map(|entry| entry.bytes).sum();
            assert!(bytes <= most || opened.catalog().entries.len() == 1, "{size}: {file} has {bytes} bytes");
            for entry in &opened.catalog().entries {
                assert_eq!(index["weight_map"][&entry.name], file.as_str(), "one file for each tensor");
            }
        }
        assert!(weightlift(&["ls", path(&out), "--strict"]).status.success(), "{size}: nothing of the old set is left");
    }
    stdout(&["convert", path(&out), path(&target), "--shard-size", "5GB", "--force"]);
    assert_eq!(names_in(&out), ["model.safetensors"], "one file has no index");
}

/// A folder that has only a PyTorch index.
#[test]
fn pytorch_sets_are_read_by_the_same_rules() {
    let fixture = fixture("torch/hf_sharded_bin/pytorch_model.bin.index.json");
    let folder = fixture.path.parent().unwrap();
    assert_eq!(weightlift::open(folder).unwrap().catalog().entries.len(), fixture.tensors.len());
    let dir = tempfile::tempdir().unwrap();
    let joined = dir.path().join("joined.safetensors");
    stdout(&["convert", path(folder), path(&joined)]);
    check(&fixture, &joined);
    for name in names_in(folder) {
        std::fs::copy(folder.join(&name), dir.path().join(&name)).unwrap();
    }
    let index = dir.path().join("pytorch_model.bin.index.json");
    let original = json(&index);
    let mut wrong = original.clone();
    let map = wrong["weight_map"].as_object_mut().unwrap();
    let (name, file) = map.iter().next().map(|(name, file)| (name.clone(), file.as_str().unwrap().to_owned())).unwrap();
    let other = map.values().find(|other| **other != file.as_str()).unwrap().clone();
    map.insert(name.clone(), other);
    std::fs::write(&index, wrong.to_string()).unwrap();
    let message = weightlift::open(&index).err().unwrap().to_string();
    assert!(message.contains(&format!("it is in {file}")) && message.contains("reindex"), "{message}");
    stdout(&["reindex", path(&index), "--force"]);
    assert_eq!(json(&index)["weight_map"], original["weight_map"]);
    assert!(weightlift(&["ls", path(&index), "--strict"]).status.success());
}

/// PyTorch files of at most a size, with their own index; tied weights stay together, and nothing of an old set is left.
#[test]
fn pytorch_sets_are_written_with_their_index() {
    let fixture = fixture("torch/bert_tiny/pytorch_model.bin");
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("pytorch_model.bin");
    let index = dir.path().join("pytorch_model.bin.index.json");
    for size in ["2kB", "5kB"] {
        stdout(&["convert", path(&fixture.path), path(&target), "--shard-size", size, "--force"]);
        let strict = weightlift(&["ls", path(&index), "--strict"]);
        assert!(strict.status.success(), "{size}: {}", stderr(&strict));
        check(&fixture, &index);
        let map = json(&index)["weight_map"].clone();
        let decoder = &map["cls.predictions.decoder.weight"];
        assert!(decoder.is_string() && *decoder == map["bert.embeddings.word_embeddings.weight"], "{map}");
        for file in names_in(dir.path()).into_iter().filter(|name| name.ends_with(".bin")) {
            let opened = weightlift::open(dir.path().join(&file)).unwrap();
            assert!(opened.catalog().entries.iter().all(|entry| map[&entry.name] == file.as_str()), "{size}: {file}");
        }
    }
    let joined = dir.path().join("joined.pt");
    stdout(&["convert", path(&index), path(&joined)]);
    check(&fixture, &joined);
    stdout(&["convert", path(&joined), path(&target), "--shard-size", "5GB", "--force"]);
    assert_eq!(names_in(dir.path()), ["joined.pt", "pytorch_model.bin"], "one file has no index");
    let elsewhere = weightlift(&["convert", path(&joined), path(&dir.path().join("x.pt")), "--shard-size", "2kB"]);
    assert!(stderr(&elsewhere).contains("ends in .bin"), "{}", stderr(&elsewhere));
}
