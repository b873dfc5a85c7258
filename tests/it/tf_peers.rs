//! TensorFlow restores what was renamed, left out, cast, cut, joined and shared.

use crate::command::{path, stderr, weightlift};
use crate::peers::{Judge, Seen, ask, judge, tensors, try_ask};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use weightlift::{Plan, SaveOptions, Share};
use weightlift_testkit::fixture;

/// Converts with the command, which must succeed; answers what it says.
fn convert(input: &Path, output: &Path, flags: &[&str]) -> String {
    let result = weightlift(&[&["convert", path(input), path(output)], flags].concat());
    assert!(result.status.success(), "{flags:?}: {}", stderr(&result));
    stderr(&result)
}

fn variables() -> Value {
    json!({"model/kernel": [[3, 4], "float32"], "model/bias": [[4], "float32"], "step": [[], "int64"]})
}

/// A checkpoint of objects, two of whose values an optimizer keeps, and what is in it.
fn objects(judge: &Mutex<Judge>, dir: &Path) -> (PathBuf, Vec<Seen>) {
    let request = json!({
        "ask": "tf_objects_save", "path": dir.join("ckpt"), "seed": 3, "variables": variables(),
        "slots": ["model/kernel"],
    });
    let answer = ask(judge, request);
    (PathBuf::from(answer["path"].as_str().unwrap()), tensors(&answer))
}

fn restore(judge: &Mutex<Judge>, path: &Path, variables: Value, slots: &[&str]) -> Vec<Seen> {
    let request = json!({"ask": "tf_objects_restore", "path": path, "variables": variables, "slots": slots});
    tensors(&ask(judge, request))
}

fn hashes(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|tensor| tensor.sha256.as_str()).collect()
}

#[test]
fn renamed_keys_restore_into_the_same_objects() {
    let Some(judge) = judge("renamed_keys_restore_into_the_same_objects") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (input, saved) = objects(judge, dir.path());
    let output = dir.path().join("out");
    for flags in [
        &["--rename", "^model/=net/deep/"][..],
        &["--add-prefix", "all/"],
        &["--rename", "^model/=net/", "--share", "hardlink"],
        &["--names", "full", "--rename", "^=all/"],
    ] {
        convert(&input, &output, &[flags, &["--force"]].concat());
        assert_eq!(restore(judge, &output, variables(), &["model/kernel"]), saved, "{flags:?}");
    }
    convert(&input, &input, &["--rename", "^model/=x/"]);
    assert_eq!(restore(judge, &input, variables(), &["model/kernel"]), saved, "in place");
}

#[test]
fn renamed_objects_restore_into_objects_of_the_new_names() {
    let Some(judge) = judge("renamed_objects_restore_into_objects_of_the_new_names") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (input, saved) = objects(judge, dir.path());
    let output = dir.path().join("out");
    convert(&input, &output, &["--names", "object", "--rename", "^model/kernel=net/w"]);
    let moved = json!({"net/w": [[3, 4], "float32"], "model/bias": [[4], "float32"], "step": [[], "int64"]});
    let restored = restore(judge, &output, moved, &["net/w"]);
    assert_eq!(
        restored.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(),
        ["model/bias", "net/w", "net/w/m", "net/w/v", "step"]
    );
    assert_eq!(hashes(&restored), hashes(&saved));
}

#[test]
fn what_is_left_out_or_added_is_so_in_the_graph() {
    let Some(judge) = judge("what_is_left_out_or_added_is_so_in_the_graph") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (input, saved) = objects(judge, dir.path());
    let output = dir.path().join("out");
    convert(&input, &output, &["--exclude", "optimizer/**", "--exclude", "**/.OPTIMIZER_SLOT/**"]);
    let restored = restore(judge, &output, variables(), &[]);
    let rest: Vec<_> = saved.iter().filter(|t| !t.name.ends_with("/m") && !t.name.ends_with("/v")).cloned().collect();
    assert_eq!(restored, rest);
    convert(
        &input,
        &output,
        &["--names", "object", "--include", "model/{kernel,bias}", "--include", "save_counter", "--force"],
    );
    let fewer = json!({"model/kernel": [[3, 4], "float32"], "model/bias": [[4], "float32"]});
    assert_eq!(restore(judge, &output, fewer, &[]).len(), 2);
}

