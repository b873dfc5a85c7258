//! Conversions on a compute device: the same bytes as on the processor, whatever the device does.

use crate::command::{names_in, path};
use crate::devices::adapter;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;
use weightlift::{Accelerator, CastRule, Chosen, DType, DeviceChoice, Pattern, Plan, SaveOptions, Shape, When};
use weightlift_core::{BlobId, Format, Manifest, WriteOptions};
use weightlift_kernels::device::{Capacity, Device, Done, Job, Kernel, Processor, Tile};
use weightlift_testkit::fixture;

/// Runs the command with variables of the environment.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightlift"));
    command.args(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn safetensors(file: &Path, tensors: &[(&str, DType, &[u64])], value: impl Fn(u64) -> u64) {
    let mut manifest = Manifest::default();
    for (name, dtype, dims) in tensors {
        manifest.add_tensor(name, *dtype, Shape::new(*dims).unwrap());
    }
    let sizes: Vec<u64> = manifest.blobs.iter().map(|blob| blob.bytes).collect();
    let files = weightlift_io::real();
    let writer = weightlift_safetensors::Safetensors.create(files, file, manifest, &WriteOptions::default()).unwrap();
    let mut state = 1;
    for (blob, bytes) in sizes.into_iter().enumerate() {
        let mut data: Vec<u8> = Vec::with_capacity(bytes as usize + 8);
        while (data.len() as u64) < bytes {
            state = value(state);
            data.extend((state >> 16).to_le_bytes());
        }
        data.truncate(bytes as usize);
        writer.write_at(BlobId(blob as u32), 0, &data).unwrap();
    }
    writer.finish().unwrap();
}

/// Random codes; NaNs, infinities and subnormals among them.
fn random(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// Many dtypes, small and large, odd counts, and a matrix.
fn mixed(dir: &Path) -> std::path::PathBuf {
    let file = dir.join("mixed.safetensors");
    let mut tensors: Vec<(String, DType, Vec<u64>)> = Vec::new();
    for at in 0..40u64 {
        let dtype = [DType::F32, DType::F16, DType::Bf16, DType::F64, DType::F8E4m3fn, DType::I32][at as usize % 6];
        tensors.push((format!("small.{at}"), dtype, vec![at % 7 + 1, 3]));
    }
    tensors.push(("large.f32".into(), DType::F32, vec![1001, 333]));
    tensors.push(("large.f16".into(), DType::F16, vec![777, 501]));
    tensors.push(("large.f64".into(), DType::F64, vec![100_003]));
    tensors.push(("large.f8".into(), DType::F8E5m2, vec![200_001]));
    tensors.push(("scalar".into(), DType::F32, vec![]));
    tensors.push(("empty".into(), DType::F32, vec![0, 5]));
    let borrowed: Vec<(&str, DType, &[u64])> =
        tensors.iter().map(|(name, dtype, dims)| (name.as_str(), *dtype, dims.as_slice())).collect();
    safetensors(&file, &borrowed, random);
    file
}

/// What the command wrote, file by file, and its report without names, times and devices.
fn converted(
    input: &Path,
    name: &str,
    more: &[&str],
    variables: &[(&str, &str)],
) -> (BTreeMap<String, Vec<u8>>, Value) {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join(name);
    let mut arguments = vec!["convert", path(input), path(&output), "--json"];
    arguments.extend(more);
    if !more.contains(&"--on-overflow") {
        arguments.extend(["--on-overflow", "inf"]);
    }
    let done = run(&arguments, variables);
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    let mut report: Value = serde_json::from_slice(&done.stdout).unwrap();
    for key in ["files", "seconds"] {
        report.as_object_mut().unwrap().remove(key);
    }
    let files = names_in(dir.path());
    (files.into_iter().map(|file| (file.clone(), std::fs::read(dir.path().join(file)).unwrap())).collect(), report)
}

fn same(input: &Path, name: &str, more: &[&str], variables: &[(&str, &str)]) -> Value {
    let on = |device: &'static str, variables: &[(&str, &str)]| {
        let more: Vec<&str> = more.iter().copied().chain(["--device", device]).collect();
        converted(input, name, &more, variables)
    };
    let ((expected, mut cpu), (found, mut gpu)) = (on("cpu", &[]), on("gpu", variables));
    assert!(expected == found, "{} to {name} {more:?} {variables:?}", input.display());
    assert!(cpu.as_object_mut().unwrap().remove("device").unwrap().is_null());
    let device = gpu.as_object_mut().unwrap().remove("device").unwrap();
    assert_eq!(cpu, gpu, "{} to {name} {more:?} {variables:?}", input.display());
    device
}

const LOWERED: &[(&str, &str)] = &[("WEIGHTLIFT_GPU_MAX_BINDING", "65536"), ("WEIGHTLIFT_GPU_MAX_GROUPS", "4")];
const APART: &[(&str, &str)] = &[("WEIGHTLIFT_GPU_SHARED_MEMORY", "0")];

#[test]
fn a_device_writes_what_the_processor_writes() {
    if !adapter("a conversion on a device") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let input = mixed(dir.path());
    for variables in [&[][..], LOWERED, APART] {
        for dtype in ["f16", "bf16", "f32", "f64", "f8e4m3fn"] {
            let device = same(&input, "out.safetensors", &["--dtype", dtype], variables);
            assert!(device["bytes_gpu"].as_u64().unwrap() > 1_000_000, "{device}");
            assert_eq!(device["bytes_cpu"], 0, "{device}");
            assert!(device["failure"].is_null());
        }
        // The device picks rows and transposes.
        let steps = ["--transpose", "large.f32", "--copy-rows", "large.f16[500:600] -> large.f16[0:100]"];
        let device = same(&input, "out.pt", &steps, variables);
        assert!(device["bytes_gpu"].as_u64().unwrap() > 1_000_000, "{device}");
        same(&input, "out.pt", &[&steps[..], &["--dtype", "f32"]].concat(), variables);
        same(&input, "out.ckpt", &[&steps[..], &["--dtype", "bf16", "--on-overflow", "saturate"]].concat(), variables);
    }
    // Big-endian data, tied weights, strided views.
    let others = ["tf/big_endian/model.ckpt", "torch/views.pt", "numpy/f32_be.npy", "tf/big_index/model.ckpt"];
    for input in others.map(|name| fixture(name).path) {
        for name in ["out.safetensors", "out.pt"] {
            same(&input, name, &["--dtype", "f16"], &[]);
            same(&input, name, &["--dtype", "f64"], LOWERED);
            same(&input, name, &[], &[]);
        }
    }
}

/// Each submission, each map, the loss and the silence of the device at every job of a small run.
#[test]
fn whatever_fails_the_run_finishes_whole() {
    if !adapter("a conversion on a device") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let input = mixed(dir.path());
    let (expected, _) = converted(&input, "out.pt", &["--dtype", "f16", "--device", "cpu"], &[]);
    let tile = ("WEIGHTLIFT_GPU_TILE_BYTES", "1000000");
    let mut finished = 0;
    for kind in ["submit", "map", "lose", "hang", "panic"] {
        // Beyond the last job nothing fails; that ends the row.
        for k in 1.. {
            let fault = format!("{kind}:{k}");
            let variables = [tile, ("WEIGHTLIFT_GPU_FAULT", fault.as_str())];
            let (found, report) =
                converted(&input, "out.pt", &["--dtype", "f16", "--device", "gpu", "--threads", "2"], &variables);
            assert!(found == expected, "{fault}");
            if report["device"]["failure"].is_null() {
                assert!(k > 3, "{fault} did not come to pass");
                break;
            }
            finished += 1;
            assert!(report["device"]["bytes_cpu"].as_u64().unwrap() > 0, "{fault}: {report}");
        }
    }
    assert!(finished >= 15, "{finished} failures");
    let output = dir.path().join("said.pt");
    let fault = [("WEIGHTLIFT_GPU_FAULT", "submit:1")];
    let done = run(
        &["convert", path(&input), path(&output), "--on-overflow", "inf", "--dtype", "f16", "--device", "gpu"],
        &fault,
    );
    assert!(done.status.success());
    let said = String::from_utf8(done.stderr).unwrap() + &String::from_utf8(done.stdout).unwrap();
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("warning")).collect();
    assert_eq!(warnings.len(), 1, "{said}");
    assert!(warnings[0].contains("the processor did the rest: a submission was refused"), "{said}");
    assert!(!said.contains("XDG_RUNTIME_DIR"), "drivers talk: {said}");
}

