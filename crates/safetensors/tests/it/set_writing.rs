//! Sets, written.

use crate::support::{bytes_of, open};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{Checkpoint, DType, Error, Extras, Files, Format, Manifest, Shape, WriteOptions, Written};
use weightlift_safetensors::{Metadata, Safetensors};
use weightlift_testkit::{FaultyFiles, fixture};

/// Writes tensors of these lengths, named a, b, c, …, each byte the letter.
fn write(path: &Path, sizes: &[u64], tie: bool, options: &WriteOptions) -> Result<Written, Error> {
    write_in(weightlift_io::real(), path, sizes, tie, options)
}

fn write_in(
    files: Arc<dyn Files>,
    path: &Path,
    sizes: &[u64],
    tie: bool,
    options: &WriteOptions,
) -> Result<Written, Error> {
    let mut manifest = Manifest::default();
    let names: Vec<String> = (b'a'..).take(sizes.len()).map(|letter| char::from(letter).to_string()).collect();
    for (name, &size) in names.iter().zip(sizes) {
        manifest.add_tensor(name, DType::U8, Shape::new([size]).unwrap());
    }
    if tie {
        let mut tied = manifest.tensors[0].clone();
        tied.name = "tied".into();
        manifest.tensors.push(tied);
    }
    let source = open(&fixture("safetensors/metadata.safetensors").path).unwrap();
    manifest.extras.push((0, source.catalog().extras.clone().unwrap()));
    let blobs: Vec<_> = manifest.tensors.iter().map(|tensor| tensor.parts[0].blob).collect();
    let writer = Safetensors.create(files, path, manifest, options)?;
    for ((name, &size), blob) in names.iter().zip(sizes).zip(blobs) {
        writer.write_at(blob, 0, name.repeat(size as usize).as_bytes())?;
    }
    writer.finish()
}

fn options(shard_size: u64) -> WriteOptions {
    let mut options = WriteOptions::default();
    options.shard_size = Some(shard_size);
    options.replace = true;
    options
}

fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn names(files: &[(PathBuf, u64)]) -> Vec<&str> {
    files.iter().map(|(path, _)| path.file_name().unwrap().to_str().unwrap()).collect()
}

const FIRST: &str = "model-00001-of-00002.safetensors";
const SECOND: &str = "model-00002-of-00002.safetensors";
const INDEX: &str = "model.safetensors.index.json";

#[test]
fn a_set_is_read_back_with_order_metadata_and_ties() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let written = write(&path, &[3, 0, 4, 5], true, &options(7)).unwrap();
    assert_eq!(written.files[0].0, dir.path().join(INDEX));
    let mut found = names(&written.files);
    found.sort_unstable();
    assert_eq!(found, [FIRST, SECOND, INDEX]);
    assert_eq!(listing(dir.path()), [FIRST, SECOND, INDEX]);

    let checkpoint = open(&dir.path().join(INDEX)).unwrap();
    let catalog = checkpoint.catalog();
    assert!(catalog.warnings.is_empty(), "{:?}", catalog.warnings);
    let listed: Vec<&str> = catalog.entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(listed, ["a", "b", "c", "d", "tied"]);
    assert_eq!(bytes_of(checkpoint.as_ref(), 3), b"ddddd");
    assert_eq!(bytes_of(checkpoint.as_ref(), 4), b"aaa");
    let metadata = catalog.extras.as_ref().unwrap().get::<Metadata>().unwrap();
    assert_eq!(metadata.pairs().count(), 5);
    let index = fs::read_to_string(dir.path().join(INDEX)).unwrap();
    let expected = concat!(
        "{\n  \"metadata\": {\n    \"tied\": \"a\",\n    \"total_size\": 12\n  },\n  \"weight_map\": {\n",
        "    \"a\": \"model-00001-of-00002.safetensors\",\n    \"b\": \"model-00001-of-00002.safetensors\",\n",
        "    \"c\": \"model-00001-of-00002.safetensors\",\n    \"d\": \"model-00002-of-00002.safetensors\"\n  }\n}"
    );
    assert_eq!(index, expected);
    for file in [FIRST, SECOND] {
        let bytes = fs::read(dir.path().join(file)).unwrap();
        assert!(safetensors::SafeTensors::deserialize(&bytes).is_ok());
        assert!(!String::from_utf8_lossy(&bytes).contains("tied"));
    }
}

