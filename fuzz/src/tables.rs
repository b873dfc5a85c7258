//! Tables with sound checksums around fuzzed bytes, for without them every mutation ends at the first one.

use crate::pairs;
use std::collections::BTreeMap;
use weightlift_core::Limits;
use weightlift_kernels::checksum::{crc32c, mask_crc32c};
use weightlift_tf::table::{Block, Footer, Handle, TRAILER, TableWriter, read};

/// What the first byte of an input says of the rest.
const WHOLE: u8 = 0;
const DATA: u8 = 1;
const SNAPPY: u8 = 2;
const INDEX: u8 = 3;
const PAIRS: u8 = 4;

/// A table of an input: the whole file as it is, its data block stored or compressed, its index block beside a sound
/// data block, or its keys and values.
pub(crate) fn of_input(data: &[u8]) -> Vec<u8> {
    match data.split_first() {
        Some((&WHOLE, file)) => file.to_vec(),
        Some((&kind @ (DATA | SNAPPY), block)) => around(block, kind - DATA),
        Some((&INDEX, block)) => with_index(block),
        Some((&PAIRS, rest)) => of_pairs(rest),
        _ => data.to_vec(),
    }
}

/// A table of pairs, of equal keys the last one.
fn of_pairs(data: &[u8]) -> Vec<u8> {
    of_sorted(&pairs::split(data).into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
}

/// A table of what a map holds.
pub(crate) fn of_sorted(pairs: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let mut table = TableWriter::new();
    pairs.iter().for_each(|(key, value)| table.add(key, value));
    table.finish()
}

fn put_block(out: &mut Vec<u8>, contents: &[u8], kind: u8) -> Handle {
    let handle = Handle { offset: out.len() as u64, size: contents.len() as u64 };
    out.extend_from_slice(contents);
    out.push(kind);
    let crc = mask_crc32c(crc32c(&out[handle.offset as usize..]));
    out.extend(crc.to_le_bytes());
    handle
}

/// A table of one data block.
fn around(block: &[u8], kind: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let data = put_block(&mut out, block, kind);
    let mut value = Vec::new();
    data.put(&mut value);
    let mut index = vec![0, 1, value.len() as u8, 0xff];
    index.extend(value);
    index.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    let index = put_block(&mut out, &index, 0);
    out.extend(Footer { metaindex: Handle::default(), index }.to_bytes());
    out
}

/// A table whose index block is given.
fn with_index(block: &[u8]) -> Vec<u8> {
    let mut pairs = TableWriter::new();
    pairs.add(b"", &[8, 1, 26, 2, 8, 1]);
    pairs.add(b"a", &[8, 1, 18, 0, 40, 4]);
    let mut out = pairs.finish();
    out.truncate(out.len() - Footer::LEN);
    let index = put_block(&mut out, block, 0);
    out.extend(Footer { metaindex: Handle::default(), index }.to_bytes());
    out
}

/// The inputs that a file is: whole, its blocks, its pairs.
pub(crate) fn seeds(file: &[u8]) -> Vec<Vec<u8>> {
    let with = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    let mut seeds = vec![with(WHOLE, file)];
    let Ok(footer) = Footer::parse(file) else { return seeds };
    let Some((index, _)) = block(file, footer.index) else { return seeds };
    seeds.push(with(INDEX, index));
    for handle in handles(index) {
        seeds.extend(block(file, handle).map(|(data, kind)| with(DATA + kind, data)));
    }
    let pairs = all_pairs(file);
    seeds.extend((!pairs.is_empty()).then(|| with(PAIRS, &pairs)));
    seeds
}

/// Keys and values of a file as an input.
pub(crate) fn all_pairs(file: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let _ = read(file, &Limits::default(), |key, value| {
        pairs::put(&mut out, key, value);
        Ok(())
    });
    out
}

/// A block without its trailer, and its type.
fn block(file: &[u8], handle: Handle) -> Option<(&[u8], u8)> {
    let range = handle.range(file.len() as u64).ok()?;
    let stored = &file[range.start() as usize..range.end() as usize];
    let (contents, trailer) = stored.split_at(stored.len() - TRAILER);
    Some((contents, trailer[0] & 1))
}

fn handles(index: &[u8]) -> Vec<Handle> {
    let mut handles = Vec::new();
    let Ok(block) = Block::parse(index) else { return handles };
    let mut entries = block.entries();
    while let Ok(Some((_, value))) = entries.next_entry() {
        handles.extend(Handle::parse(value));
    }
    handles
}
