//! Headers changed in place.

use crate::support::{OneFile, bytes_of, open};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use weightlift_core::{
    BlobId, ByteRange, Error, Extras, FileRange, Files, Format, Manifest, Origin, Shape, WriteOptions,
};
use weightlift_safetensors::{Metadata, Safetensors};
use weightlift_testkit::FaultyFiles;

const JSON: &str = concat!(
    r#"{"__metadata__":{"format":"pt","note":"a remark"},"#,
    r#""first.weight":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"#,
    r#""second.weight":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}}"#
);

fn sample() -> OneFile {
    OneFile::new(&crate::support::file_of(JSON, 7))
}

/// Renames the tensors of a file in place, and edits its metadata.
fn rename(
    files: Arc<dyn Files>,
    path: &Path,
    new_name: impl Fn(&str) -> String,
    metadata: &[(&str, Option<&str>)],
) -> Result<(), Error> {
    let checkpoint = open(path)?;
    let catalog = checkpoint.catalog();
    let mut manifest = Manifest::default();
    for (id, entry) in catalog.iter() {
        manifest.add_tensor(&new_name(&entry.name), entry.dtype, Shape::new(entry.shape.dims()).unwrap());
        manifest.tensors.last_mut().unwrap().origin = Some(Origin { input: 0, entry: id });
    }
    manifest.extras.push((0, catalog.extras.clone().unwrap()));
    for (id, entry) in catalog.iter() {
        let range = FileRange { path: path.to_path_buf(), bytes: entry.extents()?[0].bytes };
        manifest.verbatim.insert(BlobId(id.0), range);
    }
    let mut options = WriteOptions::default();
    options.in_place = true;
    options.metadata = metadata.iter().map(|&(k, v)| (k.to_owned(), v.map(str::to_owned))).collect();
    let writer = Safetensors.create(files, path, manifest, &options)?;
    assert!(catalog.iter().all(|(id, _)| writer.holds(BlobId(id.0))));
    writer.finish().map(drop)
}

fn shorter(name: &str) -> String {
    name.replace(".weight", ".w")
}

#[test]
fn names_and_metadata_change_and_no_tensor_moves() {
    let file = sample();
    let before = std::fs::read(&file.path).unwrap();
    rename(weightlift_io::real(), &file.path, shorter, &[("note", None), ("k", Some("v"))]).unwrap();
    let after = std::fs::read(&file.path).unwrap();
    let data = 8 + JSON.len();
    assert_eq!((after.len(), &after[..8], &after[data..]), (before.len(), &before[..8], &before[data..]));
    let checkpoint = open(&file.path).unwrap();
    let names: Vec<_> = checkpoint.catalog().entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["first.w", "second.w"]);
    assert_eq!(bytes_of(checkpoint.as_ref(), 1), [3, 4, 5, 6]);
    let metadata: &Metadata = checkpoint.catalog().extras.as_ref().unwrap().get().unwrap();
    assert_eq!(metadata.pairs().collect::<Vec<_>>(), [("format", "pt"), ("k", "v")]);
    safetensors::SafeTensors::deserialize(&after).unwrap();
    assert_eq!(std::fs::read_dir(file.path.parent().unwrap()).unwrap().count(), 1);
}

/// Killed at any operation, in the middle of writes too: the next run finds the old file or the new one.
#[test]
fn a_header_killed_at_any_operation_is_old_or_new() {
    let old = crate::support::file_of(JSON, 7);
    let (mut torn, mut restored) = (0, 0);
    for k in 0.. {
        let file = sample();
        let faulty = FaultyFiles::failing_from(weightlift_io::real(), k, ErrorKind::Other).in_pieces_of(40);
        let done = rename(Arc::new(faulty), &file.path, shorter, &[]).is_ok();
        let left = std::fs::read(&file.path).unwrap();
        torn += usize::from(left != old && safetensors::SafeTensors::deserialize(&left).is_err());
        let checkpoint = open(&file.path).unwrap();
        let catalog = checkpoint.catalog();
        restored += catalog.warnings.iter().filter(|warning| warning.contains("put back")).count();
        let names: Vec<_> = catalog.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert!(names == ["first.weight", "second.weight"] || names == ["first.w", "second.w"], "{names:?}");
        assert_eq!(
            (bytes_of(checkpoint.as_ref(), 0), bytes_of(checkpoint.as_ref(), 1)),
            (vec![0, 1, 2], vec![3, 4, 5, 6])
        );
        assert_eq!(std::fs::read_dir(file.path.parent().unwrap()).unwrap().count(), 1, "nothing is left over");
        if done {
            assert_eq!(names, ["first.w", "second.w"]);
            break;
        }
        assert!(k < 100);
    }
    assert!(torn >= 2 && restored >= 4, "{torn} {restored}");
}

#[test]
fn what_cannot_be_done_in_place_is_refused_before_anything_changes() {
    let file = sample();
    let before = std::fs::read(&file.path).unwrap();
    let real = weightlift_io::real;
    let longer = rename(real(), &file.path, |name| format!("model.{name}"), &[]).unwrap_err().to_string();
    assert!(longer.contains("needs 190 bytes, but the old one left room for 178"), "{longer}");
    assert!(longer.contains("without --in-place"), "{longer}");
    std::fs::hard_link(&file.path, file.path.with_file_name("other")).unwrap();
    let linked = rename(real(), &file.path, shorter, &[]).unwrap_err().to_string();
    assert!(linked.contains("2 names (hard links)"), "{linked}");
    assert_eq!(std::fs::read(&file.path).unwrap(), before);
}

#[test]
fn bytes_that_move_or_change_are_refused() {
    let file = sample();
    let start = |manifest: Manifest| {
        let mut options = WriteOptions::default();
        options.in_place = true;
        Safetensors.create(weightlift_io::real(), &file.path, manifest, &options)
    };
    let mut manifest = Manifest::default();
    let first = manifest.add_tensor("a", weightlift_core::DType::U8, Shape::new([3]).unwrap());
    let dropped = start(manifest.clone()).err().unwrap().to_string();
    assert!(dropped.contains("the tensors would have 3 bytes, where the file has 7"), "{dropped}");
    let second = manifest.add_tensor("b", weightlift_core::DType::F32, Shape::new([1]).unwrap());
    manifest.extras.push((0, Extras::new(Metadata::absent())));
    let range = |path: &Path, at: u64, len: u64| FileRange {
        path: path.to_path_buf(),
        bytes: ByteRange::new(8 + JSON.len() as u64 + at, len).unwrap(),
    };
    manifest.verbatim.insert(first, range(&file.path, 0, 3));
    let changed = start(manifest.clone()).err().unwrap().to_string();
    assert!(changed.contains("tensor \"b\": its values change"), "{changed}");
    let copy = file.path.with_file_name("copy");
    std::fs::copy(&file.path, &copy).unwrap();
    for elsewhere in [range(&file.path, 2, 4), range(&copy, 3, 4)] {
        manifest.verbatim.insert(second, elsewhere);
        let moved = start(manifest.clone()).err().unwrap().to_string();
        assert!(moved.contains("tensor \"b\": its bytes would move"), "{moved}");
    }
    manifest.verbatim.insert(second, range(&file.path, 3, 4));
    let writer = start(manifest).unwrap();
    assert!(writer.write_at(second, 0, &[0; 4]).is_err());
    drop(writer);
    assert_eq!(std::fs::read(&file.path).unwrap(), crate::support::file_of(JSON, 7));
}
