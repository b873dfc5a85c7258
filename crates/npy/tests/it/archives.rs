//! Archives of arrays.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use weightlift_core::{
    BlobId, Catalog, Checkpoint, Checksum, DType, Data, Entry, EntryId, Error, Files, Format, Kind, Limits, Manifest,
    OpenOptions, Origin, Packing, Shape, Source, WriteOptions,
};
use weightlift_npy::Npz;
use weightlift_testkit::{Fixture, OneFile, fixture, fixtures, sha256_hex};

fn open_in(files: Arc<dyn Files>, path: &Path, limits: Limits) -> Result<Box<dyn Checkpoint>, Error> {
    let mut options = OpenOptions::default();
    options.limits = limits;
    Npz.open(files, path, &options)
}

fn open(path: &Path) -> Result<Box<dyn Checkpoint>, Error> {
    open_in(weightlift_io::real(), path, Limits::default())
}

fn bytes_of(checkpoint: &dyn Checkpoint, id: EntryId) -> Result<Vec<u8>, Error> {
    weightlift_io::read_entry(weightlift_io::real().as_ref(), checkpoint, id)
}

/// Opens an archive in memory and reads all arrays.
fn open_bytes(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let files = Arc::new(OneFile::new(bytes));
    let checkpoint = open_in(files.clone(), Path::new("w.npz"), Limits::default())?;
    let read = |(id, _)| weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), id);
    checkpoint.catalog().iter().map(read).collect()
}

fn of_this_format() -> Vec<Fixture> {
    let ours: Vec<Fixture> = fixtures().into_iter().filter(|fixture| fixture.kind == "npz").collect();
    assert!(ours.len() >= 5, "the fixtures are incomplete");
    ours
}

#[test]
fn archives_list_and_read_as_the_manifest_says() {
    for fixture in of_this_format() {
        let checkpoint = open(&fixture.path).unwrap();
        let catalog = checkpoint.catalog();
        assert!(catalog.warnings.is_empty() && catalog.beside.is_empty(), "{}", fixture.name);
        assert_eq!(catalog.entries.len(), fixture.tensors.len(), "{}", fixture.name);
        for ((id, entry), expected) in catalog.iter().zip(&fixture.tensors) {
            let dtype = if fixture.name.ends_with("bf16.npz") { Some(DType::Raw) } else { expected.dtype };
            assert_eq!((&entry.name, Some(entry.dtype)), (&expected.name, dtype), "{}", fixture.name);
            assert_eq!(entry.shape.dims(), expected.shape, "{}: {}", fixture.name, entry.name);
            let digest = sha256_hex(&bytes_of(checkpoint.as_ref(), id).unwrap());
            assert_eq!(Some(digest), expected.sha256, "{}: {}", fixture.name, entry.name);
        }
    }
}

#[test]
fn stored_arrays_lie_in_the_file_and_deflated_ones_are_decoded() {
    let sources = |name: &str| open(&fixture(name).path).unwrap().catalog().sources.clone();
    assert!(matches!(sources("numpy/stored.npz")[..], [Source::File { .. }]));
    let compressed = sources("numpy/compressed.npz");
    assert_eq!(compressed.iter().filter(|source| matches!(source, Source::Decoded { .. })).count(), 6);
    let stored = open(&fixture("numpy/stored.npz").path).unwrap();
    for (id, entry) in stored.catalog().iter() {
        let extent = &entry.extents().unwrap()[0];
        let file = std::fs::read(&fixture("numpy/stored.npz").path).unwrap();
        let data = &file[extent.bytes.start() as usize..extent.bytes.end() as usize];
        let crc = weightlift_kernels::checksum::crc32(data);
        assert_eq!(extent.checksum, Some(Checksum::Crc32(crc)), "{id:?}");
    }
}

#[test]
fn archives_are_recognised_by_content_and_failing_that_by_name() {
    let files = weightlift_io::real();
    let recognise = |path: &Path, head: &[u8]| Npz.recognise(files.as_ref(), path, Some(head)).unwrap();
    let stored = fixture("numpy/stored.npz").path;
    assert!(recognise(Path::new("x.bin"), &std::fs::read(&stored).unwrap()).unwrap().by_content);
    assert!(!recognise(&stored, b"PK\x03\x04").unwrap().by_content);
    let torch = std::fs::read(fixture("torch/flat_zip.pt").path).unwrap();
    assert!(recognise(Path::new("x.pt"), &torch).is_none());
}

#[test]
fn what_is_no_archive_is_refused_with_what_it_is() {
    let pointer = std::fs::read(fixture("safetensors/bad_lfs_pointer.safetensors").path).unwrap();
    let error = open_bytes(&pointer).unwrap_err().to_string();
    assert!(error.starts_with("w.npz: no archive of arrays but a Git LFS pointer"), "{error}");
}

#[test]
fn an_archive_cut_anywhere_is_refused() {
    for name in ["stored", "compressed"] {
        let whole = std::fs::read(fixture(&format!("numpy/{name}.npz")).path).unwrap();
        for len in 0..whole.len() {
            let error = open_bytes(&whole[..len]).unwrap_err();
            assert_eq!(error.place().file.as_deref(), Some(Path::new("w.npz")), "{name} cut to {len}: {error}");
        }
    }
}

