//! Conversions, judged by the frameworks.

use crate::listing::{MAIN, manifest_bytes};
use crate::peers::{Seen, ask, judge, tensors};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use weightlift::{CastRule, DType, Plan, SaveOptions};
use weightlift_testkit::{Expected, Fixture, fixture, manifest_dtype, sha256_hex};

/// The output path of each format.
const TARGETS: [(&str, &str); 3] = [("tf", "out.ckpt"), ("pt", "out.pt"), ("safetensors", "out.safetensors")];

/// What a target can hold of a fixture: strings stay with TensorFlow.
fn held<'a>(fixture: &'a Fixture, target: &str) -> Vec<&'a Expected> {
    let from_tf = fixture.kind.starts_with("tf");
    fixture.tensors.iter().filter(|t| t.dtype != Some(DType::Str) || (from_tf && target == "tf")).collect()
}

fn sorted(mut tensors: Vec<Seen>) -> Vec<Seen> {
    tensors.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    tensors
}

fn expect_same(seen: &[Seen], expected: &[&Expected], what: &str) {
    let names = |seen: &[Seen]| seen.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(seen), expected.iter().map(|t| t.name.clone()).collect::<Vec<_>>(), "{what}");
    for (seen, expected) in seen.iter().zip(expected) {
        assert_eq!(manifest_dtype(&seen.dtype), expected.dtype, "{what} {}", seen.name);
        assert_eq!(seen.shape, expected.shape, "{what} {}", seen.name);
        assert_eq!(Some(&seen.sha256), expected.sha256.as_ref(), "{what} {}", seen.name);
    }
}

/// Writes every main fixture in every format and hands each output to `look`.
fn for_each_conversion(mut look: impl FnMut(&Fixture, &str, &Path)) {
    for name in MAIN {
        let fixture = fixture(name);
        let opened = weightlift::open(&fixture.path).unwrap();
        for (target, file) in TARGETS {
            let dir = tempfile::tempdir().unwrap();
            let output = dir.path().join(file);
            let report = opened.save(&Plan::new(), &output, &SaveOptions::default()).unwrap();
            let held = held(&fixture, target);
            assert_eq!(report.tensors, held.len(), "{name} to {target}");
            let missing: Vec<_> = fixture.tensors.iter().filter(|t| !held.iter().any(|h| h.name == t.name)).collect();
            let left_out: Vec<_> = report.left_out.iter().map(|t| &t.name).collect();
            assert_eq!(left_out, missing.iter().map(|t| &t.name).collect::<Vec<_>>(), "{name} to {target}");
            look(&fixture, target, &output);
        }
    }
}

#[test]
fn the_main_fixtures_convert_to_every_format_and_back_to_us() {
    for_each_conversion(|fixture, target, output| {
        let opened = weightlift::open(output).unwrap();
        assert_eq!(opened.format().id(), target);
        for expected in held(fixture, target) {
            let bytes = manifest_bytes(&opened, &expected.name);
            assert_eq!(Some(sha256_hex(&bytes)), expected.sha256, "{} to {target}: {}", fixture.name, expected.name);
        }
        if target != "tf" && fixture.kind != "tf-bundle-v2" {
            let names: Vec<_> = opened.catalog().entries.iter().map(|entry| entry.name.clone()).collect();
            let expected: Vec<_> = held(fixture, target).iter().map(|t| t.name.clone()).collect();
            assert_eq!(names, expected, "{} to {target} keeps the order", fixture.name);
        }
    });
}

#[test]
fn the_frameworks_read_what_we_wrote() {
    let Some(judge) = judge("the_frameworks_read_what_we_wrote") else { return };
    for_each_conversion(|fixture, target, output| {
        let what = format!("{} to {target}", fixture.name);
        let expected = held(fixture, target);
        let mut by_name = expected.clone();
        by_name.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        match target {
            "tf" => {
                let seen = tensors(&ask(judge, json!({"ask": "tf_load", "path": output})));
                expect_same(&seen, &by_name, &what);
            }
            "pt" => {
                // What the source could not do, its copy with everything around the tensors need not either.
                let weights_only = fixture.raw["weights_only"].as_str().is_none_or(|answer| answer == "ok");
                for mmap in [false, true] {
                    let request =
                        json!({"ask": "torch_load", "path": output, "weights_only": weights_only, "mmap": mmap});
                    let answer = ask(judge, request);
                    expect_same(&tensors(&answer), &expected, &what);
                }
            }
            _ => {
                let answer = ask(judge, json!({"ask": "safetensors_load", "path": output}));
                expect_same(&sorted(tensors(&answer)), &by_name, &what);
                assert_eq!(answer["loaded"].as_object().unwrap().len(), expected.len(), "{what}");
            }
        }
    });
}

/// The same plan on the same checkpoint gives a TensorFlow index and data of the same bytes as TensorFlow wrote.
#[test]
fn an_unchanged_bundle_is_the_same_bytes() {
    for name in MAIN.iter().filter(|name| name.starts_with("tf/") && !name.contains("sharded")) {
        let fixture = fixture(name);
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("out.ckpt");
        weightlift::open(&fixture.path).unwrap().save(&Plan::new(), &output, &SaveOptions::default()).unwrap();
        let read = |prefix: &Path, suffix: &str| std::fs::read(format!("{}{suffix}", prefix.display())).unwrap();
        for suffix in [".index", ".data-00000-of-00001"] {
            assert_eq!(read(&output, suffix), read(&fixture.path, suffix), "{name}{suffix}");
        }
    }
}

