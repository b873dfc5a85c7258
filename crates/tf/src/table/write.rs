//! Writing a table exactly as TensorFlow does: uncompressed, blocks of 256 KiB, an empty metaindex block.

use super::block::{BlockBuilder, common_prefix};
use super::{Footer, Handle};
use weightlift_kernels::checksum::{crc32c, mask_crc32c};

/// A data block is closed once it has this size.
const BLOCK_SIZE: usize = 262_144;
/// An entry of this size never joins a block that has begun.
const LARGE_ENTRY: usize = 2 * BLOCK_SIZE;
const RESTART_INTERVAL: usize = 16;
const INDEX_RESTART_INTERVAL: usize = 1;

/// Builds a table in memory from keys in rising order.
///
/// ```
/// use weightlift_tf::table::{TableWriter, read};
/// let mut table = TableWriter::new();
/// table.add(b"a", b"one");
/// table.add(b"b", b"two");
/// let bytes = table.finish();
/// let mut keys = Vec::new();
/// read(&bytes, &Default::default(), |key, _| Ok(keys.push(key.to_vec()))).unwrap();
/// assert_eq!(keys, [b"a", b"b"]);
/// ```
#[derive(Debug)]
pub struct TableWriter {
    out: Vec<u8>,
    data: BlockBuilder,
    index: BlockBuilder,
    last_key: Vec<u8>,
    /// The block that was closed last: its index key depends on the key that follows.
    pending: Option<Handle>,
}

impl Default for TableWriter {
    fn default() -> TableWriter {
        TableWriter::new()
    }
}

impl TableWriter {
    /// An empty table.
    pub fn new() -> TableWriter {
        TableWriter {
            out: Vec::new(),
            data: BlockBuilder::new(RESTART_INTERVAL),
            index: BlockBuilder::new(INDEX_RESTART_INTERVAL),
            last_key: Vec::new(),
            pending: None,
        }
    }

    /// Appends an entry. Keys must come in rising order; a reader refuses the table otherwise.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        if key.len() + value.len() >= LARGE_ENTRY {
            self.close_block();
        }
        if let Some(handle) = self.pending.take() {
            self.add_to_index(&separator(&self.last_key, key), handle);
        }
        self.data.add(key, value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        if self.data.size() >= BLOCK_SIZE {
            self.close_block();
        }
    }

    /// The whole file.
    pub fn finish(mut self) -> Vec<u8> {
        self.close_block();
        let empty = BlockBuilder::new(RESTART_INTERVAL).finish();
        let metaindex = put_block(&mut self.out, &empty);
        if let Some(handle) = self.pending.take() {
            self.add_to_index(&successor(&self.last_key), handle);
        }
        let index = put_block(&mut self.out, &self.index.finish());
        self.out.extend(Footer { metaindex, index }.to_bytes());
        self.out
    }

    fn close_block(&mut self) {
        if !self.data.is_empty() {
            let block = self.data.finish();
            self.pending = Some(put_block(&mut self.out, &block));
        }
    }

    fn add_to_index(&mut self, key: &[u8], handle: Handle) {
        let mut value = Vec::new();
        handle.put(&mut value);
        self.index.add(key, &value);
    }
}

/// Appends a block with its trailer.
fn put_block(out: &mut Vec<u8>, contents: &[u8]) -> Handle {
    let handle = Handle { offset: out.len() as u64, size: contents.len() as u64 };
    out.extend_from_slice(contents);
    out.push(0);
    let crc = mask_crc32c(crc32c(&out[handle.offset as usize..]));
    out.extend_from_slice(&crc.to_le_bytes());
    handle
}

/// A short key from `last` on, but below `next`.
fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let at = common_prefix(last, next);
    match (last.get(at), next.get(at)) {
        (Some(&low), Some(&high)) if low < 0xff && low + 1 < high => {
            let mut key = last[..=at].to_vec();
            key[at] += 1;
            key
        }
        _ => last.to_vec(),
    }
}

/// A short key from `last` on.
fn successor(last: &[u8]) -> Vec<u8> {
    match last.iter().position(|&byte| byte != 0xff) {
        Some(at) => {
            let mut key = last[..=at].to_vec();
            key[at] += 1;
            key
        }
        None => last.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;
    use weightlift_core::{Limits, Result};

    fn pairs(bytes: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        read(bytes, &Limits::default(), |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn index_keys_are_short() {
        assert_eq!(separator(b"abc", b"abz"), b"abd");
        assert_eq!(separator(b"abcdef", b"abzzz"), b"abd");
        assert_eq!(separator(b"abc", b"abd"), b"abc");
        assert_eq!(separator(b"ab", b"abc"), b"ab");
        assert_eq!(separator(b"a\xff", b"b"), b"a\xff");
        assert_eq!(separator(b"\xfea", b"\xff"), b"\xfea");
        assert_eq!(successor(b"w/kernel"), b"x");
        assert_eq!(successor(b"\xff\xffa"), b"\xff\xffb");
        assert_eq!(successor(b"\xff"), b"\xff");
        assert_eq!(successor(b""), b"");
        assert_eq!(successor(b"\0\0"), b"\x01");
    }

    #[test]
    fn an_empty_table_has_its_empty_metaindex() {
        let bytes = TableWriter::new().finish();
        assert_eq!(bytes[..13], [0, 0, 0, 0, 1, 0, 0, 0, 0, 0xc0, 0xf2, 0xa1, 0xb0]);
        assert!(pairs(&bytes).unwrap().is_empty());
    }

    #[test]
    fn blocks_close_by_size_and_before_large_entries() {
        let mut table = TableWriter::new();
        let sizes = [10, 524_285, 524_284, 7, 262_144, 20, 30];
        let wanted: Vec<_> =
            sizes.iter().enumerate().map(|(n, &size)| (format!("k{n:02}").into_bytes(), vec![n as u8; size])).collect();
        wanted.iter().for_each(|(key, value)| table.add(key, value));
        let bytes = table.finish();
        assert_eq!(pairs(&bytes).unwrap(), wanted);
        let footer = Footer::parse(&bytes).unwrap();
        let at = footer.index.offset as usize;
        let index = super::super::Block::parse(&bytes[at..at + footer.index.size as usize]).unwrap();
        let mut entries = index.entries();
        let mut keys = Vec::new();
        while let Some((key, _)) = entries.next_entry().unwrap() {
            keys.push(String::from_utf8(key.to_vec()).unwrap());
        }
        assert_eq!(keys, ["k00", "k01", "k02", "k04", "l"]);
    }

    #[test]
    fn unsorted_keys_are_refused() {
        let mut table = TableWriter::new();
        table.add(b"b", &vec![0; BLOCK_SIZE]);
        table.add(b"a", b"");
        assert!(pairs(&table.finish()).unwrap_err().message().contains("do not rise"));
    }

    #[test]
    fn what_a_table_holds_is_limited() {
        let mut table = TableWriter::new();
        (0..100).for_each(|n| table.add(format!("{n:01000}").as_bytes(), b""));
        let bytes = table.finish();
        let mut limits = Limits::default();
        limits.header_bytes = 50_000;
        assert!(bytes.len() < 50_000);
        let error = read(&bytes, &limits, |_, _| Ok(())).unwrap_err();
        assert_eq!(error.kind(), weightlift_core::Kind::Limit);
    }
}