#[test]
fn a_cast_leaves_the_graph_as_it_is() {
    let Some(judge) = judge("a_cast_leaves_the_graph_as_it_is") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (input, _) = objects(judge, dir.path());
    let output = dir.path().join("out");
    convert(
        &input,
        &output,
        &["--dtype", "model/**=f16", "--exclude", "optimizer/**", "--exclude", "**/.OPTIMIZER_SLOT/**"],
    );
    let halves = json!({"model/kernel": [[3, 4], "float16"], "model/bias": [[4], "float16"], "step": [[], "int64"]});
    assert!(restore(judge, &output, halves, &[]).iter().filter(|t| t.dtype == "float16").count() == 2);
}

#[test]
fn keras_loads_renamed_weights() {
    let Some(judge) = judge("keras_loads_renamed_weights") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("weights"), dir.path().join("out"));
    let saved = tensors(&ask(judge, json!({"ask": "tf_keras_save", "path": input, "seed": 5})));
    convert(&input, &output, &["--rename", "^layer_with_weights-=block_"]);
    assert_eq!(tensors(&ask(judge, json!({"ask": "tf_keras_load", "path": output}))), saved);
    convert(&input, &input, &["--rename", "^layer_with_weights-0=first"]);
    assert_eq!(tensors(&ask(judge, json!({"ask": "tf_keras_load", "path": input}))), saved);
}

#[test]
fn a_made_graph_restores() {
    let Some(judge) = judge("a_made_graph_restores") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("named.ckpt"), dir.path().join("ckpt-4"));
    let shapes = json!({"foo": [3, 3], "dense/kernel": [3, 3], "dense/bias": [3]});
    ask(judge, json!({"ask": "tf_save", "path": input, "variables": shapes, "seed": 7}));
    convert(&input, &output, &["--object-graph", "--state-file"]);
    let floats = json!({
        "foo": [[3, 3], "float32"], "dense/kernel": [[3, 3], "float32"], "dense/bias": [[3], "float32"],
    });
    let restored = restore(judge, &output, floats, &[]);
    let plain = tensors(&ask(judge, json!({"ask": "tf_load", "path": input})));
    assert_eq!(restored, plain);
    let latest = ask(judge, json!({"ask": "tf_latest", "path": dir.path()}));
    assert_eq!(latest["latest"], json!(output));
    convert(&input, &dir.path().join("ckpt-5"), &["--object-graph", "--state-file"]);
    let latest = ask(judge, json!({"ask": "tf_latest", "path": dir.path()}));
    assert_eq!(latest["all"], json!([input, output, dir.path().join("ckpt-5")]));
}

/// The trap: TensorFlow writes slices of any dtype, but puts float16 slices together only as they were cut.
#[test]
fn a_partitioned_graph_restores_what_was_cast_in_its_slices() {
    let Some(judge) = judge("a_partitioned_graph_restores_what_was_cast_in_its_slices") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (input, half, whole) =
        (dir.path().join("in.ckpt"), dir.path().join("half.ckpt"), dir.path().join("whole.ckpt"));
    let graph = |name: &str, path: &Path, dtype: &str| json!({"ask": name, "path": path, "seed": 1, "parts": 3, "shape": [10, 4], "dtype": dtype});
    ask(judge, graph("tf_partitioned_save", &input, "float32"));
    let cast = tensors(&ask(judge, json!({"ask": "numpy_cast", "path": input, "to": "float16"})));
    let said = convert(&input, &half, &["--dtype", "f16"]);
    assert!(said.contains("\"w\": slices of this dtype restore only into the same cut; --join-partitions"), "{said}");
    let restored = tensors(&ask(judge, graph("tf_partitioned_restore", &half, "float16")));
    assert_eq!((hashes(&restored), &restored[0].dtype), (hashes(&cast), &"float16".to_owned()));
    let refused = try_ask(judge, &json!({"ask": "tf_load", "path": half}));
    assert!(refused["error"].as_str().unwrap().contains("half"), "TensorFlow cannot join them: {refused}");
    let said = convert(&input, &whole, &["--dtype", "f16", "--join-partitions"]);
    assert!(!said.contains("same cut"), "{said}");
    assert_eq!(tensors(&ask(judge, json!({"ask": "tf_load", "path": whole}))), cast);
    let brain = dir.path().join("brain.ckpt");
    let said = convert(&input, &brain, &["--dtype", "bf16"]);
    assert!(!said.contains("same cut"), "{said}");
    let cast = tensors(&ask(judge, json!({"ask": "numpy_cast", "path": input, "to": "bfloat16"})));
    assert_eq!(tensors(&ask(judge, json!({"ask": "tf_load", "path": brain}))), cast);
    assert_eq!(hashes(&tensors(&ask(judge, graph("tf_partitioned_restore", &brain, "bfloat16")))), hashes(&cast));
}

