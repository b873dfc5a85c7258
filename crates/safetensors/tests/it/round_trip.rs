//! What is written is read back, here and by the reference.

use crate::support::{OneFile, Tensor, bytes_of, open, write};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use weightlift_core::{
    ByteRange, DType, Entry, Extras, FileRange, Files, Format, Manifest, Packing, Shape, WriteOptions,
};
use weightlift_safetensors::{METADATA_KEY, Metadata, Safetensors};
use weightlift_testkit::{FaultyFiles, fixture};

fn all_dtypes() -> Vec<DType> {
    let holds = Safetensors.capabilities().unwrap().holds;
    let dtypes: Vec<DType> = DType::ALL.iter().copied().filter(|&dtype| holds(dtype).is_some()).collect();
    assert_eq!(dtypes.len(), 22);
    dtypes
}

/// The dtype as the reference calls it: what its name parses to.
fn ours(dtype: Dtype) -> DType {
    let name = format!("{dtype}");
    if name == "F4" { DType::F4E2m1 } else { name.parse().unwrap() }
}

/// A tensor of whole bytes.
fn tensor(name: String) -> impl Strategy<Value = Tensor> {
    (prop::sample::select(all_dtypes()), vec(0u64..4, 0..4), any::<u8>()).prop_map(move |(dtype, mut dims, seed)| {
        if dtype.bits().unwrap() % 8 != 0 {
            dims.push(4);
        }
        let elements = Shape::new(dims.clone()).unwrap().elements();
        let bytes = (0..dtype.bytes(elements, Packing::Dense).unwrap()).map(|n| seed.wrapping_add(n as u8)).collect();
        Tensor { name: name.clone(), dtype, dims, bytes }
    })
}

fn tensors() -> impl Strategy<Value = Vec<Tensor>> {
    btree_set(any::<String>(), 0..6).prop_flat_map(|names| {
        let names = names.into_iter().filter(|name| name != METADATA_KEY);
        names.map(tensor).collect::<Vec<_>>().prop_shuffle()
    })
}

fn metadata() -> impl Strategy<Value = Metadata> {
    prop::option::of(vec(any::<(String, String)>(), 0..4)).prop_map(|pairs| {
        let mut metadata = Metadata::absent();
        if let Some(pairs) = pairs {
            metadata.set("format", "pt");
            pairs.iter().for_each(|(key, value)| metadata.set(key, value));
        }
        metadata
    })
}

proptest! {
    #[test]
    fn names_shapes_and_metadata_survive(tensors in tensors(), metadata in metadata(), piece in 1usize..9) {
        let file = OneFile::new(b"");
        let written = write(&file.path, &tensors, Some(metadata.clone()), piece).unwrap();
        let bytes = std::fs::read(&file.path).unwrap();
        prop_assert_eq!(written.files, [(file.path.clone(), bytes.len() as u64)]);
        prop_assert!(written.notes.is_empty());

        let checkpoint = open(&file.path).unwrap();
        let catalog = checkpoint.catalog();
        let found = catalog.extras.as_ref().unwrap().get::<Metadata>().unwrap();
        prop_assert_eq!(found.is_absent(), metadata.is_absent());
        prop_assert!(found.pairs().eq(metadata.pairs()));
        let theirs = SafeTensors::deserialize(&bytes).unwrap();
        let (start, header) = SafeTensors::read_metadata(&bytes).unwrap();
        prop_assert_eq!(start % 8, 0);
        let pairs: HashMap<String, String> = metadata.pairs().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        prop_assert_eq!(header.metadata().clone(), (!metadata.is_absent()).then_some(pairs));
        prop_assert_eq!(theirs.len(), tensors.len());
        let mut places = Vec::new();
        for tensor in &tensors {
            let view = theirs.tensor(&tensor.name).unwrap();
            prop_assert_eq!(ours(view.dtype()), tensor.dtype);
            prop_assert_eq!(view.shape().iter().map(|&dim| dim as u64).collect::<Vec<_>>(), tensor.dims.clone());
            prop_assert_eq!(view.data(), &tensor.bytes);
            let index = catalog.entries.iter().position(|entry| entry.name == tensor.name).unwrap();
            let entry = &catalog.entries[index];
            prop_assert_eq!((entry.dtype, entry.shape.dims()), (tensor.dtype, &tensor.dims[..]));
            prop_assert_eq!(&bytes_of(checkpoint.as_ref(), index), &tensor.bytes);
            places.push(entry.extents().unwrap()[0].bytes.start());
        }
        prop_assert!(places.is_sorted(), "the order is kept");
    }
}

