//! What is written into a PyTorch file beside the values: views, objects, calls.

use crate::command::{path, stderr, weightlift};
use crate::peers::{ask, judge};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use weightlift::Data;
use weightlift_testkit::fixture;

/// Converts a fixture; answers the output and the closing lines.
fn convert(name: &str, dir: &Path, flags: &[&str]) -> (PathBuf, String) {
    let (input, output) = (fixture(name).path, dir.join("out.pt"));
    let done = weightlift(&[&["convert", path(&input), path(&output), "--force"], flags].concat());
    assert!(done.status.success(), "{name} {flags:?}: {}", stderr(&done));
    (output, stderr(&done))
}

fn refused(name: &str, dir: &Path, flags: &[&str]) -> String {
    let (input, output) = (fixture(name).path, dir.join("refused.pt"));
    let done = weightlift(&[&["convert", path(&input), path(&output)], flags].concat());
    assert_eq!(done.status.code(), Some(2), "{name} {flags:?}");
    assert!(!output.exists());
    stderr(&done)
}

/// Name, first byte of the storage, its length, and the offset in elements of every tensor.
fn places(file: &Path) -> Vec<(String, u64, u64, u64)> {
    let opened = weightlift::open(file).unwrap();
    let place = |entry: &weightlift::Entry| match &entry.data {
        Data::Extents(extents) => {
            let extent = &extents[0];
            (entry.name.clone(), extent.bytes.start(), extent.bytes.len(), extent.layout.offset)
        }
        other => panic!("{}: {other:?}", entry.name),
    };
    opened.catalog().entries.iter().map(place).collect()
}

fn beside(file: &Path) -> Vec<String> {
    weightlift::open(file).unwrap().catalog().beside.clone()
}

fn names(file: &Path) -> Vec<String> {
    weightlift::open(file).unwrap().catalog().entries.iter().map(|entry| entry.name.clone()).collect()
}

fn loaded(judge: &Mutex<crate::peers::Judge>, file: &Path, weights_only: bool) -> Value {
    ask(judge, json!({"ask": "torch_load", "path": file, "weights_only": weights_only}))
}

#[test]
fn views_keep_their_storage_without_what_no_tensor_uses_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (output, lines) = convert("torch/view_of_big.pt", dir.path(), &[]);
    assert!(lines.contains("79900 bytes of storage that no tensor uses are left behind (--keep-storages"), "{lines}");
    let found = places(&output);
    let start = found[0].1;
    let expected = [("head", 0), ("mid", 5), ("tail", 15)];
    let expected = expected.map(|(name, offset)| (name.to_owned(), start, 100, offset));
    assert_eq!(found, expected);
    let (output, lines) = convert("torch/view_of_big.pt", dir.path(), &["--keep-storages"]);
    assert!(!lines.contains("left behind"), "{lines}");
    let offsets: Vec<_> = places(&output).into_iter().map(|(_, _, bytes, offset)| (bytes, offset)).collect();
    assert_eq!(offsets, [(80000, 0), (80000, 5), (80000, 19990)]);
    let (output, _) = convert("torch/view_of_big.pt", dir.path(), &["--dtype", "f16"]);
    let offsets: Vec<_> = places(&output).into_iter().map(|(_, _, bytes, offset)| (bytes, offset)).collect();
    assert_eq!(offsets, [(50, 0), (50, 5), (50, 15)], "all cast alike: still views");
    let (output, lines) = convert("torch/view_of_big.pt", dir.path(), &["--dtype", "mid=f16"]);
    let found = places(&output);
    assert_eq!((found[0].1, found[0].2, found[1].2), (found[2].1, 80, 20), "{found:?}");
    assert!(lines.contains("1 tensors shared storage"), "{lines}");
}

#[test]
fn pytorch_sees_ties_where_it_saw_them() {
    let Some(judge) = judge("pytorch_sees_ties_where_it_saw_them") else { return };
    let dir = tempfile::tempdir().unwrap();
    let names = [
        "tied.pt",
        "tied_legacy.pt",
        "tied_module.pt",
        "views.pt",
        "views_legacy.pt",
        "view_of_big.pt",
        "t100_mixed.pt",
    ];
    for name in names {
        let name = format!("torch/{name}");
        let source = loaded(judge, &fixture(&name).path, true);
        for flags in [&[][..], &["--dtype", "f16"], &["--keep-storages"]] {
            let (output, _) = convert(&name, dir.path(), flags);
            let written = loaded(judge, &output, true);
            let storages = |answer: &Value| -> Vec<Value> {
                answer["tensors"].as_array().unwrap().iter().map(|tensor| tensor["storage"].clone()).collect()
            };
            assert_eq!(storages(&written), storages(&source), "{name} {flags:?}");
        }
    }
}

