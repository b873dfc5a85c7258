//! Boxes of tensors come out dense, whatever the layout they are stored in.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]

use std::path::{Path, PathBuf};

use weightlift_core::{
    ByteOrder, ByteRange, Catalog, Checkpoint, Checksum, DType, Entry, EntryId, Extent, KeyPath, Kind, Layout, Region,
    Result, Shape, Source, SourceId,
};
use weightlift_io::{RealFiles, Scratch, Sources, read_box, read_entry};
use weightlift_kernels::checksum::Algorithm;

struct Fake {
    catalog: Catalog,
    path: PathBuf,
}

impl Checkpoint for Fake {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn decode(&self, _: SourceId) -> Result<Box<dyn std::io::Read + Send + '_>> {
        Ok(Box::new(std::fs::File::open(&self.path).unwrap()))
    }
}

fn shape(dims: &[u64]) -> Shape {
    Shape::new(dims).unwrap()
}

/// A file of u32 numbers 0, 1, 2, … and one entry over it.
fn fake(dir: &Path, numbers: u32, entry: impl FnOnce(ByteRange) -> Entry) -> Fake {
    let bytes: Vec<u8> = (0..numbers).flat_map(u32::to_le_bytes).collect();
    let path = dir.join("numbers");
    std::fs::write(&path, &bytes).unwrap();
    let mut catalog = Catalog::new("fake", "numbers");
    catalog.add_source(Source::File { path: path.clone(), len: bytes.len() as u64 });
    catalog.entries.push(entry(ByteRange::new(0, bytes.len() as u64).unwrap()));
    Fake { catalog, path }
}

fn view(range: ByteRange, dims: &[u64], offset: u64, strides: &[u64]) -> Entry {
    let layout = Layout { offset, strides: strides.to_vec() };
    let extent = Extent::strided(SourceId(0), range, DType::U32, &shape(dims), layout).unwrap();
    Entry::new(KeyPath::flat("v"), DType::U32, shape(dims), vec![extent]).unwrap()
}

/// What index arithmetic says the box holds.
fn expected(region: &Region, offset: u64, strides: &[u64]) -> Vec<u32> {
    let dims = region.size.dims();
    (0..region.size.elements())
        .map(|mut flat| {
            let mut at = offset;
            for axis in (0..dims.len()).rev() {
                at += (region.start[axis] + flat % dims[axis]) * strides[axis];
                flat /= dims[axis];
            }
            at as u32
        })
        .collect()
}

