//! One block: entries with shared key beginnings, and the offsets where the sharing starts anew.

use crate::varint::{self, Cursor};
use weightlift_core::{Error, Result};

/// The contents of a block, uncompressed and without the trailer.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    entries: &'a [u8],
    restarts: &'a [u8],
}

impl<'a> Block<'a> {
    /// Finds the restart offsets at the end.
    ///
    /// # Errors
    /// `Malformed` when their count does not fit into the block.
    pub fn parse(contents: &'a [u8]) -> Result<Block<'a>> {
        let Some((rest, count)) = contents.split_last_chunk::<4>() else {
            return Err(Error::malformed(format!("a block of {} bytes has no restart count", contents.len())));
        };
        let (count, room) = (u32::from_le_bytes(*count), rest.len() / 4);
        let entries = usize::try_from(count).ok().filter(|&count| count <= room).map(|count| rest.len() - 4 * count);
        let Some((entries, restarts)) = entries.and_then(|at| rest.split_at_checked(at)) else {
            return Err(Error::malformed(format!("a block claims {count} restart offsets, but has room for {room}")));
        };
        Ok(Block { entries, restarts })
    }

    /// Reads the entries in order.
    pub fn entries(&self) -> Entries<'a> {
        Entries { cursor: Cursor::new(self.entries), restarts: self.restarts, key: Vec::new(), first: true }
    }
}

/// Walks over the entries of a block and checks each against the restart offsets.
#[derive(Debug)]
pub struct Entries<'a> {
    cursor: Cursor<'a>,
    /// The offsets not met yet.
    restarts: &'a [u8],
    key: Vec<u8>,
    first: bool,
}

impl<'a> Entries<'a> {
    /// Where the next entry starts, from the start of the block.
    pub fn position(&self) -> u64 {
        self.cursor.position() as u64
    }

    /// The key read last.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether no entry follows.
    pub fn is_last(&self) -> bool {
        self.cursor.is_empty()
    }

    /// The next key and its value.
    ///
    /// # Errors
    /// `Malformed` for numbers, lengths or restart offsets that do not fit together, and for keys that do not rise.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &'a [u8])>> {
        if self.cursor.is_empty() {
            self.check_end()?;
            return Ok(None);
        }
        let at = self.position();
        let shared = self.cursor.varint32()? as usize;
        let unshared = self.cursor.varint32()? as usize;
        let value_len = self.cursor.varint32()? as usize;
        self.check_restart(at, shared)?;
        let tail = self.cursor.take(unshared)?;
        let value = self.cursor.take(value_len)?;
        let Some(previous) = self.key.get(shared..) else {
            let message = format!("a key shares {shared} bytes with one of {}", self.key.len());
            return Err(Error::malformed(message));
        };
        if !self.first && tail <= previous {
            return Err(Error::malformed("keys do not rise"));
        }
        self.first = false;
        self.key.truncate(shared);
        self.key.extend_from_slice(tail);
        Ok(Some((&self.key, value)))
    }

    /// Where a restart offset says so, and at the first entry, nothing is shared.
    fn check_restart(&mut self, at: u64, shared: usize) -> Result<()> {
        let next = self.restarts.split_first_chunk::<4>();
        match next.map(|(offset, rest)| (u64::from(u32::from_le_bytes(*offset)), rest)) {
            Some((offset, rest)) if offset == at => {
                self.restarts = rest;
                if shared == 0 { Ok(()) } else { Err(Error::malformed("a key at a restart offset shares bytes")) }
            }
            Some((offset, _)) if offset < at => {
                Err(Error::malformed(format!("restart offset {offset} is not the start of an entry")))
            }
            _ if self.first => Err(Error::malformed("no restart offset points to the first entry")),
            _ => Ok(()),
        }
    }

    /// All restart offsets have been met; a block without entries has the one that every writer starts with.
    fn check_end(&self) -> Result<()> {
        let initial = self.first && self.restarts == [0; 4];
        if self.restarts.is_empty() || initial {
            return Ok(());
        }
        Err(Error::malformed(format!("{} restart offsets point to no entry", self.restarts.len() / 4)))
    }
}