fn save(from: &Path, to: &Path, dtype: DType) -> weightlift::Report {
    let plan = Plan::new().cast(CastRule::floats_to(dtype));
    weightlift::open(from).unwrap().save(&plan, to, &SaveOptions::default()).unwrap()
}

/// A float32 checkpoint of a graph with foo and dense, saved by TensorFlow's own Saver.
fn tmp_ckpt(judge: &std::sync::Mutex<crate::peers::Judge>, dir: &Path) -> (PathBuf, Value) {
    let path = dir.join("tmp.ckpt");
    let variables = json!({"foo": [3, 3], "dense/kernel": [3, 3], "dense/bias": [3]});
    ask(judge, json!({"ask": "tf_save", "path": path, "variables": variables, "seed": 7}));
    (path, variables)
}

/// The case that started it all: a float16 graph restores a float32 checkpoint.
#[test]
fn a_float16_graph_restores_what_was_float32() {
    let Some(judge) = judge("a_float16_graph_restores_what_was_float32") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (source, variables) = tmp_ckpt(judge, dir.path());
    let half = dir.path().join("half.ckpt");
    let request = |path: &Path| json!({"ask": "tf_restore_half", "path": path, "variables": variables});
    let refused = crate::peers::try_ask(judge, &request(&source));
    assert!(refused["error"].as_str().unwrap().contains("dtype"), "TensorFlow refuses the original: {refused}");
    save(&source, &half, DType::F16);
    let restored = sorted(tensors(&ask(judge, request(&half))));
    let cast = tensors(&ask(judge, json!({"ask": "numpy_cast", "path": source, "to": "float16"})));
    assert_eq!(restored, sorted(cast));
    assert_eq!(restored.len(), 3);
}

#[test]
fn pytorch_loads_the_same_halves_in_name_order() {
    let Some(judge) = judge("pytorch_loads_the_same_halves_in_name_order") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (source, _) = tmp_ckpt(judge, dir.path());
    let half = dir.path().join("half.pt");
    save(&source, &half, DType::F16);
    let cast = sorted(tensors(&ask(judge, json!({"ask": "numpy_cast", "path": source, "to": "float16"}))));
    for mmap in [false, true] {
        let answer = ask(judge, json!({"ask": "torch_load", "path": half, "weights_only": true, "mmap": mmap}));
        assert_eq!(answer["type"], "OrderedDict");
        let seen = tensors(&answer);
        assert_eq!(seen.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["dense/bias", "dense/kernel", "foo"]);
        assert!(seen.iter().all(|t| t.dtype == "torch.float16"));
        assert_eq!(
            seen.iter().map(|t| &t.sha256).collect::<Vec<_>>(),
            cast.iter().map(|t| &t.sha256).collect::<Vec<_>>()
        );
    }
}

#[test]
fn casts_equal_numpys_for_finite_values() {
    let Some(judge) = judge("casts_equal_numpys_for_finite_values") else { return };
    for (name, dtype, numpy) in [
        ("tf/bert_tiny/bert_model.ckpt", DType::F16, "float16"),
        ("tf/bert_tiny/bert_model.ckpt", DType::Bf16, "bfloat16"),
        ("tf/bert_tiny/bert_model.ckpt", DType::F64, "float64"),
    ] {
        let fixture = fixture(name);
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("out.ckpt");
        save(&fixture.path, &output, dtype);
        let cast = sorted(tensors(&ask(judge, json!({"ask": "numpy_cast", "path": fixture.path, "to": numpy}))));
        let seen = sorted(tensors(&ask(judge, json!({"ask": "tf_load", "path": output}))));
        let seen: Vec<_> = seen.into_iter().filter(|t| t.dtype == numpy).collect();
        assert_eq!(seen, cast, "{name} to {numpy}");
        assert!(!seen.is_empty());
    }
}

#[test]
fn a_dtype_rule_leaves_integers_booleans_and_strings_alone() {
    for name in ["tf/bert_tiny/bert_model.ckpt", "tf/strings/model.ckpt", "torch/shapes.pt"] {
        let fixture = fixture(name);
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join(format!("out.{}", if name.starts_with("tf") { "ckpt" } else { "pt" }));
        save(&fixture.path, &output, DType::F16);
        let opened = weightlift::open(&output).unwrap();
        let mut untouched = 0;
        for expected in &fixture.tensors {
            let entry = opened.catalog().named(&expected.name).next().unwrap().1;
            if expected.dtype.unwrap().is_float() {
                assert_eq!(entry.dtype, DType::F16);
            } else {
                assert_eq!(Some(entry.dtype), expected.dtype);
                assert_eq!(Some(sha256_hex(&manifest_bytes(&opened, &expected.name))), expected.sha256);
                untouched += 1;
            }
        }
        assert!(untouched > 0, "{name}");
    }
}
