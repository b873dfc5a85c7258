//! Every job of the README's cookbook, run as it stands there.

use crate::command::{path, weightlift};
use std::path::Path;
use std::process::Command;
use weightlift::{DType, Format, Plan, Rename, SaveOptions, Shape};
use weightlift_core::{BlobId, Manifest, WriteOptions};
use weightlift_testkit::fixture;

/// The commands of the cookbook: lines that end in a backslash go on in the next.
fn commands() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let block = readme.split("<!-- cookbook -->").nth(1).unwrap().split("```").nth(1).unwrap();
    let joined = block.trim_start_matches("sh").replace("\\\n", " ");
    joined.lines().filter(|line| line.starts_with("weightlift ")).map(str::to_owned).collect()
}

fn tensors(file: &Path, tensors: &[(&str, DType, &[u64])]) {
    let mut manifest = Manifest::default();
    for (name, dtype, dims) in tensors {
        manifest.add_tensor(name, *dtype, Shape::new(*dims).unwrap());
    }
    let lengths: Vec<u64> = manifest.blobs.iter().map(|blob| blob.bytes).collect();
    let format = &weightlift_safetensors::Safetensors;
    let writer = format.create(weightlift_io::real(), file, manifest, &WriteOptions::default()).unwrap();
    for (at, len) in lengths.into_iter().enumerate() {
        // Small numbers in every dtype: no NaN, nothing out of range.
        writer.write_at(BlobId(at as u32), 0, &vec![0x38; len as usize]).unwrap();
    }
    writer.finish().unwrap();
}

fn f32s<'a>(name: &'a str, dims: &'a [u64]) -> (&'a str, DType, &'a [u64]) {
    (name, DType::F32, dims)
}

/// The files that the cookbook's commands begin with.
fn prepare(dir: &Path) {
    let at = |name: &str| dir.join(name);
    let save = |from: &str, plan: &Plan, to: &str| {
        let opened = weightlift::open(fixture(from).path).unwrap();
        opened.save(plan, at(to), &SaveOptions::default()).unwrap();
    };
    save("tf/foo_dense/model.ckpt", &Plan::new(), "tmp.ckpt");
    save("tf/bert_tiny/bert_model.ckpt", &Plan::new(), "bert_model.ckpt");
    save(
        "tf/bert_tiny/bert_model.ckpt",
        &Plan::new().rename(Rename::new("^cls/", "old_scope/").unwrap()),
        "model.ckpt",
    );
    save("tf/adam_slots/model.ckpt-3", &Plan::new(), "ema.ckpt");
    std::fs::copy(fixture("torch/training.pt").path, at("train.pt")).unwrap();
    std::fs::copy(fixture("torch/bert_tiny/pytorch_model.bin").path, at("model.bin")).unwrap();
    tensors(
        &at("model.safetensors"),
        &[
            f32s("model.wte.weight", &[6, 4]),
            f32s("model.h.0.q_proj.weight", &[4, 4]),
            f32s("model.h.0.k_proj.weight", &[4, 4]),
            f32s("model.h.0.v_proj.weight", &[4, 4]),
        ],
    );
    for name in ["a", "b", "c"] {
        tensors(&at(&format!("{name}.safetensors")), &[f32s("layer_007.w", &[3, 2]), ("ids", DType::I64, &[4])]);
    }
    tensors(&at("neox.safetensors"), &[f32s("h.0.query_key_value.weight", &[12, 4])]);
    tensors(&at("fp8.safetensors"), &[("w.weight", DType::F8E4m3fn, &[4, 4]), f32s("w.weight_scale", &[1])]);
    tensors(
        &at("ranks.safetensors"),
        &[f32s("w/part_0", &[3, 4]), f32s("w/part_1", &[4, 4]), f32s("w/part_2", &[3, 4])],
    );
    std::fs::write(at("old_vocab.txt"), "[PAD]\nthe\ncat\n").unwrap();
    std::fs::write(at("vocab.txt"), "[PAD]\ncat\nbird\n").unwrap();
    std::fs::write(at("names.tsv"), "dense/kernel\tlinear.weight\n").unwrap();
    std::fs::create_dir(at("run")).unwrap();
}

#[test]
fn every_job_of_the_cookbook_runs() {
    let tf2 = fixture("tf/object_slots/ckpt-1").path;
    let bin = Path::new(env!("CARGO_BIN_EXE_weightlift")).parent().unwrap();
    let search = format!("{}:{}", path(bin), std::env::var("PATH").unwrap());
    let commands = commands();
    assert!(commands.len() >= 10, "{commands:?}");
    let mut failed = Vec::new();
    // Jobs that a recipe joins stand one after the other in one folder; each of the others starts anew.
    let mut dir = tempfile::tempdir().unwrap();
    for (at, command) in commands.iter().enumerate() {
        if at == 0 || !command.contains("--recipe") {
            dir = tempfile::tempdir().unwrap();
            prepare(dir.path());
            let done = weightlift(&["convert", path(&tf2), path(&dir.path().join("ckpt-7"))]);
            assert!(done.status.success());
        }
        let done =
            Command::new("sh").args(["-c", command]).current_dir(dir.path()).env("PATH", &search).output().unwrap();
        if !done.status.success() {
            failed.push(format!("{command}\n  {}", String::from_utf8_lossy(&done.stderr)));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
