//! The layout of a bundle to be written: where every blob lies and which index entries there will be, known before
//! the first byte.

use crate::proto::{self, BundleEntry, Dim, TensorShape, TensorSlice};
use crate::spelling::{self, Spellings};
use crate::{capabilities, dtype, ordered, slices};
use weightlift_core::{Blob, BlobId, Checksum, Error, Manifest, Output, Part, Region, Result, Shape};

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

/// Where everything will be.
#[derive(Debug)]
pub(super) struct Plan {
    /// In key order.
    pub(super) entries: Vec<PlannedEntry>,
    /// First byte of each blob in the data file.
    pub(super) offsets: Vec<u64>,
    /// Bytes of the data file.
    pub(super) data_len: u64,
}

impl Plan {
    /// Lays the blobs one after the other, without gaps.
    ///
    /// # Errors
    /// `Request` for names, dtypes and layouts that a bundle cannot hold.
    pub(super) fn new(manifest: &Manifest) -> Result<Plan> {
        let mut offsets = Vec::with_capacity(manifest.blobs.len());
        let mut data_len = 0u64;
        for blob in &manifest.blobs {
            offsets.push(data_len);
            let end = data_len.checked_add(blob.bytes).filter(|&end| end <= i64::MAX as u64);
            data_len = end.ok_or_else(|| Error::request("the tensors have more than 2^63 bytes"))?;
        }
        let mut plan = Plan { entries: Vec::with_capacity(manifest.tensors.len()), offsets, data_len };
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
                if !regions.iter().all(|region| region.lies_within(shape)) {
                    return Err(Error::request(format!("a part lies outside the shape {shape}")));
                }
                slices::check_cover(&regions, shape).map_err(|error| Error::request(error.message()))?;
                let mut whole = entry(shape);
                let known = Spellings::of_origin(&manifest.extras, output.origin);
                for (at, part) in parts.iter().enumerate() {
                    let spelling = spelling::find(known, at, &part.region, shape);
                    let slice = spelling.cloned().unwrap_or_else(|| slice_of(&part.region, shape));
                    let entry = self.place(blobs, output, part, entry(&part.region.size))?;
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
    fn place(&self, blobs: &[Blob], output: &Output, part: &Part, entry: BundleEntry) -> Result<BundleEntry> {
        let at = part.blob.0 as usize;
        let (Some(blob), Some(&offset)) = (blobs.get(at), self.offsets.get(at)) else {
            return Err(Error::request(format!("lies in blob {at}, which is not there")));
        };
        let size = &part.region.size;
        if output.dtype.is_opaque() {
            if !matches!(blob.checksum, Some(Checksum::OfFormat(_))) {
                let message = format!("{} tensors can only be copied from another TensorFlow checkpoint", output.dtype);
                return Err(Error::request(message));
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
        Ok(BundleEntry { offset: offset as i64, size: blob.bytes as i64, ..entry })
    }
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
