//! Edits of safetensors files: metadata, ties, headers in place.

use crate::command::{names_in, path, stderr, weightlift};
use crate::safetensors_files::{file, member, names, save};
use serde_json::Value;
use std::path::{Path, PathBuf};
use weightlift::{Plan, SaveOptions, Ties};
use weightlift_testkit::fixture;

/// The header of a file as JSON.
fn header(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    serde_json::from_slice(&bytes[8..8 + length]).unwrap()
}

fn sample(dir: &Path) -> PathBuf {
    let tensors = [member("model.a", "U8", "2", 0, 2), member("model.b", "U8", "3", 2, 5)];
    let json = format!(r#"{{"__metadata__":{{"format":"pt","license":"mit"}},{}}}"#, tensors.join(","));
    file(dir, &json, &[1, 2, 3, 4, 5])
}

fn run(arguments: &[&str]) -> String {
    let result = weightlift(arguments);
    assert!(result.status.success(), "{arguments:?}: {}", stderr(&result));
    stderr(&result)
}

fn refused(arguments: &[&str]) -> String {
    let result = weightlift(arguments);
    assert_eq!(result.status.code(), Some(2), "{arguments:?}");
    stderr(&result)
}

/// Metadata outlive an edit of the tensors; what is made from PyTorch says that it is an ordinary file.
#[test]
fn metadata_are_kept_edited_and_made() {
    let dir = tempfile::tempdir().unwrap();
    let (input, out) = (sample(dir.path()), dir.path().join("out.safetensors"));
    run(&["convert", path(&input), path(&out), "--exclude", "model.a"]);
    assert_eq!(header(&out)["__metadata__"], serde_json::json!({"format": "pt", "license": "mit"}));
    let edits = ["--metadata", "note=a=b", "--metadata", "empty=", "--drop-metadata", "license", "--force"];
    run(&[&["convert", path(&input), path(&out)], &edits[..]].concat());
    assert_eq!(header(&out)["__metadata__"], serde_json::json!({"format": "pt", "note": "a=b", "empty": ""}));
    run(&["convert", path(&input), path(&out), "--metadata", "license=apache-2.0", "--force"]);
    assert_eq!(header(&out)["__metadata__"], serde_json::json!({"format": "pt", "license": "apache-2.0"}));
    run(&["convert", path(&fixture("torch/flat_zip.pt").path), path(&out), "--force", "--metadata", "epoch=3"]);
    assert_eq!(header(&out)["__metadata__"], serde_json::json!({"format": "pt", "epoch": "3"}));

    let unknown = refused(&["convert", path(&input), path(&out), "--drop-metadata", "licence", "--force"]);
    assert!(unknown.contains("there is no metadata \"licence\" to remove (there is format, license)"), "{unknown}");
    let elsewhere = refused(&["convert", path(&input), path(&dir.path().join("out.pt")), "--metadata", "a=b"]);
    assert!(
        elsewhere.contains("--metadata is for safetensors files, but a PyTorch checkpoint is written"),
        "{elsewhere}"
    );
    assert!(refused(&["convert", path(&input), path(&out), "--metadata", "a"]).contains("KEY=VALUE"));
}

fn set(dir: &Path) -> PathBuf {
    let input = fixture("safetensors/sharded/model.safetensors.index.json").path;
    let index = dir.join("model.safetensors.index.json");
    for name in names_in(input.parent().unwrap()) {
        std::fs::copy(input.with_file_name(&name), dir.join(&name)).unwrap();
    }
    index
}

#[test]
fn metadata_of_a_set_stand_in_each_of_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let (index, out) = (set(dir.path()), dir.path().join("out"));
    std::fs::create_dir(&out).unwrap();
    let target = out.join("model.safetensors");
    run(&["convert", path(&index), path(&target), "--shard-size", "2kB", "--metadata", "license=mit"]);
    let shards = names_in(&out).into_iter().filter(|name| !name.ends_with(".json"));
    assert!(shards.map(|name| header(&out.join(name))["__metadata__"]["license"].clone()).all(|value| value == "mit"));
}

