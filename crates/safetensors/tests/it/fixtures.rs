//! Real files list and read as the framework that wrote them says.

use crate::support::{bytes_of, open};
use weightlift_core::{Checkpoint, Format};
use weightlift_safetensors::{Metadata, Safetensors};
use weightlift_testkit::{Fixture, fixtures, sha256_hex};

/// Files of which either verdict would do, and ours.
const ACCEPTED: &[&str] = &["bad_bool_value", "bad_dup_metadata", "extra_field", "spaces"];
const REFUSED: &[&str] = &["bad_gap", "bad_int_metadata", "bad_nul_padding", "bad_trailing"];

fn of_this_format() -> Vec<Fixture> {
    let ours: Vec<Fixture> = fixtures().into_iter().filter(|fixture| fixture.kind == "safetensors").collect();
    assert!(ours.len() > 40, "the fixtures are incomplete");
    ours
}

fn stem(fixture: &Fixture) -> &str {
    fixture.path.file_stem().unwrap().to_str().unwrap()
}

fn is_sound(fixture: &Fixture) -> bool {
    match fixture.expect.as_str() {
        "ok" => true,
        "error" => false,
        "ok-or-error" if ACCEPTED.contains(&stem(fixture)) => true,
        "ok-or-error" if REFUSED.contains(&stem(fixture)) => false,
        other => panic!("{}: nothing is settled for {other:?}", fixture.name),
    }
}

#[test]
fn sound_files_list_and_read_as_the_manifest_says() {
    for fixture in of_this_format().iter().filter(|fixture| is_sound(fixture)) {
        let checkpoint = open(&fixture.path).unwrap();
        let entries = &checkpoint.catalog().entries;
        assert_eq!(entries.len(), fixture.tensors.len() + ties(fixture), "{}", fixture.name);
        for (index, (entry, expected)) in entries.iter().zip(&fixture.tensors).enumerate() {
            let what = format!("{}: {}", fixture.name, expected.name);
            assert_eq!(entry.name, expected.name, "{what}");
            assert_eq!(Some(entry.dtype), expected.dtype, "{what}");
            assert_eq!(entry.shape.dims(), expected.shape, "{what}");
            let digest = sha256_hex(&bytes_of(checkpoint.as_ref(), index));
            assert_eq!(Some(&digest), expected.sha256.as_ref(), "{what}");
        }
        check_metadata(fixture, checkpoint.as_ref());
    }
}

/// Names that the metadata give to tensors of other names.
fn ties(fixture: &Fixture) -> usize {
    usize::from(stem(fixture) == "tied_model")
}

fn check_metadata(fixture: &Fixture, checkpoint: &dyn Checkpoint) {
    let catalog = checkpoint.catalog();
    let metadata: &Metadata = catalog.extras.as_ref().unwrap().get().unwrap();
    assert_eq!(catalog.beside.len() + ties(fixture), metadata.pairs().count());
    let Some(expected) = fixture.raw["metadata"].as_object() else { return };
    assert!(!metadata.is_absent(), "{}", fixture.name);
    assert_eq!(metadata.pairs().count(), expected.len(), "{}", fixture.name);
    for (key, value) in expected {
        assert_eq!(metadata.get(key), value.as_str(), "{}: {key}", fixture.name);
    }
}

#[test]
fn damaged_files_are_refused_with_their_name() {
    for fixture in of_this_format().iter().filter(|fixture| !is_sound(fixture)) {
        let Err(error) = open(&fixture.path) else { panic!("{} was accepted", fixture.name) };
        assert_eq!(error.place().file.as_ref(), Some(&fixture.path), "{error}");
    }
}

#[test]
fn damage_is_described() {
    let expected = [
        ("bad_beyond", "truncated: needs "),
        ("bad_cut", "truncated: needs 87 bytes, has 86"),
        ("bad_dtype", "tensor \"x\" at byte 28: unknown dtype \"FLOAT\""),
        ("bad_dup_keys", "tensor \"x\": the name stands twice"),
        ("bad_equal_offsets", "needs 4 bytes, but data_offsets give 0"),
        ("bad_float_offsets", "floating point `0.0`"),
        ("bad_gap", "leave a gap after the tensor before"),
        ("bad_html", "a web page"),
        ("bad_int_metadata", "integer `0`"),
        ("bad_json_tail", "trailing characters"),
        ("bad_len_100mb", "truncated: needs 100000009 bytes, has 87"),
        ("bad_len_beyond", "truncated"),
        ("bad_len_huge", "a header of 9223372036854775808 bytes in a file of 87"),
        ("bad_len_short", "EOF while parsing"),
        ("bad_len_zero", "no JSON object"),
        ("bad_lfs_pointer", "Git LFS pointer to a file of"),
        ("bad_metadata_list", "__metadata__ holds texts only"),
        ("bad_missing_field", "tensor \"x\" at byte 49: bad header: missing field `shape`"),
        ("bad_negative", "integer `-6`"),
        ("bad_nested", "tensor \"x\""),
        ("bad_not_object", "no JSON object"),
        ("bad_nul_padding", "padded with NUL bytes"),
        ("bad_overlap", "overlap the tensor before"),
        ("bad_reversed", "end before they begin"),
        ("bad_seven_bytes", "truncated: needs 8 bytes, has 7"),
        ("bad_shape_overflow", "more elements than 2^63"),
        ("bad_size", "needs"),
        ("bad_three_offsets", "data_offsets are two numbers, not 3"),
        ("bad_trailing", "16 bytes follow the last tensor"),
        ("bad_utf8", "not UTF-8"),
        ("bad_zero_bytes", "an empty file"),
    ];
    let bad = of_this_format().into_iter().filter(|fixture| !is_sound(fixture));
    for fixture in bad {
        let (_, part) = expected.iter().find(|(name, _)| *name == stem(&fixture)).expect(&fixture.name);
        let message = open(&fixture.path).err().unwrap().to_string();
        assert!(message.contains(part), "{message}\nlacks {part}");
    }
}

#[test]
fn files_are_recognised_by_content_and_failing_that_by_name() {
    let files = weightlift_io::real();
    let recognise = |fixture: &Fixture| {
        let head = std::fs::read(&fixture.path).unwrap();
        Safetensors.recognise(files.as_ref(), &fixture.path, Some(&head[..head.len().min(4096)])).unwrap()
    };
    for fixture in of_this_format().iter().filter(|fixture| is_sound(fixture)) {
        let recognised = recognise(fixture).unwrap_or_else(|| panic!("{}", fixture.name));
        assert!(recognised.by_content, "{}", fixture.name);
        assert_eq!(recognised.path, fixture.path);
    }
    let torch = weightlift_testkit::fixture("safetensors/really_torch.safetensors");
    assert!(!recognise(&torch).unwrap().by_content);
    let pointer = weightlift_testkit::fixture("safetensors/bad_lfs_pointer.safetensors");
    assert!(!recognise(&pointer).unwrap().by_content);
    assert!(recognise(&weightlift_testkit::fixture("torch/flat_zip.pt")).is_none());
    let folder = torch.path.parent().unwrap().with_file_name("torch");
    assert_eq!(Safetensors.recognise(files.as_ref(), &folder, None).unwrap(), None);
}