/// Values that must not be lost are found on the device too, and nothing is written.
#[test]
fn overflow_on_a_device_is_an_error_too() {
    if !adapter("a conversion on a device") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (mixed(dir.path()), dir.path().join("out.pt"));
    let said = ["cpu", "gpu"].map(|device| {
        let done = run(&["convert", path(&input), path(&output), "--dtype", "f16", "--device", device], &[]);
        assert!(!done.status.success() && !output.exists());
        String::from_utf8(done.stderr).unwrap()
    });
    assert!(said[0].contains("out of range") && said[0] == said[1], "{said:?}");
}

/// 2,000 small tensors share dispatches, and a large one that is mostly holes goes through in the same memory.
#[cfg(target_os = "linux")]
#[test]
fn memory_on_a_device_does_not_grow() {
    if !adapter("a conversion on a device") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small.safetensors");
    let names: Vec<String> = (0..2000).map(|at| format!("t{at}")).collect();
    let tensors: Vec<(&str, DType, &[u64])> =
        names.iter().map(|name| (name.as_str(), DType::F32, &[7, 5][..])).collect();
    safetensors(&small, &tensors, random);
    let device = same(&small, "out.safetensors", &["--dtype", "bf16"], &[]);
    assert_eq!(device["bytes_gpu"], 2000 * 140);

    // Whole in a nightly run: WEIGHTLIFT_LONG=1 takes 5 GiB.
    let elements: u64 = if std::env::var_os("WEIGHTLIFT_LONG").is_some() { (5 << 28) + 3 } else { (1 << 26) + 3 };
    let large = dir.path().join("large.safetensors");
    let header =
        format!("{{\"x\":{{\"dtype\":\"F32\",\"shape\":[{elements}],\"data_offsets\":[0,{}]}}}}", elements * 4);
    let header = format!("{header}{}", " ".repeat(header.len().next_multiple_of(8) - header.len()));
    let start = 8 + header.len() as u64;
    // Markers at the ends of tiles, bindings and of 32-bit counts.
    let mut markers: Vec<u64> = vec![0, elements - 1, elements / 2];
    for power in [14u64, 20, 22, 24, 28, 29, 30] {
        markers.extend([(1 << power) - 1, 1 << power, (1 << power) + 1]);
    }
    markers.retain(|at| *at < elements);
    {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(&large).unwrap();
        file.write_all_at(&(header.len() as u64).to_le_bytes(), 0).unwrap();
        file.write_all_at(header.as_bytes(), 8).unwrap();
        file.set_len(start + elements * 4).unwrap();
        for (value, at) in markers.iter().enumerate() {
            file.write_all_at(&(value as f32 + 1.0).to_le_bytes(), start + at * 4).unwrap();
        }
    }
    let output = dir.path().join("large-out.safetensors");
    let (small, large) = (peak(&small, &dir.path().join("s.safetensors")), peak(&large, &output));
    assert!(large < small + (64 << 10), "{small} kB for 2,000 small tensors, {large} kB for a large one");
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(&output).unwrap();
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 0).unwrap();
    let start = 8 + u64::from_le_bytes(word);
    let at = |element: u64| {
        let mut two = [0; 2];
        file.read_exact_at(&mut two, start + element * 2).unwrap();
        f32::from_bits(u32::from(u16::from_le_bytes(two)) << 16)
    };
    for element in &markers {
        // One that is named twice has its last value.
        let value = markers.iter().rposition(|other| other == element).unwrap() as f32 + 1.0;
        assert_eq!(at(*element), value, "element {element}");
        for near in [element.saturating_sub(2), element + 2] {
            if !markers.contains(&near) && near < elements {
                assert_eq!(at(near), 0.0, "element {near}");
            }
        }
    }
}

