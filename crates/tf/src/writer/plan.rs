//! The layout of a bundle to be written: where every blob lies and which index entries there will be, known before
//! the first byte.

use crate::carried::{self, Carried};
use crate::proto::{self, BundleEntry, Dim, TensorShape, TensorSlice};
use crate::{capabilities, dtype, ordered, slices};
use std::collections::BTreeMap;
use weightlift_core::{Blob, BlobId, Checksum, DType, Error, Manifest, Output, Part, Region, Result, Shape};

/// An index entry without its checksum.
#[derive(Debug)]
pub(super) struct PlannedEntry {
    /// Its key: the name, or the key of a slice.
    pub(super) key: Vec<u8>,
    /// The name, for messages.
    pub(super) name: String,
    /// All but the checksum.
    pub(super) entry: BundleEntry,
    /// Where the bytes come from; the entry of a partitioned tensor has none.
    pub(super) blob: Option<BlobId>,
}

/// Where a blob begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Which data file.
    pub(super) shard: u32,
    /// First byte in it.
    pub(super) offset: u64,
}

/// Where everything will be.
#[derive(Debug)]
pub(super) struct Plan {
    /// In key order.
    pub(super) entries: Vec<PlannedEntry>,
    /// Where each blob begins.
    pub(super) places: Vec<Place>,
    /// Bytes of each data file; there is at least one.
    pub(super) shards: Vec<u64>,
    /// Blobs with strings whose checksum is not known, and how many strings.
    pub(super) strings: BTreeMap<BlobId, u64>,
}

impl Plan {
    /// Makes the entries of tensors whose blobs begin at `places`, in data files of the lengths `shards`.
    ///
    /// # Errors
    /// `Request` for names, dtypes and layouts that a bundle cannot hold.
    pub(super) fn new(manifest: &Manifest, places: Vec<Place>, shards: Vec<u64>) -> Result<Plan> {
        let entries = Vec::with_capacity(manifest.tensors.len());
        let mut plan = Plan { entries, places, shards, strings: BTreeMap::new() };
        for output in &manifest.tensors {
            plan.add(manifest, output).map_err(|error| error.in_tensor(&output.name))?;
        }
        plan.entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        match plan.entries.windows(2).find(|pair| pair[0].key == pair[1].key) {
            Some(pair) => Err(Error::request("there are two tensors of this name").in_tensor(&pair[0].name)),
            None => Ok(plan),
        }
    }

    fn add(&mut self, manifest: &Manifest, output: &Output) -> Result<()> {
        let blobs = &manifest.blobs;
        let Output { name, shape, parts, .. } = output;
        if let Some(problem) = capabilities::name_problem(name) {
            return Err(Error::request(format!("the name {problem}")));
        }
        let Some(number) = dtype::number(output.dtype) else {
            return Err(Error::request(format!("TensorFlow has no {}", output.dtype)));
        };
        let entry = |shape: &Shape| BundleEntry { dtype: number, shape: Some(to_proto(shape)), ..Default::default() };
        match parts.as_slice() {
            [part] if part.region.is_whole(shape) => {
                let entry = self.place(blobs, output, part, entry(shape))?;
                self.entries.push(PlannedEntry {
                    key: name.as_bytes().to_vec(),
                    name: name.clone(),
                    entry,
                    blob: Some(part.blob),
                });
            }
            parts => {
                let regions: Vec<Region> = parts.iter().map(|part| part.region.clone()).collect();
                if shape.elements() > 0 && regions.iter().any(|region| region.size.elements() == 0) {
                    return Err(Error::request("a part is empty, which TensorFlow refuses"));
                }
                if !regions.iter().all(|region| region.lies_within(shape)) {
                    return Err(Error::request(format!("a part lies outside the shape {shape}")));
                }
                slices::check_cover(&regions, shape).map_err(|error| Error::request(error.message()))?;
                let mut whole = entry(shape);
                let known = Carried::slices_of(&manifest.extras, output.origin);
                for (at, part) in parts.iter().enumerate() {
                    let spelling = carried::find(known, at, &part.region, shape);
                    let slice = spelling.cloned().unwrap_or_else(|| slice_of(&part.region, shape));
                    let entry = self.place(blobs, output, part, entry(&part.region.size))?;
                    if at == 0 {
                        // It says nothing there, but TensorFlow leaves it when it merges data files.
                        whole.shard_id = entry.shard_id;
                    }
                    let key = ordered::slice_key(name.as_bytes(), &slice);
                    self.entries.push(PlannedEntry { key, name: name.clone(), entry, blob: Some(part.blob) });
                    whole.slices.push(slice);
                }
                let key = name.as_bytes().to_vec();
                self.entries.push(PlannedEntry { key, name: name.clone(), entry: whole, blob: None });
            }
        }
        Ok(())
    }

