//! Opening an archive.

use super::member::Array;
use super::{ID, SUFFIX};
use crate::descr::Descr;
use crate::output::{RawCode, RawCodes};
use crate::read;
use crate::record::Record;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use weightlift_archive::{Archive, Member, open_member};
use weightlift_core::{
    ByteRange, Catalog, Checkpoint, Data, Error, Extent, Extras, Files, Limits, Result, Source, SourceId, sniff,
};
use weightlift_io::FileSource;

/// How many first bytes are looked at to say what a file is instead.
const HEAD: u64 = 4096;

/// An opened archive.
#[derive(Debug)]
pub(crate) struct Opened {
    catalog: Catalog,
    source: FileSource,
    /// The members behind decoded sources.
    decoded: HashMap<SourceId, Member>,
    limits: Limits,
}

impl Checkpoint for Opened {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.source.path().to_path_buf()]
    }

    fn decode(&self, source: SourceId) -> Result<Box<dyn Read + Send + '_>> {
        let member = self.decoded.get(&source);
        let member = member.ok_or_else(|| Error::request(format!("source {} is not a decoded one", source.0)))?;
        Ok(Box::new(open_member(&self.source, member, &self.limits)?))
    }
}

/// Opens an archive.
pub(crate) fn open(files: &dyn Files, path: &Path, limits: &Limits) -> Result<Opened> {
    let source = FileSource::open(files, path)?;
    let archive = Archive::read(&source, limits).map_err(|error| foreign(&source, error))?;
    let catalog = Catalog::new(ID, "NumPy archive");
    let decoded = HashMap::new();
    let mut opened = Opened { catalog, source, decoded, limits: limits.clone() };
    let file = opened.catalog.add_source(Source::File { path: path.to_path_buf(), len: opened.source.len() });
    let mut codes = RawCodes::default();
    for member in last_of_each_name(&archive, &mut opened.catalog.warnings) {
        opened.add(member, file, &mut codes).map_err(|error| error.in_tensor(name_of(member)))?;
    }
    opened.catalog.extras = Some(Extras::new(codes));
    Ok(opened)
}

/// The error for a file that is something else, where its first bytes say what.
fn foreign(source: &FileSource, error: Error) -> Error {
    let head = source.head(HEAD).unwrap_or_default();
    match sniff::describe(&head, source.len()) {
        Some(what) => Error::malformed(format!("no archive of arrays but {what}")),
        None => error,
    }
}

/// The name of an array: that of its member without one suffix.
fn name_of(member: &Member) -> &str {
    member.name.strip_suffix(SUFFIX).unwrap_or(&member.name)
}

/// Of members with equal names NumPy finds the last.
fn last_of_each_name<'a>(archive: &'a Archive, warnings: &mut Vec<String>) -> Vec<&'a Member> {
    let members = archive.members();
    let last: HashMap<&str, usize> =
        members.iter().enumerate().map(|(at, member)| (member.name.as_str(), at)).collect();
    let is_last = |&(at, member): &(usize, &Member)| last.get(member.name.as_str()) == Some(&at);
    let (kept, hidden): (Vec<_>, Vec<_>) = members.iter().enumerate().partition(is_last);
    let warning = |(_, member): (usize, &Member)| {
        format!("member {:?} stands more than once in the archive: the last one counts", member.name)
    };
    warnings.extend(hidden.into_iter().map(warning));
    kept.into_iter().map(|(_, member)| member).collect()
}

impl Opened {
    fn add(&mut self, member: &Member, file: SourceId, codes: &mut RawCodes) -> Result<()> {
        let name = name_of(member);
        if name.len() > self.limits.name_bytes {
            let (found, most) = (name.len(), self.limits.name_bytes);
            return Err(Error::limit(format!("a name of {found} bytes, where {most} are allowed")));
        }
        if self.catalog.entries.len() as u64 >= self.limits.tensors {
            return Err(Error::limit(format!("more than the {} tensors allowed", self.limits.tensors)));
        }
        let Some(mut array) = Array::read(&self.source, member, &self.limits)? else {
            self.catalog.beside.push(format!("member {:?}: {} bytes that are no array", member.name, member.len));
            return Ok(());
        };
        let record = Record::parse(&member.comment);
        if let Some(record) = record {
            array.header.descr = record.applied(array.header.descr);
        }
        let surplus = array.rest.len() - array.data_bytes;
        if surplus > 0 && !matches!(array.header.descr, Descr::Foreign(_)) {
            let warning = format!("member {:?}: {surplus} bytes after the array are not read", member.name);
            self.catalog.warnings.push(warning);
        }
        let (source, bytes) = self.place(member, file, array.rest)?;
        let mut entry = read::entry(name, &array.header, source, bytes)?;
        record.iter().for_each(|record| record.remark(&mut entry));
        if let Data::Extents(extents) = &mut entry.data {
            let covered = |extent: &Extent| array.checksum.filter(|_| extent.bytes == bytes);
            extents.iter_mut().for_each(|extent| extent.checksum = covered(extent));
        }
        if let Descr::Raw { code, .. } = array.header.descr {
            let raw = RawCode { code, fortran_order: array.header.fortran_order };
            codes.0.insert(self.catalog.entries.len() as u32, raw);
        }
        self.catalog.entries.push(entry);
        Ok(())
    }

    /// The byte space of a member, and `data` of it there.
    fn place(&mut self, member: &Member, file: SourceId, data: ByteRange) -> Result<(SourceId, ByteRange)> {
        if let Some(plain) = member.plain() {
            let outside = || Error::malformed("the array leaves its member");
            return Ok((file, plain.slice(data.start(), data.len()).ok_or_else(outside)?));
        }
        let label = format!("{}: member {:?}", self.source.path().display(), member.name);
        let source = self.catalog.add_source(Source::Decoded { label, len: member.len });
        self.decoded.insert(source, member.clone());
        Ok((source, data))
    }
}
