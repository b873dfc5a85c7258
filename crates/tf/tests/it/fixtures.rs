//! Every fixture lists and reads as the framework that wrote it says.

use crate::support::{BUNDLES, of_kinds, open, read, strings};
use weightlift_core::{Checkpoint, DType};
use weightlift_testkit::{Expected, Fixture, sha256_hex};

/// The digest of a tensor by the rule of the manifest.
fn digest(checkpoint: &dyn Checkpoint, expected: &Expected) -> String {
    let bytes = read(checkpoint, &expected.name).unwrap_or_else(|error| panic!("{}: {error}", expected.name));
    if expected.dtype != Some(DType::Str) {
        return sha256_hex(&bytes);
    }
    let prefixed = strings(&bytes, expected.shape.iter().product())
        .into_iter()
        .flat_map(|string| [(string.len() as u64).to_le_bytes().to_vec(), string].concat());
    sha256_hex(&prefixed.collect::<Vec<u8>>())
}

fn check_values(fixture: &Fixture, checkpoint: &dyn Checkpoint, expected: &Expected) {
    let Fixture { name, .. } = fixture;
    let entry = checkpoint.catalog().named(&expected.name).next();
    let (_, entry) = entry.unwrap_or_else(|| panic!("{name}: {} is not listed", expected.name));
    assert_eq!(Some(entry.dtype), expected.dtype, "{name}: {}", expected.name);
    assert_eq!(entry.shape.dims(), expected.shape, "{name}: {}", expected.name);
    match &expected.sha256 {
        Some(sha256) => assert_eq!(digest(checkpoint, expected), *sha256, "{name}: {}", expected.name),
        None => assert!(read(checkpoint, &expected.name).is_ok(), "{name}: {}", expected.name),
    }
}

fn check_good(fixture: &Fixture) {
    let checkpoint = open(&fixture.path).unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
    let names: Vec<&str> = checkpoint.catalog().entries.iter().map(|entry| entry.name.as_str()).collect();
    let expected: Vec<&str> = fixture.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, expected, "{}", fixture.name);
    fixture.tensors.iter().for_each(|tensor| check_values(fixture, checkpoint.as_ref(), tensor));
}

#[test]
fn good_bundles_read_as_tensorflow_reads_them() {
    let good: Vec<_> = of_kinds(BUNDLES).into_iter().filter(|fixture| fixture.expect == "ok").collect();
    assert!(good.len() >= 28, "only {} fixtures", good.len());
    good.iter().for_each(check_good);
}

#[test]
fn good_files_of_version_1_read_as_tensorflow_reads_them() {
    let good: Vec<_> = of_kinds(&["tf-v1"]).into_iter().filter(|fixture| fixture.expect == "ok").collect();
    assert_eq!(good.len(), 5);
    good.iter().for_each(check_good);
}

#[test]
fn bad_bundles_are_refused_as_far_as_they_are_bad() {
    let bad: Vec<_> = of_kinds(BUNDLES).into_iter().filter(|fixture| fixture.expect == "error").collect();
    assert!(bad.len() >= 16, "only {} fixtures", bad.len());
    for fixture in &bad {
        let Fixture { name, tensors, .. } = fixture;
        let checkpoint = match open(&fixture.path) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                assert!(tensors.is_empty(), "{name} has readable tensors, but: {error}");
                continue;
            }
        };
        tensors.iter().for_each(|tensor| check_values(fixture, checkpoint.as_ref(), tensor));
        let failed: Vec<_> = checkpoint
            .catalog()
            .entries
            .iter()
            .filter(|entry| read(checkpoint.as_ref(), &entry.name).is_err())
            .map(|entry| entry.name.as_str())
            .collect();
        assert!(!failed.is_empty(), "{name} reads as if it were sound");
        let sound = |name: &str| tensors.iter().any(|tensor| tensor.name == name);
        assert!(failed.iter().all(|name| !sound(name)), "{name}: {failed:?}");
    }
}
