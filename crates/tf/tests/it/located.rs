//! Every way to name a checkpoint.

use crate::support::{copy_into, message, open, read, write};
use std::fs;
use std::path::{Path, PathBuf};
use weightlift_core::{DType, Format, Recognised};
use weightlift_io::real;
use weightlift_testkit::fixture;
use weightlift_tf::TensorFlow;
use weightlift_tf::state::StateFile;

fn recognise(path: &Path) -> Option<(PathBuf, bool)> {
    let found = TensorFlow.recognise(real().as_ref(), path, None).unwrap();
    found.map(|Recognised { path, by_content }| (path, by_content))
}

#[test]
fn every_spelling_leads_to_the_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = copy_into(&fixture("tf/foo_dense/model.ckpt"), dir.path());
    let spelling = |suffix: &str| PathBuf::from(format!("{}{suffix}", prefix.display()));
    let spellings = ["", ".index", ".data-00000-of-00001", ".meta"].map(spelling);
    for path in spellings.iter().chain([&dir.path().to_path_buf(), &dir.path().join("checkpoint")]) {
        assert_eq!(recognise(path), Some((prefix.clone(), true)), "{}", path.display());
        let checkpoint = open(path).unwrap();
        assert_eq!(checkpoint.catalog().entries.len(), 3, "{}", path.display());
        assert_eq!(checkpoint.catalog().warnings, [] as [&str; 0]);
        assert_eq!(checkpoint.files(), [&spellings[1], &spellings[2]].map(Clone::clone));
    }
    assert_eq!(recognise(&dir.path().join("other")), None);
    assert!(message(dir.path().join("other")).contains("no such file, nor an index"));
}

#[test]
fn a_moved_folder_is_followed_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = copy_into(&fixture("tf/stale_state/model.ckpt-7"), dir.path());
    for path in [dir.path().to_path_buf(), dir.path().join("checkpoint"), prefix.clone()] {
        assert_eq!(recognise(&path).unwrap().0, prefix);
        let warnings = open(&path).unwrap().catalog().warnings.clone();
        assert!(matches!(warnings.as_slice(), [only] if only.contains("is gone")), "{warnings:?}");
    }
    fs::remove_file(dir.path().join("model.ckpt-7.index")).unwrap();
    assert!(message(dir.path()).contains("neither there nor in this folder"));
}

#[test]
fn the_latest_of_several_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["tf/keras_adam/ckpt-2", "tf/keras_adam/ckpt-3"] {
        copy_into(&fixture(name), dir.path());
    }
    assert_eq!(recognise(dir.path()).unwrap().0, dir.path().join("ckpt-3"));
    fs::write(dir.path().join("checkpoint"), "model_checkpoint_path: \"ckpt-2\"").unwrap();
    assert_eq!(recognise(dir.path()).unwrap().0, dir.path().join("ckpt-2"));
    fs::remove_file(dir.path().join("checkpoint")).unwrap();
    let error = TensorFlow.recognise(real().as_ref(), dir.path(), None).unwrap_err();
    assert!(error.message().contains("2 checkpoints") && error.message().contains("ckpt-2, ckpt-3"), "{error}");
}

#[test]
fn a_folder_with_one_checkpoint_needs_no_state_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("faiss.index"), [1; 100]).unwrap();
    assert_eq!(recognise(dir.path()), None);
    assert!(message(dir.path()).contains("a folder without a TensorFlow checkpoint"));
    let prefix = dir.path().join("m");
    write(&prefix, &[("w", DType::U8, &[1], &[7])]).unwrap();
    assert_eq!(recognise(dir.path()), Some((prefix, true)));
}

#[test]
fn a_saved_model_is_its_variables() {
    let saved = fixture("tf/saved_model/variables/variables");
    let dir = saved.path.parent().unwrap().parent().unwrap();
    assert_eq!(recognise(dir), Some((saved.path.clone(), true)));
    assert_eq!(open(dir).unwrap().catalog().entries.len(), saved.tensors.len());
}

#[test]
fn the_state_file_of_a_fixture_survives() {
    let path = fixture("tf/keras_adam/ckpt-3").path.with_file_name("checkpoint");
    let text = fs::read_to_string(path).unwrap();
    assert_eq!(StateFile::parse(text.as_bytes()).unwrap().to_text(), text);
}

#[test]
fn data_files_without_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("m");
    write(&prefix, &[("w", DType::U8, &[1], &[7])]).unwrap();
    fs::remove_file(dir.path().join("m.index")).unwrap();
    for path in [prefix, dir.path().join("m.data-00000-of-00001"), dir.path().join("m.index")] {
        let text = message(&path);
        assert!(text.contains("m.index") || text.contains("no such file"), "{text}");
    }
    assert_eq!(recognise(&dir.path().join("m")), Some((dir.path().join("m"), false)));
}

#[test]
fn what_is_no_checkpoint_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let noise: Vec<u8> = (0..1024u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let cases: &[(&[u8], &str)] = &[
        (b"", "an empty file"),
        (b"x", "it does not end like a table"),
        (&noise, "it does not end like a table"),
        (b"version https://git-lfs.github.com/spec/v1\nsize 12\n", "a Git LFS pointer to a file of 12 bytes"),
        (b"<!DOCTYPE html><html></html>", "a web page"),
    ];
    for (bytes, wanted) in cases {
        for name in ["file.ckpt", "m.index"] {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            let text = message(&path);
            let table = name == "m.index" && (text.contains("too few") || text.contains("last 8 bytes"));
            assert!(text.contains(wanted) || table, "{text}");
            assert!(text.contains(name) && text.lines().count() == 1, "{text}");
        }
    }
}

#[test]
fn read_is_by_name() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("m"), &[("w", DType::U8, &[2], &[7, 8])]).unwrap();
    assert_eq!(read(open(dir.path()).unwrap().as_ref(), "w").unwrap(), [7, 8]);
}
