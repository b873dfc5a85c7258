//! What a conversion tells of its casts, and what it does with values beyond the new dtype.

use crate::command::{floats, path, stderr, weightlift};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;
use weightlift_core::{BlobId, DType, Format, Manifest, Shape, WriteOptions};

/// A safetensors file of raw tensors.
pub fn raw(file: &Path, tensors: &[(&str, DType, &[u64], &[u8])]) {
    let mut manifest = Manifest::default();
    for (name, dtype, dims, _) in tensors {
        manifest.add_tensor(name, *dtype, Shape::new(dims.to_vec()).unwrap());
    }
    let format = &weightlift_safetensors::Safetensors;
    let writer = format.create(weightlift_io::real(), file, manifest, &WriteOptions::default()).unwrap();
    for (index, (.., bytes)) in tensors.iter().enumerate() {
        writer.write_at(BlobId(index as u32), 0, bytes).unwrap();
    }
    writer.finish().unwrap();
}

fn convert(input: &Path, output: &Path, flags: &[&str]) -> Output {
    weightlift(&[&["convert", path(input), path(output), "--force"], flags].concat())
}

fn json_of(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn read(file: &Path, name: &str) -> Vec<u8> {
    weightlift::open(file).unwrap().read(name).unwrap()
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn largest_errors_and_counts_stand_in_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let input = floats(dir.path(), &[("a", &[1.0, 2049.0, 0.0, 3e-6]), ("b", &[1.0, 2.0]), ("c", &[1e-9, 0.5])]);
    let output = dir.path().join("out.pt");
    let report = json_of(&convert(&input, &output, &["--dtype", "f16", "--json"]));
    let casts = report["casts"].as_array().unwrap();
    assert_eq!(casts[0]["absolute_error"], json!(1.0));
    assert_eq!(casts[0]["subnormal"], json!(1));
    let relative = casts[0]["relative_error"].as_f64().unwrap();
    let expected = (3e-6f32 - 50.0 / (1u32 << 24) as f32).abs() / 3e-6f32;
    assert_eq!(relative, f64::from(expected));
    assert_eq!((&casts[1]["absolute_error"], &casts[1]["relative_error"]), (&json!(0.0), &json!(0.0)));
    assert_eq!((&casts[2]["relative_error"], &casts[2]["to_zero"]), (&json!(1.0), &json!(1)));
    let lines = stderr(&convert(&input, &output, &["--dtype", "f16"]));
    assert!(lines.contains("largest error 1 in a, relative 1 in c"), "{lines}");
}

/// One in a hundred is not more than one in a hundred, and zeros do not count.
#[test]
fn tensors_that_vanish_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let tensor = |tiny: usize, zeros: usize| -> Vec<f32> {
        let tiny = std::iter::repeat_n(1e-9, tiny).chain(std::iter::repeat_n(0.0, zeros));
        tiny.chain(std::iter::repeat(1.0)).take(1000).collect()
    };
    let input = floats(
        dir.path(),
        &[("ten", &tensor(10, 0)), ("eleven", &tensor(11, 0)), ("sparse", &tensor(2, 900)), ("zeros", &[0.0; 50])],
    );
    let output = dir.path().join("out.safetensors");
    let flags = ["--dtype", "f16"];
    let lines = stderr(&convert(&input, &output, &flags));
    let last = lines.trim_end().lines().last().unwrap();
    assert!(last.contains("became 0 in 2 tensors: eleven (1.1%), sparse (2.0%)"), "{lines}");
    let report = json_of(&convert(&input, &output, &[&flags[..], &["--json"]].concat()));
    let vanishes: Vec<bool> =
        report["casts"].as_array().unwrap().iter().map(|c| c["vanishes"] == json!(true)).collect();
    assert_eq!(vanishes, [false, true, true, false]);
}