/// VmHWM in kB of a conversion to bf16 on the device.
#[cfg(target_os = "linux")]
fn peak(input: &Path, output: &Path) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weightlift"))
        .args(["convert", path(input), path(output), "--dtype", "bf16", "--device", "gpu", "--quiet"])
        .spawn()
        .unwrap();
    let mut most = 0;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmHWM"));
        most = most.max(line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            return most;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Nothing asks for a driver where little is to be done, and software is never taken unasked.
#[test]
fn auto_opens_nothing_for_little_work_and_no_software() {
    let dir = tempfile::tempdir().unwrap();
    let input = mixed(dir.path());
    let (_, report) = converted(&input, "out.pt", &["--dtype", "f16"], &[]);
    assert!(report["device"].is_null(), "{report}");
    let planned = |device: &str| -> Value {
        let done = run(&["plan", path(&input), "o.pt", "--dtype", "f16", "--json", "--device", device], &[]);
        serde_json::from_slice(&done.stdout).unwrap()
    };
    // A plan says what a device would take, and asks none.
    assert_eq!(["cpu", "auto"].map(|device| planned(device)["device_memory"].as_u64()), [Some(0); 2]);
    let most = planned("gpu")["device_memory"].as_u64().unwrap();
    assert!((200_000_000..400_000_000).contains(&most), "{most}");
    // Not even where rates say that a device wins: software is no device to be chosen.
    let cache = dir.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    let mut rates = String::from(r#"{"schema":"weightlift.rates/1","adapters":[{"adapter":"any","pairs":{"#);
    let pairs = ["f32", "f64", "bf16", "f8e4m3fn", "f8e5m2"]
        .map(|from| format!(r#""{from} -> f16":{{"cpu":1.0,"gpu":1e12,"both":1e12}}"#));
    rates += &pairs.join(",");
    rates += "}}]}";
    std::fs::write(cache.join("rates.json"), rates).unwrap();
    let variables = [("WEIGHTLIFT_CACHE", path(&cache))];
    let (_, report) = converted(&input, "out.pt", &["--dtype", "f16"], &variables);
    let hardware = weightlift::gpu::adapters().iter().any(|adapter| !adapter.name().contains("llvmpipe"));
    assert_eq!(report["device"].is_null(), !hardware, "{report}");
    // A loader that cannot be read would be an error of `gpu`, and is none of anybody who needs no device.
    for arguments in [&["ls", path(&input)][..], &["cat", path(&input), "scalar"], &["plan", path(&input), "o.pt"]] {
        assert!(run(arguments, &[("WEIGHTLIFT_GPU_FAULT", "nonsense")]).status.success(), "{arguments:?}");
    }
    let asked = run(
        &["convert", path(&input), path(&dir.path().join("o.pt")), "--device", "gpu"],
        &[("WEIGHTLIFT_GPU_FAULT", "nonsense")],
    );
    assert!(!asked.status.success());
    assert!(String::from_utf8_lossy(&asked.stderr).contains("expected submit:K"), "{asked:?}");
}

/// The processor as a device that takes its time.
struct Slow {
    processor: Processor,
    job: Duration,
    /// What making a kernel ready takes.
    preparing: Duration,
    staging: u64,
}
struct SlowTile<'a>(Box<dyn Tile + 'a>, Duration);

impl Device for Slow {
    fn name(&self) -> String {
        "slow".to_owned()
    }
    fn has(&self, kernel: &Kernel) -> bool {
        self.processor.has(kernel)
    }
    fn capacity(&self) -> Capacity {
        Capacity { source: 1 << 20, result: 1 << 20, segments: 1000, rows: 1 << 16 }
    }
    fn tiles(&self) -> usize {
        2
    }
    fn prepare(&self, _: &Kernel) -> weightlift::Result<()> {
        std::thread::sleep(self.preparing);
        Ok(())
    }
    fn staging_bytes(&self) -> u64 {
        self.staging
    }
    fn lease(&self) -> weightlift::Result<Box<dyn Tile + '_>> {
        Ok(Box::new(SlowTile(self.processor.lease()?, self.job)))
    }
}

impl Tile for SlowTile<'_> {
    fn fill(&mut self, offset: u64, bytes: &[u8]) -> weightlift::Result<()> {
        self.0.fill(offset, bytes)
    }
    fn submit(&mut self, job: &Job) -> weightlift::Result<()> {
        std::thread::sleep(self.1);
        self.0.submit(job)
    }
    fn wait(&mut self) -> weightlift::Result<Done<'_>> {
        self.0.wait()
    }
}

