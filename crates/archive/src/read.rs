//! The directory of an archive.

use crate::truncated;
use crate::{Member, Method};
use foldhash::{HashMap, HashMapExt};
use rawzip::{CompressionMethod, MAX_CENTRAL_DIRECTORY_RECORD_SIZE, ReaderAt, ZipArchive, ZipLocator};
use std::collections::hash_map::Entry;
use std::io;
use weightlift_core::{ByteRange, Error, Limits, Result};
use weightlift_io::FileSource;

/// Bytes of a local header before name and extra field.
const LOCAL: u64 = 30;

/// What an archive holds.
#[derive(Debug, Clone, Default)]
pub struct Archive {
    members: Vec<Member>,
    by_name: HashMap<String, Found>,
    /// Whether two members bear one name.
    twice: bool,
}

#[derive(Debug, Clone, Copy)]
enum Found {
    Once(u32),
    Twice,
}

/// A part of a file as rawzip reads it.
struct Window<'a> {
    source: &'a FileSource,
    range: ByteRange,
}

impl ReaderAt for Window<'_> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.range.len().saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let at = self.range.start().saturating_add(offset);
        self.source.read_exact_at(&mut buf[..len], at).map_err(io::Error::other)?;
        Ok(len)
    }
}

impl Archive {
    /// Reads the directory of an archive that takes the whole file.
    ///
    /// # Errors
    /// `Malformed` where the file is no zip, ends early, or has members that overlap or leave it; `Limit`, `Io`.
    pub fn read(source: &FileSource, limits: &Limits) -> Result<Archive> {
        let range = ByteRange::new(0, source.len()).map_err(|error| error.in_file(source.path()))?;
        Archive::read_in(source, range, limits)
    }

    /// Reads the directory of an archive that takes a part of a file.
    ///
    /// # Errors
    /// As [`Archive::read`].
    pub fn read_in(source: &FileSource, range: ByteRange, limits: &Limits) -> Result<Archive> {
        let named = |error: Error| error.in_file(source.path());
        let range = range.within(source.len()).map_err(named)?;
        let window = Window { source, range };
        let mut buffer = vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
        let located = ZipLocator::new().locate_in_reader(window, &mut buffer, range.len());
        let zip = located.map_err(|(window, error)| named(no_directory(&window, error)))?;
        let headers = headers(&zip, &mut buffer, limits).map_err(named)?;
        let mut archive = Archive::with_capacity(headers.len());
        let mut locals = Locals { source, range, window: Vec::new(), start: 0 };
        let starts: Vec<u64> = headers.iter().map(|header| header.local).collect();
        for (at, header) in headers.into_iter().enumerate() {
            let next = starts.get(at + 1).map_or(u64::MAX, |&next| next);
            archive.add(header.place(&mut locals, next).map_err(named)?)?;
        }
        no_overlap(&starts, &archive.members, range.start(), zip.directory_offset()).map_err(named)?;
        Ok(archive)
    }

    fn with_capacity(members: usize) -> Archive {
        Archive { members: Vec::with_capacity(members), by_name: HashMap::with_capacity(members), twice: false }
    }

    fn add(&mut self, member: Member) -> Result<()> {
        let at = u32::try_from(self.members.len()).map_err(|_| Error::limit("a zip of more than 2^32 members"))?;
        match self.by_name.entry(member.name.clone()) {
            Entry::Vacant(free) => drop(free.insert(Found::Once(at))),
            Entry::Occupied(mut taken) => {
                taken.insert(Found::Twice);
                self.twice = true;
            }
        }
        self.members.push(member);
        Ok(())
    }

    /// The members in the order of the directory, folders left out.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member of that name.
    ///
    /// # Errors
    /// `Malformed` where two bear it: nobody can say which one was meant.
    pub fn find(&self, name: &str) -> Result<Option<&Member>> {
        Ok(self.find_near(name, usize::MAX)?.map(|(_, member)| member))
    }

    /// The member of that name and its position, sooner found where it stands at `guess`.
    ///
    /// # Errors
    /// As [`Archive::find`].
    pub fn find_near(&self, name: &str, guess: usize) -> Result<Option<(usize, &Member)>> {
        if let Some(member) = self.members.get(guess).filter(|member| !self.twice && member.name == name) {
            return Ok(Some((guess, member)));
        }
        match self.by_name.get(name) {
            None => Ok(None),
            Some(Found::Once(at)) => Ok(self.members.get(*at as usize).map(|member| (*at as usize, member))),
            Some(Found::Twice) => {
                let message = format!("the zip has two members called {name:?}");
                Err(Error::malformed(message).help("remove the one that is not meant"))
            }
        }
    }
}

/// What the directory says of a member, before its local header was looked at.
struct Header {
    member: Member,
    /// Where the local header stands in the archive.
    local: u64,
    stored_len: u64,
}

