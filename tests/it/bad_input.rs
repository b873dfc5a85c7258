//! Wrong input gives one clear line, exit code 2, no output, no panic.

use crate::command::{names_in, path, stderr, weightlift};
use std::path::{Path, PathBuf};
use weightlift::{Kind, Plan, SaveOptions};
use weightlift_testkit::{fixture, fixtures};

/// Converts to every format; every try must fail with one line that has all of `words`, and leave nothing.
fn refuses(input: &Path, words: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    for name in ["out.ckpt", "out.pt", "out.safetensors"] {
        let output = dir.path().join(name);
        let result = weightlift(&["convert", path(input), path(&output), "--dtype", "f16"]);
        let message = stderr(&result);
        let errors: Vec<_> = message.lines().filter(|line| line.starts_with("weightlift: ")).collect();
        assert_eq!(result.status.code(), Some(2), "{}: {message}", input.display());
        assert_eq!(errors.len(), 1, "{}: {message}", input.display());
        assert!(!message.contains("panicked"), "{message}");
        for word in words {
            assert!(errors[0].contains(word), "{}: {word:?} is not in {:?}", input.display(), errors[0]);
        }
        assert!(names_in(dir.path()).is_empty(), "{}: {:?} is left", input.display(), names_in(dir.path()));
    }
}

fn file(dir: &Path, name: &str, content: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn what_is_no_checkpoint_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 438007537\n";
    for extension in ["pt", "bin", "safetensors", "ckpt", "index"] {
        let name = |stem: &str| format!("{stem}.{extension}");
        refuses(&file(dir.path(), &name("lfs"), pointer), &["Git LFS pointer", "438007537"]);
        refuses(&file(dir.path(), &name("page"), b"<!DOCTYPE html><html></html>"), &["web page"]);
        refuses(&file(dir.path(), &name("empty"), b""), &["empty"]);
        refuses(&file(dir.path(), &name("one"), b"x"), &[&name("one")]);
    }
    refuses(&dir.path().join("missing.ckpt"), &["missing.ckpt", "No such file"]);
    refuses(dir.path(), &["folder"]);
    refuses(&dir.path().join("no/such/folder.pt"), &["folder.pt"]);
}

#[test]
fn damaged_bundles_are_named_with_tensor_and_offset() {
    let path = |name: &str| fixture(&format!("tf/{name}/model.ckpt")).path;
    refuses(&path("bad_flip_data"), &["data-00000-of-00001", "tensor", "at byte", "checksum mismatch"]);
    refuses(&path("bad_swapped_data"), &["tensor", "checksums differ: index and data do not belong together"]);
    refuses(&path("bad_cut_data"), &["data-00000-of-00001"]);
    refuses(&path("bad_no_data"), &["data-00000-of-00001"]);
    refuses(&path("bad_cut_index"), &["model.ckpt.index"]);
    refuses(&path("bad_flip_index"), &["model.ckpt.index", "checksum"]);
    refuses(&path("bad_flip_index_footer"), &["model.ckpt.index"]);
    refuses(&path("bad_empty_index"), &["model.ckpt.index", "empty"]);
}

#[test]
fn damaged_files_of_the_other_formats_are_named() {
    for name in ["safetensors/bad_cut.safetensors", "safetensors/bad_len_beyond.safetensors", "torch/bad_cut_half.pt"] {
        let fixture = fixture(name);
        refuses(&fixture.path, &[fixture.path.file_name().unwrap().to_str().unwrap()]);
    }
}

/// A cut of the file at every length, or one flipped bit anywhere, gives an error or the same values; never a panic,
/// never other values without an error.
#[test]
fn cuts_and_flips_never_pass_unseen() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = fixture("tf/foo_dense/model.ckpt").path;
    let data = std::fs::read(format!("{}.data-00000-of-00001", bundle.display())).unwrap();
    let index = std::fs::read(format!("{}.index", bundle.display())).unwrap();
    let try_with = |index: &[u8], data: &[u8]| {
        file(dir.path(), "m.ckpt.index", index);
        file(dir.path(), "m.ckpt.data-00000-of-00001", data);
        let output = dir.path().join("out.pt");
        let _ = std::fs::remove_file(&output);
        let opened = weightlift::open(dir.path().join("m.ckpt"))?;
        opened.save(&Plan::new(), &output, &SaveOptions::default())
    };
    assert_eq!(try_with(&index, &data).unwrap().tensors, 3);
    for end in 0..index.len() {
        assert!(try_with(&index[..end], &data).is_err(), "index cut at {end}");
    }
    for end in 0..data.len() {
        assert!(try_with(&index, &data[..end]).is_err(), "data cut at {end}");
    }
    for bit in 0..data.len() * 8 {
        let mut flipped = data.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = try_with(&index, &flipped).unwrap_err();
        assert_eq!(error.kind(), Kind::Checksum, "bit {bit}: {error}");
        assert!(error.place().tensor.is_some() && error.place().file.is_some() && error.place().offset.is_some());
    }
}

/// Every fixture that must be refused is, by opening it or by reading all of it.
#[test]
fn every_bad_fixture_of_the_formats_read_here_is_refused() {
    let kinds = ["tf-bundle-v2", "torch-zip", "safetensors", "not-a-checkpoint"];
    let mut tried = 0;
    for fixture in fixtures().iter().filter(|f| f.expect == "error" && kinds.contains(&f.kind.as_str())) {
        let dir = tempfile::tempdir().unwrap();
        // Into its own format, so that nothing is left out unread.
        let own = if fixture.kind.starts_with("tf") { "out.ckpt" } else { "out.safetensors" };
        let save =
            |opened: weightlift::Opened| opened.save(&Plan::new(), dir.path().join(own), &SaveOptions::default());
        let result = weightlift::open(&fixture.path).and_then(save);
        assert!(result.is_err(), "{}: {result:?}", fixture.name);
        assert!(names_in(dir.path()).is_empty(), "{} left something", fixture.name);
        tried += 1;
    }
    assert!(tried > 40, "{tried} bad fixtures were tried");
}
