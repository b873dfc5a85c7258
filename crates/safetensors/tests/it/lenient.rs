//! Harmless faults: refused with a way out, or read with a warning.

use crate::support::{OneFile, file_of, open, open_with};
use weightlift_core::{Checkpoint, Error, Format, Limits, OpenOptions};
use weightlift_safetensors::{Metadata, Safetensors};
use weightlift_testkit::fixture;

fn open_leniently(path: &std::path::Path) -> Result<Box<dyn Checkpoint>, Error> {
    let mut options = OpenOptions::default();
    options.lenient = true;
    Safetensors.open(weightlift_io::real(), path, &options)
}

/// Refused, with `--lenient` as the way out; then read with that warning.
fn both_ways(path: &std::path::Path, warning: &str) -> Box<dyn Checkpoint> {
    let refused = open(path).err().unwrap().to_string();
    assert!(refused.contains("--lenient"), "{refused}");
    let checkpoint = open_leniently(path).unwrap();
    let warnings = &checkpoint.catalog().warnings;
    assert!(warnings.len() == 1 && warnings[0].ends_with(warning), "{warnings:?}");
    assert!(warnings[0].starts_with(path.to_str().unwrap()), "{warnings:?}");
    checkpoint
}

#[test]
fn nul_padding_is_read_with_a_warning() {
    let path = fixture("safetensors/bad_nul_padding.safetensors").path;
    let checkpoint = both_ways(&path, "NUL bytes, where the format has spaces");
    assert_eq!(checkpoint.catalog().entries.len(), 1);
}

#[test]
fn metadata_that_are_no_texts_are_read_as_text() {
    let path = fixture("safetensors/bad_int_metadata.safetensors").path;
    let checkpoint = both_ways(&path, "is no text but 0: taken as text");
    let metadata: &Metadata = checkpoint.catalog().extras.as_ref().unwrap().get().unwrap();
    assert_eq!(metadata.pairs().map(|(_, value)| value).collect::<Vec<_>>(), ["0"]);
    let json = r#"{"__metadata__":{"a":[1,{"b":null}],"c":true,"d":"text","a":1.5}}"#;
    let checkpoint = open_leniently(&OneFile::new(&file_of(json, 0)).path).unwrap();
    let metadata: &Metadata = checkpoint.catalog().extras.as_ref().unwrap().get().unwrap();
    assert_eq!(metadata.pairs().collect::<Vec<_>>(), [("a", "1.5"), ("c", "true"), ("d", "text")]);
    assert_eq!(checkpoint.catalog().warnings.len(), 3);
}

#[test]
fn trailing_bytes_are_left_aside() {
    let path = fixture("safetensors/bad_trailing.safetensors").path;
    let checkpoint = both_ways(&path, "16 bytes after the last tensor are left aside");
    assert_eq!(checkpoint.catalog().entries.len(), 1);
}

/// A header of 100,000,008 bytes, mostly blanks.
#[test]
fn headers_longer_than_others_read_need_the_switch() {
    let json = r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let mut header = vec![b' '; 100_000_008];
    header[..json.len()].copy_from_slice(json.as_bytes());
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.push(7);
    let file = OneFile::new(&bytes);
    let checkpoint =
        both_ways(&file.path, "a header of 100000008 bytes, more than the 100000000 that other readers take");
    assert_eq!(checkpoint.catalog().entries[0].name, "w");
    let mut limits = Limits::default();
    limits.header_bytes = 100;
    assert!(open_with(&file.path, limits).err().unwrap().message().contains("where 100 are allowed"));
}

/// What could be read in two ways, or hides bytes between tensors, is refused all the same.
#[test]
fn what_is_not_harmless_stays_refused() {
    for name in ["bad_dup_keys", "bad_gap", "bad_overlap", "bad_beyond", "bad_cut", "bad_size", "bad_json_tail"] {
        let path = fixture(&format!("safetensors/{name}.safetensors")).path;
        assert!(open_leniently(&path).is_err(), "{name}");
    }
}
