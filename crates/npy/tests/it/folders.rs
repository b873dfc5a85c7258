//! Folders of arrays, and single arrays written.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{
    BlobId, Checkpoint, DType, Data, EntryId, Error, Files, Format, Manifest, Nameless, OpenOptions, Shape,
    WriteOptions,
};
use weightlift_npy::{Npy, Npz};
use weightlift_testkit::{FaultyFiles, fixture};

fn open(path: &Path) -> Result<Box<dyn Checkpoint>, Error> {
    let recognised = Npy.recognise(weightlift_io::real().as_ref(), path, None)?;
    let recognised = recognised.ok_or_else(|| Error::unsupported("no folder of arrays"))?;
    Npy.open(weightlift_io::real(), &recognised.path, &OpenOptions::default())
}

fn read(checkpoint: &dyn Checkpoint, index: u32) -> Vec<u8> {
    weightlift_io::read_entry(weightlift_io::real().as_ref(), checkpoint, EntryId(index)).unwrap()
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Writes byte tensors of these names and this fill.
fn write(files: Arc<dyn Files>, path: &Path, tensors: &[(&str, u64)], fill: u8, replace: bool) -> Result<(), Error> {
    let mut manifest = Manifest::default();
    for (name, len) in tensors {
        manifest.add_tensor(name, DType::U8, Shape::new([*len]).unwrap());
    }
    let mut options = WriteOptions::default();
    options.replace = replace;
    let writer = Npy.create(files, path, manifest, &options)?;
    for (blob, (_, len)) in tensors.iter().enumerate() {
        for at in (0..*len).rev() {
            writer.write_at(BlobId(blob as u32), at, &[fill])?;
        }
    }
    writer.finish().map(drop)
}

const TENSORS: [(&str, u64); 4] = [("z/kernel", 3), ("a", 0), ("Z.kernel", 2), ("", 1)];

#[test]
fn names_and_order_survive_whatever_the_files_are_called() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("out");
    write(weightlift_io::real(), &folder, &TENSORS, 7, false).unwrap();
    assert_eq!(names(&folder), ["Z.kernel-2.npy", "_.npy", "a.npy", "arrays.json", "z.kernel.npy"]);
    assert_eq!(names(dir.path()), ["out"], "nothing is left beside it");
    let checkpoint = open(&folder).unwrap();
    let entries = &checkpoint.catalog().entries;
    let listed: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.bytes)).collect();
    assert_eq!(listed, TENSORS);
    assert_eq!(read(checkpoint.as_ref(), 0), [7; 3]);
    fs::remove_file(folder.join("arrays.json")).unwrap();
    let by_file: Vec<_> = open(&folder).unwrap().catalog().entries.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(by_file, ["Z.kernel-2", "_", "a", "z.kernel"]);
}

#[test]
fn the_list_wins_and_gaps_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("out");
    write(weightlift_io::real(), &folder, &TENSORS, 7, false).unwrap();
    fs::copy(fixture("numpy/f16.npy").path, folder.join("more.npy")).unwrap();
    let checkpoint = open(&folder).unwrap();
    assert_eq!(checkpoint.catalog().entries.len(), 4);
    assert_eq!(checkpoint.catalog().warnings, ["more.npy left aside: arrays.json does not name it"]);
    let mut strict = OpenOptions::default();
    strict.strict = true;
    assert!(Npy.open(weightlift_io::real(), &folder, &strict).is_err());
    fs::remove_file(folder.join("a.npy")).unwrap();
    let gap = open(&folder).err().unwrap().to_string();
    assert!(gap.contains("1 of the 4 arrays are missing: a.npy"), "{gap}");
    for (list, part) in [
        (r#"{"arrays": [{"name": "x", "file": "../x.npy"}]}"#, "is no name of an array in this folder"),
        (r#"{"arrays": [{"name": "x", "file": "_.npy"}, {"name": "x", "file": "_.npy"}]}"#, "the name stands twice"),
        (r#"{"arrays": [{"name": "x"}]}"#, "no list of arrays: missing field `file`"),
        ("[", "no list of arrays"),
    ] {
        fs::write(folder.join("arrays.json"), list).unwrap();
        let error = open(&folder).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// Killed at any operation: the old folder, the new one, or none of the name, which the next look moves back.
#[test]
fn a_folder_killed_at_any_operation_is_old_or_new() {
    let old = [("a", 2), ("old", 1)];
    let new = [("a", 2), ("new", 3)];
    for replaces in [false, true] {
        let mut restored = 0;
        for k in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let folder = dir.path().join("out");
            if replaces {
                write(weightlift_io::real(), &folder, &old, 1, false).unwrap();
            }
            let faulty = FaultyFiles::failing_from(weightlift_io::real(), k, ErrorKind::Other);
            let done = write(Arc::new(faulty), &folder, &new, 2, true).is_ok();
            let gone = !folder.exists();
            let seen = open(&folder).ok().map(|checkpoint| {
                let catalog = checkpoint.catalog();
                let values = (0..catalog.entries.len() as u32).map(|at| read(checkpoint.as_ref(), at));
                catalog.entries.iter().map(|entry| entry.name.clone()).zip(values).collect::<Vec<_>>()
            });
            let whole = |tensors: &[(&str, u64)], fill: u8| {
                let tensor = |(name, len): &(&str, u64)| ((*name).to_owned(), vec![fill; *len as usize]);
                Some(tensors.iter().map(tensor).collect::<Vec<_>>())
            };
            let before = if replaces { whole(&old, 1) } else { None };
            assert!(seen == whole(&new, 2) || (seen == before && !done), "killed at {k}: {seen:?}");
            restored += usize::from(gone && seen.is_some());
            // The next run tidies up.
            write(weightlift_io::real(), &folder, &new, 2, true).unwrap();
            assert_eq!(names(dir.path()), ["out"], "killed at {k}");
            assert_eq!(names(&folder), ["a.npy", "arrays.json", "new.npy"]);
            if done {
                break;
            }
            assert!(k < 200);
        }
        assert_eq!(restored > 0, replaces, "a folder moved aside is moved back");
    }
}

#[test]
fn folders_with_other_files_are_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("out");
    fs::create_dir(&folder).unwrap();
    let try_write = |replace| write(weightlift_io::real(), &folder, &TENSORS, 7, replace);
    try_write(false).expect("an empty folder is as good as none");
    assert!(try_write(false).unwrap_err().to_string().contains("exists already (--force replaces it)"));
    fs::write(folder.join("notes.txt"), "mine").unwrap();
    let error = try_write(true).unwrap_err().to_string();
    assert!(error.contains("holds more than arrays: notes.txt"), "{error}");
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(write(weightlift_io::real(), &file, &TENSORS, 7, true).unwrap_err().to_string().contains("is a file"));
    assert!(write(weightlift_io::real(), &dir.path().join("no/out"), &TENSORS, 7, true).is_err());
    assert_eq!(names(dir.path()), ["file", "out"]);
}

#[test]
fn unfinished_folders_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = Manifest::default();
    let blob = manifest.add_tensor("w", DType::U8, Shape::new([4]).unwrap());
    let start =
        || Npy.create(weightlift_io::real(), &dir.path().join("out"), manifest.clone(), &WriteOptions::default());
    let writer = start().unwrap();
    writer.write_at(blob, 0, &[1, 2]).unwrap();
    assert!(writer.write_at(blob, 3, &[1, 2]).is_err());
    assert!(writer.write_at(BlobId(1), 0, &[1]).is_err());
    drop(writer);
    assert_eq!(names(dir.path()), [] as [&str; 0]);
    let writer = start().unwrap();
    assert!(writer.finish().unwrap_err().to_string().contains("0 of its 4 bytes were written"));
    assert_eq!(names(dir.path()), [] as [&str; 0]);
}

#[test]
fn one_tensor_can_be_a_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.npy");
    write(weightlift_io::real(), &path, &[("x/y", 3)], 9, false).unwrap();
    let checkpoint = Npy.open(weightlift_io::real(), &path, &OpenOptions::default()).unwrap();
    assert_eq!((checkpoint.catalog().entries[0].name.as_str(), read(checkpoint.as_ref(), 0)), ("w", vec![9; 3]));
    let two = write(weightlift_io::real(), &path, &TENSORS, 9, true).unwrap_err().to_string();
    assert!(two.contains("4 tensors for one .npy file"), "{two}");
}

