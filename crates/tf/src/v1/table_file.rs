//! A table too large for memory: its index in memory, its values where they are.

use crate::table::{self, Block, Footer, Handle, TRAILER};
use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weightlift_core::{ByteRange, Error, Files, Limits, Result};
use weightlift_io::FileSource;
use weightlift_kernels::checksum::{Algorithm, mask_crc32c};

/// Blocks up to this size are read into memory.
const IN_MEMORY: u64 = 4 << 20;
/// Values up to this size are read over rather than jumped over.
const READ_OVER: u64 = 1 << 16;
const STORED: u8 = 0;
/// Bytes that may be looked through in a file of any size before look-ups are given up.
const MOST_SEARCHED: u64 = 4 << 30;

/// An open table.
#[derive(Debug)]
pub(super) struct TableFile {
    source: FileSource,
    limits: Limits,
    /// For every block a key not below its last one, and where it lies.
    directory: Vec<(Vec<u8>, Handle)>,
    /// Bytes looked through so far: values asked for in a wild order make every look-up walk a whole block.
    searched: AtomicU64,
    /// The block looked through last.
    recent: Mutex<Option<(u64, Arc<Contents>)>>,
}

/// The values of a block by their keys.
#[derive(Debug)]
struct Contents {
    /// The block, if it is in memory.
    block: Option<Arc<Vec<u8>>>,
    /// Where each value begins and ends, in the block or in the file.
    values: HashMap<Vec<u8>, Range<u64>>,
}

/// Where a value is.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Memory(Arc<Vec<u8>>, Range<usize>),
    File(ByteRange),
}

impl Value {
    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Value::Memory(_, range) => range.len() as u64,
            Value::File(range) => range.len(),
        }
    }
}

/// Reads a part of a block that is in memory.
struct MemoryReader {
    block: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Read for MemoryReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let rest = self.block.get(self.range.clone()).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        self.range.start += len;
        Ok(len)
    }
}

impl TableFile {
    /// Reads footer and index.
    pub(super) fn open(files: &dyn Files, path: &Path, limits: &Limits) -> Result<TableFile> {
        let source = FileSource::open(files, path)?;
        let directory = read_directory(&source, limits).map_err(|error| error.in_file(path))?;
        Ok(TableFile {
            source,
            limits: limits.clone(),
            directory,
            searched: AtomicU64::new(0),
            recent: Mutex::new(None),
        })
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        self.source.path()
    }

    /// The first value, if its key is the empty one.
    pub(super) fn header(&self) -> Result<Option<Vec<u8>>> {
        let Some(value) = self.find(&[])? else { return Ok(None) };
        let limit = self.limits.header_bytes;
        if value.len() > limit {
            return Err(Error::limit(format!("a header of {} bytes is longer than {limit}", value.len())));
        }
        let mut bytes = Vec::new();
        let broken = |error| Error::io("cannot read the header", self.path(), error);
        self.reader(&value).read_to_end(&mut bytes).map_err(broken)?;
        Ok(Some(bytes))
    }

    /// Reads a value in order.
    pub(super) fn reader(&self, value: &Value) -> Box<dyn Read + Send> {
        match value {
            Value::File(range) => Box::new(self.source.reader(*range)),
            Value::Memory(block, range) => Box::new(MemoryReader { block: block.clone(), range: range.clone() }),
        }
    }

    /// The value of a key. The checksum of its block is verified.
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<Value>> {
        let at = self.directory.partition_point(|(last, _)| last.as_slice() < key);
        let Some((_, handle)) = self.directory.get(at) else { return Ok(None) };
        let contents = self.contents(*handle).map_err(|error| error.in_file(self.path()).at(handle.offset))?;
        let Some(range) = contents.values.get(key) else { return Ok(None) };
        Ok(Some(match &contents.block {
            Some(block) => Value::Memory(block.clone(), range.start as usize..range.end as usize),
            None => Value::File(ByteRange::new(range.start, range.end - range.start)?),
        }))
    }

    fn body(&self) -> u64 {
        self.source.len().saturating_sub(Footer::LEN as u64)
    }

