//! Reading checkpoints of version 1: tables that hold the values themselves, as protocol buffers.
//!
//! The header, under the empty key, lists the tensors of a file and their slices; each slice is a value of its own. A
//! value is decoded when it is asked for. There are no checksums but those of the table's blocks.

mod meta;
mod table_file;
mod value;
mod wire;

use crate::locate::{matching, stale_state};
use crate::ordered::slice_key;
use crate::proto::TensorSlice;
use crate::{ID, dtype, slices};
use meta::{Tensor, Tensors, no_header};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table_file::TableFile;
use value::{Numbers, Strings, coding, strings_len};
use weightlift_core::{
    ByteRange, Catalog, Checkpoint, DType, Entry, Error, Extent, Files, KeyPath, Kind, OpenOptions, Region, Result,
    Shape, Source, SourceId,
};

/// An open checkpoint of version 1.
#[derive(Debug)]
pub(crate) struct V1 {
    catalog: Catalog,
    tables: Vec<TableFile>,
    /// What each source decodes.
    slices: Vec<Slice>,
}

/// A slice that is a source.
#[derive(Debug)]
struct Slice {
    table: usize,
    key: Vec<u8>,
    dtype: DType,
    elements: u64,
}

impl V1 {
    /// Reads the headers of the files that fit a pattern.
    pub(crate) fn open(files: Arc<dyn Files>, pattern: &Path, options: &OpenOptions) -> Result<V1> {
        let paths = matching(files.as_ref(), pattern)?;
        if paths.is_empty() {
            return Err(Error::request("no file fits this pattern").in_file(pattern));
        }
        let mut tensors = Tensors::default();
        let mut tables = Vec::with_capacity(paths.len());
        for (at, path) in paths.iter().enumerate() {
            let table = TableFile::open(files.as_ref(), path, &options.limits)?;
            let header = table.header().and_then(|header| header.ok_or_else(no_header));
            let added = header.and_then(|header| tensors.add(at, &header, &options.limits));
            added.map_err(|error| error.in_file(path))?;
            tables.push(table);
        }
        let description = match tables.len() {
            1 => "TensorFlow checkpoint, version 1".to_owned(),
            n => format!("TensorFlow checkpoint, version 1, {n} files"),
        };
        let mut opened = V1 { catalog: Catalog::new(ID, description), tables, slices: Vec::new() };
        for (name, tensor) in &tensors.0 {
            let entry = opened.entry(name, tensor).map_err(|error| error.in_tensor(name))?;
            opened.catalog.entries.push(entry);
        }
        opened.catalog.warnings.extend(stale_state(files.as_ref(), pattern));
        Ok(opened)
    }

    fn entry(&mut self, name: &str, tensor: &Tensor) -> Result<Entry> {
        let Tensor { dtype, shape, .. } = tensor;
        let path = KeyPath::flat(name);
        let extents = self.extents(name, tensor);
        match extents.and_then(|extents| Entry::new(path.clone(), *dtype, shape.clone(), extents)) {
            Err(error) if error.kind() != Kind::Io => Ok(Entry::broken(path, *dtype, shape.clone(), error.to_string())),
            result => result,
        }
    }

    fn extents(&mut self, name: &str, tensor: &Tensor) -> Result<Vec<Extent>> {
        let Tensor { dtype, shape, slices } = tensor;
        let region = |(_, slice): &(usize, TensorSlice)| slices::region(slice, shape);
        let regions = slices.iter().map(region).collect::<Result<Vec<_>>>()?;
        slices::check_cover(&regions, shape)?;
        let extent = |((table, slice), region): (&(usize, TensorSlice), Region)| {
            let key = slice_key(name.as_bytes(), slice);
            let elements = region.size.elements();
            let found = Slice { table: *table, key, dtype: *dtype, elements };
            let whole = if region.is_whole(shape) { String::new() } else { region.index_in(shape) };
            self.extent(found, &region.size, format!("{name}{whole}")).map(|extent| extent.filling(region))
        };
        slices.iter().zip(regions).map(extent).collect()
    }

    /// Makes a slice a source. The bytes of numbers follow from the shape; strings are looked through.
    fn extent(&mut self, slice: Slice, shape: &Shape, name: String) -> Result<Extent> {
        let len = if slice.dtype == DType::Str { self.strings_len(&slice)? } else { numbers_len(&slice, shape)? };
        let label = format!("{}: tensor {name:?}", self.tables[slice.table].path().display());
        let dtype = slice.dtype;
        self.slices.push(slice);
        let source = self.catalog.add_source(Source::Decoded { label, len });
        let bytes = ByteRange::new(0, len)?;
        match dtype {
            DType::Str => Ok(Extent::opaque(source, bytes, shape)),
            dtype => Extent::packed(source, bytes, dtype, shape, dtype::packing(dtype)),
        }
    }

    fn strings_len(&self, slice: &Slice) -> Result<u64> {
        let table = &self.tables[slice.table];
        let value = self.value(slice)?;
        let len = strings_len(table.reader(&value), value.len(), slice.elements);
        len.map_err(|error| Error::malformed(error.to_string()).in_file(table.path()))
    }

    fn value(&self, slice: &Slice) -> Result<table_file::Value> {
        let table = &self.tables[slice.table];
        let missing = || Error::malformed("the header names a slice that is not there").in_file(table.path());
        table.find(&slice.key)?.ok_or_else(missing)
    }
}

fn numbers_len(slice: &Slice, shape: &Shape) -> Result<u64> {
    let Slice { dtype, elements, .. } = slice;
    if coding(*dtype).is_none() {
        return Err(Error::unsupported(format!("version 1 of the format has no {dtype}")));
    }
    let len = dtype.bytes(*elements, dtype::packing(*dtype));
    len.ok_or_else(|| Error::malformed(format!("{dtype} of shape {shape} has more than 2^63 bytes")))
}

impl Checkpoint for V1 {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn files(&self) -> Vec<PathBuf> {
        self.tables.iter().map(|table| table.path().to_path_buf()).collect()
    }

    fn decode(&self, source: SourceId) -> Result<Box<dyn Read + Send + '_>> {
        let Some(slice) = self.slices.get(source.0 as usize) else {
            return Err(Error::request(format!("there is no source {}", source.0)));
        };
        let value = self.value(slice)?;
        let open = || self.tables[slice.table].reader(&value);
        match coding(slice.dtype) {
            Some(coding) => Ok(Box::new(Numbers::new(open(), value.len(), coding, slice.elements))),
            None => Ok(Box::new(Strings::new(open(), open(), value.len()))),
        }
    }
}
