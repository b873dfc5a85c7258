//! Opening: the header into a catalog.

use crate::header::{self, Header, LENGTH_BYTES, arrange};
use crate::{ID, Metadata, set};
use std::path::{Path, PathBuf};
use weightlift_core::{
    ByteRange, Catalog, Checkpoint, Entry, Error, Extent, Extras, FileKind, Files, KeyPath, Limits, Result, Source,
    sniff,
};
use weightlift_io::FileSource;

/// How many first bytes are looked at to say what a file is instead.
const HEAD: u64 = 4096;

/// An opened file, or set of files.
#[derive(Debug)]
pub(crate) struct Opened {
    catalog: Catalog,
    files: Vec<PathBuf>,
}

impl Opened {
    /// From a catalog of tensors and the metadata of its files.
    pub(crate) fn new(mut catalog: Catalog, mut metadata: Metadata, files: Vec<PathBuf>) -> Opened {
        metadata.find_ties(&mut catalog.entries);
        catalog.beside.extend(metadata.lines());
        catalog.extras = Some(Extras::new(metadata));
        Opened { catalog, files }
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

/// Opens a file, an index or the folder of either.
pub(crate) fn open(files: &dyn Files, path: &Path, limits: &Limits) -> Result<Opened> {
    if files.stat(path).is_ok_and(|stat| stat.kind == FileKind::Dir) {
        return open(files, &set::only_one(files, path)?, limits);
    }
    if set::is_index(path) {
        return set::open(files, path, limits);
    }
    let mut catalog = Catalog::new(ID, "safetensors file");
    let metadata = add_file(files, path, limits, &mut catalog)?;
    Ok(Opened::new(catalog, metadata, vec![path.to_path_buf()]))
}

/// Adds a file and its tensors to a catalog, in the order of their bytes, and returns its metadata.
pub(crate) fn add_file(files: &dyn Files, path: &Path, limits: &Limits, catalog: &mut Catalog) -> Result<Metadata> {
    let source = FileSource::open(files, path)?;
    let header = read_header(&source, limits).map_err(|error| error.in_file(path))?;
    let id = catalog.add_source(Source::File { path: path.to_path_buf(), len: source.len() });
    for tensor in header.tensors {
        let start = header.data.start() + tensor.begin;
        let entry = ByteRange::new(start, tensor.end - tensor.begin)
            .and_then(|bytes| Extent::contiguous(id, bytes, tensor.dtype, &tensor.shape))
            .and_then(|extent| Entry::new(KeyPath::flat(&tensor.name), tensor.dtype, tensor.shape, vec![extent]))
            .map_err(|error| error.in_tensor(&tensor.name).in_file(path))?;
        catalog.entries.push(entry);
    }
    Ok(header.metadata)
}

/// A header that fits its file: tensors in the order of their bytes, which tile `data`.
struct Fitted {
    metadata: Metadata,
    tensors: Vec<header::Tensor>,
    data: ByteRange,
}

fn read_header(source: &FileSource, limits: &Limits) -> Result<Fitted> {
    let length = header_length(source, limits)?;
    let bytes = source.read_vec(ByteRange::new(LENGTH_BYTES, length)?, limits.header_bytes)?;
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(foreign(source, || Error::malformed("no JSON object where the header must be").at(LENGTH_BYTES)));
    }
    let Header { metadata, mut tensors } = header::parse(&bytes, limits)?;
    let start = LENGTH_BYTES + length;
    let data = ByteRange::new(start, source.len().saturating_sub(start))?;
    arrange(&mut tensors, data)?;
    Ok(Fitted { metadata, tensors, data })
}

/// The length of the header, checked against the file and the limits before anything of that size is allocated.
fn header_length(source: &FileSource, limits: &Limits) -> Result<u64> {
    let has = source.len();
    if has < LENGTH_BYTES {
        return Err(foreign(source, || header::truncated(LENGTH_BYTES, has)));
    }
    let mut bytes = [0; LENGTH_BYTES as usize];
    source.read_exact_at(&mut bytes, 0)?;
    let length = u64::from_le_bytes(bytes);
    let needed = length.checked_add(LENGTH_BYTES);
    if needed.is_none_or(|needed| needed > has) {
        return Err(foreign(source, || beyond(length, needed, has)));
    }
    if length > limits.header_bytes {
        let message = format!("a header of {length} bytes, where {} are allowed", limits.header_bytes);
        return Err(foreign(source, || Error::limit(message).at(0)));
    }
    Ok(length)
}

/// The error of a header that ends after the file.
fn beyond(length: u64, needed: Option<u64>, has: u64) -> Error {
    match needed {
        Some(needed) if length <= 1 << 40 => header::truncated(needed, has).at(0),
        _ => Error::malformed(format!("not a safetensors file: a header of {length} bytes in a file of {has}")).at(0),
    }
}

/// The error for a file that is something else, where its first bytes say what.
fn foreign(source: &FileSource, otherwise: impl FnOnce() -> Error) -> Error {
    match source.head(HEAD) {
        Ok(head) => match sniff::describe(&head, source.len()) {
            Some(what) => Error::malformed(format!("not a safetensors file but {what}")),
            None => otherwise(),
        },
        Err(error) => error,
    }
}
