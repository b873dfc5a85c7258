//! Single arrays.

use std::path::Path;
use std::sync::Arc;
use weightlift_core::{Checkpoint, DType, EntryId, Error, Format, Kind, Limits, OpenOptions, Shape};
use weightlift_npy::{Npy, header};
use weightlift_testkit::{Fixture, fixture, fixtures, sha256_hex};

fn open_with(path: &Path, limits: Limits) -> Result<Box<dyn Checkpoint>, Error> {
    let mut options = OpenOptions::default();
    options.limits = limits;
    Npy.open(weightlift_io::real(), path, &options)
}

fn open(path: &Path) -> Result<Box<dyn Checkpoint>, Error> {
    open_with(path, Limits::default())
}

fn bytes_of(checkpoint: &dyn Checkpoint) -> Vec<u8> {
    weightlift_io::read_entry(weightlift_io::real().as_ref(), checkpoint, EntryId(0)).unwrap()
}

/// Opens an array in memory and reads it.
fn open_bytes(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let files = Arc::new(weightlift_testkit::OneFile::new(bytes));
    let checkpoint = Npy.open(files.clone(), Path::new("w.npy"), &OpenOptions::default())?;
    weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), EntryId(0))
}

fn of_this_format() -> Vec<Fixture> {
    let ours: Vec<Fixture> = fixtures().into_iter().filter(|fixture| fixture.kind == "npy").collect();
    assert!(ours.len() > 20, "the fixtures are incomplete");
    ours
}

/// Whether the elements are not numbers, but bytes that are carried.
fn is_raw(fixture: &Fixture) -> bool {
    ["bf16.npy", "str_s.npy", "str_u.npy"].iter().any(|name| fixture.name.ends_with(name))
}

fn is_refused(fixture: &Fixture) -> bool {
    fixture.expect == "error" || ["object.npy", "structured.npy"].iter().any(|name| fixture.name.ends_with(name))
}

#[test]
fn arrays_list_and_read_as_the_manifest_says() {
    for fixture in of_this_format().iter().filter(|fixture| !is_refused(fixture)) {
        let checkpoint = open(&fixture.path).unwrap();
        let catalog = checkpoint.catalog();
        let ([entry], [expected]) = (&catalog.entries[..], &fixture.tensors[..]) else { panic!("{}", fixture.name) };
        assert_eq!(Some(entry.name.as_str()), fixture.path.file_stem().unwrap().to_str());
        let dtype = if is_raw(fixture) { Some(DType::Raw) } else { expected.dtype };
        assert_eq!(Some(entry.dtype), dtype, "{}", fixture.name);
        assert_eq!(entry.shape.dims(), expected.shape, "{}", fixture.name);
        assert_eq!(Some(sha256_hex(&bytes_of(checkpoint.as_ref()))), expected.sha256, "{}", fixture.name);
        assert_eq!(catalog.warnings.len(), usize::from(fixture.name.ends_with("trailing.npy")), "{}", fixture.name);
    }
}

#[test]
fn what_is_no_array_of_numbers_is_refused() {
    let expected = [
        ("bad_cut", "truncated: needs 176 bytes, has 173"),
        ("bad_header_len", "truncated: needs 65545 bytes, has 176"),
        ("bad_header_text", "expected"),
        ("bad_magic", "another magic number"),
        ("object", "Python objects"),
        ("structured", "an array of records, [('a', '<i4'), ('b', '<f8')]"),
    ];
    let refused = of_this_format().into_iter().filter(is_refused).collect::<Vec<_>>();
    assert_eq!(refused.len(), expected.len());
    for (fixture, (name, part)) in refused.iter().zip(expected) {
        assert!(fixture.name.ends_with(&format!("{name}.npy")), "{}", fixture.name);
        let error = open(&fixture.path).err().unwrap();
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(error.place().file.as_ref(), Some(&fixture.path));
    }
}

#[test]
fn headers_are_those_of_numpy() {
    for name in ["bool", "c64", "f16", "f32_c", "scalar", "trailing", "u64", "zero"] {
        let fixture = fixture(&format!("numpy/{name}.npy"));
        let expected = &fixture.tensors[0];
        let ours = header(expected.dtype.unwrap(), &Shape::new(expected.shape.clone()).unwrap()).unwrap();
        assert!(std::fs::read(&fixture.path).unwrap().starts_with(&ours), "{name}");
    }
    let error = header(DType::Bf16, &Shape::scalar()).unwrap_err();
    assert_eq!(error.to_string(), "NumPy has no type of its own for bf16");
}

#[test]
fn an_array_cut_anywhere_is_refused() {
    for name in ["f32_c", "f64_f_3d", "v2", "v3", "scalar"] {
        let whole = std::fs::read(fixture(&format!("numpy/{name}.npy")).path).unwrap();
        for len in 0..whole.len() {
            let error = open_bytes(&whole[..len]).err().unwrap();
            let told = if len == 0 { "an empty file".to_owned() } else { format!("bytes, has {len}") };
            assert!(error.to_string().contains(&told) && error.kind() == Kind::Malformed, "{name} {len}: {error}");
        }
    }
}

#[test]
fn a_flipped_bit_of_the_header_is_refused_or_reads() {
    let (mut opened, mut refused) = (0, 0);
    for name in ["f32_c", "v3", "zero", "str_u"] {
        let mut bytes = std::fs::read(fixture(&format!("numpy/{name}.npy")).path).unwrap();
        for bit in 0..128 * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            match open_bytes(&bytes) {
                Ok(read) => {
                    opened += 1;
                    assert!(read.len() <= bytes.len());
                }
                Err(_) => refused += 1,
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
    assert!(opened > 10 && refused > 1000, "{opened} {refused}");
}

#[test]
fn every_limit_stops() {
    let path = fixture("numpy/f64_f_3d.npy").path;
    let mut limits = Limits::default();
    limits.rank = 2;
    assert_eq!(open_with(&path, limits.clone()).err().unwrap().kind(), Kind::Limit);
    (limits.rank, limits.header_bytes) = (3, 118);
    open_with(&path, limits.clone()).unwrap();
    limits.header_bytes = 117;
    assert_eq!(open_with(&path, limits).err().unwrap().kind(), Kind::Limit);
}

#[test]
fn arrays_are_recognised_by_content_and_failing_that_by_name() {
    let files = weightlift_io::real();
    let recognise = |path: &Path, head: &[u8]| Npy.recognise(files.as_ref(), path, Some(head)).unwrap();
    let array = fixture("numpy/f16.npy").path;
    let head = std::fs::read(&array).unwrap();
    assert!(recognise(Path::new("renamed.pt"), &head).unwrap().by_content);
    assert!(!recognise(&array, b"something else").unwrap().by_content);
    assert!(recognise(Path::new("no.txt"), b"something else").is_none());
}
