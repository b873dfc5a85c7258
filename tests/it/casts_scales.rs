//! Weights of 8 bits that are worth something only times the scales beside them.

use crate::casts_report::raw;
use crate::command::{path, stderr, weightlift};
use std::path::{Path, PathBuf};
use std::process::Output;
use weightlift_core::DType::{self, *};

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn f32s(file: &Path, name: &str) -> Vec<f32> {
    let bytes = weightlift::open(file).unwrap().read(name).unwrap();
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn names(file: &Path) -> Vec<String> {
    weightlift::open(file).unwrap().catalog().entries.iter().map(|entry| entry.name.clone()).collect()
}

/// A folder with a weight of 4 rows and 6 columns, all of them 2, and a scale.
fn with_scale(name: &str, dtype: DType, dims: &[u64], scale: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.safetensors");
    raw(&file, &[("p.weight", F8E4m3fn, &[4, 6], &[0x40; 24]), (name, dtype, dims, scale), ("x", F32, &[1], &[0; 4])]);
    (dir, file)
}

fn convert(input: &Path, flags: &[&str]) -> (Output, PathBuf) {
    let output = input.with_file_name("out.safetensors");
    let result = weightlift(&[&["convert", path(input), path(&output), "--force"], flags].concat());
    (result, output)
}

#[test]
fn a_scale_that_is_not_applied_is_told() {
    let (_dir, file) = with_scale("p.weight_scale", F32, &[], &f32_bytes(&[0.5]));
    let (result, output) = convert(&file, &["--dtype", "f32"]);
    let lines = stderr(&result);
    assert_eq!(result.status.code(), Some(0), "{lines}");
    assert!(lines.contains("p.weight") && lines.contains("--apply-scales"), "{lines}");
    assert_eq!((f32s(&output, "p.weight"), names(&output).len()), (vec![2.0; 24], 3));
    let plan = weightlift(&["plan", path(&file), path(&output), "--dtype", "f32"]);
    assert!(String::from_utf8(plan.stdout).unwrap().contains("--apply-scales"));
    // What stays in 8 bits keeps its meaning, and nothing is said.
    let (result, _) = convert(&file, &[]);
    assert!(!stderr(&result).contains("scale"), "{}", stderr(&result));
}

#[test]
fn one_number_one_a_row_one_a_block() {
    let columns = |scale: &[f32]| scale.iter().flat_map(|&s| [2.0 * s; 6]).collect::<Vec<_>>();
    let rows = [0.5f32, 1.0, 3.0, 0.0];
    let blocks = |scale: &[f32], columns: usize| -> Vec<f32> {
        (0..24).map(|at| 2.0 * scale[at / 6 / 2 * columns + at % 6 / 4]).collect()
    };
    let six = [1.0f32, 2.0, 3.0, 4.0];
    for (name, dims, scale, expected) in [
        ("p.weight_scale", &[][..], &[0.5f32][..], vec![1.0; 24]),
        ("p.scale_weight", &[1], &[0.25], vec![0.5; 24]),
        ("p.weight_scale", &[4, 1], &rows, columns(&rows)),
        ("p.weight_scale", &[4], &rows, columns(&rows)),
        ("p.weight_scale_inv", &[2, 2], &six, blocks(&six, 2)),
        ("p.scale", &[2, 1], &rows[..2], blocks(&[0.5, 0.5, 1.0, 1.0], 2)),
    ] {
        let (_dir, file) = with_scale(name, F32, dims, &f32_bytes(scale));
        let (result, output) = convert(&file, &["--dtype", "f32", "--apply-scales"]);
        assert_eq!(result.status.code(), Some(0), "{name} {dims:?}: {}", stderr(&result));
        assert_eq!(f32s(&output, "p.weight"), expected, "{name} {dims:?}");
        assert_eq!(names(&output), ["p.weight", "x"], "the scale is applied and gone");
    }
}

/// The product is made in f32 and rounded once more to the dtype that was asked for; any thread makes any tile.
#[test]
fn large_blocks_match_plain_arithmetic() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.safetensors");
    let (rows, columns) = (700usize, 1000usize);
    let codes: Vec<u8> = (0..rows * columns).map(|i| (i * 37 % 251) as u8 & 0x7e | (i as u8) << 7).collect();
    let scale: Vec<f32> = (0..6 * 8).map(|i| 0.001 + i as f32 * 0.37).collect();
    raw(&file, &[("w", F8E4m3fn, &[700, 1000], &codes), ("w_scale_inv", F32, &[6, 8], &f32_bytes(&scale))]);
    let (result, output) = convert(&file, &["--dtype", "f32", "--apply-scales", "--threads", "3"]);
    assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
    let value = |code: u8| {
        let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7));
        let size = if exponent == 0 { fraction / 512.0 } else { (1.0 + fraction / 8.0) * 2f32.powi(exponent - 7) };
        if code >> 7 == 1 { -size } else { size }
    };
    let got = f32s(&output, "w");
    for (at, &code) in codes.iter().enumerate() {
        let expected = value(code) * scale[at / columns / 128 * 8 + at % columns / 128];
        assert_eq!(got[at].to_bits(), expected.to_bits(), "{at}: {code:#x}");
    }
    let (result, output) = convert(&file, &["--dtype", "bf16", "--apply-scales"]);
    assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
    let bytes = weightlift::open(&output).unwrap().read("w").unwrap();
    for (at, half) in bytes.as_chunks::<2>().0.iter().enumerate().step_by(7) {
        let bits = got[at].to_bits();
        let near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        assert_eq!(u32::from(u16::from_le_bytes(*half)), near, "{at}");
    }
    // The same from a recipe, and from the one that a plan writes down.
    let (recipe, stated) = (dir.path().join("recipe.toml"), dir.path().join("stated.toml"));
    std::fs::write(&recipe, "[[step]]\napply-scales = true\n[[step]]\ndtype = 'bf16'\n").unwrap();
    let flags = ["plan", path(&file), path(&output), "--recipe", path(&recipe), "-o", path(&stated)];
    assert!(weightlift(&flags).status.success());
    for recipe in [&recipe, &stated] {
        let (result, output) = convert(&file, &["--recipe", path(recipe)]);
        assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
        let same = weightlift::open(&output).unwrap().read("w").unwrap();
        assert!(same == bytes, "{}", recipe.display());
    }
    std::fs::write(&recipe, "[[step]]\napply-scales = true\n").unwrap();
    let (result, _) = convert(&file, &["--recipe", path(&recipe)]);
    let message = stderr(&result);
    assert!(message.contains("recipe.toml: line 2") && message.contains("finds no 8-bit tensor"), "{message}");
    std::fs::write(&recipe, "[[step]]\napply-scales = 'w'\n").unwrap();
    assert!(stderr(&convert(&file, &["--recipe", path(&recipe)]).0).contains("apply-scales is true or false"));
}