/// The first tiles go to the processor, to the device, and to both; the fastest carries on, and the bytes are the same.
#[test]
fn the_faster_side_carries_on() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.safetensors");
    safetensors(&input, &[("a", DType::F32, &[3_000_001]), ("b", DType::F32, &[2_000_003])], |state| {
        random(state) & 0x3fff_ffff_3fff_ffff
    });
    let plan = Plan::new().cast(CastRule::floats_to(DType::F16));
    let opened = weightlift::open(&input).unwrap();
    let save = |accelerator: Option<Accelerator>, name: &str| {
        let mut save = SaveOptions::default();
        (save.options.accelerator, save.options.threads) = (accelerator, 2);
        save.options.on_overflow = weightlift::OnOverflow::Inf;
        let output = dir.path().join(name);
        let report = opened.save(&plan, &output, &save).unwrap();
        (std::fs::read(output).unwrap(), report)
    };
    let (expected, _) = save(None, "cpu.safetensors");
    // What making ready takes is no part of the processor's rate, beside which it happens.
    let slow =
        |preparing| Slow { processor: Processor::default(), job: Duration::from_millis(100), preparing, staging: 0 };
    let slow: Arc<dyn Device> = Arc::new(slow(Duration::from_secs(2)));
    let (found, report) =
        save(Some(Accelerator { device: slow.clone(), when: When::Faster(None) }), "slow.safetensors");
    let device = report.device.unwrap();
    assert!(found == expected);
    assert_eq!(device.chosen, Some(Chosen::Processor), "{device:?}");
    assert!(device.by_processor > device.by_device && device.by_device > 0, "{device:?}");
    let rates = device.rates.unwrap();
    assert!(rates.processor > rates.device, "{rates:?}");
    // Rates that are known spare the trial.
    let known = weightlift::DeviceRates { processor: 1.0, device: 1.0, both: 2.0 };
    let when = When::Faster(Some(known));
    let (found, report) = save(Some(Accelerator { device: slow, when }), "both.safetensors");
    let device = report.device.unwrap();
    assert!(found == expected);
    assert_eq!((device.chosen, device.rates), (Some(Chosen::Both), None));
}