    /// What a block holds. It is looked through once for all values that are asked for one after the other.
    fn contents(&self, handle: Handle) -> Result<Arc<Contents>> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((offset, contents)) = recent.as_ref()
            && *offset == handle.offset
        {
            return Ok(contents.clone());
        }
        let searched = self.searched.fetch_add(handle.size, Ordering::Relaxed);
        if searched > MOST_SEARCHED.saturating_add(self.source.len().saturating_mul(64)) {
            return Err(Error::limit("its values are spread so that finding them takes too long"));
        }
        let found = if handle.size <= IN_MEMORY { self.in_memory(handle)? } else { self.in_file(handle)? };
        let found = Arc::new(found);
        *recent = Some((handle.offset, found.clone()));
        Ok(found)
    }

    fn in_memory(&self, handle: Handle) -> Result<Contents> {
        let stored = self.source.read_vec(handle.range(self.body())?, self.limits.header_bytes)?;
        let block = Arc::new(table::contents(&stored)?.into_owned());
        let mut values = HashMap::new();
        let mut entries = Block::parse(&block)?.entries();
        let mut spent = 0u64;
        while let Some((key, value)) = entries.next_entry()? {
            spent = self.spend(spent, key.len())?;
            let (key, len) = (key.to_vec(), value.len() as u64);
            let end = entries.position();
            values.entry(key).or_insert(end - len..end);
        }
        Ok(Contents { block: Some(block), values })
    }

    /// Keys share their beginnings in the file, but not in memory.
    fn spend(&self, spent: u64, key: usize) -> Result<u64> {
        let spent = spent.saturating_add(key as u64);
        match spent <= self.limits.header_bytes {
            true => Ok(spent),
            false => {
                Err(Error::limit(format!("the keys of a block have more than {} bytes", self.limits.header_bytes)))
            }
        }
    }

    /// Looks through a large block without holding it; a compressed one is decompressed.
    fn in_file(&self, handle: Handle) -> Result<Contents> {
        let range = handle.range(self.body())?;
        let mut trailer = [0; TRAILER];
        self.source.read_exact_at(&mut trailer, range.end() - TRAILER as u64)?;
        let [kind, crc @ ..] = trailer;
        if kind != STORED {
            return self.in_memory(handle);
        }
        self.verify(handle, u32::from_le_bytes(crc))?;
        let mut count = [0; 4];
        self.source.read_exact_at(&mut count, handle.offset + handle.size - 4)?;
        let restarts = 4 + 4 * u64::from(u32::from_le_bytes(count));
        let Some(len) = handle.size.checked_sub(restarts) else {
            return Err(Error::malformed("a block claims more restart offsets than it has room for"));
        };
        Ok(Contents { block: None, values: self.walk(ByteRange::new(handle.offset, len)?)? })
    }

    /// Checks the checksum of a block, in order.
    fn verify(&self, handle: Handle, stored: u32) -> Result<()> {
        let mut reader = self.source.reader(ByteRange::new(handle.offset, handle.size + 1)?);
        let mut buffer = vec![0; 1 << 18];
        let mut crc = 0;
        let mut left = handle.size + 1;
        while left > 0 {
            let piece = &mut buffer[..left.min(1 << 18) as usize];
            reader.read_exact(piece).map_err(|error| Error::io("cannot read", self.path(), error))?;
            crc = Algorithm::Crc32c.extend(crc, piece);
            left -= piece.len() as u64;
        }
        let computed = mask_crc32c(crc);
        if stored == computed {
            return Ok(());
        }
        let message = format!("checksum of a block differs: stored {stored:08x}, computed {computed:08x}");
        Err(Error::checksum(message).help("the file is damaged: fetch it again"))
    }

    /// Where the values of the entries in a range of the file lie.
    fn walk(&self, entries: ByteRange) -> Result<HashMap<Vec<u8>, Range<u64>>> {
        let longest = self.limits.name_bytes.saturating_mul(2).saturating_add(1 << 12);
        let failed = |error| Error::io("cannot read a block", self.path(), error);
        let mut at = entries.start();
        let mut reader = self.source.reader(entries);
        let mut current = Vec::new();
        let (mut values, mut spent) = (HashMap::new(), 0);
        while at < entries.end() {
            let mut header = [0u64; 3];
            for number in &mut header {
                let (value, len) = read_varint(&mut reader).map_err(failed)?;
                *number = value;
                at += len;
            }
            let [shared, unshared, value] = header;
            let fits = shared <= current.len() as u64 && shared.saturating_add(unshared) <= longest as u64;
            if !fits
                || at.checked_add(unshared).and_then(|at| at.checked_add(value)).is_none_or(|end| end > entries.end())
            {
                return Err(Error::malformed("an entry runs beyond its block").at(at));
            }
            current.resize((shared + unshared) as usize, 0);
            reader.read_exact(&mut current[shared as usize..]).map_err(failed)?;
            at += unshared;
            spent = self.spend(spent, current.len())?;
            values.entry(current.clone()).or_insert(at..at + value);
            at += value;
            if value <= READ_OVER {
                io::copy(&mut reader.by_ref().take(value), &mut io::sink()).map_err(failed)?;
            } else {
                reader = self.source.reader(ByteRange::new(at, entries.end() - at)?);
            }
        }
        Ok(values)
    }
}

fn read_varint(reader: &mut impl Read) -> io::Result<(u64, u64)> {
    let mut bytes = [0; crate::varint::MAX_LEN];
    let mut count = 0;
    while count == 0 || bytes[count - 1] >= 0x80 && count < bytes.len() {
        reader.read_exact(&mut bytes[count..=count])?;
        count += 1;
    }
    let value = crate::varint::Cursor::new(&bytes[..count]).varint().map_err(io::Error::other)?;
    Ok((value, count as u64))
}

fn read_directory(source: &FileSource, limits: &Limits) -> Result<Vec<(Vec<u8>, Handle)>> {
    let tail = source.len().min(Footer::LEN as u64);
    let tail = source.read_vec(ByteRange::new(source.len() - tail, tail)?, u64::MAX)?;
    let footer = Footer::parse(&tail)?;
    let body = source.len() - Footer::LEN as u64;
    let at = footer.index.offset;
    let stored = source.read_vec(footer.index.range(body)?, limits.header_bytes)?;
    let contents = table::contents(&stored).map_err(|error| error.at(at))?;
    let mut entries = Block::parse(&contents).map_err(|error| error.at(at))?.entries();
    let mut directory = Vec::new();
    let mut spent = 0u64;
    while let Some((key, value)) = entries.next_entry().map_err(|error| error.at(at))? {
        spent = spent.saturating_add(key.len() as u64);
        if spent > limits.header_bytes {
            return Err(Error::limit(format!("the index holds more than {} bytes", limits.header_bytes)));
        }
        let handle = Handle::parse(value).map_err(|error| error.at(at))?;
        handle.range(body)?;
        directory.push((key.to_vec(), handle));
    }
    Ok(directory)
}
