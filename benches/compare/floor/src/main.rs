//! The floor: `floor [--threads N] [--piece BYTES] [--sync] INPUT OUTPUT` casts a file of f32 to a file of f16.
//!
//! A mapped read, one F16C instruction per eight numbers, a positional write: no format, no checksum, no count of what
//! overflowed, no temporary name. Whoever converts a checkpoint does at least this.

use memmap2::Mmap;
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

struct Arguments {
    threads: usize,
    /// Bytes of input that are cast and written at once.
    piece: usize,
    /// Whether the output is on the disk when the program ends.
    sync: bool,
    input: PathBuf,
    output: PathBuf,
}

fn main() -> ExitCode {
    match arguments().and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::from(2)
        }
    }
}

fn arguments() -> Result<Arguments> {
    let (mut threads, mut piece, mut sync) = (1, 256 << 10, false);
    let mut paths = Vec::new();
    let mut rest = std::env::args_os().skip(1);
    while let Some(argument) = rest.next() {
        let mut number = || -> Result<usize> {
            let value = rest.next().ok_or("a number is missing")?;
            Ok(value.to_str().ok_or("not a number")?.parse()?)
        };
        match argument.to_str() {
            Some("--threads") => threads = number()?.max(1),
            Some("--piece") => piece = number()?.next_multiple_of(LANES * 4).max(LANES * 4),
            Some("--sync") => sync = true,
            _ => paths.push(PathBuf::from(argument)),
        }
    }
    let Ok([input, output]) = <[PathBuf; 2]>::try_from(paths) else {
        return Err("usage: floor [--threads N] [--piece BYTES] [--sync] INPUT OUTPUT".into());
    };
    Ok(Arguments { threads, piece, sync, input, output })
}

fn run(arguments: &Arguments) -> Result<()> {
    if !(is_x86_feature_detected!("avx") && is_x86_feature_detected!("f16c")) {
        return Err("this processor has no F16C".into());
    }
    let file = File::open(&arguments.input)?;
    // SAFETY: nobody writes to the benchmark's input while it is read.
    let input = unsafe { Mmap::map(&file)? };
    let output = File::create_new(&arguments.output)?;
    reserve(&output, (input.len() / 4 * 2) as u64)?;
    let next = AtomicUsize::new(0);
    let worker = || work(&input, &output, &next, arguments.piece);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..arguments.threads).map(|_| scope.spawn(worker)).collect();
        let own = worker();
        others
            .into_iter()
            .fold(own, |result, other| result.and(other.join().unwrap_or(Err(io::ErrorKind::Other.into()))))
    })?;
    if arguments.sync {
        output.sync_all()?;
    }
    Ok(())
}

/// Room for the whole output at once, which makes the writes cheaper; just the length where there is no such call.
fn reserve(output: &File, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(output, rustix::fs::FallocateFlags::empty(), 0, len) {
        Ok(()) => Ok(()),
        Err(_) => output.set_len(len),
    }
}

/// Casts and writes pieces until none is left.
fn work(input: &[u8], output: &File, next: &AtomicUsize, piece: usize) -> io::Result<()> {
    let mut halves = vec![0; piece / 2];
    loop {
        let start = next.fetch_add(1, Ordering::Relaxed) * piece;
        let Some(floats) = input.get(start..input.len().min(start + piece)).filter(|floats| floats.len() >= 4) else {
            return Ok(());
        };
        let halves = &mut halves[..floats.len() / 4 * 2];
        // SAFETY: `run` looked for AVX and F16C.
        unsafe { cast(floats, halves) };
        output.write_all_at(halves, (start / 2) as u64)?;
    }
}

const LANES: usize = 8;

/// Casts little-endian f32 to f16, to nearest, ties to even.
///
/// # Safety
/// The processor has AVX and F16C.
#[target_feature(enable = "avx,f16c")]
unsafe fn cast(floats: &[u8], halves: &mut [u8]) {
    use std::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps};
    let (wide, rest) = floats.as_chunks::<{ LANES * 4 }>();
    let (narrow, rest_out) = halves.as_chunks_mut::<{ LANES * 2 }>();
    for (from, to) in wide.iter().zip(narrow) {
        // SAFETY: both point to whole arrays of the vectors' sizes; the instructions ask for no alignment.
        unsafe {
            let eight = _mm256_loadu_ps(from.as_ptr().cast());
            _mm_storeu_si128(to.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(eight));
        }
    }
    if !rest.is_empty() {
        let (mut last, mut cast_last) = ([0; LANES * 4], [0; LANES * 2]);
        last[..rest.len()].copy_from_slice(rest);
        // SAFETY: as the caller promised; one whole vector, so this goes no deeper.
        unsafe { cast(&last, &mut cast_last) };
        rest_out.copy_from_slice(&cast_last[..rest_out.len()]);
    }
}