#[test]
fn a_partitioned_graph_restores_what_was_edited_in_its_slices() {
    let Some(judge) = judge("a_partitioned_graph_restores_what_was_edited_in_its_slices") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (input, edited, whole) =
        (dir.path().join("in.ckpt"), dir.path().join("edited.ckpt"), dir.path().join("whole.ckpt"));
    let graph = |name: &str, path: &Path, rows: u64, dtype: &str| json!({"ask": name, "path": path, "seed": 1, "parts": 3, "shape": [rows, 4], "dtype": dtype});
    ask(judge, graph("tf_partitioned_save", &input, 10, "float32"));
    let slices = |file: &Path| {
        let opened = weightlift::open(file).unwrap();
        let (_, entry) = opened.catalog().named("w").next().unwrap();
        entry.extents().unwrap().iter().map(|extent| extent.region.size.dims()[0]).collect::<Vec<_>>()
    };
    assert_eq!(slices(&input), [4, 3, 3]);
    let steps = ["--copy-rows", "w[0,9] -> w[9,4]", "--set", "w[5, 1]=2.5"];
    convert(&input, &edited, &steps);
    convert(&input, &whole, &[&steps[..], &["--join-partitions"]].concat());
    assert_eq!(slices(&edited), [4, 3, 3], "the slices stay");
    assert_eq!(slices(&whole), [10]);
    let expected = hashes_of(judge, &whole);
    assert_ne!(expected, hashes_of(judge, &input));
    assert_eq!(hashes_of(judge, &edited), expected);
    let restored = tensors(&ask(judge, graph("tf_partitioned_restore", &edited, 10, "float32")));
    assert_eq!(restored[0].sha256, expected[0]);
    // Cast on the way, and longer: the last slice grows. Shorter: what has no rows goes.
    let made = |name: &str, steps: &[&str]| {
        let output = dir.path().join(name);
        convert(&input, &output, steps);
        output
    };
    let steps = ["--resize-rows", "w=14:row:2", "--dtype", "bf16"];
    let (longer, whole) = (made("longer", &steps), made("joined", &[&steps[..], &["--join-partitions"]].concat()));
    assert_eq!(slices(&longer), [4, 3, 7]);
    assert_eq!(hashes_of(judge, &longer), hashes_of(judge, &whole));
    let shorter = made("shorter", &["--resize-rows", "w=6"]);
    assert_eq!(slices(&shorter), [4, 2]);
    assert_eq!(hashes_of(judge, &shorter).len(), 1);
    // Another order of the axes is another cut: it is written whole.
    assert_eq!(slices(&made("turned", &["--transpose", "w"])), [4]);
}

