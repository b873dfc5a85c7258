//! Lists the tensors of a PyTorch checkpoint: `cargo run --example list -- model.pt`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;
use weightlift_core::{Format, OpenOptions, Result};
use weightlift_torch::Torch;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "model.pt".into());
    let checkpoint = Torch.open(weightlift_io::real(), Path::new(&path), &OpenOptions::default())?;
    for entry in &checkpoint.catalog().entries {
        println!("{:40} {:8} {} {}", entry.name, entry.dtype, entry.shape, entry.remarks.join(", "));
    }
    checkpoint.catalog().beside.iter().for_each(|line| println!("{line}"));
    Ok(())
}
