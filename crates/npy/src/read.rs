//! Opening an array.

use crate::ID;
use crate::descr::Descr;
use crate::header::{Header, PREFIX_BYTES, Prefix, truncated};
use crate::output::{RawCode, RawCodes};
use crate::record::Record;
use std::path::{Path, PathBuf};
use weightlift_core::{
    ByteRange, Catalog, Checkpoint, DType, Data, Entry, Error, Extent, Extras, Files, KeyPath, Layout, Limits, Result,
    Shape, Source, SourceId, sniff,
};
use weightlift_io::FileSource;

/// How many first bytes are looked at to say what a file is instead.
const HEAD: u64 = 4096;

/// An opened checkpoint of arrays in files of their own.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) catalog: Catalog,
    pub(crate) files: Vec<PathBuf>,
    codes: RawCodes,
}

impl Opened {
    pub(crate) fn new(catalog: Catalog) -> Opened {
        Opened { catalog, files: Vec::new(), codes: RawCodes::default() }
    }

    /// Hands the type codes of raw arrays to the catalog.
    pub(crate) fn with_codes(mut self) -> Opened {
        self.catalog.extras = Some(Extras::new(std::mem::take(&mut self.codes)));
        self
    }
}

impl Checkpoint for Opened {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }
}

/// Opens one array. Its name is that of the file without the extension.
pub(crate) fn open(files: &dyn Files, path: &Path, limits: &Limits) -> Result<Opened> {
    let mut opened = Opened::new(Catalog::new(ID, "NumPy array"));
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    add_file(files, path, &name, None, limits, &mut opened).map_err(|error| error.in_file(path))?;
    if let Some(Data::Absent(why)) = opened.catalog.entries.first().map(|entry| &entry.data) {
        let error = Error::unsupported(why.clone()).in_file(path);
        return Err(error.help("save its numbers with a numeric dtype"));
    }
    opened.files.push(path.to_path_buf());
    Ok(opened.with_codes())
}

/// Adds a file and its array to a catalog.
pub(crate) fn add_file(
    files: &dyn Files,
    path: &Path,
    name: &str,
    record: Option<Record>,
    limits: &Limits,
    opened: &mut Opened,
) -> Result<()> {
    let source = FileSource::open(files, path)?;
    let (mut header, start) = read_header(&source, limits)?;
    if let Some(record) = record {
        header.descr = record.applied(header.descr);
    }
    let (needed, has) = (header.data_bytes()?, source.len());
    let end = start.checked_add(needed).filter(|&end| end <= has);
    let end = end.ok_or_else(|| truncated(start.saturating_add(needed), has).at(start))?;
    let catalog = &mut opened.catalog;
    if end < has && !matches!(header.descr, Descr::Foreign(_)) {
        catalog.warnings.push(format!("{}: {} bytes after the array are not read", path.display(), has - end));
    }
    let id = catalog.add_source(Source::File { path: path.to_path_buf(), len: has });
    let mut entry = entry(name, &header, id, ByteRange::new(start, needed)?)?;
    record.iter().for_each(|record| record.remark(&mut entry));
    if let Descr::Raw { code, .. } = header.descr {
        let raw = RawCode { code, fortran_order: header.fortran_order };
        opened.codes.0.insert(catalog.entries.len() as u32, raw);
    }
    catalog.entries.push(entry);
    Ok(())
}

/// The header of a file and the first byte of its data.
fn read_header(source: &FileSource, limits: &Limits) -> Result<(Header, u64)> {
    let head = source.head(PREFIX_BYTES as u64)?;
    let prefix = match Prefix::parse(&head) {
        Ok(prefix) => prefix,
        Err(error) => return Err(foreign(source, error)),
    };
    if prefix.end() > source.len() {
        return Err(truncated(prefix.end(), source.len()).at(prefix.start));
    }
    let text = source.read_vec(ByteRange::new(prefix.start, prefix.len)?, limits.header_bytes)?;
    Ok((Header::parse(&text, prefix.start, limits)?, prefix.end()))
}

/// The error for a file that is something else, where its first bytes say what.
fn foreign(source: &FileSource, error: Error) -> Error {
    let head = source.head(HEAD).unwrap_or_default();
    match sniff::describe(&head, source.len()) {
        Some(what) => Error::malformed(format!("no array of NumPy but {what}")),
        None => error,
    }
}

/// An array whose data lie at the start of `bytes` of a source.
pub(crate) fn entry(name: &str, header: &Header, source: SourceId, bytes: ByteRange) -> Result<Entry> {
    let (path, shape) = (KeyPath::flat(name), &header.shape);
    match &header.descr {
        Descr::Plain(dtype, order) => {
            let layout = if header.fortran_order { column_major(shape) } else { Layout::contiguous(shape) };
            let extent = Extent::strided(source, bytes, *dtype, shape, layout)?.with_order(*order);
            Entry::new(path, *dtype, shape.clone(), vec![extent])
        }
        Descr::Raw { code, .. } => {
            let outside = || truncated(header.data_bytes().unwrap_or(u64::MAX), bytes.len());
            let bytes = bytes.slice(0, header.data_bytes()?).ok_or_else(outside)?;
            let extent = Extent::opaque(source, bytes, shape);
            let mut entry = Entry::new(path, DType::Raw, shape.clone(), vec![extent])?;
            entry.remarks.push(format!("descr={code}"));
            if header.fortran_order && shape.rank() > 1 {
                entry.remarks.push("column-major".to_owned());
            }
            Ok(entry)
        }
        Descr::Foreign(why) => Ok(Entry::absent(path, DType::Raw, shape.clone(), why.as_str())),
    }
}

/// The layout of an array whose first index runs fastest.
fn column_major(shape: &Shape) -> Layout {
    let strides = shape.dims().iter().scan(1u64, |stride, &dim| {
        let own = *stride;
        *stride = own.saturating_mul(dim.max(1));
        Some(own)
    });
    Layout { offset: 0, strides: strides.collect() }
}
