//! The command as a person meets it: arguments, streams, exit codes, files left behind.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weightlift::{DType, Format, Shape};
use weightlift_core::{Manifest, WriteOptions};
use weightlift_testkit::fixture;

pub fn weightlift(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weightlift")).args(arguments).output().unwrap()
}

pub fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A safetensors file of one-dimensional f32 tensors.
pub fn floats(dir: &Path, tensors: &[(&str, &[f32])]) -> PathBuf {
    let file = dir.join("in.safetensors");
    let mut manifest = Manifest::default();
    for (name, values) in tensors {
        manifest.add_tensor(name, DType::F32, Shape::new([values.len() as u64]).unwrap());
    }
    let format = &weightlift_safetensors::Safetensors;
    let writer = format.create(weightlift_io::real(), &file, manifest, &WriteOptions::default()).unwrap();
    for (index, (_, values)) in tensors.iter().enumerate() {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        writer.write_at(weightlift_core::BlobId(index as u32), 0, &bytes).unwrap();
    }
    writer.finish().unwrap();
    file
}

fn halves(file: &Path, name: &str) -> Vec<u16> {
    let bytes = weightlift::open(file).unwrap().read(name).unwrap();
    bytes.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}

#[test]
fn ls_prints_a_table_names_or_json() {
    let input = fixture("tf/foo_dense/model.ckpt").path;
    let table = stdout(&weightlift(&["ls", path(&input)]));
    let expected = "NAME          DTYPE  SHAPE   BYTES\n\
                    dense/bias    f32    [4]      16 B\n\
                    dense/kernel  f32    [3, 4]   48 B\n\
                    foo           f32    [3, 3]   36 B\n";
    assert!(table.starts_with(expected), "{table}");
    assert!(table.contains("3 tensors, 100 B: 3 f32 (100 B)"), "{table}");
    assert_eq!(stdout(&weightlift(&["ls", path(&input), "--names-only", "dense/*"])), "dense/bias\ndense/kernel\n");
    assert_eq!(stdout(&weightlift(&["ls", path(&input), "--names-only", "kern"])), "dense/kernel\n");
    let json: Value = serde_json::from_str(&stdout(&weightlift(&["ls", path(&input), "--json"]))).unwrap();
    assert_eq!(json["schema"], "weightlift.ls/1");
    assert_eq!(json["format"], "tf");
    assert_eq!(json["tensors"][1]["name"], "dense/kernel");
    assert_eq!(json["tensors"][1]["shape"], serde_json::json!([3, 4]));
    assert_eq!(json["totals"]["bytes"], 100);
    let unmatched = weightlift(&["ls", path(&input), "dense/kernal"]);
    assert_eq!(unmatched.status.code(), Some(2));
    assert!(stderr(&unmatched).contains("did you mean \"dense/kernel\""), "{}", stderr(&unmatched));
}

#[test]
fn an_overflow_writes_nothing_and_names_tensor_and_count() {
    let dir = tempfile::tempdir().unwrap();
    let input = floats(dir.path(), &[("fine", &[1.0, f32::INFINITY]), ("mask", &[1e30, -1e30, 65504.0])]);
    let output = dir.path().join("out.pt");
    let result = weightlift(&["convert", path(&input), path(&output), "--dtype", "f16"]);
    assert_eq!(result.status.code(), Some(2));
    let message = stderr(&result);
    assert!(message.contains("\"mask\" (2 of f32 to f16)") && !message.contains("fine"), "{message}");
    assert!(message.contains("--on-overflow"), "{message}");
    assert_eq!(names_in(dir.path()), ["in.safetensors"], "no output is left behind");
    for (policy, expected) in [("inf", [0x7c00, 0xfc00, 0x7bff]), ("saturate", [0x7bff, 0xfbff, 0x7bff])] {
        let arguments = ["convert", path(&input), path(&output), "--dtype", "f16", "--on-overflow", policy, "--force"];
        let result = weightlift(&arguments);
        assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
        assert_eq!(halves(&output, "mask"), expected);
        assert_eq!(halves(&output, "fine"), [0x3c00, 0x7c00], "an infinity stays one");
        assert!(stderr(&result).contains("2 values out of range: mask (2)"), "{}", stderr(&result));
    }
}