/// A flipped bit is refused or changes nothing but what no checksum covers: names, dates, flags.
#[test]
fn a_flipped_bit_never_changes_values() {
    for name in ["stored", "compressed"] {
        let mut bytes = std::fs::read(fixture(&format!("numpy/{name}.npz")).path).unwrap();
        let sound = open_bytes(&bytes).unwrap();
        let (mut same, mut refused) = (0, 0);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            match open_bytes(&bytes) {
                // A header may be damaged without a sum over it alone: its array then fails the sum of its data.
                Ok(read) => {
                    same += 1;
                    assert!(read.len() < sound.len() || read == sound, "{name} bit {bit}");
                }
                Err(_) => refused += 1,
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(same > 100 && refused > 1000, "{name}: {same} {refused}");
    }
}

#[test]
fn every_limit_stops() {
    for name in ["stored", "compressed"] {
        let path = fixture(&format!("numpy/{name}.npz")).path;
        let verdict = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            open_in(weightlift_io::real(), &path, limits).err().map(|error| error.kind())
        };
        assert_eq!(verdict(|limits| (limits.tensors, limits.rank, limits.name_bytes) = (6, 2, 12)), None);
        assert_eq!(verdict(|limits| limits.tensors = 5), Some(Kind::Limit));
        assert_eq!(verdict(|limits| limits.rank = 1), Some(Kind::Limit));
        assert_eq!(verdict(|limits| limits.name_bytes = 11), Some(Kind::Limit));
        assert_eq!(verdict(|limits| limits.header_bytes = 100), Some(Kind::Limit));
    }
}

/// A tensor to write, and its bytes.
type Tensor = (String, DType, Vec<u64>, Vec<u8>);

fn write(path: &Path, tensors: &[Tensor], piece: usize) -> Result<(), Error> {
    let mut manifest = Manifest::default();
    let add = |(name, dtype, dims, _): &Tensor| manifest.add_tensor(name, *dtype, Shape::new(dims.clone()).unwrap());
    let blobs: Vec<BlobId> = tensors.iter().map(add).collect();
    let mut options = WriteOptions::default();
    options.replace = true;
    let writer = Npz.create(weightlift_io::real(), path, manifest, &options)?;
    for ((.., bytes), blob) in tensors.iter().zip(blobs) {
        for (index, piece_bytes) in bytes.chunks(piece).enumerate().collect::<Vec<_>>().into_iter().rev() {
            writer.write_at(blob, (index * piece) as u64, piece_bytes)?;
        }
    }
    writer.finish().map(drop)
}

