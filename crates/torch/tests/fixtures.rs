//! Every fixture: files that PyTorch wrote, and what PyTorch reads from them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests say what they expect"
)]

use std::path::Path;
use weightlift_core::{Checkpoint, DType, EntryId, Format, Kind, OpenOptions, Result};
use weightlift_testkit::{Expected, Fixture, fixtures, sha256_hex};
use weightlift_torch::Torch;

/// Opens what the format recognises behind a path.
fn open(path: &Path) -> Result<Box<dyn Checkpoint>> {
    let files = weightlift_io::real();
    let head = std::fs::read(path).ok().map(|bytes| bytes[..bytes.len().min(4096)].to_vec());
    let found = Torch.recognise(files.as_ref(), path, head.as_deref())?;
    let path = found.map_or_else(|| path.to_path_buf(), |found| found.path);
    Torch.open(files, &path, &OpenOptions::default())
}

/// Whether a row is a tensor with values of its own.
fn is_plain(expected: &Expected) -> bool {
    expected.sha256.is_some() && expected.raw.get("layout").is_none()
}

/// Name, dtype and shape as we list them: two values of `float4_e2m1fn_x2` are two elements.
fn row(expected: &Expected) -> (String, Option<DType>, Vec<u64>) {
    let mut shape = expected.shape.clone();
    if let (Some(DType::F4E2m1), Some(last)) = (expected.dtype, shape.last_mut()) {
        *last *= 2;
    }
    (expected.name.clone(), expected.dtype, shape)
}

fn check_plain(fixture: &Fixture) {
    let checkpoint = open(&fixture.path).unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
    let catalog = checkpoint.catalog();
    let parts = |id: EntryId| catalog.entry(id).remarks.iter().any(|remark| remark.starts_with("part of a"));
    // The reader that made this row of the manifest drops a buffer of integers.
    let dropped = |id: EntryId| fixture.name == "torch/t150_torchscript.pt" && catalog.entry(id).name == "count";
    let listed: Vec<EntryId> = catalog.iter().map(|(id, _)| id).filter(|&id| !parts(id) && !dropped(id)).collect();
    let rows = |id: &EntryId| {
        let entry = catalog.entry(*id);
        (entry.name.clone(), Some(entry.dtype), entry.shape.dims().to_vec())
    };
    let expected: Vec<&Expected> = fixture.tensors.iter().filter(|t| t.raw.get("layout").is_none()).collect();
    let wanted: Vec<_> = expected.iter().map(|e| row(e)).collect();
    assert_eq!(listed.iter().map(rows).collect::<Vec<_>>(), wanted, "{}", fixture.name);
    for (&id, expected) in listed.iter().zip(&expected).filter(|(_, expected)| is_plain(expected)) {
        let bytes = weightlift_io::read_entry(weightlift_io::real().as_ref(), checkpoint.as_ref(), id)
            .unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
        assert_eq!(Some(sha256_hex(&bytes)), expected.sha256, "{} {}", fixture.name, expected.name);
    }
}

#[test]
fn sound_zip_files_list_what_pytorch_reads() {
    let mut checked = 0;
    for fixture in fixtures().iter().filter(|f| f.kind == "torch-zip" && f.expect == "ok") {
        check_plain(fixture);
        checked += 1;
    }
    assert!(checked > 70, "only {checked} fixtures");
}

#[test]
fn sound_files_of_the_other_kinds_list_what_pytorch_reads() {
    let kinds = ["torch-legacy", "torch-tar", "torchscript", "torch-export", "torch-dcp", "torch-sharded"];
    for kind in kinds {
        let all = fixtures();
        let checked = all.iter().filter(|f| f.kind == kind && f.expect.starts_with("ok")).map(check_plain).count();
        assert!(checked > 0, "no fixture of {kind}");
        println!("{checked} of {kind}");
    }
}

#[test]
fn broken_files_are_refused_with_a_place() {
    for fixture in fixtures() {
        let ours = fixture.name.starts_with("torch/") && fixture.expect == "error";
        if !ours {
            continue;
        }
        let error = open(&fixture.path).err().unwrap_or_else(|| panic!("{} was opened", fixture.name));
        println!("{error}");
        assert!(matches!(error.kind(), Kind::Malformed | Kind::Limit | Kind::Unsupported), "{error}");
        assert!(error.place().file.is_some(), "{error}");
    }
}
