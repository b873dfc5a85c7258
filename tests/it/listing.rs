//! Fixtures list with exactly the names, dtypes and shapes that their frameworks read, and their values hash equal.

use std::path::Path;
use weightlift::{Data, Opened};
use weightlift_testkit::{Fixture, fixture, fixtures, sha256_hex};

/// The checkpoints that must list, convert and read back in every format.
pub const MAIN: &[&str] = &[
    "tf/foo_dense/model.ckpt",
    "tf/tf115_foo_dense/model.ckpt",
    "tf/sharded/model.ckpt",
    "tf/strings/model.ckpt",
    "tf/scalars_zero/model.ckpt",
    "tf/bert_tiny/bert_model.ckpt",
    "tf/big_index/model.ckpt",
    "torch/flat_zip.pt",
    "torch/state_dict.pt",
    "torch/nested.pt",
    "torch/shapes.pt",
    "torch/many_storages.pt",
    "safetensors/plain.safetensors",
    "safetensors/metadata.safetensors",
    "safetensors/order.safetensors",
    "safetensors/shapes.safetensors",
];

/// The bytes that the manifest hashes: dense values, and for strings each with its length in 8 bytes.
pub fn manifest_bytes(opened: &Opened, name: &str) -> Vec<u8> {
    let bytes = opened.read(name).unwrap();
    let entry = opened.catalog().named(name).next().unwrap().1;
    if !entry.dtype.is_opaque() {
        return bytes;
    }
    strings(&bytes, entry.shape.elements())
        .iter()
        .flat_map(|s| [&(s.len() as u64).to_le_bytes()[..], s].concat())
        .collect()
}

/// The strings of a TensorFlow string tensor: varint lengths, a checksum of 4 bytes, the strings.
fn strings(bytes: &[u8], count: u64) -> Vec<Vec<u8>> {
    let mut at = 0;
    let mut varint = || {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = bytes[at];
            at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value as usize;
            }
        }
    };
    let lengths: Vec<usize> = (0..count).map(|_| varint()).collect();
    let mut start = at + 4;
    let take = |len: usize| {
        start += len;
        bytes[start - len..start].to_vec()
    };
    lengths.into_iter().map(take).collect()
}

fn check(fixture: &Fixture) {
    let opened = weightlift::open(&fixture.path).unwrap();
    let found: Vec<_> =
        opened.catalog().entries.iter().filter(|entry| matches!(entry.data, Data::Extents(_))).collect();
    let name = &fixture.name;
    assert_eq!(found.len(), fixture.tensors.len(), "{name}: {:?}", found.iter().map(|e| &e.name).collect::<Vec<_>>());
    for (entry, expected) in found.iter().zip(&fixture.tensors) {
        assert_eq!(entry.name, expected.name, "{name}");
        assert_eq!(Some(entry.dtype), expected.dtype, "{name} {}", entry.name);
        assert_eq!(entry.shape.dims(), expected.shape, "{name} {}", entry.name);
        if let Some(sha256) = &expected.sha256 {
            assert_eq!(&sha256_hex(&manifest_bytes(&opened, &entry.name)), sha256, "{name} {}", entry.name);
        }
    }
}

#[test]
fn the_main_fixtures_list_as_their_manifest_says() {
    for name in MAIN {
        check(&fixture(name));
    }
}

#[test]
fn every_spelling_of_a_tensorflow_path_opens() {
    let prefix = fixture("tf/foo_dense/model.ckpt").path;
    let folder = prefix.parent().unwrap();
    let spelled = |suffix: &str| Path::new(&format!("{}{suffix}", prefix.display())).to_path_buf();
    let spellings = [
        prefix.clone(),
        spelled(".index"),
        spelled(".data-00000-of-00001"),
        folder.to_path_buf(),
        folder.join("checkpoint"),
    ];
    for path in spellings {
        assert_eq!(weightlift::open(&path).unwrap().catalog().entries.len(), 3, "{}", path.display());
    }
}

#[test]
fn content_decides_and_a_lying_extension_is_said() {
    for (name, format) in
        [("safetensors/really_torch.safetensors", "pt"), ("safetensors/really_safetensors.bin", "safetensors")]
    {
        let opened = weightlift::open(fixture(name).path).unwrap();
        assert_eq!(opened.format().id(), format);
        assert!(opened.warnings().any(|warning| warning.contains("though its name says")), "{name}");
    }
}

/// Whatever a file holds, opening it answers or errs; it never panics, and what must be refused is refused.
#[test]
fn no_fixture_makes_opening_panic() {
    let (mut opened, mut refused) = (0, 0);
    for fixture in fixtures() {
        match weightlift::open(&fixture.path) {
            Ok(_) => opened += 1,
            Err(error) => {
                refused += 1;
                let text = error.to_string();
                assert!(!text.contains('\n') && !text.ends_with('.'), "{}: {text}", fixture.name);
            }
        }
    }
    assert!(opened > 100 && refused > 40, "{opened} opened, {refused} refused");
}