fn headers(zip: &ZipArchive<Window<'_>>, buffer: &mut [u8], limits: &Limits) -> Result<Vec<Header>> {
    let directory = zip.eocd_offset().saturating_sub(zip.directory_offset());
    if directory > limits.header_bytes {
        let limit = limits.header_bytes;
        return Err(Error::limit(format!("a zip directory of {directory} bytes; the limit is {limit}")));
    }
    let (mut headers, mut found) = (Vec::new(), 0u64);
    let mut entries = zip.entries(buffer);
    while let Some(entry) = entries.next_entry().map_err(|error| broken("the zip directory is broken", error))? {
        found += 1;
        if entry.is_dir() {
            continue;
        }
        let method = match entry.compression_method() {
            _ if entry.flags().is_encrypted() => Method::Encrypted,
            CompressionMethod::STORE => Method::Stored,
            CompressionMethod::DEFLATE => Method::Deflated,
            other => Method::Other(other.as_u16()),
        };
        let len = entry.uncompressed_size_hint();
        let crc = Some(entry.crc32()).filter(|&crc| crc != 0 || len == 0);
        let (name, comment) = (text(entry.file_path().as_bytes()), text(entry.comment().as_bytes()));
        let member = Member { name, method, stored: ByteRange::new(0, 0)?, len, crc, comment };
        headers.push(Header { member, local: entry.local_header_offset(), stored_len: entry.compressed_size_hint() });
    }
    // Writers without zip64 let the count overflow.
    let promised = zip.entries_hint();
    if found as u16 != promised as u16 {
        return Err(Error::malformed(format!("the zip directory has {found} members, its end record says {promised}")));
    }
    Ok(headers)
}

/// What is no UTF-8 is replaced.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Local headers, many at once where members are small.
struct Locals<'a> {
    source: &'a FileSource,
    range: ByteRange,
    /// Bytes of the file read ahead, from `start` on.
    window: Vec<u8>,
    start: u64,
}

/// How far is read ahead.
const AHEAD: u64 = 1 << 16;

impl Locals<'_> {
    /// The fixed part of the header at `place`; the one of the next member will be asked for at `next`.
    fn read(&mut self, place: ByteRange, next: u64) -> Result<[u8; LOCAL as usize]> {
        let known = place.start().checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let known = known.and_then(|at| self.window.get(at..at + LOCAL as usize));
        let mut fixed = [0; LOCAL as usize];
        if let Some(known) = known {
            fixed.copy_from_slice(known);
            return Ok(fixed);
        }
        if next.checked_sub(place.end()).is_none_or(|gap| gap > AHEAD / 8) {
            self.source.read_exact_at(&mut fixed, place.start())?;
            return Ok(fixed);
        }
        let ahead = (self.range.end() - place.start()).min(AHEAD);
        self.window.resize(ahead as usize, 0);
        self.start = place.start();
        self.source.read_exact_at(&mut self.window, self.start)?;
        fixed.copy_from_slice(&self.window[..LOCAL as usize]);
        Ok(fixed)
    }
}

impl Header {
    /// Where the data is: behind the local header, whose name and extra field have lengths of their own.
    fn place(self, locals: &mut Locals<'_>, next: u64) -> Result<Member> {
        let Header { member, local, stored_len } = self;
        let (name, range) = (&member.name, locals.range);
        let Some(header) = range.slice(local, LOCAL) else {
            let message =
                format!("member {name:?} of the zip starts at byte {local}, but the zip ends at {}", range.len());
            return Err(Error::malformed(message));
        };
        let fixed = locals.read(header, range.start().saturating_add(next))?;
        if !fixed.starts_with(b"PK\x03\x04") {
            let message = format!("member {name:?} of the zip has no local header");
            return Err(Error::malformed(message).at(header.start()));
        }
        let variable = u64::from(u16::from_le_bytes([fixed[26], fixed[27]]))
            + u64::from(u16::from_le_bytes([fixed[28], fixed[29]]));
        let Some(stored) = range.slice(local + LOCAL + variable, stored_len) else {
            let (start, end) = (local + LOCAL + variable, range.len());
            let message =
                format!("member {name:?} of the zip needs {stored_len} bytes at offset {start}, but it ends at {end}");
            return Err(Error::malformed(message).at(header.start()));
        };
        if member.method == Method::Stored && stored_len != member.len {
            let message = format!("member {name:?} of the zip is stored in {stored_len} bytes, but has {}", member.len);
            return Err(Error::malformed(message).at(header.start()));
        }
        Ok(Member { stored, ..member })
    }
}

/// Members must lie one behind the other, in any order, before the directory.
fn no_overlap(starts: &[u64], members: &[Member], base: u64, directory: u64) -> Result<()> {
    let mut spans: Vec<(u64, u64, &str)> = (starts.iter().zip(members))
        .map(|(local, member)| (base + local, member.stored.end(), member.name.as_str()))
        .collect();
    spans.sort_unstable();
    for pair in spans.windows(2) {
        let ((_, end, first), (start, _, second)) = (pair[0], pair[1]);
        if end > start {
            let message = format!("members {first:?} and {second:?} of the zip overlap: the first ends at {end}");
            return Err(Error::malformed(message).at(start));
        }
    }
    match spans.last() {
        Some(&(_, end, name)) if end > base + directory => {
            let message = format!("member {name:?} of the zip runs into the directory at {}", base + directory);
            Err(Error::malformed(message).at(base + directory))
        }
        _ => Ok(()),
    }
}

fn broken(what: &str, error: rawzip::Error) -> Error {
    match error.into_kind() {
        rawzip::ErrorKind::IO(error) => match error.downcast::<Error>() {
            Ok(inner) => inner,
            Err(error) => Error::malformed(format!("{what}: {error}")),
        },
        rawzip::ErrorKind::Eof => Error::malformed(format!("{what}: it ends early")),
        kind => Error::malformed(format!("{what}: {kind}")),
    }
}

/// The error for an archive whose directory was not found.
fn no_directory(window: &Window<'_>, error: rawzip::Error) -> Error {
    match error.kind() {
        rawzip::ErrorKind::IO(_) => broken("the end of the zip cannot be read", error),
        _ => truncated::explain(window.source, window.range),
    }
}
