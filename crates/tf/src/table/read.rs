//! Reading a table that is in memory.

use super::{Block, Entries, Footer, Handle, TRAILER};
use std::borrow::Cow;
use weightlift_core::{Error, Limits, Result};
use weightlift_kernels::checksum::{crc32c, mask_crc32c};

const STORED: u8 = 0;
const SNAPPY: u8 = 1;
/// No Snappy element makes more than 64 bytes out of 3.
const SNAPPY_EXPANSION: usize = 22;

/// The contents of a block, its checksum verified; `stored` is the block with its trailer. Blocks are taken as they
/// are or decompressed with Snappy.
///
/// # Errors
/// `Checksum` for other bytes than those written, `Unsupported` for another compression, `Malformed`.
pub fn contents(stored: &[u8]) -> Result<Cow<'_, [u8]>> {
    let Some((body, [kind, crc @ ..])) = stored.split_last_chunk::<TRAILER>() else {
        return Err(Error::malformed(format!("{} bytes are too few for a block", stored.len())));
    };
    let (found, computed) = (u32::from_le_bytes(*crc), mask_crc32c(crc32c(&stored[..=body.len()])));
    if found != computed {
        let message = format!("checksum of a block differs: stored {found:08x}, computed {computed:08x}");
        return Err(Error::checksum(message).help("the file is damaged: fetch it again"));
    }
    match *kind {
        STORED => Ok(Cow::Borrowed(body)),
        SNAPPY => unsnap(body).map(Cow::Owned),
        kind => Err(Error::unsupported(format!("compression {kind} of a block is not known; 0 and 1 are"))),
    }
}

fn unsnap(body: &[u8]) -> Result<Vec<u8>> {
    let broken = |error: snap::Error| Error::malformed("a block cannot be decompressed").caused_by(error);
    let len = snap::raw::decompress_len(body).map_err(broken)?;
    if len > body.len().saturating_mul(SNAPPY_EXPANSION) {
        let message = format!("a block of {} bytes claims to decompress to {len}", body.len());
        return Err(Error::malformed(message));
    }
    snap::raw::Decoder::new().decompress_vec(body).map_err(broken)
}

fn block_at(file: &[u8], handle: Handle) -> Result<Cow<'_, [u8]>> {
    let body = file.len() - Footer::LEN;
    let range = handle.range(body as u64)?;
    contents(&file[range.start() as usize..range.end() as usize]).map_err(|error| error.at(handle.offset))
}

/// Calls `visit` with every key and value of a table in order. Memory and time are bounded by the length of the file
/// and by [`Limits::header_bytes`], which decompressed blocks and full keys together must not exceed.
///
/// # Errors
/// `Malformed`, `Checksum`, `Unsupported` with the offset in the file; `Limit`; what `visit` answers.
pub fn read(file: &[u8], limits: &Limits, visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    read_around(file, limits, visit, Err)
}

/// The same, but hands a damaged block to `damaged` and goes on behind it where that answers `Ok`.
///
/// # Errors
/// As [`read`], and what `damaged` answers.
pub fn read_around(
    file: &[u8],
    limits: &Limits,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
    mut damaged: impl FnMut(Error) -> Result<()>,
) -> Result<()> {
    let footer = Footer::parse(file)?;
    let index = block_at(file, footer.index)?;
    let mut directory = Block::parse(&index).map_err(|error| error.at(footer.index.offset))?.entries();
    let mut spent = 0u64;
    let mut spend = |bytes: usize| {
        spent = spent.saturating_add(bytes as u64);
        let limit = limits.header_bytes;
        if spent <= limit { Ok(()) } else { Err(Error::limit(format!("the table holds more than {limit} bytes"))) }
    };
    let mut last: Option<Vec<u8>> = None;
    while let Some((_, handle)) = step(&mut directory, footer.index.offset)? {
        let handle = Handle::parse(handle).map_err(|error| error.at(footer.index.offset))?;
        let block = match block_at(file, handle) {
            Ok(block) => block,
            Err(error) => {
                damaged(error)?;
                continue;
            }
        };
        spend(block.len())?;
        let mut entries = Block::parse(&block).map_err(|error| error.at(handle.offset))?.entries();
        while let Some((key, value)) = step(&mut entries, handle.offset)? {
            spend(key.len())?;
            if last.take().is_some_and(|last| *key <= *last) {
                return Err(Error::malformed("keys do not rise from block to block").at(handle.offset));
            }
            visit(key, value)?;
            if entries.is_last() {
                last = Some(entries.key().to_vec());
            }
        }
    }
    Ok(())
}