/// Every value that became infinite, NaN or zero is counted, on any number of threads.
#[test]
fn every_value_lost_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let value = |i: usize| match i % 7 {
        0 => 1e30f32,
        1 => f32::NAN,
        2 => 1e-30,
        3 => f32::INFINITY,
        4 => -1e9,
        5 => 0.0,
        _ => 0.1,
    };
    let values: Vec<f32> = (0..700_000).map(value).collect();
    let input = floats(dir.path(), &[("w", &values)]);
    for to in ["f16", "bf16", "f8e4m3fn", "f8e5m2"] {
        let output = dir.path().join("out.safetensors");
        let mut reports = ["1", "3"].map(|threads| {
            let flags = ["--dtype", to, "--on-overflow", "inf", "--json", "--threads", threads];
            json_of(&convert(&input, &output, &flags))["casts"][0].clone()
        });
        assert_eq!(reports[0], reports[1]);
        let cast = reports[0].take();
        let count = |name: &str| cast[name].as_u64().unwrap();
        // What is not finite or zero in the output was that in the input or is counted.
        let opened = weightlift::open(&output).unwrap();
        let ids: Vec<_> = opened.catalog().iter().map(|(id, _)| id).collect();
        let summary = opened.stats(&ids, None, &weightlift::Options::default(), &()).unwrap()[0].summary.unwrap();
        let infinite = 100_000;
        let lost = if to == "bf16" { 0 } else { 200_000 };
        assert_eq!(count("nan"), 100_000);
        assert_eq!(count("to_zero"), summary.zeros - 100_000);
        assert_eq!(count("overflow"), lost + if to == "f8e4m3fn" { infinite } else { 0 }, "{to}");
        assert_eq!(summary.nan + summary.infinite, infinite + 100_000 + lost, "{to}");
    }
}

#[test]
fn keep_leaves_what_overflows_in_its_dtype() {
    let dir = tempfile::tempdir().unwrap();
    let input = floats(dir.path(), &[("fine", &[1.0, f32::INFINITY]), ("mask", &[1e30, -1e30, 1.0])]);
    let output = dir.path().join("out.pt");
    let flags = ["--dtype", "f16", "--on-overflow", "keep"];
    let plan = weightlift(&[&["plan", path(&input), path(&output)], &flags[..]].concat());
    let text = String::from_utf8(plan.stdout).unwrap();
    assert!(text.contains("measure   2 tensors, 20 B, read twice"), "{text}");
    let result = convert(&input, &output, &flags);
    let lines = stderr(&result);
    assert!(lines.contains("not cast  1 tensor with values out of range: mask (2 of f32 to f16)"), "{lines}");
    assert_eq!(read(&output, "mask"), f32_bytes(&[1e30, -1e30, 1.0]));
    assert_eq!(read(&output, "fine"), [0, 0x3c, 0, 0x7c]);
    let report = json_of(&convert(&input, &output, &[&flags[..], &["--json"]].concat()));
    assert_eq!(report["kept_back"][0]["name"], "mask");
    assert_eq!(report["kept_back"][0]["overflow"], 2);
    assert_eq!(report["casts"].as_array().unwrap().len(), 1);
    assert_eq!(report["kept"], json!([{"dtype": "f32", "tensors": 1}]));
}

/// An infinity that the target lacks is beyond it; a NaN without a code too, unless it may be saturated.
#[test]
fn what_the_target_has_no_code_for_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.safetensors");
    let values = f32_bytes(&[1.0, f32::INFINITY, f32::NAN, -1e9]);
    raw(&file, &[("w", DType::F32, &[4], &values)]);
    let output = dir.path().join("out.safetensors");
    let with = |to: &str, policy: &str| convert(&file, &output, &["--dtype", to, "--on-overflow", policy]);
    let refused = |to: &str, policy: &str, text: &str| {
        let result = with(to, policy);
        assert_eq!(result.status.code(), Some(2), "{to} {policy}");
        assert!(stderr(&result).contains(text), "{to} {policy}: {}", stderr(&result));
    };
    refused("f8e4m3fn", "error", "2 values in 1 tensor");
    refused("f8e5m2", "error", "1 value in 1 tensor");
    refused("f32:i8", "inf", "3 values in 1 tensor");
    assert_eq!(with("f8e4m3fn", "inf").status.code(), Some(0));
    assert_eq!(read(&output, "w"), [0x38, 0x7f, 0x7f, 0xff]);
    assert_eq!(with("f8e4m3fn", "saturate").status.code(), Some(0));
    assert_eq!(read(&output, "w"), [0x38, 0x7e, 0x7f, 0xfe]);
    assert_eq!(with("f8e5m2", "inf").status.code(), Some(0));
    assert_eq!(read(&output, "w"), [0x3c, 0x7c, 0x7e, 0xfc]);
    assert_eq!(with("f32:i8", "saturate").status.code(), Some(0));
    assert_eq!(read(&output, "w"), [1, 127, 0, 0x80]);
    assert_eq!(with("f32:i8", "keep").status.code(), Some(0));
    assert_eq!(read(&output, "w"), values);
}