/// A tensor of two names, and slices that overlap: written once with the second name recorded, in full, or once.
#[test]
fn ties_are_recorded_copied_or_forgotten_and_never_an_abort() {
    let dir = tempfile::tempdir().unwrap();
    let input = fixture("torch/tied.pt").path;
    let source = weightlift::open(&input).unwrap();
    let all = names(&input);
    let written = |ties: Ties| {
        let out = dir.path().join(format!("{ties:?}.safetensors"));
        let mut save = SaveOptions::default();
        save.options.output.ties = ties;
        let report = source.save(&Plan::new(), &out, &save).unwrap();
        let tensors: Vec<String> =
            header(&out).as_object().unwrap().keys().filter(|key| *key != "__metadata__").cloned().collect();
        (out, tensors, report.notes)
    };
    let (alias, tensors, _) = written(Ties::Alias);
    assert!(tensors.contains(&"embedding.weight".into()) && !tensors.contains(&"tied.weight".into()), "{tensors:?}");
    let recorded = serde_json::json!({"format": "pt", "tied.weight": "embedding.weight"});
    assert_eq!(header(&alias)["__metadata__"], recorded);
    let mut listed = names(&alias);
    listed.sort();
    let mut expected = all.clone();
    expected.sort();
    assert_eq!(listed, expected, "every name is listed");
    let (copy, tensors, _) = written(Ties::Copy);
    assert_eq!(tensors, all, "every name is written, in order");
    assert_eq!(header(&copy)["__metadata__"], serde_json::json!({"format": "pt"}));
    let (first, tensors, notes) = written(Ties::First);
    assert!(!tensors.contains(&"tied.weight".into()) && !names(&first).contains(&"tied.weight".into()));
    assert!(
        notes.iter().any(|note| note == "1 second name left out: tied.weight (tied to embedding.weight)"),
        "{notes:?}"
    );
    for out in [&alias, &copy] {
        let opened = weightlift::open(out).unwrap();
        for name in &all {
            assert_eq!(opened.read(name).unwrap(), source.read(name).unwrap(), "{}: {name}", out.display());
        }
    }
}

/// The convention of safetensors.torch.save_model and the Hugging Face savers.
#[test]
fn a_second_name_in_foreign_metadata_is_a_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let json = format!(
        r#"{{"__metadata__":{{"format":"pt","lm_head.weight":"model.embed.weight"}},{}}}"#,
        member("model.embed.weight", "U8", "2", 0, 2)
    );
    let input = file(dir.path(), &json, &[5, 6]);
    let opened = weightlift::open(&input).unwrap();
    let listed: Vec<_> = opened.catalog().entries.iter().map(|e| (e.name.as_str(), e.remarks.clone())).collect();
    assert_eq!(listed[1], ("lm_head.weight", vec!["tied to model.embed.weight".to_owned()]));
    assert_eq!(opened.read("lm_head.weight").unwrap(), [5, 6]);
    let out = dir.path().join("out.safetensors");
    run(&["convert", path(&input), path(&out), "--rename", "model.embed=embed"]);
    let metadata = &header(&out)["__metadata__"];
    assert_eq!(*metadata, serde_json::json!({"format": "pt", "lm_head.weight": "embed.weight"}), "it follows renames");
}

/// Channels-last weights and other views are written dense, in logical order.
#[test]
fn strided_views_are_written_dense_in_logical_order() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture("torch/views.pt");
    let out = dir.path().join("out.safetensors");
    save(&fixture.path, &out);
    let opened = weightlift::open(&out).unwrap();
    let views: Vec<_> = fixture.tensors.iter().filter(|tensor| tensor.name.contains("channels_last")).collect();
    assert!(!views.is_empty(), "{:?}", fixture.tensors.iter().map(|tensor| &tensor.name).collect::<Vec<_>>());
    for expected in &fixture.tensors {
        let digest = weightlift_testkit::sha256_hex(&opened.read(&expected.name).unwrap());
        assert_eq!(Some(digest), expected.sha256, "{}", expected.name);
    }
}

