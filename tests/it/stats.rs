//! `weightlift stats`: ranges, means, counts, and what a cast would lose.

use crate::casts_report::raw;
use crate::command::{floats, path, stderr, weightlift};
use serde_json::{Value, json};
use std::path::Path;
use weightlift_core::DType;
use weightlift_kernels::cast::{CastPair, Overflow, cast};
use weightlift_testkit::fixture;

fn stats(input: &Path, flags: &[&str]) -> Value {
    let output = weightlift(&[&["stats", path(input), "--json"], flags].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn values_are_summed_up() {
    let dir = tempfile::tempdir().unwrap();
    let input = floats(dir.path(), &[("a", &[1.0, -2.0, 0.0, f32::NAN, f32::INFINITY, 4.0]), ("none", &[f32::NAN])]);
    let found = stats(&input, &[]);
    assert_eq!((&found["schema"], &found["as"]), (&json!("weightlift.stats/1"), &Value::Null));
    let a = &found["tensors"][0];
    assert_eq!((&a["min"], &a["max"], &a["mean"]), (&json!(-2.0), &json!(4.0), &json!(0.75)));
    assert!((a["std"].as_f64().unwrap() - 2.165_063_509).abs() < 1e-9);
    assert_eq!((&a["count"], &a["zeros"], &a["nan"], &a["infinite"]), (&json!(6), &json!(1), &json!(1), &json!(1)));
    assert_eq!((&found["tensors"][1]["min"], &found["tensors"][1]["mean"]), (&Value::Null, &Value::Null));
    let table = weightlift(&["stats", path(&input), "a"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.lines().nth(1).unwrap().starts_with("a     f32     -2    4  0.75  2.16506"), "{table}");
    let unmatched = weightlift(&["stats", path(&input), "nothing"]);
    assert_eq!(unmatched.status.code(), Some(2));
}

/// The same counts and errors before the conversion as in its report.
#[test]
fn a_cast_is_foretold() {
    let dir = tempfile::tempdir().unwrap();
    let values: Vec<f32> = (0..400_000).map(|i| (i as f32 - 200_000.0) * 1.7e-8 * (i % 5) as f32).collect();
    let input = floats(dir.path(), &[("w", &values), ("big", &[1e6, 2.0])]);
    let foretold = stats(&input, &["--as", "f16"]);
    let output = dir.path().join("out.safetensors");
    let flags = ["--dtype", "f16", "--on-overflow", "inf", "--json"];
    let done = weightlift(&[&["convert", path(&input), path(&output)], &flags[..]].concat());
    let done: Value = serde_json::from_slice(&done.stdout).unwrap();
    for at in 0..2 {
        assert_eq!(foretold["tensors"][at]["cast"], done["casts"][at]);
    }
    assert!(done["casts"][0]["to_zero"].as_u64().unwrap() > 0 && done["casts"][1]["overflow"] == json!(1));
    let table = weightlift(&["stats", path(&input), "--as", "f8e4m3fn"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("as f8e4m3fn: 2 tensors") && table.contains("became 0 in 1 tensor: w"), "{table}");
}

/// Sums are made in an order that does not depend on who makes them.
#[test]
fn any_number_of_threads_finds_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = 1u32;
    let values: Vec<f32> = (0..1_500_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.37
        })
        .collect();
    let input = floats(dir.path(), &[("w", &values), ("v", &values[..70_001])]);
    let expected = stats(&input, &["--as", "bf16", "--threads", "1"]);
    for threads in ["2", "3", "8"] {
        assert_eq!(stats(&input, &["--as", "bf16", "--threads", threads]), expected);
    }
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
    assert!((expected["tensors"][0]["mean"].as_f64().unwrap() / mean - 1.0).abs() < 1e-12);
}

/// Views, slices, foreign byte orders, every dtype: the counts are those of the values as they are read one by one, and
/// what has no numbers says why.
#[test]
fn fixtures_are_summed_up() {
    let mut seen = 0;
    for fixture in weightlift_testkit::fixtures().iter().filter(|fixture| fixture.expect == "ok") {
        let Ok(opened) = weightlift::open(&fixture.path) else { continue };
        let ids: Vec<_> = opened.catalog().iter().map(|(id, _)| id).collect();
        let surveys = opened.stats(&ids, Some(DType::F16), &weightlift::Options::default(), &());
        let surveys = surveys.unwrap_or_else(|error| panic!("{}: {error}", fixture.path.display()));
        for survey in surveys {
            let entry = opened.catalog().entry(survey.entry);
            match survey.summary {
                None => assert!(survey.why.is_some(), "{}: {}", fixture.path.display(), entry.name),
                Some(summary) => {
                    let parts = if entry.dtype.class() == weightlift_core::Class::Complex { 2 } else { 1 };
                    assert_eq!(summary.count, parts * entry.shape.elements(), "{}", entry.name);
                    seen += 1;
                    let Some(pair) = CastPair::new(entry.dtype, DType::F16).filter(|_| entry.dtype.is_float()) else {
                        continue;
                    };
                    let Ok(bytes) = opened.read(&entry.name) else { continue };
                    if entry.dtype.element_bytes(weightlift_core::Packing::Dense).is_some() {
                        let mut halves = vec![0; 2 * entry.shape.elements() as usize];
                        let tally = cast(pair, Overflow::Inf, &bytes, &mut halves);
                        assert_eq!(survey.cast.map(|cast| cast.tally), Some(tally), "{}", entry.name);
                    }
                }
            }
        }
    }
    assert!(seen > 500, "{seen}");
}

#[test]
fn packed_and_quantized_values() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.safetensors");
    raw(&file, &[("f4", DType::F4E2m1, &[2, 2], &[0x17, 0xa2]), ("b", DType::Bool, &[3], &[1, 0, 1])]);
    let found = stats(&file, &[]);
    let (f4, b) = (&found["tensors"][0], &found["tensors"][1]);
    assert_eq!((&f4["count"], &f4["max"], &f4["min"]), (&json!(4), &json!(6.0), &json!(-1.0)));
    assert_eq!((&b["mean"], &b["zeros"]), (&json!(2.0 / 3.0), &json!(1)));
}

/// A damaged tensor is an error with its name, unless nobody asks for its checksum.
#[test]
fn damage_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let from = fixture("tf/foo_dense/model.ckpt").path;
    for suffix in ["index", "data-00000-of-00001"] {
        let name = |stem: &Path| stem.with_extension(format!("ckpt.{suffix}"));
        std::fs::copy(name(&from.with_extension("")), name(&dir.path().join("m"))).unwrap();
    }
    let data = dir.path().join("m.ckpt.data-00000-of-00001");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[5] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    let input = dir.path().join("m.ckpt");
    let damaged = weightlift(&["stats", path(&input)]);
    assert_eq!(damaged.status.code(), Some(2));
    assert!(stderr(&damaged).contains("checksum mismatch"), "{}", stderr(&damaged));
    assert_eq!(weightlift(&["stats", path(&input), "--no-verify"]).status.code(), Some(0));
}