#[test]
fn like_gives_the_bits_of_a_program_or_says_that_it_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.safetensors");
    let double = f64::from_bits(0x3ff0_1000_0000_1000).to_le_bytes();
    raw(&file, &[("d", DType::F64, &[1], &double), ("s", DType::F32, &[1], &f32_bytes(&[465.0]))]);
    let output = dir.path().join("out.safetensors");
    for (like, expected) in [("exact", 0x3f81u16), ("torch", 0x3f80), ("tf", 0x3f80), ("numpy", 0x3f81)] {
        let result = convert(&file, &output, &["--dtype", "f64:bf16", "--like", like]);
        assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
        assert_eq!(read(&output, "d"), expected.to_le_bytes(), "{like}");
    }
    for (like, expected) in [("exact", 0x7f), ("torch", 0x7e)] {
        let flags = ["--dtype", "f32:f8e4m3fn", "--like", like, "--on-overflow", "inf"];
        assert_eq!(convert(&file, &output, &flags).status.code(), Some(0));
        assert_eq!(read(&output, "s"), [expected], "{like}");
    }
    let none = convert(&file, &output, &["--dtype", "f32:f4e2m1", "--like", "tf", "--to", "npz"]);
    assert_eq!(none.status.code(), Some(2));
}

/// One value out of range among a million stops the run and is named; nothing is left behind.
#[test]
fn one_large_value_among_a_million_stops_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut values = vec![0.5f32; 1_000_000];
    values[777_777] = -70000.0;
    let input = floats(dir.path(), &[("fine", &values[..100]), ("unet.bad", &values)]);
    let output = dir.path().join("out.safetensors");
    let result = convert(&input, &output, &["--dtype", "f16"]);
    assert_eq!(result.status.code(), Some(2));
    assert!(
        stderr(&result).contains("1 value in 1 tensor are out of range: \"unet.bad\" (1 of f32 to f16)"),
        "{}",
        stderr(&result)
    );
    assert_eq!(crate::command::names_in(dir.path()), ["in.safetensors"]);
}

/// Words of every sign: NaNs with payloads only in their low bits, ties, negative zero, largest values.
#[test]
fn words_of_every_sign_become_bf16() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        (0x7f80_0001u32, 0x7fc0u16),
        (0xff80_0001, 0xffc0),
        (0x7fff_ffff, 0x7fff),
        (0xffff_ffff, 0xffff),
        (0x7f7f_7fff, 0x7f7f),
        (0xff7f_7fff, 0xff7f),
        (0x8000_0000, 0x8000),
        (0xbf80_8000, 0xbf80),
        (0xbf81_8000, 0xbf82),
        (0x0000_8000, 0x0000),
        (0x0000_8001, 0x0001),
        (0xffc0_0000, 0xffc0),
    ];
    let values: Vec<f32> = words.iter().map(|(word, _)| f32::from_bits(*word)).collect();
    let input = floats(dir.path(), &[("w", &values)]);
    let output = dir.path().join("out.safetensors");
    assert_eq!(convert(&input, &output, &["--dtype", "bf16"]).status.code(), Some(0));
    let expected: Vec<u8> = words.iter().flat_map(|(_, code)| code.to_le_bytes()).collect();
    assert_eq!(read(&output, "w"), expected);
    let (tie, other) = (f32::from_bits(0x7f7f_8000), tempfile::tempdir().unwrap());
    let input = floats(other.path(), &[("w", &[tie, -tie])]);
    assert_eq!(convert(&input, &output, &["--dtype", "bf16"]).status.code(), Some(2));
    assert_eq!(convert(&input, &output, &["--dtype", "bf16", "--on-overflow", "inf"]).status.code(), Some(0));
    assert_eq!(read(&output, "w"), [0x80, 0x7f, 0x80, 0xff]);
}

