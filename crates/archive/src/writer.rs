//! Writing an archive from many threads.

use crate::Layout;
use std::sync::{Arc, OnceLock};
use weightlift_core::{Error, FileRange, Result};
use weightlift_io::FileSink;
use weightlift_kernels::checksum::{Algorithm, Digest};

/// An archive under way: data at once, at its place, in any order; headers and directory at the end.
#[derive(Debug)]
pub struct ArchiveWriter {
    sink: Arc<FileSink>,
    layout: Layout,
    sums: Vec<Sum>,
}

#[derive(Debug)]
struct Sum {
    digest: Digest,
    /// The CRC of a member that was copied whole.
    copied: OnceLock<u32>,
}

impl ArchiveWriter {
    /// Starts an archive and reserves its room.
    ///
    /// # Errors
    /// `Io`.
    pub fn create(sink: Arc<FileSink>, layout: Layout) -> Result<ArchiveWriter> {
        sink.reserve(layout.total())?;
        let sum = || Sum { digest: Digest::new(Algorithm::Crc32), copied: OnceLock::new() };
        let sums = std::iter::repeat_with(sum).take(layout.members()).collect();
        Ok(ArchiveWriter { sink, layout, sums })
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Takes bytes of a member: any order, many threads, every byte exactly once.
    ///
    /// # Errors
    /// `Request` for bytes beyond the member's end; `Io`.
    pub fn write_at(&self, member: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        let place = self.layout.data(member).slice(offset, len).ok_or_else(|| self.beyond(member, offset, len))?;
        self.sink.write_all_at(bytes, place.start())?;
        self.sums[member].digest.add(offset, len, Algorithm::Crc32.of(bytes));
        Ok(())
    }

    /// Lets the operating system copy a whole member whose CRC-32 is known; `false` where it cannot.
    ///
    /// # Errors
    /// `Request` for a range of another length; `Io`.
    pub fn copy_whole(&self, member: usize, range: &FileRange, crc: u32) -> Result<bool> {
        let place = self.layout.data(member);
        if range.bytes.len() != place.len() {
            return Err(self.beyond(member, 0, range.bytes.len()));
        }
        if self.sums[member].digest.covered() > 0 || !self.sink.copy_from(place.start(), range)? {
            return Ok(false);
        }
        match self.sums[member].copied.set(crc) {
            Ok(()) => Ok(true),
            Err(_) => Err(Error::request(format!("member {member} was copied twice"))),
        }
    }

    fn beyond(&self, member: usize, offset: u64, len: u64) -> Error {
        let room = self.layout.data(member).len();
        Error::request(format!("{len} bytes at offset {offset} of a zip member of {room} bytes"))
    }

    fn crc(&self, member: usize) -> Result<u32> {
        let (sum, len) = (&self.sums[member], self.layout.data(member).len());
        let whole = match sum.copied.get() {
            Some(&crc) => (sum.digest.covered() == 0).then_some(crc),
            None => sum.digest.finish(len),
        };
        whole.ok_or_else(|| {
            let covered = sum.digest.covered();
            let message = format!("zip member {member} took {covered} bytes, but {len} were promised, each once");
            Error::request(message).in_file(self.sink.path())
        })
    }

    /// Writes headers and directory.
    ///
    /// # Errors
    /// `Request` where bytes are missing or came twice; `Io`.
    pub fn finish(self) -> Result<()> {
        let crcs = (0..self.sums.len()).map(|member| self.crc(member)).collect::<Result<Vec<_>>>()?;
        for (member, &crc) in crcs.iter().enumerate() {
            let (at, header) = self.layout.local_header(member, crc);
            self.sink.write_all_at(&header, at)?;
        }
        let (at, directory) = self.layout.directory(&crcs);
        self.sink.write_all_at(&directory, at)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Archive, Layout, NewMember, read_member};
    use std::io::{Seek, SeekFrom, Write};
    use weightlift_core::Limits;
    use weightlift_io::{FileSource, real};

    /// Headers and directory as they will be, in a sparse file instead of gigabytes of data.
    #[test]
    fn archives_beyond_4_gib_are_read_back() {
        let big = 0xffff_ffff_u64;
        let member = |name: &str, bytes| NewMember { name: name.into(), bytes };
        let layout = Layout::new(vec![member("big", big), member("small", 3), member("empty", 0)], 64).unwrap();
        let crc = weightlift_kernels::checksum::crc32(b"abc");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(layout.total()).unwrap();
        let mut put = |(at, bytes): (u64, Vec<u8>)| {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&bytes).unwrap();
        };
        let crcs = [0x1234, crc, 0];
        (0..3).for_each(|at| put(layout.local_header(at, crcs[at])));
        put((layout.data(1).start(), b"abc".to_vec()));
        put(layout.directory(&crcs));
        let source = FileSource::open(real().as_ref(), file.path()).unwrap();
        let archive = Archive::read(&source, &Limits::default()).unwrap();
        let [wide, small, empty] = archive.members() else { panic!("three members") };
        assert_eq!((wide.len, wide.crc, wide.stored), (big, Some(0x1234), layout.data(0)));
        assert_eq!(read_member(&source, small, &Limits::default(), 3).unwrap(), b"abc");
        assert_eq!((empty.len, empty.crc), (0, Some(0)));
    }
}
