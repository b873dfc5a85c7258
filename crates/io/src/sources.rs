//! The byte spaces of an open checkpoint, opened when first used.

use crate::FileSource;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weightlift_core::{Checkpoint, Error, Files, ReadAt, Result, Source, SourceId, WriteAt};

/// Decoded sources up to this size stay in memory; larger ones go to an unlinked temporary file.
const IN_MEMORY: u64 = 1 << 20;
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// The byte spaces of a checkpoint, each opened when it is first used. A decoded source is decoded once, so that it
/// too can be read at any position.
pub struct Sources<'a> {
    files: &'a dyn Files,
    checkpoint: &'a dyn Checkpoint,
    spill: PathBuf,
    opened: Vec<Mutex<Option<FileSource>>>,
}

impl<'a> Sources<'a> {
    /// The sources of `checkpoint`; large decoded ones are spilled into the folder `spill`.
    pub fn new(files: &'a dyn Files, checkpoint: &'a dyn Checkpoint, spill: &Path) -> Sources<'a> {
        let opened = checkpoint.catalog().sources.iter().map(|_| Mutex::new(None)).collect();
        Sources { files, checkpoint, spill: spill.to_path_buf(), opened }
    }

    /// The source, opened.
    ///
    /// # Errors
    /// `Io`; `Malformed` where the file became shorter since the checkpoint was opened or decoding fails.
    pub fn get(&self, id: SourceId) -> Result<FileSource> {
        let mut slot = self.opened[id.0 as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = slot.as_ref() {
            return Ok(source.clone());
        }
        let source = match self.checkpoint.catalog().source(id) {
            Source::File { path, len } => self.open_file(path, *len)?,
            Source::Decoded { label, len } => self.decode(id, label, *len)?,
        };
        Ok(slot.insert(source).clone())
    }

    fn open_file(&self, path: &Path, len: u64) -> Result<FileSource> {
        let source = FileSource::open(self.files, path)?;
        if source.len() < len {
            let message = format!("was {len} bytes long and now has {}: it changed while it was read", source.len());
            return Err(Error::malformed(message).in_file(path));
        }
        Ok(source)
    }

    fn decode(&self, id: SourceId, label: &str, len: u64) -> Result<FileSource> {
        let mut reader = self.checkpoint.decode(id)?;
        let (file, decoded) = if len <= IN_MEMORY { read_to_memory(&mut reader, len) } else { self.spill(&mut reader) }
            .map_err(|error| decoding_failed(label, error))?;
        if decoded != len {
            let message = format!("decodes to {decoded} bytes where {len} are promised");
            return Err(Error::malformed(message).in_file(label));
        }
        Ok(FileSource::from_parts(file, label.into(), len))
    }

    /// Decodes into a file that has no name any more when this returns.
    fn spill(&self, reader: &mut dyn Read) -> io::Result<(Arc<dyn ReadAt>, u64)> {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = self.spill.join(format!(".weightlift-{}-{number}.decoded", std::process::id()));
        let target = self.files.create(&path)?;
        let result = copy(reader, target.as_ref()).and_then(|len| Ok((self.files.open(&path)?, len)));
        self.files.remove(&path)?;
        result
    }
}

/// The error of a decoder: its own where it has one.
fn decoding_failed(label: &str, error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(own) => own.in_file(label),
        Err(error) => Error::io("cannot decode", label, error),
    }
}

fn copy(reader: &mut dyn Read, target: &dyn WriteAt) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 18];
    let mut at = 0;
    loop {
        let read = match reader.read(&mut buffer) {
            Ok(0) => return Ok(at),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut done = 0;
        while done < read {
            match target.write_at(&buffer[done..read], at + done as u64)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => done += written,
            }
        }
        at += read as u64;
    }
}

fn read_to_memory(reader: &mut dyn Read, len: u64) -> io::Result<(Arc<dyn ReadAt>, u64)> {
    let mut bytes = Vec::new();
    reader.take(len.saturating_add(1)).read_to_end(&mut bytes)?;
    let decoded = bytes.len() as u64;
    Ok((Arc::new(Memory(bytes)), decoded))
}

#[derive(Debug)]
struct Memory(Vec<u8>);

impl ReadAt for Memory {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}
