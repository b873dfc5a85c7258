//! `weightlift devices`, and what is measured of them.

use crate::command::{path, stderr};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use weightlift::rates::Measured;

/// Runs the command with a cache of its own.
fn weightlift(cache: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightlift"));
    command.args(arguments).env("WEIGHTLIFT_CACHE", cache).output().unwrap()
}

fn json_of(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Whether there is an adapter. Where there is none a test says so, and fails where `WEIGHTLIFT_GPU_TESTS=require`.
pub fn adapter(what: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let found = json_of(&weightlift(dir.path(), &["devices", "--json"]));
    let there = found["adapters"].as_array().is_some_and(|adapters| !adapters.is_empty());
    if !there {
        let required = std::env::var("WEIGHTLIFT_GPU_TESTS").is_ok_and(|value| value == "require");
        assert!(!required, "{what}: there is no adapter");
        eprintln!("not tested: {what}: there is no adapter");
    }
    there
}

fn store(cache: &Path, adapters: &Value) {
    let text = json!({"schema": "weightlift.rates/1", "adapters": adapters}).to_string();
    std::fs::write(cache.join("rates.json"), text).unwrap();
}

/// The processor comes first and is always there; the exit code is 0 whatever else is.
#[test]
fn the_processor_is_listed_first() {
    let dir = tempfile::tempdir().unwrap();
    let text = text_of(&weightlift(dir.path(), &["devices"]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("DEVICE  NAME"), "{text}");
    assert!(lines[1].starts_with("cpu") && lines[1].contains("thread") && lines[1].contains("kernels: "), "{text}");
    let found = json_of(&weightlift(dir.path(), &["devices", "--json"]));
    assert_eq!(found["schema"], "weightlift.devices/1");
    assert_eq!(found["built_in"], cfg!(feature = "gpu"));
    assert!(found["cpu"]["threads"].as_u64().unwrap() > 0 && found["cpu"]["kernels"].is_string());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a list writes nothing");
}

/// A loader that finds no driver is what a machine without one looks like.
#[cfg(target_os = "linux")]
#[test]
fn that_there_is_no_adapter_is_said_and_no_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightlift"));
    let nowhere = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].map(|name| (name, "/nonexistent/icd.json"));
    let output = command.arg("devices").envs(nowhere).output().unwrap();
    let text = text_of(&output);
    let expected = if cfg!(feature = "gpu") { "no compute device: no " } else { "built without compute devices" };
    assert!(text.contains(expected), "{text}");
    assert_eq!(stderr(&output), "", "the loader's chatter stays away");
}

#[test]
fn adapters_are_listed_with_limits_and_what_was_measured() {
    if !adapter("the list of adapters") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let found = json_of(&weightlift(dir.path(), &["devices", "--json"]));
    let first = &found["adapters"][0];
    assert_eq!((&first["device"], &first["rates"]), (&json!("gpu:0"), &json!([])));
    for limit in ["max_buffer", "max_binding", "max_groups"] {
        assert!(first[limit].as_u64().unwrap() > 0, "{limit}");
    }
    let [name, driver, identity] = ["name", "driver", "identity"].map(|field| first[field].as_str().unwrap());
    assert!(identity.contains(name) && identity.ends_with(driver), "{identity}");
    let text = text_of(&weightlift(dir.path(), &["devices"]));
    let line = text.lines().find(|line| line.starts_with("gpu:0  ")).unwrap();
    for field in ["name", "backend", "kind", "driver"] {
        assert!(line.contains(first[field].as_str().unwrap()), "{field}: {text}");
    }
    assert!(text.contains("gpu:0: not measured; weightlift bench --device gpu:0 does that"), "{text}");

    // Rates of this adapter are shown; those of another driver are not its rates.
    let pairs = json!({"f32 -> f16": Measured { cpu: 4e9, gpu: 12.5e9, both: 14e9 }});
    store(dir.path(), &json!([{"adapter": format!("{identity}.1"), "pairs": pairs}]));
    assert_eq!(json_of(&weightlift(dir.path(), &["devices", "--json"]))["adapters"][0]["rates"], json!([]));
    store(dir.path(), &json!([{"adapter": identity, "pairs": pairs}]));
    let rates = &json_of(&weightlift(dir.path(), &["devices", "--json"]))["adapters"][0]["rates"];
    assert_eq!(rates, &json!([{"name": "f32 -> f16", "gpu": 12.5e9, "cpu": 4e9, "both": 14e9}]));
    let text = text_of(&weightlift(dir.path(), &["devices"]));
    assert!(text.contains("f32 -> f16  12.5 GB/s  4.00 GB/s  14.0 GB/s"), "{text}");
    assert!(!text.contains("gpu:0: not measured"), "{text}");
    std::fs::write(dir.path().join("rates.json"), "no cache").unwrap();
    assert!(text_of(&weightlift(dir.path(), &["devices"])).contains("gpu:0: not measured"), "{}", path(dir.path()));
}

