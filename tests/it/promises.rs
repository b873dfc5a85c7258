//! Promises that only the whole program can keep: the same bytes from any number of threads, bounded memory, and
//! nothing half-written by a killed run.

use crate::command::{names_in, path, stderr, weightlift};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use weightlift::{CastRule, DType, Format, Plan, SaveOptions, Shape};
use weightlift_core::{BlobId, Manifest, WriteOptions};
use weightlift_testkit::fixture;

/// A float32 bundle of `tensors` tensors of `elements` elements that differ.
fn bundle(dir: &Path, tensors: u32, elements: u64) -> PathBuf {
    let prefix = dir.join("big.ckpt");
    let mut manifest = Manifest::default();
    for index in 0..tensors {
        manifest.add_tensor(&format!("layer_{index:03}/kernel"), DType::F32, Shape::new([elements]).unwrap());
    }
    let writer =
        weightlift_tf::TensorFlow.create(weightlift_io::real(), &prefix, manifest, &WriteOptions::default()).unwrap();
    let values: Vec<u8> = (0..elements).flat_map(|i| ((i % 1000) as f32 * 0.125 - 60.0).to_le_bytes()).collect();
    for index in 0..tensors {
        writer.write_at(BlobId(index), 0, &values).unwrap();
    }
    writer.finish().unwrap();
    prefix
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let inputs =
        [bundle(dir.path(), 5, 300_001), fixture("torch/views.pt").path, fixture("tf/big_index/model.ckpt").path];
    for input in inputs {
        for name in ["out.pt", "out.safetensors", "out.ckpt"] {
            let mut written: Vec<Vec<Vec<u8>>> = Vec::new();
            for threads in [1, 2, 7] {
                let dir = tempfile::tempdir().unwrap();
                let mut save = SaveOptions::default();
                save.options.threads = threads;
                let plan = Plan::new().cast(CastRule::floats_to(DType::Bf16));
                let opened = weightlift::open(&input).unwrap();
                opened.save(&plan, dir.path().join(name), &save).unwrap();
                let files = names_in(dir.path());
                written.push(files.iter().map(|file| std::fs::read(dir.path().join(file)).unwrap()).collect());
            }
            assert!(written[0] == written[1] && written[0] == written[2], "{} to {name}", input.display());
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    // 320 MB: well beyond the bound of 128 MiB.
    let input = bundle(dir.path(), 4, 20_000_000);
    for name in ["out.pt", "out.ckpt"] {
        let output = dir.path().join(name);
        let peak = peak_of(&["convert", path(&input), path(&output), "--dtype", "f16", "--quiet"]);
        println!("{name}: peak of {peak} kB for an input of 320 MB");
        assert!(peak <= 128 << 10, "{name}: peak of {peak} kB");
        std::fs::remove_file(&output).ok();
    }
}

/// Runs the command, which must succeed, and answers the most memory that it had, in kB.
fn peak_of(arguments: &[&str]) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weightlift")).args(arguments).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success(), "{arguments:?}");
    assert!(peak > 1000, "{arguments:?}: {peak} kB");
    peak
}

/// Merges and edits of rows hold tiles, not tensors: three inputs of 160 MB, each one tensor.
#[test]
fn edits_hold_tiles_and_not_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (bundle(dir.path(), 1, 40_000_000), dir.path().join("out.safetensors"));
    let name = weightlift::open(&input).unwrap().catalog().entries[0].name.clone();
    let shape = format!("{name}=40000,1000");
    let copy = format!("{name}[0:20000] -> {name}[20000:40000]");
    let grow = format!("{name}=40100:mean");
    let (input, output) = (path(&input), path(&output));
    let same = [input, input, input];
    for steps in [
        &["--average"][..],
        &["--average", "--reshape", &shape, "--transpose", "**", "--dtype", "f16"],
        &["--average=1,1,-1", "--reshape", &shape, "--copy-rows", &copy, "--resize-rows", &grow],
    ] {
        let peak = peak_of(&[&["convert"][..], &same, &[output, "--quiet", "--force"], steps].concat());
        println!("{steps:?}: peak of {peak} kB");
        assert!(peak <= 128 << 10, "{steps:?}: peak of {peak} kB");
        // The limit of the memory is kept.
        let limit = ["--max-memory", "24MiB", "--threads", "4"];
        let peak = peak_of(&[&["convert"][..], &same, &[output, "--quiet", "--force"], &limit, steps].concat());
        assert!(peak <= 24 << 10, "{steps:?} within 24 MiB: peak of {peak} kB");
    }
}

/// Kills conversions at different moments: the old output stays whole, or between its index and the new one there is
/// none that opens, until the next run finishes what was begun; and the next run tidies up.
#[test]
fn a_killed_run_leaves_the_old_output_whole() {
    let dir = tempfile::tempdir().unwrap();
    let input = bundle(dir.path(), 3, 4_000_000);
    let folder = dir.path().join("out");
    std::fs::create_dir(&folder).unwrap();
    let output = folder.join("model.ckpt");
    let convert = |dtype: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weightlift"));
        command.args(["convert", path(&input), path(&output), "--force", "--quiet", "--dtype", dtype]);
        command.stderr(Stdio::null());
        command
    };
    assert!(convert("f16").status().unwrap().success());
    let (mut killed, mut old) = (0, DType::F16);
    for delay in (0..60).step_by(4) {
        let wanted = if old == DType::F16 { "bf16" } else { "f16" };
        let mut child = convert(wanted).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        let opened = weightlift::open(&output).unwrap_or_else(|error| {
            assert!(format!("{error:#}").contains("the next run that writes there finishes it"), "{error:#}");
            assert_eq!(
                weightlift_io::recover(&*weightlift_io::real(), &folder).unwrap(),
                1,
                "a kill at {delay} ms: {error}"
            );
            weightlift::open(&output).unwrap()
        });
        let dtype = opened.catalog().entries[0].dtype;
        assert!(dtype == old || dtype.name() == wanted);
        for entry in &opened.catalog().entries {
            assert_eq!(entry.dtype, dtype);
            opened.read(&entry.name).unwrap();
        }
        old = dtype;
    }
    assert!(killed > 0, "no run was killed in time");
    let result = weightlift(&["convert", path(&input), path(&output), "--force"]);
    assert!(result.status.success(), "{}", stderr(&result));
    assert_eq!(names_in(&folder), ["model.ckpt.data-00000-of-00001", "model.ckpt.index"], "nothing is left over");
}

#[test]
fn an_input_changes_only_where_it_is_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let input = bundle(dir.path(), 2, 1000);
    let before: Vec<_> =
        names_in(dir.path()).iter().map(|name| std::fs::read(dir.path().join(name)).unwrap()).collect();
    let out = tempfile::tempdir().unwrap();
    let output = out.path().join("x.pt");
    assert!(weightlift(&["convert", path(&input), path(&output), "--dtype", "f16"]).status.success());
    let after: Vec<_> = names_in(dir.path()).iter().map(|name| std::fs::read(dir.path().join(name)).unwrap()).collect();
    assert_eq!(before, after);
}
