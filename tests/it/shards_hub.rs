//! Sets between weightlift and the loaders that people use: transformers and accelerate, on a small random BERT.

use crate::command::{path, stderr, weightlift};
use crate::peers::{Judge, ask, judge};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

fn run(arguments: &[&str]) {
    let result = weightlift(arguments);
    assert!(result.status.success(), "{arguments:?}: {}", stderr(&result));
}

/// A folder for a model beside the original, with its configuration.
fn folder(original: &Path, name: &str) -> PathBuf {
    let folder = original.with_file_name(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(original.join("config.json"), folder.join("config.json")).unwrap();
    folder
}

/// What transformers loads from a folder: every weight the model's, none missing, none left over, the head tied.
fn loads(judge: &Mutex<Judge>, folder: &Path, original: &Value) -> Value {
    let loaded = ask(judge, json!({"ask": "transformers_load", "path": folder}));
    assert_eq!(loaded["tensors"], original["tensors"], "{}", folder.display());
    for list in ["missing_keys", "unexpected_keys", "mismatched_keys"] {
        assert_eq!(loaded[list], json!([]), "{}: {list}", folder.display());
    }
    assert_eq!(loaded["tied"], json!(true), "{}", folder.display());
    loaded["logits"].clone()
}

/// Sets that transformers wrote, joined and cut anew, load again and compute the same.
#[test]
fn transformers_and_accelerate_load_sets_joined_and_cut_anew() {
    let Some(judge) = judge("transformers_and_accelerate_load_sets_joined_and_cut_anew") else { return };
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("made");
    let request = json!({"ask": "hub_save", "path": made, "kind": "safetensors", "shard_size": "10KB", "seed": 1});
    let original = ask(judge, request);
    let logits = loads(judge, &made, &original);
    let strict = weightlift(&["ls", path(&made), "--strict"]);
    assert!(strict.status.success(), "{}", stderr(&strict));
    let joined = folder(&made, "joined");
    run(&["convert", path(&made), path(&joined.join("model.safetensors"))]);
    assert_eq!(loads(judge, &joined, &original), logits);
    let cut = folder(&made, "cut");
    run(&["convert", path(&joined), path(&cut.join("model.safetensors")), "--shard-size", "5kB"]);
    assert!(cut.join("model.safetensors.index.json").exists());
    assert_eq!(loads(judge, &cut, &original), logits);
    let accelerated = ask(judge, json!({"ask": "accelerate_load", "path": cut}));
    assert_eq!((&accelerated["tensors"], &accelerated["tied"]), (&original["tensors"], &json!(true)));
    // An index made from the files alone serves as well.
    std::fs::remove_file(cut.join("model.safetensors.index.json")).unwrap();
    run(&["reindex", path(&cut)]);
    assert_eq!(loads(judge, &cut, &original), logits);
}

/// A state dict with both names of a tied weight: recorded as second names, which transformers ties again; and back in
/// a PyTorch file both are there and share their storage.
#[test]
fn tied_names_load_in_transformers_and_come_back_to_pytorch() {
    let Some(judge) = judge("tied_names_load_in_transformers_and_come_back_to_pytorch") else { return };
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("made");
    let original = ask(judge, json!({"ask": "hub_save", "path": made, "kind": "pt", "seed": 2}));
    let state = made.join("model.pt");
    for (name, flags) in [
        ("alias", &[][..]),
        ("copy", &["--ties", "copy"]),
        ("first", &["--ties", "first"]),
        ("cut", &["--shard-size", "5kB"]),
    ] {
        let out = folder(&made, name);
        let target = out.join("model.safetensors");
        run(&[&["convert", path(&state), path(&target)], flags].concat());
        loads(judge, &out, &original);
        if name == "first" {
            continue;
        }
        let back = out.join("back.pt");
        let input = if name == "cut" { out.join("model.safetensors.index.json") } else { target };
        run(&["convert", path(&input), path(&back)]);
        let loaded = ask(judge, json!({"ask": "torch_load", "path": back, "weights_only": true}));
        let storage = |name: &str| {
            let tensors = loaded["tensors"].as_array().unwrap();
            tensors.iter().find(|tensor| tensor["name"] == name).unwrap_or_else(|| panic!("{name} is gone"))["storage"]
                .clone()
        };
        let shared = storage("bert.embeddings.word_embeddings.weight") == storage("cls.predictions.decoder.weight");
        assert_eq!(shared, name != "copy", "{name}");
    }
}

/// A set of PyTorch files with its own index.
#[test]
fn pytorch_sets_become_what_transformers_loads() {
    let Some(judge) = judge("pytorch_sets_become_what_transformers_loads") else { return };
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("made");
    let request = json!({"ask": "hub_save", "path": made, "kind": "bin", "shard_size": "10KB", "seed": 3});
    let original = ask(judge, request);
    assert!(original["files"].as_array().unwrap().contains(&json!("pytorch_model.bin.index.json")));
    let strict = weightlift(&["ls", path(&made), "--strict"]);
    assert!(strict.status.success(), "{}", stderr(&strict));
    let out = folder(&made, "out");
    run(&["convert", path(&made), path(&out.join("model.safetensors")), "--shard-size", "8kB"]);
    loads(judge, &out, &original);
    let bin = folder(&made, "bin");
    run(&["convert", path(&out), path(&bin.join("pytorch_model.bin")), "--shard-size", "8kB"]);
    assert!(bin.join("pytorch_model.bin.index.json").exists());
    loads(judge, &bin, &original);
    let accelerated = ask(judge, json!({"ask": "accelerate_load", "path": bin}));
    assert_eq!(accelerated["tensors"], original["tensors"]);
}