#[test]
fn calls_are_written_back_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let message = refused("torch/python_objects.pt", dir.path(), &[]);
    assert!(message.contains("call fixture_models.Color, which loading the file would run"), "{message}");
    assert!(message.contains("--keep-calls writes the calls back, --weights-only leaves"), "{message}");
    let (output, _) = convert("torch/python_objects.pt", dir.path(), &["--keep-calls"]);
    let all = beside(&output);
    assert_eq!(all, beside(&fixture("torch/python_objects.pt").path));
    assert!(all.iter().any(|line| line.contains("fixture_models.Color")), "{all:?}");
    let plan = weightlift(&["plan", path(&fixture("torch/python_objects.pt").path), "out.pt"]);
    assert_eq!(plan.status.code(), Some(2), "the plan says it too");
}

#[test]
fn weights_only_leaves_out_what_such_a_loader_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let (output, lines) = convert("torch/training.pt", dir.path(), &["--weights-only"]);
    assert!(lines.contains("left out  1 object beside tensors: args: argparse.Namespace"), "{lines}");
    let kept = beside(&output);
    assert!(kept.iter().any(|line| line == "epoch = 3"), "{kept:?}");
    assert!(!kept.iter().any(|line| line.starts_with("args")), "{kept:?}");
    assert_eq!(names(&output), names(&fixture("torch/training.pt").path));
    let plan = weightlift(&["plan", path(&fixture("torch/training.pt").path), "out.pt", "--weights-only", "--json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(plan["not_carried"], json!(["args: argparse.Namespace"]));
}

#[test]
fn pytorch_loads_every_file_without_running_it_once_weights_only_was_given() {
    let Some(judge) = judge("pytorch_loads_every_file_without_running_it_once_weights_only_was_given") else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for fixture in weightlift_testkit::fixtures() {
        let holds = fixture.tensors.iter().any(|tensor| tensor.sha256.is_some());
        if !["torch-zip", "torch-legacy", "torch-tar"].contains(&fixture.kind.as_str())
            || fixture.expect != "ok"
            || !holds
        {
            continue;
        }
        let (output, lines) = convert(&fixture.name, dir.path(), &["--weights-only"]);
        let loads = fixture.raw["weights_only"].as_str().is_none_or(|answer| answer == "ok");
        refused += u32::from(!loads);
        let answer = loaded(judge, &output, true);
        if fixture.raw.get("objects").is_some() && !loads {
            let count = answer["tensors"].as_array().unwrap().len();
            assert!(count > 0, "{}: {lines}", fixture.name);
        }
    }
    assert!(refused > 20, "only {refused} fixtures are refused as they are");
}

#[test]
fn everything_can_be_put_under_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let (output, _) = convert("torch/state_dict.pt", dir.path(), &["--nest", "model"]);
    let nested: Vec<_> = names(&fixture("torch/state_dict.pt").path).iter().map(|n| format!("model.{n}")).collect();
    assert_eq!(names(&output), nested);
    let (from_tf, _) = convert("tf/foo_dense/model.ckpt", dir.path(), &["--nest", "model", "--rename", "/=."]);
    assert_eq!(names(&from_tf), ["model.dense.bias", "model.dense.kernel", "model.foo"]);
    if let Some(judge) = judge("everything_can_be_put_under_a_key") {
        assert_eq!(loaded(judge, &from_tf, true)["type"], "dict");
    }
    let message = {
        let output = dir.path().join("out.safetensors");
        stderr(&weightlift(&["convert", path(&from_tf), path(&output), "--nest", "model"]))
    };
    assert!(message.contains("--nest: a safetensors") && message.contains("--add-prefix"), "{message}");
}

#[test]
fn the_closing_line_says_what_becomes_of_another_form() {
    let dir = tempfile::tempdir().unwrap();
    let forms = [
        ("torch/state_dict_legacy.pth", Some("as a torch.save zip")),
        ("torch/tar_format.pth", Some("as a torch.save zip")),
        ("torch/torchscript.pt", Some("as a state dict in a torch.save zip")),
        ("torch/exported.pt2", Some("as a state dict in a torch.save zip")),
        ("torch/dcp_single", Some("as a state dict in a torch.save zip")),
        ("torch/state_dict.pt", None),
    ];
    for (name, form) in forms {
        let (_, lines) = convert(name, dir.path(), &[]);
        let said = lines.lines().find(|line| line.contains("comes out"));
        match form {
            Some(form) => assert!(said.is_some_and(|line| line.ends_with(form)), "{name}: {lines}"),
            None => assert_eq!(said, None, "{name}"),
        }
    }
    let plan = weightlift(&["plan", path(&fixture("torch/state_dict_legacy.pth").path), "out.safetensors"]);
    assert!(!String::from_utf8_lossy(&plan.stdout).contains("comes out"), "another format has its own form");
}