/// The next entry of a block that starts at `base`.
fn step<'k, 'a>(entries: &'k mut Entries<'a>, base: u64) -> Result<Option<(&'k [u8], &'a [u8])>> {
    let at = base.saturating_add(entries.position());
    entries.next_entry().map_err(|error| error.at(at))
}

/// Checks the block of a table that nothing is read from. Without one (offset 0, size 0) there is nothing to check.
///
/// # Errors
/// `Malformed`, `Checksum`, `Unsupported`.
pub fn check_metaindex(file: &[u8]) -> Result<()> {
    let handle = Footer::parse(file)?.metaindex;
    if handle == Handle::default() {
        return Ok(());
    }
    let block = block_at(file, handle)?;
    let mut entries = Block::parse(&block)?.entries();
    while step(&mut entries, handle.offset)?.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::TableWriter;
    use super::super::block::BlockBuilder;
    use super::*;

    /// A table of one data block given as stored, with its type.
    fn table(block: &[u8], kind: u8, index_value: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |contents: &[u8], kind: u8| {
            let handle = Handle { offset: out.len() as u64, size: contents.len() as u64 };
            out.extend_from_slice(contents);
            out.push(kind);
            let crc = mask_crc32c(crc32c(&out[handle.offset as usize..]));
            out.extend(crc.to_le_bytes());
            handle
        };
        let data = put(block, kind);
        let mut value = Vec::new();
        data.put(&mut value);
        let mut index = BlockBuilder::new(1);
        index.add(b"z", index_value.unwrap_or(&value));
        let index = put(&index.finish(), 0);
        out.extend(Footer { metaindex: Handle::default(), index }.to_bytes());
        out
    }

    fn block() -> Vec<u8> {
        let mut builder = BlockBuilder::new(16);
        (0..50).for_each(|n| builder.add(format!("layer/{n:02}").as_bytes(), b"value"));
        builder.finish()
    }

    fn count(file: &[u8]) -> Result<usize> {
        let mut count = 0;
        read(file, &Limits::default(), |_, _| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    #[test]
    fn blocks_are_stored_or_compressed() {
        let block = block();
        assert_eq!(count(&table(&block, 0, None)).unwrap(), 50);
        let small = snap::raw::Encoder::new().compress_vec(&block).unwrap();
        assert!(small.len() < block.len());
        assert_eq!(count(&table(&small, 1, None)).unwrap(), 50);
        assert_eq!(count(&table(&block, 2, None)).unwrap_err().kind(), weightlift_core::Kind::Unsupported);
        assert!(count(&table(&block, 1, None)).is_err(), "stored, but called compressed");
    }

    #[test]
    fn what_a_block_claims_to_decompress_to_is_not_believed() {
        let mut bomb = Vec::new();
        crate::varint::put(&mut bomb, u64::from(u32::MAX));
        bomb.extend([0; 20]);
        assert!(count(&table(&bomb, 1, None)).unwrap_err().message().contains("claims"));
        for len in 0..12 {
            assert!(count(&table(&bomb[..len.min(bomb.len())], 1, None)).is_err());
        }
    }

    #[test]
    fn absurd_handles_are_refused() {
        let block = block();
        let handle = |offset, size| {
            let mut value = Vec::new();
            Handle { offset, size }.put(&mut value);
            count(&table(&block, 0, Some(&value)))
        };
        assert_eq!(handle(0, block.len() as u64).unwrap(), 50);
        for (offset, size) in
            [(0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX), (1 << 62, 1 << 62), (0, 1 << 40), (3, 0)]
        {
            assert!(handle(offset, size).is_err(), "{offset} {size}");
        }
        assert!(count(&table(&block, 0, Some(&[]))).is_err());
        assert!(count(&table(&block, 0, Some(&[0xff; 12]))).is_err());
        let mut beyond = TableWriter::new();
        beyond.add(b"a", b"");
        let mut file = beyond.finish();
        let end = file.len() - Footer::LEN;
        let index = Handle { offset: end as u64 - 4, size: 0 };
        file.truncate(end);
        file.extend(Footer { metaindex: Handle::default(), index }.to_bytes());
        assert!(count(&file).is_err(), "the index runs into the footer");
    }

    #[test]
    fn the_metaindex_may_be_missing_but_not_broken() {
        let mut writer = TableWriter::new();
        writer.add(b"a", b"");
        let mut file = writer.finish();
        assert!(check_metaindex(&file).is_ok());
        let at = Footer::parse(&file).unwrap().metaindex.offset as usize;
        file[at] ^= 1;
        assert!(check_metaindex(&file).is_err());
        assert_eq!(count(&file).unwrap(), 1);
        assert!(check_metaindex(&table(&block(), 0, None)).is_ok());
    }
}
