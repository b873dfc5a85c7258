//! PyTorch 1.13.1 as the judge of what is written.

use crate::command::{path, stderr, weightlift};
use crate::peers::{Judge, ask, judge, old_torch};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use weightlift_testkit::fixture;

fn convert(name: &str, dir: &Path, flags: &[&str]) -> PathBuf {
    let (input, output) = (fixture(name).path, dir.join("out.pt"));
    let done = weightlift(&[&["convert", path(&input), path(&output), "--force"], flags].concat());
    assert!(done.status.success(), "{name} {flags:?}: {}", stderr(&done));
    output
}

fn loaded(judge: &Mutex<Judge>, file: &Path, weights_only: bool) -> Value {
    ask(judge, json!({"ask": "torch_load", "path": file, "weights_only": weights_only}))
}

/// Names, dtypes, shapes, values and which tensors share storage.
fn assert_same(old: &Value, other: &Value, what: &str) {
    let count = old["tensors"].as_array().unwrap().len();
    assert!(count > 0, "{what}: no tensors");
    assert_eq!(old["tensors"], other["tensors"], "{what}");
}

#[test]
fn the_old_pytorch_is_the_old_one() {
    let Some(old) = old_torch("the_old_pytorch_is_the_old_one") else { return };
    let version = ask(old, json!({"ask": "torch_version"}))["version"].as_str().unwrap().to_owned();
    assert!(version.starts_with("1.13.1"), "{version}");
}

#[test]
fn an_old_pytorch_reads_back_what_it_read_before() {
    let Some(old) = old_torch("an_old_pytorch_reads_back_what_it_read_before") else { return };
    let dir = tempfile::tempdir().unwrap();
    let names = ["state_dict.pt", "state_dict_legacy.pth", "tied.pt", "views.pt", "view_of_big.pt", "t1131_mixed.pt"];
    for name in names.map(|name| format!("torch/{name}")) {
        let source = loaded(old, &fixture(&name).path, false);
        let written = loaded(old, &convert(&name, dir.path(), &[]), true);
        assert_same(&written, &source, &name);
    }
}

#[test]
fn an_old_pytorch_and_a_new_one_read_the_same() {
    let test = "an_old_pytorch_and_a_new_one_read_the_same";
    let (Some(old), Some(new)) = (old_torch(test), judge(test)) else { return };
    let dir = tempfile::tempdir().unwrap();
    for name in ["torch/state_dict.pt", "torch/tied.pt", "torch/views.pt", "torch/t1131_training.pt"] {
        for flags in [&["--dtype", "f16"][..], &["--dtype", "bf16"], &["--keep-storages"], &["--nest", "model"]] {
            let output = convert(name, dir.path(), flags);
            assert_same(&loaded(old, &output, false), &loaded(new, &output, false), &format!("{name} {flags:?}"));
        }
    }
}

#[test]
fn an_old_pytorch_gets_a_training_checkpoint_whole_or_as_weights() {
    let Some(old) = old_torch("an_old_pytorch_gets_a_training_checkpoint_whole_or_as_weights") else { return };
    let dir = tempfile::tempdir().unwrap();
    let name = "torch/training.pt";
    let source = loaded(old, &fixture(name).path, false);
    let whole = convert(name, dir.path(), &[]);
    assert_same(&loaded(old, &whole, false), &source, "whole");
    // Its own `weights_only` knows no floating-point numbers, and so refuses any file with a learning rate.
    let plain = convert(name, dir.path(), &["--weights-only"]);
    assert_same(&loaded(old, &plain, false), &source, "weights only");
}