#[test]
fn a_replaced_set_goes_away_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    write(&path, &[3, 3, 3], false, &options(3)).unwrap();
    assert_eq!(listing(dir.path()).len(), 4);
    fs::write(dir.path().join("other.safetensors"), b"other").unwrap();
    write(&path, &[3, 3], false, &options(3)).unwrap();
    assert_eq!(listing(dir.path()), [FIRST, SECOND, INDEX, "other.safetensors"]);
    let written = write(&path, &[3, 3], false, &options(6)).unwrap();
    assert_eq!(names(&written.files), ["model.safetensors"]);
    assert_eq!(listing(dir.path()), ["model.safetensors", "other.safetensors"]);
    write(&path, &[3, 3], false, &options(3)).unwrap();
    assert_eq!(listing(dir.path()), [FIRST, SECOND, INDEX, "other.safetensors"]);
    let mut careful = options(3);
    careful.replace = false;
    assert!(write(&path, &[3, 3], false, &careful).is_err());
    assert_eq!(open(&dir.path().join(INDEX)).unwrap().catalog().entries.len(), 2);
}

/// Wherever a run stops, what opens is the old set or the new one; and the next run finishes.
#[test]
fn a_set_under_way_is_never_a_mixture() {
    let (old, new) = ([3, 3, 3], [5, 5]);
    let mut stopped = 0;
    for k in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        write(&path, &old, false, &options(3)).unwrap();
        let faulty = FaultyFiles::failing_from(weightlift_io::real(), k, ErrorKind::StorageFull);
        let done = write_in(Arc::new(faulty), &path, &new, false, &options(5)).is_ok();
        let sizes =
            |checkpoint: &dyn Checkpoint| checkpoint.catalog().entries.iter().map(|e| e.bytes).collect::<Vec<_>>();
        if let Ok(found) = open(&dir.path().join(INDEX)) {
            let sizes = sizes(found.as_ref());
            assert!(sizes == old && !done || sizes == new, "stop {k} left {sizes:?}");
        }
        if done {
            break;
        }
        stopped += 1;
        weightlift_io::recover(weightlift_io::real().as_ref(), dir.path()).unwrap();
        let sizes = sizes(open(&dir.path().join(INDEX)).unwrap().as_ref());
        assert!(sizes == old || sizes == new, "stop {k} recovered {sizes:?}");
    }
    assert!(stopped > 15, "{stopped}");
}

#[test]
fn a_single_file_beside_a_set_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    write(&path, &[3, 3], false, &options(3)).unwrap();
    let written = write(&path, &[3], false, &WriteOptions::default()).unwrap();
    assert_eq!(written.notes, [format!("{INDEX} stands beside the file and names the files of a set")]);
    assert_eq!(listing(dir.path()).len(), 4);
}

#[test]
fn the_number_of_elements_follows() {
    let dir = tempfile::tempdir().unwrap();
    let index = |name: &str| dir.path().join(format!("{name}.safetensors.index.json"));
    write(&dir.path().join("a.safetensors"), &[3, 4], false, &options(4)).unwrap();
    let text = fs::read_to_string(index("a")).unwrap();
    fs::write(index("a"), text.replace("\"total_size\"", "\"total_parameters\": 9, \"by\": [1], \"total_size\""))
        .unwrap();
    let checkpoint = open(&index("a")).unwrap();
    let extras: Extras = checkpoint.catalog().extras.clone().unwrap();
    let mut manifest = Manifest::default();
    for name in ["x", "y"] {
        manifest.add_tensor(name, DType::F32, Shape::new([0, 2]).unwrap());
    }
    manifest.add_tensor("z", DType::F32, Shape::new([2]).unwrap());
    let blob = manifest.add_tensor("zz", DType::F32, Shape::new([2]).unwrap());
    manifest.extras.push((0, extras));
    let writer =
        Safetensors.create(weightlift_io::real(), &dir.path().join("b.safetensors"), manifest, &options(8)).unwrap();
    for blob in [weightlift_core::BlobId(2), blob] {
        writer.write_at(blob, 0, &[0; 8]).unwrap();
    }
    writer.finish().unwrap();
    let text = fs::read_to_string(index("b")).unwrap();
    let head = "{\n  \"metadata\": {\n    \"total_parameters\": 4,\n    \"by\": [\n      1\n    ],\n    \"total_size\": 16\n  }";
    assert!(text.starts_with(head), "{text}");
}
