//! Opening an array.

use crate::ID;
use crate::descr::Descr;
use crate::header::{Header, PREFIX_BYTES, Prefix, truncated};
use std::path::{Path, PathBuf};
use weightlift_core::{
    ByteRange, Catalog, Checkpoint, DType, Entry, Error, Extent, Files, KeyPath, Layout, Limits, Result, Shape, Source,
    SourceId, sniff,
};
use weightlift_io::FileSource;

/// How many first bytes are looked at to say what a file is instead.
const HEAD: u64 = 4096;

/// An opened checkpoint of arrays in files of their own.
#[derive(Debug)]
pub(crate) struct Opened {
    catalog: Catalog,
    files: Vec<PathBuf>,
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
    let mut catalog = Catalog::new(ID, "NumPy array");
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    add_file(files, path, &name, limits, &mut catalog).map_err(|error| error.in_file(path))?;
    Ok(Opened { catalog, files: vec![path.to_path_buf()] })
}

/// Adds a file and its array to a catalog.
fn add_file(files: &dyn Files, path: &Path, name: &str, limits: &Limits, catalog: &mut Catalog) -> Result<()> {
    let source = FileSource::open(files, path)?;
    let (header, start) = read_header(&source, limits)?;
    if let Descr::Foreign(why) = &header.descr {
        return Err(Error::unsupported(why.clone()).help("save its numbers with a numeric dtype"));
    }
    let (needed, has) = (header.data_bytes()?, source.len());
    let end = start.checked_add(needed).filter(|&end| end <= has);
    let end = end.ok_or_else(|| truncated(start.saturating_add(needed), has).at(start))?;
    if end < has {
        catalog.warnings.push(format!("{}: {} bytes after the array are not read", path.display(), has - end));
    }
    let id = catalog.add_source(Source::File { path: path.to_path_buf(), len: has });
    catalog.entries.push(entry(name, &header, id, ByteRange::new(start, needed)?)?);
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
