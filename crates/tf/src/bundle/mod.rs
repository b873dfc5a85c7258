//! Reading a bundle: the index with its data files, as a catalog.

mod entries;
mod index;
mod shards;

pub use index::{Header, Index};
pub(crate) use index::{VERSION, check_version, shape};

use crate::carried::{Carried, GraphSource};
use crate::locate::{self, stale_state};
use crate::names::{self, index_path, shown};
use crate::record::{BigStrings, check_strings, check_variants};
use crate::{ID, graph, table};
use entries::Builder;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{
    ByteOrder, ByteRange, Catalog, Checkpoint, Checksum, DType, Entry, EntryId, Error, Extent, Files, KeyPath, Limits,
    Names, OpenOptions, Result, Shape, Source, SourceId,
};
use weightlift_io::FileSource;
use weightlift_kernels::checksum::mask_crc32c;

/// An open bundle.
#[derive(Debug)]
pub(crate) struct Bundle {
    files: Arc<dyn Files>,
    catalog: Catalog,
    paths: Vec<PathBuf>,
    /// Where the strings of a big-endian bundle lie that its decoded sources give.
    decoded: BTreeMap<SourceId, Strings>,
}

/// Strings in big-endian order.
#[derive(Debug)]
struct Strings {
    source: SourceId,
    bytes: ByteRange,
    elements: u64,
    /// Masked, as it is stored.
    crc: u32,
}

impl Bundle {
    /// Reads the index of the bundle with this prefix and looks for its data files.
    pub(crate) fn open(files: Arc<dyn Files>, prefix: &Path, options: &OpenOptions) -> Result<Bundle> {
        let path = index_path(prefix);
        let mut lost = Vec::new();
        let (index, damage) = read_index(files.as_ref(), prefix, options, &mut lost)?;
        let mut catalog = Catalog::new(ID, describe(index.header));
        let mut builder = Builder::new(files.as_ref(), prefix, &index, &options.limits, &mut catalog);
        builder.add_all(options.salvage).map_err(|error| error.in_file(&path))?;
        let mut paths = vec![path];
        let (shards, decoded) = builder.finish();
        paths.extend(shards);
        catalog.entries.extend(lost.iter().map(lost_block));
        let mut carried = Carried::of(&index, &catalog);
        match graph_source(&files, &index, &catalog, &decoded, &options.limits) {
            Some(graph) => carried.add_objects(graph, options.names, &mut catalog)?,
            None if options.names != Names::Stored => {
                catalog.warnings.push("there is no object graph: names are those that are stored".to_owned());
            }
            None => {}
        }
        catalog.extras = carried.into_extras();
        catalog.warnings.extend(damage);
        catalog.warnings.extend(stale_state(files.as_ref(), prefix));
        let meta = names::with_suffix(prefix, ".meta");
        if locate::stat(files.as_ref(), &meta)?.is_some() {
            catalog.left_behind.push(format!("{} (the graph of TensorFlow 1; not read)", shown(&meta)));
        }
        Ok(Bundle { files, catalog, paths, decoded })
    }
}

/// Where the object graph of a bundle lies, if it has one.
fn graph_source(
    files: &Arc<dyn Files>,
    index: &Index,
    catalog: &Catalog,
    decoded: &BTreeMap<SourceId, Strings>,
    limits: &Limits,
) -> Option<GraphSource> {
    let (_, entry) = catalog.named(graph::KEY).next()?;
    let [extent] = entry.extents().ok()? else { return None };
    if entry.dtype != DType::Str || entry.shape.rank() != 0 {
        return None;
    }
    let crc = index.get(graph::KEY.as_bytes())?.crc32c;
    let (source, bytes, order) = match decoded.get(&extent.source) {
        Some(strings) => (strings.source, strings.bytes, ByteOrder::Big),
        None => (extent.source, extent.bytes, ByteOrder::Little),
    };
    let Source::File { path, .. } = catalog.source(source) else { return None };
    Some(GraphSource { files: files.clone(), path: path.clone(), bytes, crc, order, limits: limits.clone() })
}

/// What stands for the tensors of a block of the index that cannot be read: not even their names are known.
fn lost_block(error: &Error) -> Entry {
    let name = match error.place().offset {
        Some(offset) => format!("(tensors of the index block at byte {offset})"),
        None => "(tensors of a block of the index)".to_owned(),
    };
    Entry::broken(KeyPath::flat(name), DType::Raw, Shape::scalar(), error.message())
}

