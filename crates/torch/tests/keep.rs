//! Whole object trees written back: what stays, what moves, what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests say what they expect"
)]

mod craft;

use craft::{checkpoint, dict, pickle, tensor};
use std::collections::HashMap;
use std::path::Path;
use weightlift_core::{
    BlobId, Catalog, Checkpoint, DType, Data, Entry, EntryId, Format, Kind, Manifest, OpenOptions, Origin, Output,
    Packing, Part, Region, Result, WriteOptions,
};
use weightlift_testkit::{fixture, fixtures};
use weightlift_torch::Torch;

fn open(path: &Path) -> Box<dyn Checkpoint> {
    Torch
        .open(weightlift_io::real(), path, &OpenOptions::default())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn plain(dtype: DType) -> DType {
    match dtype {
        DType::Qi8 => DType::I8,
        DType::Qu8 => DType::U8,
        DType::Qi32 => DType::I32,
        other => other,
    }
}

/// An output that takes over a whole entry, storage and all.
fn taken_over(catalog: &Catalog, id: EntryId, manifest: &mut Manifest, blobs: &mut Blobs) -> Option<Output> {
    let entry = catalog.entry(id);
    let Data::Extents(extents) = &entry.data else { return None };
    let extent = &extents[0];
    let key = (extent.source.0, extent.bytes.start(), extent.bytes.len());
    let blob = *blobs.0.entry(key).or_insert_with(|| {
        blobs.1.push((id, extent.bytes.len()));
        manifest.add_blob(extent.bytes.len(), extent.checksum)
    });
    let part = Part { blob, layout: extent.layout.clone(), region: Region::whole(&entry.shape) };
    Some(Output {
        path: entry.path.clone(),
        name: entry.name.clone(),
        dtype: plain(entry.dtype),
        packing: Packing::Dense,
        shape: entry.shape.clone(),
        parts: vec![part],
        origin: Some(Origin { input: 0, entry: id }),
    })
}

#[derive(Default)]
struct Blobs(HashMap<(u32, u64, u64), BlobId>, Vec<(EntryId, u64)>);

/// Rewrites a file; `change` may rename (other text), drop (`None`) or keep each tensor.
fn rewrite(from: &Path, to: &Path, change: impl Fn(&Entry) -> Option<String>) -> Result<Vec<String>> {
    let files = weightlift_io::real();
    let checkpoint = open(from);
    let catalog = checkpoint.catalog();
    let (mut manifest, mut blobs) = (Manifest::default(), Blobs::default());
    for (id, entry) in catalog.iter() {
        let Some(name) = change(entry) else { continue };
        if let Some(output) = taken_over(catalog, id, &mut manifest, &mut blobs) {
            manifest.tensors.push(Output { name, ..output });
        }
    }
    manifest.extras.push((0, catalog.extras.clone().unwrap()));
    let options = WriteOptions::default();
    let writer = Torch.create(files.clone(), to, manifest, &options)?;
    let sources = weightlift_io::Sources::new(files.as_ref(), checkpoint.as_ref(), to);
    for (at, (id, _)) in blobs.1.iter().enumerate() {
        let extent = &catalog.entry(*id).extents()?[0];
        let bytes = sources.get(extent.source)?.read_vec(extent.bytes, u64::MAX)?;
        writer.write_at(BlobId(at as u32), 0, &bytes)?;
    }
    Ok(writer.finish()?.notes)
}

fn names(checkpoint: &dyn Checkpoint) -> Vec<String> {
    checkpoint.catalog().entries.iter().map(|entry| entry.name.clone()).collect()
}

fn kept(entry: &Entry) -> Option<String> {
    Some(entry.name.clone())
}

/// Names, dtypes, shapes and values.
fn rows(checkpoint: &dyn Checkpoint) -> Vec<(String, String, String, Vec<u8>)> {
    let catalog = checkpoint.catalog();
    let row = |(id, entry): (EntryId, &Entry)| {
        let values = match entry.data {
            Data::Extents(_) => weightlift_io::read_entry(weightlift_io::real().as_ref(), checkpoint, id).unwrap(),
            Data::Absent(_) | Data::Broken(_) => Vec::new(),
        };
        (entry.name.clone(), entry.dtype.to_string(), entry.shape.to_string(), values)
    };
    catalog.iter().map(row).collect()
}

#[test]
fn every_sound_file_comes_back_with_all_its_objects() {
    let dir = tempfile::tempdir().unwrap();
    let (mut same, mut refused) = (0, Vec::new());
    for fixture in fixtures() {
        let kinds = ["torch-zip", "torch-legacy", "torch-tar"];
        if fixture.expect != "ok" || !kinds.contains(&fixture.kind.as_str()) || fixture.name.ends_with("big_endian.pt")
        {
            continue;
        }
        let to = dir.path().join("out.pt");
        if let Err(error) = rewrite(&fixture.path, &to, kept) {
            assert!(error.message().contains("which loading the file would run"), "{}: {error}", fixture.name);
            refused.push(fixture.name);
            continue;
        }
        let (before, after) = (open(&fixture.path), open(&to));
        assert_eq!(before.catalog().beside, after.catalog().beside, "{}", fixture.name);
        assert!(rows(before.as_ref()) == rows(after.as_ref()), "{}", fixture.name);
        same += 1;
        std::fs::remove_file(to).unwrap();
    }
    assert_eq!(refused, ["torch/python_objects.pt", "torch/python_objects_p4.pt"]);
    assert!(same > 90, "{same} files");
}

#[test]
fn calls_that_do_something_are_never_written_back() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["eval", "exec", "getattr", "import", "os_system", "partial", "popen", "legacy"] {
        let fixture = fixture(&format!("torch/malicious_{name}.pt"));
        assert_eq!(names(open(&fixture.path).as_ref()), ["layer.weight"], "the good tensor is read");
        let error = rewrite(&fixture.path, &dir.path().join("out.pt"), kept).unwrap_err();
        assert_eq!(error.kind(), Kind::Request);
        assert!(error.message().contains("the objects around the tensors call"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn renamed_tensors_keep_their_container_while_they_can() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("out.pt");
    let from = fixture("torch/training.pt");
    rewrite(&from.path, &to, |entry| {
        Some(match entry.name.as_str() {
            "model.scale" => "model.factor".into(),
            "optimizer.state.1.exp_avg" => "optimizer.state.1.mean".into(),
            "model.running" => "elsewhere".into(),
            other => other.into(),
        })
    })
    .unwrap();
    let checkpoint = open(&to);
    let found = names(checkpoint.as_ref());
    let moved = names(open(&from.path).as_ref()).into_iter().filter(|name| name != "model.running");
    let renamed = moved.map(|name| match name.as_str() {
        "model.scale" => "model.factor".to_owned(),
        "optimizer.state.1.exp_avg" => "optimizer.state.1.mean".to_owned(),
        _ => name,
    });
    let expected: Vec<String> = renamed.chain(["elsewhere".to_owned()]).collect();
    assert_eq!(found, expected);
    assert!(checkpoint.catalog().beside.contains(&"epoch = 3".to_owned()));
}

#[test]
fn dropped_tensors_leave_their_dict() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("out.pt");
    let from = fixture("torch/training.pt");
    rewrite(&from.path, &to, |entry| kept(entry).filter(|name| !name.starts_with("optimizer.state"))).unwrap();
    let checkpoint = open(&to);
    let expected: Vec<String> =
        names(open(&from.path).as_ref()).into_iter().filter(|name| !name.starts_with("optimizer.state")).collect();
    assert_eq!(names(checkpoint.as_ref()), expected);
    assert!(checkpoint.catalog().beside.contains(&"args: argparse.Namespace".to_owned()));
    // A key that was set twice does not come back with its first value.
    let twice = fixture("torch/dup_keys.pt");
    let to = dir.path().join("none.pt");
    let notes = rewrite(&twice.path, &to, |_| None).unwrap();
    assert_eq!((names(open(&to).as_ref()).len(), notes.len()), (0, 0));
}

#[test]
fn what_cannot_leave_its_place_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("out.pt");
    let refuse = |name: &str, change: &dyn Fn(&Entry) -> Option<String>| {
        let error = rewrite(&fixture(name).path, &to, change).err().unwrap_or_else(|| panic!("{name} was written"));
        assert_eq!(error.kind(), Kind::Request);
        assert!(!to.exists());
        error.to_string()
    };
    let list = refuse("torch/bare_list.pt", &|entry| kept(entry).filter(|name| name != "0"));
    assert!(list.contains("sits in a list, tuple or foreign object"), "{list}");
    let list = refuse("torch/bare_list.pt", &|entry| Some(format!("x{}", entry.name)));
    assert!(list.contains("sits in a list"), "{list}");
    let clash = refuse("torch/training.pt", &|entry| {
        Some(if entry.name == "model.scale" { "model.running".into() } else { entry.name.clone() })
    });
    assert!(clash.contains("twice"), "{clash}");
    let taken = refuse("torch/training.pt", &|entry| {
        Some(if entry.name == "model.scale" { "epoch".into() } else { entry.name.clone() })
    });
    assert!(taken.contains("twice"), "{taken}");
}

#[test]
fn a_dict_of_two_names_changes_under_both_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from.pt"), dir.path().join("to.pt"));
    let inner = dict(&[("w", tensor(2, 0, &[2], &[1])), ("v", tensor(2, 1, &[1], &[1]))]);
    let twice = dict(&[("a", [inner, b"q\x01".to_vec()].concat()), ("b", b"h\x01".to_vec())]);
    checkpoint(&from, &pickle(twice), &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(names(open(&from).as_ref()), ["a.w", "a.v", "b.w", "b.v"]);
    let error = rewrite(&from, &to, |entry| kept(entry).filter(|name| name != "b.w")).unwrap_err();
    assert!(error.message().contains("several names"), "{error}");
    rewrite(&from, &to, |entry| kept(entry).filter(|name| !name.ends_with('w'))).unwrap();
    assert_eq!(names(open(&to).as_ref()), ["a.v", "b.v"]);
}

#[test]
fn bare_storages_go_along() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("out.pt");
    let notes = rewrite(&fixture("torch/storages.pt").path, &to, kept).unwrap();
    assert_eq!(notes, ["1 storages that are no listed tensor's went along as they are"]);
    let checkpoint = open(&to);
    assert_eq!(checkpoint.catalog().beside, ["typed: a bare storage", "untyped: a bare storage"]);
    assert_eq!(names(checkpoint.as_ref()), ["view"]);
}
