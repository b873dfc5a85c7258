//! `weightlift bench --device gpu`: casts and row copies on a compute device, next to its own copies, to the way there
//! and back, and to the processor.
//!
//! Every rate counts bytes of source, as a conversion does.

mod race;
mod works;

use super::args::BenchArgs;
use super::show::{self, Align};
use race::{Race, race};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;
use weightlift::rates::{Measured, Rates};
use weightlift::{Chosen, DeviceRates};
use weightlift_convert::choose;
use weightlift_gpu::{Adapter, Choice, Gpu, Settings};
use weightlift_kernels::device::{Capacity, Device};
use works::{Work, works};

/// How long each thing runs at a time, at most, and how often.
const WINDOW: Duration = Duration::from_millis(60);
const TURNS: usize = 3;

/// Bytes of source a second.
struct Line {
    name: &'static str,
    /// Bytes of a job's source and result.
    bytes: (u64, u64),
    kernel: f64,
    /// What a copy on the device would reach that moves as many bytes.
    copy: f64,
    race: Race,
}

impl Line {
    fn measured(&self) -> Measured {
        Measured { cpu: self.race.cpu, gpu: self.race.ring, both: self.race.both }
    }

    /// Who is best from memory to memory, as `--device auto` would choose.
    fn best(&self) -> &'static str {
        let Measured { cpu, gpu, both } = self.measured();
        match choose(&DeviceRates { processor: cpu, device: gpu, both }) {
            Chosen::Processor => "cpu",
            Chosen::Device => "gpu",
            Chosen::Both => "both",
        }
    }
}

/// What is measured, and how.
struct Bench {
    number: usize,
    adapter: Adapter,
    gpu: Gpu,
    threads: usize,
    size: u64,
    /// Bytes of the tiles on which kernels are measured alone.
    kernel_bytes: u64,
}

/// Measures, prints, and keeps what was measured for `devices` and `--device auto`.
pub(crate) fn run(args: &BenchArgs, number: Option<usize>, out: &mut dyn Write) -> anyhow::Result<()> {
    let adapter = Adapter::choose(&number.map_or(Choice::Any, Choice::Index))?;
    let settings = Settings::from_env()?;
    let size = args.size.max(1 << 16);
    // Beyond the caches of large devices; adapters in software have those of the processor.
    let tile = if adapter.is_software() { size.min(16 << 20) } else { 2 * size };
    let alone = Settings { tile_bytes: settings.tile_bytes.or(Some(tile)), tiles: Some(1), ..settings.clone() };
    let (gpu, alone) = (Gpu::on(&adapter, settings)?, Gpu::on(&adapter, alone)?);
    let threads = args.threads.map_or_else(|| weightlift::Options::default().threads, usize::from);
    let kernel_bytes = alone.capacity().source;
    let bench = Bench { number: number.unwrap_or(0), adapter, gpu, threads, size, kernel_bytes };
    let lines = works().iter().map(|work| bench.measure(work, &alone)).collect::<weightlift::Result<Vec<_>>>()?;
    let mut rates = Rates::load();
    let identity = bench.adapter.identity();
    lines.iter().for_each(|line| rates.put(&identity, line.name, line.measured()));
    let stored = rates.store();
    if let Err(error) = &stored {
        super::message(&format!("warning: what was measured is not kept: {error}"));
    }
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &bench.to_json(&lines, stored.is_ok()))?;
        return Ok(writeln!(out)?);
    }
    bench.print(&lines, out)
}

impl Bench {
    fn measure(&self, work: &Work, alone: &Gpu) -> weightlift::Result<Line> {
        // Long enough for all bytes at 1 GB/s, and not longer than it takes to be sure.
        let window = WINDOW.min(Duration::from_nanos(self.size)).max(Duration::from_millis(2));
        let job = work.job(&alone.capacity())?;
        let source = work.source(job.source_bytes());
        let (mut kernel, mut copy) = (0f64, 0f64);
        for _ in 0..TURNS {
            copy = copy.max(alone.copy_rate(&job, window)?);
            kernel = kernel.max(alone.kernel_rate(&job, &source, window)?);
        }
        drop(source);
        // A pass over memory has several tiles.
        let most = self.gpu.capacity();
        let part = self.size / 4;
        let job = work.job(&Capacity { source: most.source.min(part), result: most.result.min(part), ..most })?;
        let race = race(&self.gpu, work, &job, self.threads, self.size, window)?;
        Ok(Line { name: work.name, bytes: (job.source_bytes(), job.result_bytes()), kernel, copy, race })
    }