/// Integers have neither infinity nor NaN: only saturation writes what does not fit, and NaN as 0.
#[test]
fn integers_take_what_fits_or_saturate() {
    let dir = tempfile::tempdir().unwrap();
    let input = floats(dir.path(), &[("fine", &[1.9, -3.5]), ("bad", &[1e9, f32::NAN, -7.0])]);
    let output = dir.path().join("out.safetensors");
    for policy in ["error", "inf"] {
        let arguments = ["convert", path(&input), path(&output), "--dtype", "f32:i8", "--on-overflow", policy];
        let result = weightlift(&arguments);
        assert_eq!(result.status.code(), Some(2));
        assert!(stderr(&result).contains("\"bad\" (2 of f32 to i8)"), "{}", stderr(&result));
    }
    let saturate = ["convert", path(&input), path(&output), "--dtype", "f32:i8", "--on-overflow", "saturate"];
    assert_eq!(weightlift(&saturate).status.code(), Some(0));
    let opened = weightlift::open(&output).unwrap();
    assert_eq!((opened.read("fine").unwrap(), opened.read("bad").unwrap()), (vec![1, 253], vec![127, 0, 249]));
}

#[test]
fn steps_act_in_the_order_given() {
    let dir = tempfile::tempdir().unwrap();
    let input = floats(dir.path(), &[("module.a.w", &[1.0]), ("module.module.b", &[2.0]), ("c", &[3.0])]);
    let names = |arguments: &[&str]| {
        let output = dir.path().join("out.safetensors");
        let all = [&["convert", path(&input), path(&output), "--force"], arguments].concat();
        let result = weightlift(&all);
        assert_eq!(result.status.code(), Some(0), "{arguments:?}: {}", stderr(&result));
        stdout(&weightlift(&["ls", path(&output), "--names-only"])).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&["--strip-prefix", "module."]), ["a.w", "b", "c"]);
    assert_eq!(names(&["--add-prefix", "x.", "--include", "x.c"]), ["x.c"]);
    assert_eq!(names(&["--include", "c", "--add-prefix", "x."]), ["x.c"]);
    assert_eq!(names(&["--rename", "^c$=module.c", "--strip-prefix", "module.", "--exclude", "b"]), ["a.w", "c"]);
    assert_eq!(names(&["--include", "c", "--include", "**b"]), ["module.module.b", "c"]);
    let collide = weightlift(&["convert", path(&input), path(&dir.path().join("x.pt")), "--rename", "^.*$=same"]);
    assert_eq!(collide.status.code(), Some(2));
    assert!(stderr(&collide).contains("3 tensors would be called \"same\""), "{}", stderr(&collide));
    for arguments in [
        ["--exclude", "nothing"],
        ["--exclude", "**"],
        ["--rename", "nothing=x"],
        ["--dtype", "q*=f16"],
        ["--dtype", "f64:f16"],
    ] {
        let result = weightlift(&[&["convert", path(&input), path(&dir.path().join("x.pt"))], &arguments[..]].concat());
        assert_eq!(result.status.code(), Some(2), "{arguments:?}");
    }
    assert_eq!(names_in(dir.path()), ["in.safetensors", "out.safetensors"]);
}

