//! From the entries of an index to tensors.

use super::Strings;
use super::index::{self, Index};
use super::shards::Shards;
use crate::ordered::slice_key;
use crate::proto::{BundleEntry, TensorSlice};
use crate::{dtype, graph, slices};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weightlift_core::{
    ByteOrder, ByteRange, Catalog, Checksum, DType, Entry, Error, Extent, Files, KeyPath, Kind, Limits, Region, Result,
    Shape, Source, SourceId,
};
use weightlift_kernels::checksum::unmask_crc32c;

/// Fills a catalog from an index.
pub(super) struct Builder<'a> {
    index: &'a Index,
    limits: &'a Limits,
    shards: Shards<'a>,
    catalog: &'a mut Catalog,
    /// The first tensor that cannot be read, and how many more there are.
    damage: Option<Error>,
    damaged: usize,
    decoded: BTreeMap<SourceId, Strings>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        files: &'a dyn Files,
        prefix: &'a Path,
        index: &'a Index,
        limits: &'a Limits,
        catalog: &'a mut Catalog,
    ) -> Builder<'a> {
        let shards = Shards::new(files, prefix, index.header);
        Builder { index, limits, shards, catalog, damage: None, damaged: 0, decoded: BTreeMap::new() }
    }

    /// Adds every tensor in key order; slices stand in the tensor they belong to. A tensor that cannot be read is
    /// listed without values, unless that is true of all and they are not to be listed whatever they are.
    pub(super) fn add_all(&mut self, salvage: bool) -> Result<()> {
        let hidden = self.slice_entries();
        for ((key, entry), hidden) in self.index.entries.iter().zip(hidden) {
            if hidden {
                continue;
            }
            let Ok(name) = std::str::from_utf8(key) else {
                let line = format!(
                    "an entry with the key {:?}, which is neither a name nor a known slice",
                    key.escape_ascii().to_string()
                );
                self.catalog.left_behind.push(line);
                continue;
            };
            let mut tensor = self.tensor(name, entry).map_err(|error| error.in_tensor(name))?;
            tensor.of_format = name == graph::KEY;
            self.catalog.entries.push(tensor);
        }
        match self.damage.take() {
            Some(error) if self.damaged == self.catalog.entries.len() && !salvage => Err(error),
            _ => Ok(()),
        }
    }

    /// The data files that exist, and what the decoded sources stand for.
    pub(super) fn finish(self) -> (Vec<PathBuf>, BTreeMap<SourceId, Strings>) {
        (self.shards.finish(self.catalog), self.decoded)
    }

    /// Marks the entries that are slices of a partitioned tensor.
    fn slice_entries(&self) -> Vec<bool> {
        let entries = &self.index.entries;
        let mut marks = vec![false; entries.len()];
        for (name, entry) in entries {
            for slice in &entry.slices {
                let key = slice_key(name, slice);
                if let Ok(at) = entries.binary_search_by(|(other, _)| other.cmp(&key)) {
                    marks[at] = true;
                }
            }
        }
        marks
    }

    fn tensor(&mut self, name: &str, entry: &BundleEntry) -> Result<Entry> {
        if name.len() > self.limits.name_bytes {
            let message = format!("a name of {} bytes is longer than {}", name.len(), self.limits.name_bytes);
            return Err(Error::limit(message));
        }
        let dtype = dtype::from_number(entry.dtype)?;
        let shape = index::shape(entry.shape.as_ref(), self.limits)?;
        let extents = match entry.slices.as_slice() {
            [] => self.extent(dtype, &shape, entry).map(|extent| vec![extent]),
            slices => self.partitioned(name, dtype, &shape, slices),
        };
        let path = KeyPath::flat(name);
        match extents.and_then(|extents| Entry::new(path.clone(), dtype, shape.clone(), extents)) {
            Ok(entry) => Ok(entry),
            Err(error) if error.kind() == Kind::Io => Err(error),
            Err(error) => {
                let entry = Entry::broken(path, dtype, shape, error.to_string());
                self.damaged += 1;
                self.damage.get_or_insert_with(|| error.in_tensor(name));
                Ok(entry)
            }
        }
    }

    /// Where the values of a tensor or slice lie.
    fn extent(&mut self, dtype: DType, shape: &Shape, entry: &BundleEntry) -> Result<Extent> {
        let (source, range) = self.shards.range(self.catalog, entry.shard_id, entry.offset, entry.size)?;
        if dtype.is_opaque() {
            let least = least_bytes(dtype, shape.elements());
            if range.len() < least && !(range.len() == 0 && shape.elements() == 0) {
                let message = format!("{dtype} of shape {shape} has at least {least} bytes, but {}", range.len());
                return Err(Error::malformed(format!("{message} are stored")).at(range.start()));
            }
            return self.opaque(dtype, shape, source, range, entry.crc32c);
        }
        let extent = Extent::packed(source, range, dtype, shape, dtype::packing(dtype))?;
        let order = if dtype.swap_unit() > 1 { self.index.header.order } else { ByteOrder::Little };
        Ok(extent.with_order(order).with_checksum(Checksum::Crc32c(unmask_crc32c(entry.crc32c))))
    }

    /// Where strings or variants lie. Those of a big-endian bundle are decoded, so that they are the same everywhere.
    fn opaque(&mut self, dtype: DType, shape: &Shape, source: SourceId, bytes: ByteRange, crc: u32) -> Result<Extent> {
        match (self.index.header.order, dtype) {
            (ByteOrder::Little, _) => Ok(Extent::opaque(source, bytes, shape).with_checksum(Checksum::OfFormat(crc))),
            (ByteOrder::Big, DType::Str) => {
                let label = "strings of a big-endian bundle".to_owned();
                let decoded = self.catalog.add_source(Source::Decoded { label, len: bytes.len() });
                self.decoded.insert(decoded, Strings { source, bytes, elements: shape.elements(), crc });
                Ok(Extent::opaque(decoded, ByteRange::new(0, bytes.len())?, shape))
            }
            (ByteOrder::Big, _) => {
                Err(Error::unsupported(format!("{dtype} tensors of a big-endian bundle are not read")))
            }
        }
    }

    /// Where the slices of a partitioned tensor lie.
    fn partitioned(&mut self, name: &str, dtype: DType, shape: &Shape, parts: &[TensorSlice]) -> Result<Vec<Extent>> {
        let regions = parts.iter().map(|slice| slices::region(slice, shape)).collect::<Result<Vec<_>>>()?;
        slices::check_cover(&regions, shape)?;
        let extent = |(slice, region): (&TensorSlice, Region)| {
            let place = region.index_in(shape);
            let Some(entry) = self.index.get(&slice_key(name.as_bytes(), slice)) else {
                return Err(Error::malformed(format!("the slice {place} is missing from the index")));
            };
            let extent = self.slice(dtype, &region, entry);
            extent.map(|extent| extent.filling(region)).map_err(|error| in_slice(error, &place))
        };
        parts.iter().zip(regions).map(extent).collect()
    }

    /// Where one slice lies; its own entry must agree with the tensor's.
    fn slice(&mut self, dtype: DType, region: &Region, entry: &BundleEntry) -> Result<Extent> {
        let (found, shape) = (dtype::from_number(entry.dtype)?, index::shape(entry.shape.as_ref(), self.limits)?);
        if found != dtype || shape != region.size {
            let message = format!("is stored as {found} of shape {shape}, but should be {dtype} of {}", region.size);
            return Err(Error::malformed(message));
        }
        self.extent(dtype, &shape, entry)
    }
}

/// The same error, its message naming the slice.
fn in_slice(error: Error, place: &str) -> Error {
    let mut named = Error::new(error.kind(), format!("slice {place}: {}", error.message()));
    if let Some(file) = &error.place().file {
        named = named.in_file(file);
    }
    match error.place().offset {
        Some(offset) => named.at(offset),
        None => named,
    }
}

/// The fewest bytes of a record of this many strings or variants.
fn least_bytes(dtype: DType, elements: u64) -> u64 {
    match dtype {
        DType::Variant => elements.saturating_mul(5),
        _ => elements.saturating_add(4),
    }
}