/// A file as it would be with its header padded to a multiple of 8.
fn with_padded_header(file: &[u8]) -> Vec<u8> {
    let (length, rest) = file.split_first_chunk().unwrap();
    let (text, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let text = text.trim_ascii_end();
    let length = text.len().next_multiple_of(8);
    let padding = vec![b' '; length - text.len()];
    [&(length as u64).to_le_bytes()[..], text, &padding, data].concat()
}

/// A file written again from its catalog is the same file, but for the padding of headers made by hand.
#[test]
fn files_are_rewritten_byte_for_byte() {
    for name in ["plain", "dtypes", "shapes", "equal_tensors", "order", "unaligned", "low_dtypes", "padded"] {
        let source = fixture(&format!("safetensors/{name}.safetensors")).path;
        let checkpoint = open(&source).unwrap();
        let catalog = checkpoint.catalog();
        let tensor = |(index, entry): (usize, &Entry)| Tensor {
            name: entry.name.clone(),
            dtype: entry.dtype,
            dims: entry.shape.dims().to_vec(),
            bytes: bytes_of(checkpoint.as_ref(), index),
        };
        let tensors: Vec<Tensor> = catalog.entries.iter().enumerate().map(tensor).collect();
        let metadata = catalog.extras.as_ref().unwrap().get::<Metadata>().unwrap().clone();
        let file = OneFile::new(b"");
        write(&file.path, &tensors, Some(metadata), 1 << 20).unwrap();
        let old = std::fs::read(&source).unwrap();
        assert_eq!(std::fs::read(&file.path).unwrap(), with_padded_header(&old), "{name}");
        if !["order", "unaligned", "low_dtypes", "padded"].contains(&name) {
            assert_eq!(with_padded_header(&old), old, "{name} is by the reference writer");
        }
    }
}

#[test]
fn a_file_made_from_other_formats_says_pt() {
    let file = OneFile::new(b"");
    write(&file.path, &[], None, 1).unwrap();
    assert_eq!(std::fs::read(&file.path).unwrap(), b"\x20\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}}");
    write(&file.path, &[], Some(Metadata::absent()), 1).unwrap();
    assert_eq!(std::fs::read(&file.path).unwrap(), b"\x08\0\0\0\0\0\0\0{}      ");
}

fn one_tensor(bytes: u64) -> Manifest {
    let mut manifest = Manifest::default();
    manifest.extras.push((0, Extras::new(Metadata::absent())));
    manifest.add_tensor("w", DType::U8, Shape::new([bytes]).unwrap());
    manifest
}

#[test]
fn ranges_are_copied_by_the_system() {
    let file = OneFile::new(b"0123456789");
    let target = file.path.with_file_name("out.safetensors");
    let manifest = one_tensor(6);
    let blob = manifest.tensors[0].parts[0].blob;
    let writer = Safetensors.create(weightlift_io::real(), &target, manifest, &WriteOptions::default()).unwrap();
    let range = |start, len| FileRange { path: file.path.clone(), bytes: ByteRange::new(start, len).unwrap() };
    for (offset, start, len) in [(0, 4, 2), (2, 0, 4)] {
        if !writer.copy_from(blob, offset, &range(start, len)).unwrap() {
            writer.write_at(blob, offset, &b"0123456789"[start as usize..][..len as usize]).unwrap();
        }
    }
    assert!(writer.copy_from(blob, 5, &range(0, 2)).is_err());
    writer.finish().unwrap();
    assert!(std::fs::read(&target).unwrap().ends_with(b"450123"));
}

#[test]
fn missing_and_surplus_bytes_are_refused_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let manifest = one_tensor(6);
    let blob = manifest.tensors[0].parts[0].blob;
    let writer = Safetensors.create(weightlift_io::real(), &path, manifest, &WriteOptions::default()).unwrap();
    assert!(writer.write_at(blob, 4, b"abc").is_err());
    assert!(writer.write_at(blob, u64::MAX, b"abc").is_err());
    writer.write_at(blob, 0, b"abcde").unwrap();
    let error = writer.finish().err().unwrap().to_string();
    assert!(error.contains("5 of the 6 bytes of blob 0 were written"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_existing_file_is_replaced_only_on_request() {
    let file = OneFile::new(b"old");
    let create = |replace| {
        let mut options = WriteOptions::default();
        options.replace = replace;
        Safetensors.create(weightlift_io::real(), &file.path, one_tensor(0), &options)
    };
    assert!(create(false).is_err());
    create(true).unwrap().finish().unwrap();
    assert_ne!(std::fs::read(&file.path).unwrap(), b"old");
}

/// Whatever operation fails, the old file or the new one is there, and no other.
#[test]
fn a_failing_disk_leaves_the_old_file() {
    let file = OneFile::new(b"old");
    let run = |files: Arc<dyn Files>| {
        let manifest = one_tensor(5);
        let blob = manifest.tensors[0].parts[0].blob;
        let mut options = WriteOptions::default();
        options.replace = true;
        let writer = Safetensors.create(files, &file.path, manifest, &options)?;
        writer.write_at(blob, 0, b"hello")?;
        writer.finish()
    };
    let mut failures = 0;
    for k in 0.. {
        std::fs::write(&file.path, b"old").unwrap();
        let files = FaultyFiles::failing_from(weightlift_io::real(), k, ErrorKind::StorageFull);
        let result = run(Arc::new(files));
        let content = std::fs::read(&file.path).unwrap();
        if result.is_ok() {
            assert!(content.ends_with(b"hello"));
            break;
        }
        failures += 1;
        assert!(content == b"old" || content.ends_with(b"hello"), "failure {k} left {content:?}");
    }
    assert!(failures >= 4, "{failures}");
    let short = FaultyFiles::short(weightlift_io::real(), 3);
    run(Arc::new(short)).unwrap();
    assert!(std::fs::read(&file.path).unwrap().ends_with(b"hello"));
}