#[test]
fn objects_and_records_are_listed_without_values_beside_others() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["object", "structured", "f32_f", "str_u"] {
        fs::copy(fixture(&format!("numpy/{name}.npy")).path, dir.path().join(format!("{name}.npy"))).unwrap();
    }
    let checkpoint = open(dir.path()).unwrap();
    let entries = &checkpoint.catalog().entries;
    let absent = |at: usize, part: &str| matches!(&entries[at].data, Data::Absent(why) if why.contains(part));
    assert!(absent(1, "Python objects") && absent(3, "records"), "{entries:?}");
    assert_eq!((entries[0].dtype, entries[2].dtype), (DType::F32, DType::Raw));
    assert!(checkpoint.catalog().warnings.is_empty(), "{:?}", checkpoint.catalog().warnings);
}

/// Numbers that NumPy has no type for, in both forms and both containers, are read back as what they were.
#[test]
fn nameless_numbers_are_recorded_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let (npy, npz): (&dyn Format, &dyn Format) = (&Npy, &Npz);
    let dtypes =
        [DType::Bf16, DType::F8E4m3fn, DType::F8E5m2fnuz, DType::F8E8m0fnu, DType::C32, DType::F32, DType::U16];
    for form in [Nameless::Bits, Nameless::Raw] {
        for (format, name) in [(npy, "out"), (npz, "out.npz")] {
            let path: PathBuf = dir.path().join(format!("{form:?}{name}"));
            let mut manifest = Manifest::default();
            for dtype in dtypes {
                manifest.add_tensor(dtype.name(), dtype, Shape::new([2]).unwrap());
            }
            let bytes: Vec<Vec<u8>> =
                manifest.blobs.iter().map(|blob| (0..blob.bytes).map(|n| n as u8 * 3).collect()).collect();
            let mut options = WriteOptions::default();
            assert!(format.create(weightlift_io::real(), &path, manifest.clone(), &options).is_err(), "unasked");
            options.nameless = form;
            options.widened = vec![("f32".to_owned(), DType::Bf16)];
            let writer = format.create(weightlift_io::real(), &path, manifest, &options).unwrap();
            for (blob, bytes) in bytes.iter().enumerate() {
                writer.write_at(BlobId(blob as u32), 0, bytes).unwrap();
            }
            writer.finish().unwrap();
            let checkpoint = format.open(weightlift_io::real(), &path, &OpenOptions::default()).unwrap();
            let entries = &checkpoint.catalog().entries;
            assert_eq!(entries.iter().map(|entry| entry.dtype).collect::<Vec<_>>(), dtypes);
            assert_eq!(entries[5].remarks, ["widened from bf16"]);
            for (at, bytes) in bytes.iter().enumerate() {
                assert_eq!(&read(checkpoint.as_ref(), at as u32), bytes, "{form:?} {name} {at}");
            }
        }
    }
}
