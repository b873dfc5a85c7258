//! Files made by hand.
#![allow(dead_code, reason = "every test file takes what it needs")]

use std::path::Path;
use weightlift_archive::{ArchiveWriter, Layout, NewMember};
use weightlift_io::Commit;

/// Writes a zip of these members.
pub(crate) fn zip(path: &Path, members: &[(&str, &[u8])]) {
    let new = members.iter().map(|(name, bytes)| NewMember { name: (*name).into(), bytes: bytes.len() as u64 });
    let mut commit = Commit::new(weightlift_io::real(), true);
    let layout = Layout::new(new.collect(), 64).unwrap();
    let writer = ArchiveWriter::create(commit.create(path).unwrap(), layout).unwrap();
    for (at, (_, bytes)) in members.iter().enumerate() {
        writer.write_at(at, 0, bytes).unwrap();
    }
    writer.finish().unwrap();
    commit.commit(None).unwrap();
}

/// Writes a checkpoint of this pickle and storage `0`.
pub(crate) fn checkpoint(path: &Path, pickle: &[u8], storage: &[u8]) {
    zip(path, &[("archive/data.pkl", pickle), ("archive/data/0", storage), ("archive/version", b"3\n")]);
}

/// A short text.
pub(crate) fn text(text: &str) -> Vec<u8> {
    [b"\x8c", [text.len() as u8].as_slice(), text.as_bytes()].concat()
}

/// An integer of 64 bits.
pub(crate) fn int(int: i64) -> Vec<u8> {
    [b"\x8a\x08".as_slice(), &int.to_le_bytes()].concat()
}

pub(crate) fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(".to_vec(), items.concat(), b"t".to_vec()].concat()
}

pub(crate) fn ints(items: &[i64]) -> Vec<u8> {
    tuple(&items.iter().map(|&item| int(item)).collect::<Vec<_>>())
}

pub(crate) fn global(module: &str, name: &str) -> Vec<u8> {
    format!("c{module}\n{name}\n").into_bytes()
}

pub(crate) fn call(function: Vec<u8>, args: &[Vec<u8>]) -> Vec<u8> {
    [function, tuple(args), b"R".to_vec()].concat()
}

/// Storage `0` of a class, with this many elements.
pub(crate) fn storage(class: &str, numel: i64) -> Vec<u8> {
    let id = tuple(&[text("storage"), global("torch", class), text("0"), text("cpu"), int(numel)]);
    [id, b"Q".to_vec()].concat()
}

/// A float tensor over storage `0` of `numel` elements.
pub(crate) fn tensor(numel: i64, offset: i64, size: &[i64], stride: &[i64]) -> Vec<u8> {
    let hooks = call(global("collections", "OrderedDict"), &[]);
    let args = [storage("FloatStorage", numel), int(offset), ints(size), ints(stride), b"\x89".to_vec(), hooks];
    call(global("torch._utils", "_rebuild_tensor_v2"), &args)
}

/// A dict with text keys.
pub(crate) fn dict(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let pairs = pairs.iter().flat_map(|(key, value)| [text(key), value.clone()]).collect::<Vec<_>>();
    [b"}(".to_vec(), pairs.concat(), b"u".to_vec()].concat()
}

/// A whole pickle.
pub(crate) fn pickle(value: Vec<u8>) -> Vec<u8> {
    [b"\x80\x04".to_vec(), value, b".".to_vec()].concat()
}
