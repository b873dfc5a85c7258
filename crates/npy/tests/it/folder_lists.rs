//! The list of a folder of arrays: cut short, with a bit flipped, beyond limits.

use std::fs;
use std::path::{Path, PathBuf};
use weightlift_core::{Checkpoint, DType, Error, Format, Kind, Limits, OpenOptions};
use weightlift_io::{read_entry, real};
use weightlift_npy::Npy;
use weightlift_testkit::fixture;

const LISTED: &str = r#"{
  "arrays": [
    {"name": "layer/w", "file": "w.npy"},
    {"name": "b", "file": "b.npy", "dtype": "bf16"},
    {"name": "wide", "file": "wide.npy", "was": "f8e5m2"}
  ]
}"#;

/// A folder of three arrays and their list.
struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    fn new() -> Folder {
        let dir = tempfile::tempdir().unwrap();
        for (name, array) in [("w", "f64_f_3d"), ("b", "bf16"), ("wide", "f32_c")] {
            fs::copy(fixture(&format!("numpy/{array}.npy")).path, dir.path().join(format!("{name}.npy"))).unwrap();
        }
        let folder = Folder { dir };
        folder.list(LISTED.as_bytes());
        folder
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn list(&self, bytes: &[u8]) {
        fs::write(self.path().join("arrays.json"), bytes).unwrap();
    }

    fn open(&self, limits: Limits) -> Result<Box<dyn Checkpoint>, Error> {
        let mut options = OpenOptions::default();
        options.limits = limits;
        Npy.open(real(), &PathBuf::from(self.path()), &options)
    }

    /// The values of each array, by its file.
    fn values(&self) -> Result<Vec<(String, DType, Vec<u8>)>, Error> {
        let checkpoint = self.open(Limits::default())?;
        let entries = checkpoint.catalog().iter();
        let one = |(id, entry): (_, &weightlift_core::Entry)| {
            Ok((entry.name.clone(), entry.dtype, read_entry(real().as_ref(), checkpoint.as_ref(), id)?))
        };
        entries.map(one).collect()
    }
}

#[test]
fn a_list_cut_anywhere_is_refused() {
    let folder = Folder::new();
    assert_eq!(folder.values().unwrap().len(), 3);
    for len in 0..LISTED.len() {
        folder.list(&LISTED.as_bytes()[..len]);
        let error = folder.values().unwrap_err();
        let message = error.to_string();
        assert!(message.contains("arrays.json: no list of arrays: EOF while parsing"), "{len}: {message}");
        assert_eq!(error.kind(), Kind::Malformed, "{len}");
    }
}

/// A name may change with a bit, a value never: an array is read as what it is, or the list is refused.
#[test]
fn a_flipped_bit_of_the_list_never_changes_values() {
    let folder = Folder::new();
    let sound = folder.values().unwrap();
    assert_eq!(sound[1].1, DType::Bf16);
    let (mut opened, mut refused) = (0, 0);
    let mut bytes = LISTED.as_bytes().to_vec();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        folder.list(&bytes);
        match folder.values() {
            Ok(values) => {
                opened += 1;
                assert_eq!(values.len(), sound.len(), "bit {bit}");
                for ((_, dtype, bytes), (name, expected, before)) in values.iter().zip(&sound) {
                    assert_eq!(bytes, before, "bit {bit}: {name}");
                    // A key that nobody knows is passed over; then the two bytes are what the array says.
                    assert!(dtype == expected || *dtype == DType::Raw, "bit {bit}: {name} is {dtype}");
                }
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error.kind(), Kind::Malformed), "bit {bit}: {error}");
            }
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(opened > 50 && refused > 500, "{opened} {refused}");
}

#[test]
fn an_element_type_nobody_knows_is_refused() {
    let folder = Folder::new();
    for (right, wrong) in [("bf16", "bf17"), ("f8e5m2", "f8e5m9")] {
        folder.list(LISTED.replace(right, wrong).as_bytes());
        let message = folder.values().unwrap_err().to_string();
        assert!(message.contains(&format!("unknown dtype {wrong:?}")), "{message}");
    }
}

#[test]
fn every_limit_stops() {
    let folder = Folder::new();
    let verdict = |change: &dyn Fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        folder.open(limits).err().map(|error| error.kind())
    };
    let list = LISTED.len();
    assert_eq!(verdict(&|l| (l.tensors, l.rank, l.name_bytes, l.header_bytes) = (3, 3, 7, list as u64)), None);
    assert_eq!(verdict(&|limits| limits.tensors = 2), Some(Kind::Limit));
    assert_eq!(verdict(&|limits| limits.rank = 2), Some(Kind::Limit));
    assert_eq!(verdict(&|limits| limits.name_bytes = 6), Some(Kind::Limit));
    assert_eq!(verdict(&|limits| limits.header_bytes = list as u64 - 1), Some(Kind::Limit));
}