/// PyTorch to safetensors to PyTorch: both names are there and share one storage.
#[test]
fn both_names_come_back_and_share_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for (name, first, second) in
        [("torch/tied.pt", "embedding.weight", "tied.weight"), ("torch/tied_module.pt", "emb.weight", "head.weight")]
    {
        let middle = dir.path().join("middle.safetensors");
        let back = dir.path().join("back.pt");
        let mut replace = SaveOptions::default();
        replace.options.replace = true;
        weightlift::open(fixture(name).path).unwrap().save(&Plan::new(), &middle, &replace).unwrap();
        weightlift::open(&middle).unwrap().save(&Plan::new(), &back, &replace).unwrap();
        let opened = weightlift::open(&back).unwrap();
        let place = |name: &str| {
            let (_, entry) = opened.catalog().named(name).next().unwrap_or_else(|| panic!("{name} is gone"));
            let extent = &entry.extents().unwrap()[0];
            (extent.source, extent.bytes, extent.layout.clone())
        };
        assert_eq!(place(first), place(second), "{name}");
    }
}

/// Copied by the system or written by us, renamed, thinned out or cut into files: the same bytes, and it is said.
#[test]
fn what_the_system_copies_is_what_is_written() {
    for name in ["unaligned", "low_dtypes", "header_order", "metadata", "shapes"] {
        let dir = tempfile::tempdir().unwrap();
        let input = fixture(&format!("safetensors/{name}.safetensors")).path;
        let last = names(&input).pop().unwrap();
        for edit in [&["--rename", "^=x."][..], &["--exclude", &last], &["--shard-size", "40B"]] {
            let written = |share: &str| {
                let out = dir.path().join(share);
                std::fs::create_dir(&out).unwrap();
                let target = out.join("model.safetensors");
                let arguments = ["convert", path(&input), path(&target), "--share", share];
                let said = run(&[&arguments[..], edit].concat());
                let read = |file: String| (std::fs::read(out.join(&file)).unwrap(), file);
                let files: Vec<_> = names_in(&out).into_iter().map(read).collect();
                std::fs::remove_dir_all(&out).unwrap();
                (said, files)
            };
            let ((ours, expected), (copied, files)) = (written("none"), written("copy"));
            assert!(files == expected && !files.is_empty(), "{name} {edit:?}");
            assert!(copied.contains("system copy") && copied.contains("carried unverified"), "{name}: {copied}");
            assert!(!ours.contains("unverified"), "{name}: {ours}");
        }
    }
}

/// Names and metadata in place: the data are not touched, everything else is refused with the way out.
#[test]
fn headers_are_edited_in_place_where_they_fit() {
    let dir = tempfile::tempdir().unwrap();
    let input = sample(dir.path());
    let before = std::fs::read(&input).unwrap();
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let (old, file) = (inode(&input), path(&input));
    let longer = refused(&["convert", file, file, "--in-place", "--add-prefix", "much.longer."]);
    assert!(longer.contains("but the old one left room for") && longer.contains("without --in-place"), "{longer}");
    let dropped = refused(&["convert", file, file, "--in-place", "--exclude", "model.b"]);
    assert!(dropped.contains("the tensors would have 2 bytes, where the file has 5"), "{dropped}");
    let cast = refused(&["convert", file, file, "--in-place", "--dtype", "model.a=u8:i8"]);
    assert!(cast.contains("tensor \"model.a\": its values change"), "{cast}");
    let other = refused(&["convert", file, path(&dir.path().join("out.safetensors")), "--in-place"]);
    assert!(other.contains("name it as the output too"), "{other}");
    assert_eq!(std::fs::read(&input).unwrap(), before);
    run(&["convert", file, file, "--in-place", "--strip-prefix", "model.", "--metadata", "license=none"]);
    assert_eq!((names(&input), inode(&input)), (vec!["a".to_owned(), "b".to_owned()], old));
    let after = std::fs::read(&input).unwrap();
    assert_eq!((after.len(), &after[after.len() - 5..]), (before.len(), &[1, 2, 3, 4, 5][..]));
    assert_eq!(names_in(dir.path()), ["in.safetensors"]);
    std::fs::hard_link(&input, dir.path().join("second name")).unwrap();
    let linked = refused(&["convert", file, file, "--in-place", "--rename", "a=c"]);
    assert!(linked.contains("2 names (hard links)"), "{linked}");
    let torch = dir.path().join("x.pt");
    save(&input, &torch);
    let foreign = refused(&["convert", path(&torch), path(&torch), "--in-place"]);
    assert!(foreign.contains("--in-place is for safetensors files"), "{foreign}");
}