/// Every code of bf16 against arithmetic in f64: the nearest f16, and what is lost on the way.
#[test]
fn every_bf16_becomes_the_nearest_f16() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.safetensors");
    let codes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    raw(&file, &[("w", DType::Bf16, &[1 << 16], &codes)]);
    let output = dir.path().join("out.safetensors");
    let flags = ["--dtype", "f16", "--on-overflow", "inf", "--json"];
    let report = json_of(&convert(&file, &output, &flags));
    let halves = read(&output, "w");
    let (mut overflow, mut to_zero) = (0, 0);
    for code in 0..=u16::MAX {
        let value = f64::from(f32::from_bits(u32::from(code) << 16));
        let at = 2 * usize::from(code);
        let half = u16::from_le_bytes([halves[at], halves[at + 1]]);
        if !value.is_finite() {
            assert_eq!(half & 0x7c00, 0x7c00, "{code:#x}");
            continue;
        }
        // Units of the last place of a f16 near the value, rounded by adding and taking off a large number.
        let exponent = ((value.abs().to_bits() >> 52) as i32 - 1023).max(-14);
        let unit = 2f64.powi(exponent - 10);
        let near = (value.abs() / unit).round_ties_even() * unit;
        overflow += u64::from(near > 65504.0);
        to_zero += u64::from(near == 0.0 && value != 0.0);
        let exact = if near > 65504.0 { 0x7c00 } else { (near / unit) as u16 + (((exponent + 14) as u16) << 10) };
        assert_eq!(half & 0x7fff, exact, "{code:#x} = {value}");
        assert_eq!(half >> 15, code >> 15, "{code:#x}");
    }
    assert_eq!(
        (report["casts"][0]["overflow"].as_u64(), report["casts"][0]["to_zero"].as_u64()),
        (Some(overflow), Some(to_zero))
    );
}

/// Masks, indices and integer weights are no floats: a rule for floats leaves them alone, one that names them does not.
#[test]
fn integers_and_booleans_are_cast_only_when_they_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.safetensors");
    let (ids, mask) = ([7u8, 0, 0, 0, 0, 0, 0, 0], [1u8, 0]);
    raw(
        &file,
        &[
            ("w", DType::F32, &[1], &f32_bytes(&[1.5])),
            ("mask", DType::Bool, &[2], &mask),
            ("bytes", DType::U8, &[2], &[200, 3]),
            ("ids", DType::I64, &[1], &ids),
        ],
    );
    let dtypes = |file: &Path| -> Vec<DType> {
        weightlift::open(file).unwrap().catalog().entries.iter().map(|entry| entry.dtype).collect()
    };
    let output = dir.path().join("out.pt");
    assert_eq!(convert(&file, &output, &["--dtype", "f16"]).status.code(), Some(0));
    assert_eq!(dtypes(&output), [DType::F16, DType::Bool, DType::U8, DType::I64]);
    assert_eq!(
        (read(&output, "mask"), read(&output, "bytes"), read(&output, "ids")),
        (vec![1, 0], vec![200, 3], ids.to_vec())
    );
    assert_eq!(convert(&file, &output, &["--dtype", "u8:f16", "--dtype", "mask=bool:f32"]).status.code(), Some(0));
    assert_eq!(dtypes(&output), [DType::F32, DType::F32, DType::F16, DType::I64]);
    assert_eq!(read(&output, "bytes"), [0x40, 0x5a, 0x00, 0x42]);
}

/// A checkpoint with halves and masks keeps its dtypes through every format and back.
#[test]
fn dtypes_survive_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.safetensors");
    let tensors: &[(&str, DType, &[u64], &[u8])] = &[
        ("h.attn.masked_bias", DType::F16, &[], &[0x00, 0xf0]),
        ("h.attn.bias", DType::Bool, &[2], &[1, 0]),
        ("w", DType::Bf16, &[1], &[0x80, 0x3f]),
        ("bytes", DType::U8, &[1], &[9]),
        ("ids", DType::I64, &[1], &[7, 0, 0, 0, 0, 0, 0, 0]),
    ];
    raw(&file, tensors);
    for there in ["there.pt", "there.safetensors", "there.ckpt"] {
        let (there, back) = (dir.path().join(there), dir.path().join("back.safetensors"));
        for (from, to) in [(&file, &there), (&there, &back)] {
            assert_eq!(convert(from, to, &[]).status.code(), Some(0), "{}", there.display());
        }
        let names = |file: &Path| -> Vec<(String, DType)> {
            let opened = weightlift::open(file).unwrap();
            let mut all: Vec<_> = opened.catalog().entries.iter().map(|e| (e.name.clone(), e.dtype)).collect();
            all.sort();
            all
        };
        assert_eq!(names(&there), names(&file), "{}", there.display());
        assert_eq!(names(&back), names(&file), "{}", there.display());
    }
}