#[test]
fn shared_and_sharded_bundles_load() {
    let Some(judge) = judge("shared_and_sharded_bundles_load") else { return };
    let dir = tempfile::tempdir().unwrap();
    let input = fixture("tf/sharded/model.ckpt").path;
    let expected = hashes_of(judge, &input);
    for (name, flags) in [
        ("copy", &["--share", "copy", "--rename", "^=new/"][..]),
        ("shards", &["--shard-size", "64", "--rename", "^=new/"]),
        ("graph", &["--object-graph"]),
    ] {
        let output = dir.path().join(name);
        convert(&input, &output, flags);
        let found = hashes_of(judge, &output);
        assert!(expected.iter().all(|hash| found.contains(hash)), "{name}");
    }
}

fn hashes_of(judge: &Mutex<Judge>, path: &Path) -> Vec<String> {
    tensors(&ask(judge, json!({"ask": "tf_load", "path": path}))).into_iter().map(|t| t.sha256).collect()
}

/// Random bundles by TensorFlow: read and written again, they have TensorFlow's own index bytes and values.
#[test]
fn random_bundles_are_written_as_tensorflow_writes_them() {
    let Some(judge) = judge("random_bundles_are_written_as_tensorflow_writes_them") else { return };
    const COUNT: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let answer = ask(judge, json!({"ask": "tf_random", "path": dir.path(), "seed": 20240607, "count": COUNT}));
    let bundles = answer["bundles"].as_array().unwrap();
    let (mut pairs, mut sharded, mut sliced) = (Vec::new(), 0, 0);
    for bundle in bundles {
        let source = PathBuf::from(bundle["path"].as_str().unwrap());
        let one_file = bundle["shards"] == 1;
        let written = PathBuf::from(format!("{}-written", source.display()));
        let opened = weightlift::open(&source).unwrap();
        let mut save = SaveOptions { to: Some("tf".to_owned()), ..SaveOptions::default() };
        save.options.output.share = Share::Never;
        opened.save(&Plan::new(), &written, &save).unwrap();
        let bytes = |prefix: &Path, suffix: &str| std::fs::read(format!("{}{suffix}", prefix.display())).unwrap();
        if one_file {
            assert_eq!(bytes(&source, ".index"), bytes(&written, ".index"), "{}", source.display());
            let data = ".data-00000-of-00001";
            assert_eq!(bytes(&source, data), bytes(&written, data), "{}", source.display());
        } else {
            let linked = PathBuf::from(format!("{}-linked", source.display()));
            save.options.output.share = Share::HardLink;
            opened.save(&Plan::new(), &linked, &save).unwrap();
            assert_eq!(bytes(&source, ".index"), bytes(&linked, ".index"), "{}", source.display());
            sharded += 1;
        }
        sliced += bundle["slices"].as_array().unwrap().iter().filter(|slice| slice[1] != "").count();
        pairs.push(json!([source, written, bundle["slices"]]));
    }
    assert_eq!(pairs.len(), COUNT);
    assert!(sharded > 50 && sliced > 300, "{sharded} in several files, {sliced} slices");
    let same = ask(judge, json!({"ask": "tf_same", "pairs": pairs}));
    assert_eq!(same["different"], json!([]));
    assert!(same["compared"].as_u64().unwrap() > 1000, "{same}");
}

/// A graph of float32 restores what was bfloat16, float16, float32 and float64.
#[test]
fn floats_of_every_width_become_float32() {
    let Some(judge) = judge("floats_of_every_width_become_float32") else { return };
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.ckpt");
    let input = fixture("tf/saver_dtypes/model.ckpt-1000").path;
    convert(&input, &output, &["--dtype", "f32", "--on-overflow", "inf"]);
    let cast = tensors(&ask(judge, json!({"ask": "numpy_cast", "path": input, "to": "float32"})));
    let all = tensors(&ask(judge, json!({"ask": "tf_load", "path": output})));
    for tensor in &cast {
        assert!(all.contains(tensor), "{tensor:?}");
    }
    let widths = tensors(&ask(judge, json!({"ask": "tf_load", "path": input})));
    for dtype in ["bfloat16", "float16", "float32", "float64"] {
        assert!(widths.iter().any(|tensor| tensor.dtype == dtype), "{dtype}");
    }
}