/// A device that would be nice to have is left where its memory is more than is allowed; one that was asked for is not.
#[test]
fn memory_that_is_not_allowed_costs_the_device_and_not_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let input = mixed(dir.path());
    let device: Arc<dyn Device> = Arc::new(Slow {
        processor: Processor::default(),
        job: Duration::ZERO,
        preparing: Duration::ZERO,
        staging: 1 << 30,
    });
    let plan = Plan::new().cast(CastRule::floats_to(DType::F32));
    let save = |when, most: u64| {
        let mut save = SaveOptions { max_memory: Some(most), ..SaveOptions::default() };
        save.options.accelerator = Some(Accelerator { device: device.clone(), when });
        save.options.replace = true;
        save.options.on_overflow = weightlift::OnOverflow::Inf;
        weightlift::open(&input).unwrap().save(&plan, dir.path().join("out.safetensors"), &save)
    };
    assert!(save(When::Faster(None), 2 << 30).unwrap().device.is_some());
    assert!(save(When::Faster(None), 1 << 30).unwrap().device.is_none());
    assert!(save(When::Always, 1 << 30).unwrap_err().to_string().contains("bytes of memory"));
}

/// A tensor of more axes than a shader takes is the processor's.
#[test]
fn many_axes_are_no_error_on_a_device() {
    if !adapter("a conversion on a device") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("axes.safetensors");
    safetensors(&input, &[("nine", DType::F32, &[2, 2, 2, 2, 2, 2, 2, 2, 6]), ("two", DType::F32, &[30, 50])], random);
    let steps = ["--transpose", "nine:8,7,6,5,4,3,2,1,0", "--transpose", "two"];
    let device = same(&input, "out.safetensors", &steps, &[]);
    assert_eq!(device["bytes_gpu"], 30 * 50 * 4, "{device}");
    same(&input, "out.safetensors", &[&steps[..], &["--dtype", "f64"]].concat(), LOWERED);
}