/// A scale without an 8-bit weight, integers with a scale, and scales in other dtypes.
#[test]
fn orphans_and_integers_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.safetensors");
    let half = f32_bytes(&[0.5]);
    raw(
        &file,
        &[
            ("a.weight", F8E5m2, &[2], &[0x40, 0x3c]),
            ("a.weight_scale", Bf16, &[1], &[0x00, 0x3f]),
            ("b.weight", Bf16, &[1], &[0, 0x40]),
            ("b.weight_scale", F32, &[1], &half),
            ("c.weight", I8, &[2], &[3, 4]),
            ("c.weight_scale", F32, &[1], &half),
            ("d.weight_scale", F32, &[1], &half),
            ("e.weight", F8E4m3fn, &[1], &[0x40]),
        ],
    );
    let flags = ["--dtype", "f8e5m2:f32", "--dtype", "f8e4m3fn:f32", "--dtype", "i8:f32", "--apply-scales"];
    let (result, output) = convert(&file, &flags);
    assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
    let expected =
        ["a.weight", "b.weight", "b.weight_scale", "c.weight", "c.weight_scale", "d.weight_scale", "e.weight"];
    assert_eq!(names(&output), expected);
    assert_eq!((f32s(&output, "a.weight"), f32s(&output, "e.weight")), (vec![1.0, 0.5], vec![2.0]));
    assert_eq!(f32s(&output, "c.weight"), [3.0, 4.0]);
}

#[test]
fn scales_that_do_not_fit_and_rules_that_match_nothing_are_errors() {
    let (_dir, file) = with_scale("p.weight_scale", F32, &[5], &f32_bytes(&[1.0; 5]));
    let (result, _) = convert(&file, &["--dtype", "f32", "--apply-scales"]);
    assert_eq!(result.status.code(), Some(2));
    assert!(stderr(&result).contains("p.weight_scale of shape [5] is no scale for [4, 6]"), "{}", stderr(&result));
    let (result, _) = convert(&file, &["--dtype", "p.weight=f8e4m3fn:f8e5m2", "--apply-scales"]);
    assert_eq!(result.status.code(), Some(2));
    assert!(stderr(&result).contains("--apply-scales"), "{}", stderr(&result));
}

/// A rule that takes the scale along only renames it; applied, it goes whatever its name is by then.
#[test]
fn renames_and_excludes_do_not_part_a_weight_from_its_scale() {
    let (_dir, file) = with_scale("p.weight_scale", F32, &[], &f32_bytes(&[0.5]));
    for step in [&["--rename", r"^p\.=q."][..], &["--exclude", "p.weight_scale"]] {
        let (result, output) = convert(&file, &[&["--dtype", "f32", "--apply-scales"], step].concat());
        assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
        let names = names(&output);
        assert_eq!((names.len(), f32s(&output, &names[0])), (2, vec![1.0; 24]));
    }
}