#[test]
fn dtype_rules_general_first_exceptions_after() {
    let dir = tempfile::tempdir().unwrap();
    let input = floats(dir.path(), &[("a", &[1.0]), ("b", &[2.0]), ("c", &[3.0])]);
    let output = dir.path().join("out.pt");
    let rules = ["--dtype", "f16", "--dtype", "b=bf16", "--dtype", "c=f32:f64"];
    let result = weightlift(&[&["convert", path(&input), path(&output), "--json"], &rules[..]].concat());
    assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
    let report: Value = serde_json::from_str(&stdout(&result)).unwrap();
    assert_eq!(report["schema"], "weightlift.convert/1");
    let to: Vec<_> = report["casts"].as_array().unwrap().iter().map(|cast| cast["to"].as_str().unwrap()).collect();
    assert_eq!(to, ["f16", "bf16", "f64"]);
    let wrong = weightlift(&["convert", path(&input), path(&output), "--dtype", "f8", "--force"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("f8e4m3fn, f8e5m2, f64"), "{}", stderr(&wrong));
}

#[test]
fn existing_files_are_replaced_only_when_asked_or_when_they_are_the_input() {
    let dir = tempfile::tempdir().unwrap();
    let input = floats(dir.path(), &[("a", &[1.0, 2.0])]);
    let output = dir.path().join("out.pt");
    std::fs::write(&output, "precious").unwrap();
    let refused = weightlift(&["convert", path(&input), path(&output)]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert_eq!(std::fs::read(&output).unwrap(), b"precious");
    assert_eq!(weightlift(&["convert", path(&input), path(&output), "--force"]).status.code(), Some(0));
    let itself = weightlift(&["convert", path(&input), path(&input), "--dtype", "f16"]);
    assert_eq!(itself.status.code(), Some(0), "{}", stderr(&itself));
    assert_eq!(halves(&input, "a"), [0x3c00, 0x4000]);
    let bundle = dir.path().join("m.ckpt");
    assert_eq!(weightlift(&["convert", path(&output), path(&bundle)]).status.code(), Some(0));
    let itself = weightlift(&["convert", path(&bundle), path(&bundle), "--dtype", "f16"]);
    assert_eq!(itself.status.code(), Some(0), "{}", stderr(&itself));
    assert_eq!(halves(&bundle, "a"), [0x3c00, 0x4000]);
    let data = dir.path().join("m.ckpt.data-00000-of-00001");
    let part = weightlift(&["convert", path(&bundle), path(&data), "--to", "pt"]);
    assert_eq!(part.status.code(), Some(2), "a part of the input is not the input: {}", stderr(&part));
    assert_eq!(halves(&bundle, "a"), [0x3c00, 0x4000]);
    assert_eq!(names_in(dir.path()), ["in.safetensors", "m.ckpt.data-00000-of-00001", "m.ckpt.index", "out.pt"]);
}

/// A part of a set is not the set: writing over it would cost the rest, forced or not.
#[test]
fn a_part_of_the_input_is_never_the_output() {
    let dir = tempfile::tempdir().unwrap();
    for name in
        ["safetensors/sharded/model.safetensors.index.json", "torch/hf_sharded_bin/pytorch_model.bin.index.json"]
    {
        let fixture = fixture(name);
        for file in &fixture.files {
            std::fs::copy(file, dir.path().join(file.file_name().unwrap())).unwrap();
        }
        let input = dir.path().join(fixture.path.file_name().unwrap());
        let parts = weightlift::open(&input).unwrap().checkpoint().files().to_vec();
        for part in parts.iter().filter(|part| !path(part).ends_with(".json")) {
            for force in [&[][..], &["--force"]] {
                let result = weightlift(&[&["convert", path(&input), path(part), "--dtype", "f16"], force].concat());
                assert_eq!(result.status.code(), Some(2), "{}: {}", part.display(), stderr(&result));
            }
        }
        let opened = weightlift::open(&input).unwrap();
        for entry in &opened.catalog().entries {
            opened.read(&entry.name).unwrap();
        }
    }
}

#[test]
fn what_would_cost_the_input_tensors_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture("torch/odd_keys.pt");
    let input = dir.path().join("in.pt");
    std::fs::copy(&fixture.path, &input).unwrap();
    let equal = weightlift(&["convert", path(&input), path(&dir.path().join("o.safetensors"))]);
    assert!(stderr(&equal).contains("tensors would be called \"a.b\""), "{}", stderr(&equal));
    let skipped = dir.path().join("skipped.safetensors");
    let result = weightlift(&["convert", path(&input), path(&skipped), "--skip-unsupported"]);
    assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
    assert!(stderr(&result).contains("another tensor would bear the same name"), "{}", stderr(&result));
    assert!(weightlift::open(&skipped).unwrap().catalog().named("a.b").next().is_none());
    let nothing = dir.path().join("only.pt");
    let strings = path_of("tf/strings/model.ckpt");
    let result = weightlift(&["convert", path(&strings), path(&nothing), "--include", "bin"]);
    assert!(result.status.code() == Some(2) && !nothing.exists(), "{}", stderr(&result));
}

fn path_of(name: &str) -> PathBuf {
    fixture(name).path
}

/// Relative paths and linked folders, as a person types them.
#[test]
fn a_set_is_replaced_by_its_relative_name() {
    let dir = tempfile::tempdir().unwrap();
    let input = path_of("tf/bert_tiny/bert_model.ckpt");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weightlift"));
        command.args(arguments).current_dir(dir.path()).output().unwrap()
    };
    for arguments in [
        &["convert", path(&input), "a.ckpt", "--shard-size", "10kB"][..],
        &["convert", "a.ckpt", "a.ckpt"],
        &["convert", path(&input), "a.ckpt", "--shard-size", "5kB", "--force"],
        &["convert", path(&input), "m.safetensors", "--shard-size", "10kB"],
        &["convert", path(&input), "m.safetensors", "--force"],
        &["ls", "m.safetensors"],
    ] {
        let result = run(arguments);
        assert_eq!(result.status.code(), Some(0), "{arguments:?}: {}", stderr(&result));
    }
    assert_eq!(weightlift::open(dir.path().join("a.ckpt")).unwrap().catalog().entries.len(), 63);
    let left: Vec<_> = names_in(dir.path()).into_iter().filter(|name| name.starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn plan_shows_and_writes_nothing() {
    let input = fixture("tf/strings/model.ckpt").path;
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.pt");
    for verb in [&["plan"][..], &["convert", "--dry-run"]] {
        let result = weightlift(&[verb, &[path(&input), path(&output), "--rename", "^after$=before"]].concat());
        assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
        let text = stdout(&result);
        assert!(text.contains("after  before    i32    [3]     12 B"), "{text}");
        assert!(text.contains("left out  5 tensors: a PyTorch checkpoint cannot hold str tensors"), "{text}");
        assert!(text.contains("memory    about"), "{text}");
    }
    let json = stdout(&weightlift(&["plan", path(&input), path(&output), "--json"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "weightlift.plan/1");
    assert_eq!(json["left_out"].as_array().unwrap().len(), 5);
    assert!(names_in(dir.path()).is_empty());
}

#[test]
fn the_extension_or_to_chooses_the_format() {
    let dir = tempfile::tempdir().unwrap();
    let input = floats(dir.path(), &[("a", &[1.0])]);
    let written = |name: &str, to: &[&str]| {
        let output = dir.path().join(name);
        let result = weightlift(&[&["convert", path(&input), path(&output)], to].concat());
        (result.status.code(), weightlift::open(&output).map(|opened| opened.format().id()).ok(), stderr(&result))
    };
    for (name, format) in [("a.pt", "pt"), ("a.pth", "pt"), ("a.bin", "pt"), ("b.safetensors", "safetensors")] {
        assert_eq!(written(name, &[]).1, Some(format), "{name}");
    }
    for name in ["c.ckpt", "d.ckpt-1000", "e"] {
        assert_eq!(written(name, &[]).1, Some("tf"), "{name}");
    }
    assert_eq!(written("f.ckpt2", &["--to", "pt"]).1, Some("pt"));
    let (code, _, message) = written("g.onnx", &[]);
    assert!(code == Some(2) && message.contains("--to"), "{message}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let input = fixture("tf/big_index/model.ckpt").path;
    let mut child = Command::new(env!("CARGO_BIN_EXE_weightlift"))
        .args(["ls", path(&input)])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn nested_files_keep_full_paths_unless_a_key_is_given() {
    let input = fixture("torch/training.pt").path;
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.safetensors");
    let run = |more: &[&str]| weightlift(&[&["convert", path(&input), path(&output), "--force"], more].concat());
    let all = run(&[]);
    assert_eq!(all.status.code(), Some(0), "{}", stderr(&all));
    assert!(stderr(&all).contains("--key model takes it alone"), "{}", stderr(&all));
    assert!(
        stderr(&all).contains("objects beside tensors: ") && stderr(&all).contains("epoch = 3"),
        "{}",
        stderr(&all)
    );
    let listed = |file: &Path| stdout(&weightlift(&["ls", path(file), "--names-only"]));
    assert!(listed(&output).contains("optimizer.state.1.exp_avg"), "{}", listed(&output));
    for key in ["auto", "model"] {
        let one = run(&["--key", key]);
        assert_eq!(one.status.code(), Some(0), "{}", stderr(&one));
        assert!(listed(&output).lines().all(|name| !name.starts_with("model.") && !name.starts_with("optim")));
        assert!(!listed(&output).is_empty());
    }
    let missing = run(&["--key", "nothing"]);
    assert!(missing.status.code() == Some(2) && stderr(&missing).contains("\"model\""), "{}", stderr(&missing));
}

/// What a pickle would call is never called, is carried only where that is harmless, and can be left behind.
#[test]
fn hostile_objects_are_refused_or_left_out() {
    let input = fixture("torch/malicious_eval.pt").path;
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.pt");
    let refused = weightlift(&["convert", path(&input), path(&output)]);
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("eval"), "{}", stderr(&refused));
    let left = weightlift(&["convert", path(&input), path(&output), "--weights-only"]);
    assert!(left.status.code() == Some(0), "{}", stderr(&left));
    assert!(stderr(&left).contains("1 object beside tensors: evil: __builtin__.eval"), "{}", stderr(&left));
    let pickle = std::fs::read(&output).unwrap();
    assert!(!pickle.windows(4).any(|window| window == b"eval"));
}

/// A training checkpoint cast in its own format keeps everything around its tensors.
#[test]
fn a_training_checkpoint_keeps_its_objects() {
    let input = fixture("torch/training.pt").path;
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.pt");
    assert_eq!(weightlift(&["convert", path(&input), path(&output), "--dtype", "f16"]).status.code(), Some(0));
    let (before, after) = (weightlift::open(&input).unwrap(), weightlift::open(&output).unwrap());
    assert_eq!(before.catalog().beside, after.catalog().beside);
    let model = dir.path().join("model.pt");
    let result = weightlift(&["convert", path(&input), path(&model), "--key", "model"]);
    assert!(stderr(&result).contains("objects beside tensors: "), "{}", stderr(&result));
    let model = weightlift::open(&model).unwrap();
    assert_eq!(model.catalog().entries[0].path.0.len(), 1, "a subtree is written flat");
    assert!(model.catalog().beside.is_empty(), "{:?}", model.catalog().beside);
    assert!(!after.catalog().beside.is_empty());
}

#[test]
fn a_set_of_files_is_written_and_read_again() {
    let input = fixture("tf/bert_tiny/bert_model.ckpt").path;
    let dir = tempfile::tempdir().unwrap();
    for (name, opened_as) in [("model.safetensors", "model.safetensors.index.json"), ("model.ckpt", "model.ckpt")] {
        let output = dir.path().join(name);
        let result = weightlift(&["convert", path(&input), path(&output), "--shard-size", "10kB"]);
        assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
        let set = weightlift::open(dir.path().join(opened_as)).unwrap();
        assert_eq!(set.catalog().entries.len(), 63);
        assert!(set.checkpoint().files().len() >= 5, "{:?}", set.checkpoint().files());
        let name = "bert/pooler/dense/kernel";
        assert_eq!(set.read(name).unwrap(), weightlift::open(&input).unwrap().read(name).unwrap());
    }
    for (name, wanted) in [("x.npz", "one file"), ("x.pt", "a name that ends in .bin")] {
        let refused = weightlift(&["convert", path(&input), path(&dir.path().join(name)), "--shard-size", "10kB"]);
        assert!(refused.status.code() == Some(2) && stderr(&refused).contains(wanted), "{}", stderr(&refused));
    }
}

#[test]
fn numpy_archives_are_written_and_read() {
    let input = fixture("tf/foo_dense/model.ckpt").path;
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.npz");
    assert_eq!(weightlift(&["convert", path(&input), path(&output)]).status.code(), Some(0));
    let (a, b) = (weightlift::open(&input).unwrap(), weightlift::open(&output).unwrap());
    assert_eq!(b.format().id(), "npz");
    assert_eq!(a.read("foo").unwrap(), b.read("foo").unwrap());
}