/// A device that panics ends the run with that panic; nobody waits for it.
#[test]
fn a_device_that_panics_hangs_nothing() {
    struct Panics(Processor);
    impl Device for Panics {
        fn name(&self) -> String {
            "panics".to_owned()
        }
        fn has(&self, kernel: &Kernel) -> bool {
            self.0.has(kernel)
        }
        fn capacity(&self) -> Capacity {
            Capacity { source: 1 << 16, result: 1 << 16, segments: 10, rows: 10 }
        }
        fn tiles(&self) -> usize {
            2
        }
        fn lease(&self) -> weightlift::Result<Box<dyn Tile + '_>> {
            std::panic::resume_unwind(Box::new("on purpose"))
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let input = mixed(dir.path());
    for when in [When::Always, When::Faster(None)] {
        let (input, output) = (input.clone(), dir.path().join("out.safetensors"));
        let (tell, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut save = SaveOptions::default();
            save.options.accelerator = Some(Accelerator { device: Arc::new(Panics(Processor::default())), when });
            let plan = Plan::new().cast(CastRule::floats_to(DType::F16));
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                weightlift::open(&input).unwrap().save(&plan, &output, &save).is_ok()
            }));
            tell.send(done.is_err())
        });
        assert!(heard.recv_timeout(Duration::from_secs(60)).unwrap(), "{when:?}");
    }
}

/// A device is opened once and serves conversions at the same time.
#[test]
fn a_device_can_be_handed_in_and_shared() {
    if !adapter("a conversion on a device") {
        return;
    }
    use weightlift::gpu::{Choice, Gpu, Settings};
    let dir = tempfile::tempdir().unwrap();
    let input = mixed(dir.path());
    let gpu: Arc<dyn Device> = Arc::new(Gpu::open(&Choice::Any, Settings::default()).unwrap());
    let plan = Plan::new().include([Pattern::new("large.*").unwrap()]).cast(CastRule::floats_to(DType::F32));
    let convert = |name: String, device: DeviceChoice| {
        let mut save = SaveOptions { device, ..SaveOptions::default() };
        save.options.on_overflow = weightlift::OnOverflow::Inf;
        let output = dir.path().join(name);
        let report = weightlift::open(&input).unwrap().save(&plan, &output, &save).unwrap();
        (std::fs::read(output).unwrap(), report)
    };
    let (expected, _) = convert("cpu.safetensors".into(), DeviceChoice::Processor);
    std::thread::scope(|scope| {
        for at in 0..4 {
            let (gpu, convert, expected) = (gpu.clone(), &convert, &expected);
            scope.spawn(move || {
                let (found, report) = convert(format!("gpu{at}.safetensors"), DeviceChoice::Given(gpu));
                assert!(found == *expected);
                assert!(report.device.unwrap().by_device > 0);
            });
        }
    });
}