    fn print(&self, lines: &[Line], out: &mut dyn Write) -> anyhow::Result<()> {
        let device = format!("gpu:{}", self.number);
        writeln!(
            out,
            "{device}: {}, {}\n",
            show::plain(&self.adapter.to_string()),
            show::plain(&self.adapter.driver())
        )?;
        let rate = |rate: f64| format!("{}/s", show::bytes(rate as u64));
        let beside = |ours: f64, theirs: f64| format!("{} ({:.2})", rate(ours), ours / theirs);
        let row = |line: &Line| {
            let race = &line.race;
            let (kernel, ring) = (beside(line.kernel, line.copy), beside(race.ring, race.bare));
            [line.name.to_owned(), kernel, ring, rate(race.cpu), rate(race.both), line.best().to_owned()]
        };
        let rows: Vec<_> = lines.iter().map(row).collect();
        let cpu = format!("CPU, {}", show::count(self.threads, "THREAD").to_uppercase());
        let mut align = [Align::Right; 6];
        (align[0], align[5]) = (Align::Left, Align::Left);
        show::table(out, ["", "KERNEL ALONE", "MEMORY TO MEMORY", &cpu, "BOTH", "BEST"], align, &rows)?;
        let (kernel, size) = (show::bytes(self.kernel_bytes), show::bytes(self.size));
        let tiles = show::count(self.gpu.tiles(), "tile");
        let tile = show::bytes(self.gpu.capacity().source);
        writeln!(
            out,
            "\nbytes of source a second; in brackets, of a kernel: times a copy on the device that moves as"
        )?;
        writeln!(out, "many bytes, of memory to memory: times the same way with that copy in the kernel's place")?;
        writeln!(out, "kernels alone: over {kernel}; memory: {size} a thread; on the way: {tiles} of {tile}")?;
        Ok(writeln!(out, "\n{}", self.verdict(lines))?)
    }

    /// Whether the processor is the better choice, in words.
    fn verdict(&self, lines: &[Line]) -> String {
        let (cpu, others): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.best() == "cpu");
        let names = |lines: &[&Line]| lines.iter().map(|line| line.name).collect::<Vec<_>>().join(", ");
        let mut text = match (cpu.is_empty(), others.is_empty()) {
            (_, true) => "the CPU is the better choice here: nothing is faster with the device".to_owned(),
            (true, _) => "the device, alone or beside the CPU, is faster for all of this".to_owned(),
            _ => format!(
                "the CPU is the better choice here for {}\nthe device, alone or beside it, is faster for {}",
                names(&cpu),
                names(&others)
            ),
        };
        if self.adapter.is_software() {
            text.push_str("\nthis adapter is software, which computes on the CPU: --device auto never takes it");
        }
        text
    }

    fn to_json(&self, lines: &[Line], stored: bool) -> Value {
        let line = |line: &Line| {
            let race = &line.race;
            json!({
                "name": line.name,
                "source_bytes": line.bytes.0,
                "result_bytes": line.bytes.1,
                "kernel": {"bytes_per_second": line.kernel, "copy": line.copy},
                "memory": {"bytes_per_second": race.ring, "without_kernel": race.bare},
                "cpu": race.cpu,
                "both": race.both,
                "best": line.best(),
            })
        };
        json!({
            "schema": "weightlift.bench-device/1",
            "device": format!("gpu:{}", self.number),
            "name": self.adapter.name(),
            "backend": self.adapter.backend(),
            "kind": self.adapter.kind(),
            "driver": self.adapter.driver(),
            "identity": self.adapter.identity(),
            "threads": self.threads,
            "tiles": self.gpu.tiles(),
            "tile_bytes": self.gpu.capacity().source,
            "kernel_bytes": self.kernel_bytes,
            "memory_bytes": self.size,
            "lines": lines.iter().map(line).collect::<Vec<_>>(),
            "stored": stored,
        })
    }
}