fn read(fake: &Fake, region: &Region) -> Vec<u32> {
    let sources = Sources::new(&RealFiles, fake, Path::new("."));
    let mut out = vec![0xee; region.size.elements() as usize * 4];
    read_box(&sources, fake.catalog.entry(EntryId(0)), region, &mut out, &mut Scratch::default()).unwrap();
    out.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn every_layout_gives_the_logical_values() {
    let dir = tempfile::tempdir().unwrap();
    let cases: &[(&[u64], u64, &[u64])] = &[
        (&[4, 6], 0, &[6, 1]),
        (&[6, 4], 3, &[1, 6]),
        (&[3, 5], 7, &[0, 2]),
        (&[2, 3, 4], 1, &[4, 20, 1]),
        (&[5], 2, &[9]),
        (&[], 11, &[]),
        (&[3000, 7], 0, &[1, 3000]),
        (&[2, 3, 500], 5, &[1, 2, 700]),
    ];
    for (dims, offset, strides) in cases {
        let fake = fake(dir.path(), 400_000, |range| view(range, dims, *offset, strides));
        let whole = Region::whole(&shape(dims));
        assert_eq!(read(&fake, &whole), expected(&whole, *offset, strides), "{dims:?} {strides:?}");
        for axis in 0..dims.len() {
            let mut part = whole.clone();
            let mut size = dims.to_vec();
            part.start[axis] = dims[axis] / 2;
            size[axis] -= dims[axis] / 2;
            part.size = shape(&size);
            assert_eq!(read(&fake, &part), expected(&part, *offset, strides), "{dims:?} {strides:?} half of {axis}");
        }
    }
}

#[test]
fn parts_of_a_tensor_are_assembled() {
    let dir = tempfile::tempdir().unwrap();
    // Columns 0..2 and 2..5 of a 3 x 5 tensor, stored apart and in the other order.
    let fake = fake(dir.path(), 100, |_| {
        let part = |start: u64, column: u64, columns: u64| {
            let size = shape(&[3, columns]);
            let range = ByteRange::new(start * 4, size.elements() * 4).unwrap();
            let region = Region { start: vec![0, column], size: size.clone() };
            Extent::contiguous(SourceId(0), range, DType::U32, &size).unwrap().filling(region)
        };
        Entry::new(KeyPath::flat("v"), DType::U32, shape(&[3, 5]), vec![part(50, 2, 3), part(0, 0, 2)]).unwrap()
    });
    let whole = [0, 1, 50, 51, 52, 2, 3, 53, 54, 55, 4, 5, 56, 57, 58];
    assert_eq!(read(&fake, &Region::whole(&shape(&[3, 5]))), whole);
    let middle = Region { start: vec![1, 1], size: shape(&[2, 2]) };
    assert_eq!(read(&fake, &middle), [3, 53, 5, 56]);
}

#[test]
fn big_endian_values_are_swapped_once() {
    let dir = tempfile::tempdir().unwrap();
    let fake = fake(dir.path(), 8, |range| {
        let extent = Extent::contiguous(SourceId(0), range, DType::U32, &shape(&[8])).unwrap();
        let extent = extent.with_order(ByteOrder::Big);
        Entry::new(KeyPath::flat("v"), DType::U32, shape(&[8]), vec![extent]).unwrap()
    });
    let region = Region { start: vec![2], size: shape(&[2]) };
    assert_eq!(read(&fake, &region), [2u32.swap_bytes(), 3u32.swap_bytes()]);
}

#[test]
fn checksums_are_verified_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let good = Algorithm::Crc32c.of(&(0..8u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    for (stored, fine) in [(good, true), (good ^ 1, false)] {
        let fake = fake(dir.path(), 8, |range| {
            let extent = Extent::contiguous(SourceId(0), range, DType::U32, &shape(&[8])).unwrap();
            let extent = extent.with_checksum(Checksum::Crc32c(stored));
            Entry::new(KeyPath::flat("v"), DType::U32, shape(&[8]), vec![extent]).unwrap()
        });
        let result = read_entry(&RealFiles, &fake, EntryId(0));
        if fine {
            assert_eq!(result.unwrap().len(), 32);
        } else {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), Kind::Checksum);
            let text = error.to_string();
            assert!(text.contains("numbers: tensor \"v\" at byte 0: checksum mismatch: stored"), "{text}");
        }
    }
}

#[test]
fn decoded_sources_are_read_at_any_position() {
    let dir = tempfile::tempdir().unwrap();
    for numbers in [100, 400_000] {
        let mut fake = fake(dir.path(), numbers, |range| view(range, &[4, 6], 3, &[7, 1]));
        let len = u64::from(numbers) * 4;
        fake.catalog.sources[0] = Source::Decoded { label: "member".into(), len };
        let sources = Sources::new(&RealFiles, &fake, dir.path());
        let region = Region { start: vec![2, 1], size: shape(&[2, 3]) };
        let mut out = vec![0; 24];
        let entry = fake.catalog.entry(EntryId(0));
        read_box(&sources, entry, &region, &mut out, &mut Scratch::default()).unwrap();
        let found: Vec<u32> = out.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(found, expected(&region, 3, &[7, 1]));
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["numbers"], "what is spilled has no name");
        fake.catalog.sources[0] = Source::Decoded { label: "member".into(), len: len + 1 };
        assert!(Sources::new(&RealFiles, &fake, dir.path()).get(SourceId(0)).is_err());
    }
}

#[test]
fn a_tiny_storage_is_not_expanded_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let fake = fake(dir.path(), 1, |range| view(range, &[1 << 40], 0, &[0]));
    assert_eq!(read_entry(&RealFiles, &fake, EntryId(0)).unwrap_err().kind(), Kind::Limit);
}