    /// Completes the entry of a part, which must be the whole of its blob, row by row.
    fn place(&mut self, blobs: &[Blob], output: &Output, part: &Part, entry: BundleEntry) -> Result<BundleEntry> {
        let at = part.blob.0 as usize;
        let (Some(blob), Some(&Place { shard, offset })) = (blobs.get(at), self.places.get(at)) else {
            return Err(Error::request(format!("lies in blob {at}, which is not there")));
        };
        let size = &part.region.size;
        if output.dtype.is_opaque() {
            match (output.dtype, blob.checksum) {
                (_, Some(Checksum::OfFormat(_))) => {}
                (DType::Str, _) => {
                    self.strings.insert(part.blob, size.elements());
                }
                (dtype, _) => {
                    let message = format!("{dtype} tensors can only be copied from another TensorFlow bundle");
                    return Err(Error::request(message));
                }
            }
        } else {
            let contiguous = part.layout.offset == 0 && part.layout.is_contiguous(size);
            let bytes = output.dtype.bytes(size.elements(), dtype::packing(output.dtype));
            if output.packing != dtype::packing(output.dtype) || !contiguous || bytes != Some(blob.bytes) {
                let (dtype, bytes) = (output.dtype, blob.bytes);
                let message =
                    format!("{dtype} of shape {size} is not laid out row by row in its blob of {bytes} bytes");
                return Err(Error::request(message));
            }
        }
        Ok(BundleEntry { shard_id: shard as i32, offset: offset as i64, size: blob.bytes as i64, ..entry })
    }
}

/// The places of all blobs and the lengths of the data files: one after the other, without gaps. A new data file begins
/// with the blob that would take one beyond `shard_size`.
///
/// # Errors
/// `Request` where offsets do not fit.
pub(super) fn lay_out(blobs: &[Blob], shard_size: u64) -> Result<(Vec<Place>, Vec<u64>)> {
    let mut places = Vec::with_capacity(blobs.len());
    let mut shards = Vec::new();
    let mut len = 0u64;
    for blob in blobs {
        if len > 0 && blob.bytes > 0 && len.saturating_add(blob.bytes) > shard_size {
            shards.push(std::mem::take(&mut len));
        }
        let shard = i32::try_from(shards.len()).map_err(|_| Error::request("more than 2^31 data files"))?;
        places.push(Place { shard: shard as u32, offset: len });
        let end = len.checked_add(blob.bytes).filter(|&end| end <= i64::MAX as u64);
        len = end.ok_or_else(|| Error::request("the tensors have more than 2^63 bytes"))?;
    }
    shards.push(len);
    Ok((places, shards))
}

fn to_proto(shape: &Shape) -> TensorShape {
    TensorShape { dim: shape.dims().iter().map(|&size| Dim { size: size as i64 }).collect(), unknown_rank: false }
}

/// A box as TensorFlow writes it: whole dimensions without a length.
fn slice_of(region: &Region, shape: &Shape) -> TensorSlice {
    let extent = |((&start, &size), &dim): ((&u64, &u64), &u64)| match (start, size) {
        (0, size) if size == dim => proto::Extent { start: 0, length: None },
        (start, size) => proto::Extent { start: start as i64, length: Some(size as i64) },
    };
    TensorSlice { extent: region.start.iter().zip(region.size.dims()).zip(shape.dims()).map(extent).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_files_are_filled_in_order() {
        let lay = |sizes: &[u64], shard_size| {
            let blobs: Vec<_> = sizes.iter().map(|&bytes| Blob { bytes, checksum: None }).collect();
            let (places, shards) = lay_out(&blobs, shard_size).unwrap();
            (places.iter().map(|place| (place.shard, place.offset)).collect::<Vec<_>>(), shards)
        };
        assert_eq!(lay(&[], 10), (vec![], vec![0]));
        assert_eq!(lay(&[4, 6, 1], 10), (vec![(0, 0), (0, 4), (1, 0)], vec![10, 1]));
        assert_eq!(lay(&[4, 30, 0, 1], 10), (vec![(0, 0), (1, 0), (1, 30), (2, 0)], vec![4, 30, 1]));
        assert_eq!(lay(&[4, 6], u64::MAX).1, [10]);
        assert_eq!(lay(&[0, 0, 2], 0).1, [2]);
    }
}
