//! How long opening a checkpoint of many tensors takes, beside a bare read of what must be read for it: the directory of
//! the zip and `data.pkl`. Makes its own file: `cargo run --release -p weightlift-torch --example open_speed [-- 10000
//! [FILE]]`; with a FILE, it is left there for others to be measured on, and taken as it is where there is one.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weightlift_archive::{Archive, read_member};
use weightlift_core::{
    BlobId, DType, Error, Format, Key, KeyPath, Layout, Limits, Manifest, OpenOptions, Output, Packing, Part, Region,
    Result, Shape, WriteOptions,
};
use weightlift_io::FileSource;
use weightlift_torch::Torch;

/// How often each is measured; the fastest counts.
const ROUNDS: usize = 40;

/// A state dict as a large model has it, its tensors small: opening does not touch them.
fn make(path: &Path, tensors: usize) -> Result<()> {
    let shape = Shape::new([4, 8])?;
    let mut manifest = Manifest::default();
    for at in 0..tensors {
        let blob = manifest.add_blob(4 * shape.elements(), None);
        let name = format!("model.layers.{}.self_attn.projection_{}.weight", at / 8, at % 8);
        let part = Part { blob, layout: Layout::contiguous(&shape), region: Region::whole(&shape) };
        manifest.tensors.push(Output {
            path: KeyPath(vec![Key::Text(name.clone())]),
            name,
            dtype: DType::F32,
            packing: Packing::Dense,
            shape: shape.clone(),
            parts: vec![part],
            origin: None,
        });
    }
    let mut options = WriteOptions::default();
    options.replace = true;
    let writer = Torch.create(weightlift_io::real(), path, manifest, &options)?;
    for at in 0..tensors {
        writer.write_at(BlobId(at as u32), 0, &(at as u128).to_le_bytes().repeat(8))?;
    }
    writer.finish().map(drop)
}

/// The directory and `data.pkl`, read and checked as they must be; nobody looks into the pickle.
fn bare(path: &Path, limits: &Limits) -> Result<(Archive, Vec<u8>)> {
    let source = FileSource::open(weightlift_io::real().as_ref(), path)?;
    let archive = Archive::read(&source, limits)?;
    let main = archive.members().iter().find(|member| member.name.ends_with("data.pkl"));
    let main = main.ok_or_else(|| Error::malformed("no data.pkl"))?;
    let pickle = read_member(&source, main, limits, limits.header_bytes)?;
    Ok((archive, pickle))
}

/// The fastest of many rounds, without the time that dropping takes.
fn fastest<T>(mut work: impl FnMut() -> Result<T>) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let made = black_box(work()?);
        best = best.min(start.elapsed());
        drop(made);
    }
    Ok(best)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let tensors = arguments.next().and_then(|word| word.parse().ok()).unwrap_or(10_000);
    let kept = arguments.next().map(PathBuf::from);
    let path = kept.clone().unwrap_or_else(|| std::env::temp_dir().join("weightlift_open_speed.pt"));
    if !kept.as_ref().is_some_and(|path| path.exists()) {
        make(&path, tensors)?;
    }
    let options = OpenOptions::default();
    let floor = fastest(|| bare(&path, &options.limits))?;
    let opened = fastest(|| Torch.open(weightlift_io::real(), &path, &options))?;
    let ratio = opened.as_secs_f64() / floor.as_secs_f64();
    println!("{tensors} tensors: bare read {floor:.2?}, opened in {opened:.2?}: {ratio:.2} times the bare read");
    if kept.is_none() {
        let _ = std::fs::remove_file(&path);
    }
    Ok(())
}