/// Puts entries into a block.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    interval: usize,
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    /// A block that starts sharing anew after `interval` entries.
    pub(super) fn new(interval: usize) -> BlockBuilder {
        BlockBuilder { interval, bytes: Vec::new(), restarts: vec![0], since_restart: 0, last_key: Vec::new() }
    }

    /// Whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of the finished block, the trailer not counted.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 4
    }

    /// Appends an entry.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut shared = 0;
        if self.since_restart < self.interval {
            shared = common_prefix(&self.last_key, key);
        } else {
            self.restarts.push(self.bytes.len() as u32);
            self.since_restart = 0;
        }
        let tail = key.get(shared..).unwrap_or_default();
        for number in [shared, tail.len(), value.len()] {
            varint::put(&mut self.bytes, number as u64);
        }
        self.bytes.extend_from_slice(tail);
        self.bytes.extend_from_slice(value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.since_restart += 1;
    }

    /// The contents; the builder is as new.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let BlockBuilder { mut bytes, restarts, .. } = std::mem::replace(self, BlockBuilder::new(self.interval));
        bytes.extend(restarts.iter().flat_map(|offset| offset.to_le_bytes()));
        bytes.extend((restarts.len() as u32).to_le_bytes());
        bytes
    }
}

/// How many bytes two keys have in common at their start.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn keys(contents: &[u8]) -> Result<Pairs> {
        let mut entries = Block::parse(contents)?.entries();
        let mut found = Vec::new();
        while let Some((key, value)) = entries.next_entry()? {
            found.push((key.to_vec(), value.to_vec()));
        }
        Ok(found)
    }

    fn block(interval: usize) -> (Pairs, Vec<u8>) {
        let pairs: Vec<_> = (0..40).map(|n| (format!("layer/{n:03}").into_bytes(), vec![n; n as usize % 5])).collect();
        let mut builder = BlockBuilder::new(interval);
        pairs.iter().for_each(|(key, value)| builder.add(key, value));
        let size = builder.size();
        let contents = builder.finish();
        assert_eq!(contents.len(), size);
        assert!(builder.is_empty());
        (pairs, contents)
    }

    #[test]
    fn entries_survive_any_interval() {
        for interval in [1, 4, 16, 100] {
            let (pairs, contents) = block(interval);
            assert_eq!(keys(&contents).unwrap(), pairs);
        }
    }

    #[test]
    fn cut_and_flipped_blocks_never_panic() {
        let (pairs, contents) = block(16);
        for len in 0..contents.len() {
            assert!(keys(&contents[..len]).is_err(), "cut to {len}");
        }
        let mut refused = 0;
        for bit in 0..contents.len() * 8 {
            let mut flipped = contents.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match keys(&flipped) {
                Ok(found) => assert_ne!(found, pairs, "bit {bit} has no meaning"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > contents.len(), "only {refused} flips were seen");
    }

    #[test]
    fn restart_offsets_are_checked() {
        let with = |restarts: &[u32]| {
            let mut contents = b"\x00\x01\x00a\x00\x01\x00b".to_vec();
            contents.extend(restarts.iter().flat_map(|offset| offset.to_le_bytes()));
            contents.extend((restarts.len() as u32).to_le_bytes());
            keys(&contents)
        };
        assert_eq!(with(&[0]).unwrap().len(), 2);
        assert_eq!(with(&[0, 4]).unwrap().len(), 2);
        for bad in [&[][..], &[4], &[0, 1], &[0, 0], &[0, 4, 4], &[0, 9], &[4, 0], &[u32::MAX]] {
            assert!(with(bad).is_err(), "{bad:?}");
        }
        assert!(keys(&[0, 0, 0, 0, 1, 0, 0, 0]).unwrap().is_empty());
        assert!(keys(&[0, 0, 0, 0]).unwrap().is_empty());
        assert!(keys(&[0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]).is_err());
        assert!(keys(&[255, 255, 255, 255]).is_err());
        assert!(keys(&[]).is_err());
    }

    #[test]
    fn keys_must_rise() {
        let mut builder = BlockBuilder::new(16);
        builder.add(b"b", b"");
        builder.add(b"a", b"");
        assert!(keys(&builder.finish()).unwrap_err().message().contains("rise"));
        builder.add(b"a", b"");
        builder.add(b"a", b"");
        assert!(keys(&builder.finish()).is_err());
        assert!(
            keys(b"\x00\x01\x00a\x02\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00")
                .unwrap_err()
                .message()
                .contains("shares")
        );
    }
}