/// Reads and parses the index; with a warning where the part that nothing is read from is broken. Where damaged files
/// are to be salvaged, damaged blocks are left out and noted in `lost`.
fn read_index(
    files: &dyn Files,
    prefix: &Path,
    options: &OpenOptions,
    lost: &mut Vec<Error>,
) -> Result<(Index, Option<String>)> {
    let limits = &options.limits;
    let path = index_path(prefix);
    if locate::stat(files, &path)?.is_none() {
        let message = format!("does not exist, though there are data files of {}", shown(prefix));
        let help = match weightlift_io::is_unfinished(files, &path) {
            true => "the run that was replacing it was stopped; the next run that writes there finishes it",
            false => "a checkpoint cannot be read without its index",
        };
        return Err(Error::request(message).in_file(path).help(help));
    }
    let source = FileSource::open(files, &path)?;
    let bytes = source.read_vec(ByteRange::new(0, source.len())?, limits.header_bytes)?;
    let damaged = |error| {
        if !options.salvage {
            return Err(error);
        }
        lost.push(error);
        Ok(())
    };
    let index = Index::parse_around(&bytes, limits, damaged).map_err(|error| {
        let known = weightlift_core::sniff::describe(&bytes[..bytes.len().min(4096)], source.len());
        let is_table = table::Footer::is_at_end_of(&bytes);
        match known.filter(|_| !is_table) {
            Some(what) => Error::malformed(format!("is no index, but {what}")).in_file(&path),
            None => cut_short(error, &bytes).in_file(&path),
        }
    })?;
    let damage = table::check_metaindex(&bytes).err();
    let damage = damage.map(|error| format!("{}: the metaindex block is damaged: {error}", path.display()));
    Ok((index, damage))
}

/// Adds what a missing magic number means where the file begins like an index.
fn cut_short(error: Error, bytes: &[u8]) -> Error {
    let begins = bytes.starts_with(&[0, 0]) && !table::Footer::is_at_end_of(bytes);
    if begins { error.help("the file was cut short or its end is damaged: fetch it again") } else { error }
}

fn describe(header: Header) -> String {
    let shards = match header.num_shards {
        1 => "1 data file".to_owned(),
        n => format!("{n} data files"),
    };
    let order = if header.order == ByteOrder::Big { ", big-endian" } else { "" };
    format!("TensorFlow bundle, {shards}{order}")
}

impl Checkpoint for Bundle {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn files(&self) -> Vec<PathBuf> {
        self.paths.clone()
    }

    fn decode(&self, source: SourceId) -> Result<Box<dyn Read + Send + '_>> {
        let Some(strings) = self.decoded.get(&source) else {
            return Err(Error::request(format!("source {} is not a decoded one", source.0)));
        };
        let Source::File { path, .. } = self.catalog.source(strings.source) else {
            return Err(Error::request("strings lie in no file"));
        };
        let file = FileSource::open(self.files.as_ref(), path)?;
        let reader = file.reader(strings.bytes);
        Ok(Box::new(BigStrings::new(reader, strings.elements, strings.bytes.len(), strings.crc)))
    }

    fn verify(&self, id: EntryId) -> Result<()> {
        let entry = self.catalog.entry(id);
        let verify = || entry.extents()?.iter().try_for_each(|extent| self.verify_record(entry.dtype, extent));
        verify().map_err(|error| error.in_tensor(&entry.name))
    }
}

impl Bundle {
    /// Reads strings or variants through and compares their checksum with the stored one.
    fn verify_record(&self, dtype: DType, extent: &Extent) -> Result<()> {
        let (Some(Checksum::OfFormat(stored)), Source::File { path, .. }) =
            (extent.checksum, self.catalog.source(extent.source))
        else {
            return Ok(());
        };
        let source = FileSource::open(self.files.as_ref(), path)?;
        let (elements, size) = (extent.region.size.elements(), extent.bytes.len());
        let reader = source.reader(extent.bytes);
        let crc = match dtype {
            DType::Variant => check_variants(reader, elements, size),
            _ => check_strings(reader, elements, size),
        };
        let place = |error: Error| error.in_file(path).at(extent.bytes.start());
        let computed = mask_crc32c(crc.map_err(place)?);
        if computed == stored {
            return Ok(());
        }
        let message = format!("checksum differs: stored {stored:08x}, computed {computed:08x}: the file is damaged");
        Err(place(Error::checksum(message)))
    }
}
