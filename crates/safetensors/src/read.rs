//! Opening: the header into a catalog.

use crate::header::{self, Header, LENGTH_BYTES, READABLE_HEADER};
use crate::{ID, Metadata, set};
use std::path::{Path, PathBuf};
use weightlift_core::{
    ByteRange, Catalog, Checkpoint, Entry, Error, Extent, Extras, FileKind, Files, KeyPath, OpenOptions, Result,
    Source, sniff,
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
pub(crate) fn open(files: &dyn Files, path: &Path, options: &OpenOptions) -> Result<Opened> {
    if files.stat(path).is_ok_and(|stat| stat.kind == FileKind::Dir) {
        return open(files, &set::only_one(files, path)?, options);
    }
    if set::is_index(path) {
        return set::open(files, path, options);
    }
    let mut catalog = Catalog::new(ID, "safetensors file");
    let metadata = add_file(files, path, options, &mut catalog)?;
    Ok(Opened::new(catalog, metadata, vec![path.to_path_buf()]))
}

/// Adds a file and its tensors to a catalog, in the order of their bytes, and returns its metadata. A header that a
/// killed run was changing in place is put back first.
pub(crate) fn add_file(
    files: &dyn Files,
    path: &Path,
    options: &OpenOptions,
    catalog: &mut Catalog,
) -> Result<Metadata> {
    if weightlift_io::restore_head(files, path)? {
        let warning = format!("{}: the header that an interrupted run was changing was put back", path.display());
        catalog.warnings.push(warning);
    }
    let source = FileSource::open(files, path)?;
    let Fitted { header, order, data, remarks } = read_header(&source, options).map_err(|error| error.in_file(path))?;
    catalog.warnings.extend(remarks.into_iter().map(|remark| format!("{}: {remark}", path.display())));
    let id = catalog.add_source(Source::File { path: path.to_path_buf(), len: source.len() });
    let Header { mut metadata, tensors } = header;
    if !order.is_sorted() {
        metadata.order = order.iter().map(|&at| at as u32).collect();
    }
    catalog.entries.reserve(tensors.len());
    let mut tensors: Vec<Option<header::Tensor>> = tensors.into_iter().map(Some).collect();
    for tensor in order.into_iter().filter_map(|at| tensors.get_mut(at)?.take()) {
        let start = data.start() + tensor.begin;
        let entry = ByteRange::new(start, tensor.end - tensor.begin)
            .and_then(|bytes| Extent::contiguous(id, bytes, tensor.dtype, &tensor.shape))
            .and_then(|extent| Entry::new(KeyPath::flat(tensor.name), tensor.dtype, tensor.shape, vec![extent]))
            .map_err(|error| error.in_file(path))?;
        catalog.entries.push(entry);
    }
    Ok(metadata)
}

/// A header that fits its file: its tensors tile `data`.
pub(crate) struct Fitted {
    /// What the header says, tensors in its own order.
    pub(crate) header: Header,
    /// The positions of the tensors in the order of their bytes.
    pub(crate) order: Vec<usize>,
    /// The bytes after the header.
    pub(crate) data: ByteRange,
    /// Harmless faults.
    pub(crate) remarks: Vec<String>,
}

/// Reads and checks the header of a file.
pub(crate) fn read_header(source: &FileSource, options: &OpenOptions) -> Result<Fitted> {
    let limits = &options.limits;
    let mut remarks = Vec::new();
    let length = header_length(source, options, &mut remarks)?;
    let bytes = source.read_vec(ByteRange::new(LENGTH_BYTES, length)?, limits.header_bytes)?;
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(foreign(source, || Error::malformed("no JSON object where the header must be").at(LENGTH_BYTES)));
    }
    let header = header::parse(&bytes, options, &mut remarks)?;
    let start = LENGTH_BYTES + length;
    let data = ByteRange::new(start, source.len().saturating_sub(start))?;
    let (order, surplus) = header::in_order_of_bytes(&header.tensors, data, options.lenient)?;
    if surplus > 0 {
        remarks.push(format!("{surplus} bytes after the last tensor are left aside"));
    }
    Ok(Fitted { header, order, data, remarks })
}

/// The length of the header, checked against the file and the limits before anything of that size is allocated.
fn header_length(source: &FileSource, options: &OpenOptions, remarks: &mut Vec<String>) -> Result<u64> {
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
    if length > options.limits.header_bytes {
        let message = format!("a header of {length} bytes, where {} are allowed", options.limits.header_bytes);
        return Err(foreign(source, || Error::limit(message).at(0)));
    }
    if length > READABLE_HEADER {
        let message = format!("a header of {length} bytes, more than the {READABLE_HEADER} that other readers take");
        if !options.lenient {
            return Err(foreign(source, || Error::limit(message).at(0).help("--lenient reads it")));
        }
        remarks.push(message);
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