#[test]
fn new_and_moved_tensors_stand_in_the_container_that_their_name_leads_to() {
    let dir = tempfile::tempdir().unwrap();
    let array = dir.path().join("new.npy");
    let source = fixture("torch/training.pt").path;
    let cat = weightlift(&["cat", path(&source), "model.scale", "-o", path(&array)]);
    assert!(cat.status.success(), "{}", stderr(&cat));
    let npy = path(&array);
    let flags = [
        "--add".to_owned(),
        format!("model.fresh={npy}"),
        "--add".to_owned(),
        format!("optimizer.state.1.fresh={npy}"),
        "--add".to_owned(),
        format!("outer.fresh={npy}"),
        "--add".to_owned(),
        format!("optimizer.fresh={npy}"),
        "--split".to_owned(),
        "model.second.weight=model.part.{i}:3@0".to_owned(),
        "--rename".to_owned(),
        "^optimizer.state.1.exp_avg$=model.mean".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (output, lines) = convert("torch/training.pt", dir.path(), &flags);
    let line =
        r#"note      "optimizer.state.1.exp_avg" leaves its container "optimizer.state.1": it becomes "model.mean""#;
    assert!(lines.contains(line), "{lines}");
    let opened = weightlift::open(&output).unwrap();
    let keys = |name: &str| opened.catalog().named(name).next().map(|(_, entry)| entry.path.0.len());
    for (name, depth) in [
        ("model.fresh", 2),
        ("optimizer.state.1.fresh", 4),
        ("outer.fresh", 1),
        ("optimizer.fresh", 2),
        ("model.part.1", 2),
        ("model.mean", 2),
    ] {
        assert_eq!(keys(name), Some(depth), "{name} among {:?}", names(&output));
    }
    assert_eq!(beside(&output), beside(&source));
    if let Some(judge) = judge("new_and_moved_tensors_stand_in_the_container_that_their_name_leads_to") {
        let answer = loaded(judge, &output, false);
        let mut seen: Vec<_> = answer["tensors"].as_array().unwrap().iter().map(|t| t["name"].clone()).collect();
        let mut expected: Vec<_> = names(&output).into_iter().map(Value::from).collect();
        seen.sort_by_key(Value::to_string);
        expected.sort_by_key(Value::to_string);
        assert_eq!(seen, expected);
    }
}

/// The oldest form keeps what stands around its tensors, as the others do.
#[test]
fn a_tar_archive_comes_back_with_its_objects() {
    let dir = tempfile::tempdir().unwrap();
    let source = fixture("torch/tar_format.pth").path;
    for flags in [&[][..], &["--dtype", "f16"], &["--weights-only"], &["--rename", "^a$=c"]] {
        let (output, lines) = convert("torch/tar_format.pth", dir.path(), flags);
        assert_eq!(beside(&output), ["epoch = 3"], "{flags:?}");
        assert!(!lines.contains("left out"), "{lines}");
        if let Some(judge) = judge("a_tar_archive_comes_back_with_its_objects") {
            let answer = loaded(judge, &output, true);
            assert_eq!(answer["type"], "OrderedDict");
            assert_eq!(answer["tensors"].as_array().unwrap().len(), names(&source).len());
        }
    }
}

/// Where there is no tree to edit, the paths of the tensors are the tree.
#[test]
fn other_forms_nest_what_is_added_too() {
    let dir = tempfile::tempdir().unwrap();
    let array = dir.path().join("new.npy");
    let source = fixture("torch/dcp_single").path;
    weightlift(&["cat", path(&source), "model.scale", "-o", path(&array)]);
    let add = format!("model.fresh={}", path(&array));
    let (output, _) = convert("torch/dcp_single", dir.path(), &["--add", &add]);
    let opened = weightlift::open(&output).unwrap();
    let (_, fresh) = opened.catalog().named("model.fresh").next().unwrap();
    assert_eq!(fresh.path.0.len(), 2, "{:?}", fresh.path);
}