/// What is measured is printed in three forms, and kept.
#[test]
fn bench_measures_a_device_and_keeps_what_it_found() {
    if !adapter("bench --device") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let found = json_of(&weightlift(dir.path(), &["bench", "--device", "gpu", "--size", "64KiB", "--json"]));
    assert_eq!(found["schema"], "weightlift.bench-device/1");
    assert_eq!((&found["device"], &found["stored"]), (&json!("gpu:0"), &json!(true)));
    let lines = found["lines"].as_array().unwrap();
    let names: Vec<&str> = lines.iter().map(|line| line["name"].as_str().unwrap()).collect();
    for name in ["f32 -> f16", "f32 -> bf16", "f16 -> f32", "f64 -> f32", "rows", "transpose", "byteswap"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    for line in lines {
        let (kernel, memory) = (&line["kernel"], &line["memory"]);
        for rate in [&kernel["bytes_per_second"], &kernel["copy"], &memory["bytes_per_second"], &line["cpu"]]
            .into_iter()
            .chain([&memory["without_kernel"], &line["both"]])
        {
            assert!(rate.as_f64().unwrap() > 1000.0, "{line}");
        }
        let [gpu, cpu, both] = [&memory["bytes_per_second"], &line["cpu"], &line["both"]].map(|r| r.as_f64().unwrap());
        assert!(both <= gpu + cpu, "{line}");
        let best = if gpu.max(both) <= cpu * 1.05 { "cpu" } else { "gpu or both" };
        assert!(best.contains(line["best"].as_str().unwrap()), "{line}");
        let (source, result) = (line["source_bytes"].as_u64().unwrap(), line["result_bytes"].as_u64().unwrap());
        let expected = match line["name"].as_str().unwrap() {
            "f32 -> f16" => (2, 1),
            "f16 -> f32" => (1, 2),
            "f64 -> f16" => (4, 1),
            "transpose" | "rows" | "byteswap" => (1, 1),
            _ => continue,
        };
        assert_eq!((source * expected.1, source > 0), (result * expected.0, true), "{line}");
    }
    let listed = json_of(&weightlift(dir.path(), &["devices", "--json"]));
    let kept = listed["adapters"][0]["rates"].as_array().unwrap();
    assert_eq!(kept.len(), lines.len());
    for line in lines {
        let rate = kept.iter().find(|rate| rate["name"] == line["name"]).unwrap();
        let expected = [&line["memory"]["bytes_per_second"], &line["cpu"], &line["both"]];
        assert_eq!([&rate["gpu"], &rate["cpu"], &rate["both"]], expected);
    }
}

#[test]
fn bench_says_in_words_who_is_the_better_choice() {
    if !adapter("bench --device") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // A cache that cannot be written costs the cache alone.
    std::fs::write(dir.path().join("file"), "").unwrap();
    let arguments = ["bench", "--device", "gpu:0", "--size", "64KiB", "--threads", "1"];
    let output = weightlift(&dir.path().join("file"), &arguments);
    let text = text_of(&output);
    assert!(stderr(&output).contains("warning: what was measured is not kept: "), "{}", stderr(&output));
    assert!(text.contains("KERNEL ALONE") && text.contains("CPU, 1 THREAD ") && text.contains("transpose"), "{text}");
    assert!(
        text.contains("the CPU is the better choice here") || text.contains("the device, alone or beside"),
        "{text}"
    );
}

/// The limits that make every path split, for the whole program.
#[test]
fn bench_runs_with_lowered_limits() {
    if !adapter("bench --device with lowered limits") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightlift"));
    command.args(["bench", "--device", "gpu", "--size", "1MiB", "--json"]).env("WEIGHTLIFT_CACHE", dir.path());
    command.env("WEIGHTLIFT_GPU_MAX_BINDING", "65536").env("WEIGHTLIFT_GPU_MAX_GROUPS", "4");
    let found = json_of(&command.output().unwrap());
    assert_eq!((&found["tile_bytes"], &found["kernel_bytes"]), (&json!(65536), &json!(65536)));
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_lists_what_is() {
    let dir = tempfile::tempdir().unwrap();
    for wrong in ["gpu:", "gpu:x", "cuda", "gpu:-1"] {
        let output = weightlift(dir.path(), &["bench", "--device", wrong]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("expected gpu or gpu:N"), "{}", stderr(&output));
    }
    let output = weightlift(dir.path(), &["bench", "--device", "gpu:99"]);
    assert_eq!(output.status.code(), Some(2));
    if !cfg!(feature = "gpu") {
        assert!(stderr(&output).contains("built without compute devices"), "{}", stderr(&output));
        return;
    }
    assert!(stderr(&output).contains("no compute device with number 99: "), "{}", stderr(&output));
    if adapter("what was found") {
        assert!(
            stderr(&output).contains("99: found: ") && stderr(&output).contains("(Vulkan, "),
            "{}",
            stderr(&output)
        );
    }
}

/// A device that fails while it is measured is an error like any other; nothing hangs.
#[test]
fn a_device_that_fails_ends_the_measurement() {
    if !adapter("a device that fails") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for fault in ["submit:3", "lose:2", "map:2"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weightlift"));
        command.args(["bench", "--device", "gpu", "--size", "64KiB"]).env("WEIGHTLIFT_CACHE", dir.path());
        let output = command.env("WEIGHTLIFT_GPU_FAULT", fault).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{fault}: {}", stderr(&output));
        assert!(stderr(&output).starts_with("weightlift: "), "{fault}: {}", stderr(&output));
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "half of a measurement is not kept");
}