fn tensor(name: String) -> impl Strategy<Value = Tensor> {
    let holds = Npz.capabilities().unwrap().holds;
    let plain = |dtype: &DType| !dtype.is_opaque() && holds(*dtype).is_some();
    let dtypes: Vec<DType> = DType::ALL.iter().copied().filter(plain).collect();
    (prop::sample::select(dtypes), vec(0u64..4, 0..4)).prop_map(move |(dtype, dims)| {
        let elements = Shape::new(dims.clone()).unwrap().elements();
        let bytes = (0..dtype.bytes(elements, Packing::Dense).unwrap()).map(|n| n as u8 & 1).collect();
        (name.clone(), dtype, dims, bytes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_is_read_back(
        tensors in btree_set("[^\0]{0,9}", 0..5).prop_flat_map(|names| names.into_iter().map(tensor).collect::<Vec<_>>()),
        piece in 1usize..9,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.npz");
        write(&path, &tensors, piece).unwrap();
        let checkpoint = open(&path).unwrap();
        let catalog = checkpoint.catalog();
        prop_assert_eq!(catalog.entries.len(), tensors.len());
        for ((id, entry), (name, dtype, dims, bytes)) in catalog.iter().zip(&tensors) {
            prop_assert_eq!((&entry.name, entry.dtype, entry.shape.dims()), (name, *dtype, &dims[..]));
            prop_assert_eq!(&bytes_of(checkpoint.as_ref(), id).unwrap(), bytes);
            prop_assert_eq!(entry.extents().unwrap()[0].bytes.start() % 64, 0);
        }
    }
}

#[test]
fn what_an_archive_cannot_hold_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.npz");
    let refused = |name: &str, dtype| {
        let bytes = vec![0; dtype_bytes(dtype)];
        write(&path, &[(name.to_owned(), dtype, vec![1], bytes)], 99).unwrap_err().to_string()
    };
    let dtype_bytes_of_bf16 = refused("w", DType::Bf16);
    assert!(
        dtype_bytes_of_bf16.contains("tensor \"w\": NumPy has no type of its own for bf16"),
        "{dtype_bytes_of_bf16}"
    );
    assert!(refused("a\0b", DType::U8).contains("NUL"));
    assert!(refused("w", DType::Raw).contains("come from no array"));
    let twice = [("w".to_owned(), DType::U8, vec![0], vec![]), ("w".to_owned(), DType::U8, vec![0], vec![])];
    assert!(write(&path, &twice, 1).is_err());
    let short = [("w".to_owned(), DType::U8, vec![2], vec![0])];
    assert!(write(&path, &short, 1).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

fn dtype_bytes(dtype: DType) -> usize {
    dtype.bytes(1, Packing::Dense).unwrap_or(0) as usize
}

/// Arrays whose type only NumPy knows go from archive to archive unharmed.
#[test]
fn raw_arrays_keep_their_type() {
    let source = open(&fixture("numpy/bf16.npz").path).unwrap();
    let catalog: &Catalog = source.catalog();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.npz");
    let mut manifest = Manifest::default();
    for (id, entry) in catalog.iter() {
        let blob = manifest.add_tensor(&entry.name, DType::Raw, entry.shape.clone());
        manifest.blobs[blob.0 as usize].bytes = entry.bytes;
        manifest.tensors[blob.0 as usize].origin = Some(Origin { input: 0, entry: id });
    }
    manifest.extras.push((0, catalog.extras.clone().unwrap()));
    let writer = Npz.create(weightlift_io::real(), &path, manifest, &WriteOptions::default()).unwrap();
    for (id, _) in catalog.iter() {
        writer.write_at(BlobId(id.0), 0, &bytes_of(source.as_ref(), id).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    let copy = open(&path).unwrap();
    let same =
        |a: &Entry, b: &Entry| (&a.name, &a.shape, &a.remarks, a.bytes) == (&b.name, &b.shape, &b.remarks, b.bytes);
    assert!(catalog.entries.iter().zip(&copy.catalog().entries).all(|(a, b)| same(a, b)));
    assert_eq!(copy.catalog().entries[0].remarks, ["descr=<V2"]);
    for (id, _) in catalog.iter() {
        assert_eq!(bytes_of(source.as_ref(), id).unwrap(), bytes_of(copy.as_ref(), id).unwrap());
    }
}

/// A zip of stored members, whatever their content.
fn zip_of(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.npz");
    let mut commit = weightlift_io::Commit::new(weightlift_io::real(), true);
    let new = |(name, bytes): &(&str, Vec<u8>)| weightlift_archive::NewMember {
        name: (*name).to_owned(),
        bytes: bytes.len() as u64,
    };
    let layout = weightlift_archive::Layout::new(members.iter().map(new).collect(), 1).unwrap();
    let writer = weightlift_archive::ArchiveWriter::create(commit.create(&path).unwrap(), layout).unwrap();
    for (number, (_, bytes)) in members.iter().enumerate() {
        writer.write_at(number, 0, bytes).unwrap();
    }
    writer.finish().unwrap();
    commit.commit(None).unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn members_that_are_no_arrays_of_numbers_stand_beside_the_others() {
    let array = |name: &str| std::fs::read(fixture(&format!("numpy/{name}.npy")).path).unwrap();
    let members = [
        ("readme.txt", b"no array".to_vec()),
        ("object.npy", array("object")),
        ("records", array("structured")),
        ("trailing.npy", array("trailing")),
        ("text.npy", array("str_u")),
    ];
    let files = Arc::new(OneFile::new(&zip_of(&members)));
    let checkpoint = open_in(files.clone(), Path::new("w.npz"), Limits::default()).unwrap();
    let catalog = checkpoint.catalog();
    assert_eq!(catalog.beside, ["member \"readme.txt\": 8 bytes that are no array"]);
    assert_eq!(catalog.warnings, ["member \"trailing.npy\": 11 bytes after the array are not read"]);
    let [object, records, trailing, text] = &catalog.entries[..] else { panic!("{:?}", catalog.entries) };
    assert!(matches!(&object.data, Data::Absent(why) if why.contains("Python objects")));
    assert!(matches!(&records.data, Data::Absent(why) if why.contains("records")));
    assert_eq!((object.name.as_str(), records.name.as_str(), text.dtype), ("object", "records", DType::Raw));
    assert!(trailing.extents().unwrap()[0].checksum.is_some());
    assert!(weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), EntryId(2)).is_ok());
}

#[test]
fn of_members_with_one_name_the_last_counts() {
    let array = |name: &str| std::fs::read(fixture(&format!("numpy/{name}.npy")).path).unwrap();
    let mut zip = zip_of(&[("first.npy", array("f16")), ("other.npy", array("u64")), ("again.npy", array("bool"))]);
    for at in 0..zip.len() - 9 {
        if &zip[at..at + 9] == b"again.npy" {
            zip[at..at + 9].copy_from_slice(b"first.npy");
        }
    }
    let checkpoint = open_in(Arc::new(OneFile::new(&zip)), Path::new("w.npz"), Limits::default()).unwrap();
    let catalog = checkpoint.catalog();
    let found: Vec<_> = catalog.entries.iter().map(|entry| (entry.name.as_str(), entry.dtype)).collect();
    assert_eq!(found, [("other", DType::U64), ("first", DType::Bool)]);
    assert_eq!(catalog.warnings, ["member \"first.npy\" stands more than once in the archive: the last one counts"]);
}
