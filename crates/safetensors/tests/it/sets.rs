//! Sharded sets.

use crate::support::{Tensor, bytes_of, open, write};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;
use weightlift_core::{Checkpoint, DType, Format, Kind};
use weightlift_safetensors::{Metadata, Safetensors};
use weightlift_testkit::{Fixture, fixture, sha256_hex};

const INDEX: &str = "model.safetensors.index.json";

fn set(name: &str) -> Fixture {
    fixture(&format!("safetensors/{name}/{INDEX}"))
}

fn warnings(name: &str) -> Vec<String> {
    open(&set(name).path).unwrap().catalog().warnings.clone()
}

/// A set in a folder of its own: tensors a and b of two bytes, a file each.
struct Made {
    dir: TempDir,
}

impl Made {
    fn new() -> Made {
        let made = Made { dir: tempfile::tempdir().unwrap() };
        let mut metadata = Metadata::absent();
        metadata.set("format", "pt");
        for (name, file) in [("b", "model-00001-of-00002"), ("a", "model-00002-of-00002")] {
            made.file(&format!("{file}.safetensors"), name, &metadata);
        }
        made.index(r#""b":"model-00001-of-00002.safetensors","a":"model-00002-of-00002.safetensors""#, "4");
        made
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(INDEX)
    }

    fn file(&self, file: &str, name: &str, metadata: &Metadata) {
        let tensor = Tensor { name: name.into(), dtype: DType::U8, dims: vec![2], bytes: name.repeat(2).into() };
        write(&self.dir.path().join(file), &[tensor], Some(metadata.clone()), 9).unwrap();
    }

    fn index(&self, weight_map: &str, total: &str) {
        let text =
            format!(r#"{{"metadata":{{"total_size":{total},"total_parameters":4}},"weight_map":{{{weight_map}}}}}"#);
        fs::write(self.path(), text).unwrap();
    }

    fn names(&self) -> Vec<String> {
        open(&self.path()).unwrap().catalog().entries.iter().map(|entry| entry.name.clone()).collect()
    }
}

fn check_tensors(fixture: &Fixture, checkpoint: &dyn Checkpoint, shards: &[&str]) {
    let mut found = 0;
    for expected in fixture.tensors.iter().filter(|t| shards.contains(&t.raw["shard"].as_str().unwrap())) {
        let Some((id, entry)) = checkpoint.catalog().named(&expected.name).next() else { continue };
        found += 1;
        assert_eq!((Some(entry.dtype), entry.shape.dims()), (expected.dtype, &expected.shape[..]));
        let digest = sha256_hex(&bytes_of(checkpoint, id.0 as usize));
        assert_eq!(Some(digest), expected.sha256, "{}", entry.name);
    }
    assert_eq!(found, checkpoint.catalog().entries.len());
}

#[test]
fn a_set_lists_and_reads_as_the_manifest_says() {
    let fixture = set("sharded");
    let checkpoint = open(&fixture.path).unwrap();
    let catalog = checkpoint.catalog();
    assert_eq!(catalog.description, "safetensors set of 2 files");
    assert!(catalog.warnings.is_empty(), "{:?}", catalog.warnings);
    let names: Vec<&str> = catalog.entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, fixture.tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>());
    let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    check_tensors(&fixture, checkpoint.as_ref(), &shards);
    let mut files = checkpoint.files();
    files.sort();
    let mut expected = fixture.files.clone();
    expected.sort();
    assert_eq!(files, expected);
}

#[test]
fn the_index_wins_and_the_rest_is_a_warning() {
    assert_eq!(warnings("shard_stray_file"), ["model.safetensors left aside: the index does not name it"]);
    let wrong = "the index says total_size 6440, but its tensors have 5440 bytes";
    assert_eq!(warnings("shard_wrong_total"), [wrong]);
    let unlisted = warnings("shard_unlisted_key");
    let expected = "tensor \"model.norm\" of model-00002-of-00002.safetensors left aside: the index does not name it";
    assert_eq!(unlisted[0], expected);
    let fixture = set("shard_stray_file");
    let checkpoint = open(&fixture.path).unwrap();
    let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    check_tensors(&fixture, checkpoint.as_ref(), &shards);
    assert_eq!(checkpoint.catalog().entries.len(), 9);
}

#[test]
fn missing_files_and_tensors_are_listed() {
    let missing = open(&set("bad_shard_missing").path).err().unwrap();
    assert!(missing.message().ends_with("missing: model-00002-of-00002.safetensors"), "{missing}");
    let fixture = set("bad_shard_moved_key");
    let moved = open(&fixture.path).err().unwrap();
    let list = "1: model.layer.0.weight (model-00002-of-00002.safetensors; it is in model-00001-of-00002.safetensors)";
    assert!(moved.message().ends_with(list), "{moved}");
    assert_eq!((moved.kind(), moved.place().file.as_ref()), (Kind::Malformed, Some(&fixture.path)));
    let made = Made::new();
    made.index(r#""b":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors""#, "4");
    let absent = open(&made.path()).err().unwrap();
    assert!(absent.message().ends_with("1: c (model-00002-of-00002.safetensors)"), "{absent}");
}

#[test]
fn a_damaged_file_of_a_set_is_named() {
    let made = Made::new();
    let file = made.dir.path().join("model-00002-of-00002.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let error = open(&made.path()).err().unwrap();
    assert_eq!(error.place().file.as_ref(), Some(&file));
}

#[test]
fn files_come_in_the_order_of_their_names_and_share_metadata() {
    let made = Made::new();
    assert_eq!(made.names(), ["b", "a"]);
    let checkpoint = open(&made.path()).unwrap();
    let catalog = checkpoint.catalog();
    assert_eq!(catalog.beside, ["metadata \"format\" = \"pt\"", "index metadata \"total_parameters\" = 4"]);
    let mut other = Metadata::absent();
    other.set("format", "mlx");
    made.file("model-00002-of-00002.safetensors", "a", &other);
    let warnings = open(&made.path()).unwrap().catalog().warnings.clone();
    assert!(warnings.len() == 1 && warnings[0].contains("metadata \"format\" of model-00002"), "{warnings:?}");
}

#[test]
fn a_folder_is_opened_by_what_it_has() {
    let files = weightlift_io::real();
    let recognise = |dir: &TempDir| Safetensors.recognise(files.as_ref(), dir.path(), None).unwrap();
    let made = Made::new();
    assert_eq!(recognise(&made.dir).unwrap().path, made.path());
    assert_eq!(open(made.dir.path()).unwrap().catalog().entries.len(), 2);
    let head = fs::read(made.path()).unwrap();
    assert!(Safetensors.recognise(files.as_ref(), &made.path(), Some(&head)).unwrap().unwrap().by_content);

    fs::rename(made.path(), made.dir.path().join("other.safetensors.index.json")).unwrap();
    assert_eq!(open(made.dir.path()).unwrap().catalog().entries.len(), 2);
    fs::write(made.path().with_file_name("third.safetensors.index.json"), b"{}").unwrap();
    assert!(open(made.dir.path()).err().unwrap().message().contains("other.safetensors.index.json, third"));
    fs::remove_file(made.path().with_file_name("third.safetensors.index.json")).unwrap();
    fs::remove_file(made.path().with_file_name("other.safetensors.index.json")).unwrap();
    assert_eq!(recognise(&made.dir).unwrap().path, made.dir.path());
    let several = open(made.dir.path()).err().unwrap();
    assert!(several.message().contains("no index: model-00001-of-00002.safetensors, model-00002"), "{several}");
    fs::remove_file(made.path().with_file_name("model-00001-of-00002.safetensors")).unwrap();
    assert_eq!(open(made.dir.path()).unwrap().catalog().entries[0].name, "a");
    fs::remove_file(made.path().with_file_name("model-00002-of-00002.safetensors")).unwrap();
    assert_eq!(recognise(&made.dir), None);
}
