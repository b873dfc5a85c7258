#!/usr/bin/env bash
# Builds a small program against each codec crate alone, outside the workspace, runs it on a fixture, and checks that
# neither wgpu nor clap stands in its tree.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CARGO_TARGET_DIR=$root/target/alone

# crate  format type  fixture  number of its tensors
codecs="tf TensorFlow tf/foo_dense/model.ckpt 3
torch Torch torch/state_dict.pt 7
safetensors Safetensors safetensors/plain.safetensors 4
npy Npy numpy/f32_c.npy 1"

while read -r crate format fixture count; do
    mkdir -p "$work/$crate/src"
    cat > "$work/$crate/Cargo.toml" <<TOML
[package]
name = "alone-$crate"
version = "0.0.0"
edition = "2024"
[dependencies]
weightlift-core = { path = "$root/crates/core" }
weightlift-io = { path = "$root/crates/io" }
weightlift-$crate = { path = "$root/crates/$crate" }
[workspace]
TOML
    cat > "$work/$crate/src/main.rs" <<RUST
use weightlift_core::{EntryId, Format, OpenOptions};

fn main() -> weightlift_core::Result<()> {
    let files = weightlift_io::real();
    let path = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let checkpoint = weightlift_$crate::$format.open(files.clone(), &path, &OpenOptions::default())?;
    for (index, entry) in checkpoint.catalog().entries.iter().enumerate() {
        let values = weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), EntryId(index as u32))?;
        println!("{} {} {} {}", entry.name, entry.dtype, entry.shape, values.len());
    }
    Ok(())
}
RUST
    cp "$root/Cargo.lock" "$work/$crate/Cargo.lock"
    tree=$(cargo tree --quiet --manifest-path "$work/$crate/Cargo.toml" --prefix none)
    if grep -E '^(wgpu|clap|naga|weightlift-convert) ' <<< "$tree"; then
        echo "the tree of weightlift-$crate has what it must not have" >&2
        exit 1
    fi
    lines=$(cargo run --quiet --manifest-path "$work/$crate/Cargo.toml" -- "$root/tests/data/fixtures/$fixture" | wc -l)
    echo "weightlift-$crate alone: $(sort -u <<< "$tree" | wc -l) crates, lists $lines tensors of $fixture"
    [ "$lines" = "$count" ]
done <<< "$codecs"
