//! Writing: the layout of a manifest, and its bytes at their places.

use crate::header::{self, Header, LENGTH_BYTES};
use crate::{METADATA_KEY, Metadata, dtype};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weightlift_core::{
    BlobId, CheckpointWriter, Error, FileRange, Files, Manifest, Output, Packing, Part, Result, WriteOptions, Written,
};
use weightlift_io::{Commit, FileSink};

/// Longer headers are refused by the reference reader.
const READABLE_HEADER: usize = 100_000_000;

/// What is wrong with a tensor name, in words that complete `the name "x" …`.
pub(crate) fn name_problem(name: &str) -> Option<String> {
    (name == METADATA_KEY).then(|| "is reserved for metadata in safetensors files".to_owned())
}

/// Where each blob of a manifest goes.
struct Plan {
    header: Header,
    /// First byte after the header, and length, of each blob.
    places: Vec<(u64, u64)>,
    /// Bytes after the header.
    bytes: u64,
    notes: Vec<String>,
}

impl Plan {
    fn new(manifest: &Manifest) -> Result<Plan> {
        let (metadata, notes) = metadata_of(manifest);
        let header = Header { metadata, tensors: Vec::with_capacity(manifest.tensors.len()) };
        let mut plan = Plan { header, places: Vec::new(), bytes: 0, notes };
        let mut places = vec![None; manifest.blobs.len()];
        let mut names = HashSet::new();
        for output in &manifest.tensors {
            let placed = plan.place(output, manifest, &mut places).and_then(|()| check_name(output, &mut names));
            placed.map_err(|error| error.in_tensor(&output.name))?;
        }
        let homeless = |blob| Error::request(format!("blob {blob} belongs to no tensor"));
        let placed = places.into_iter().zip(&manifest.blobs).enumerate();
        let placed = placed.map(|(id, (begin, blob))| Ok((begin.ok_or_else(|| homeless(id))?, blob.bytes)));
        plan.places = placed.collect::<Result<_>>()?;
        Ok(plan)
    }

    /// Appends a tensor: the blobs of its parts follow each other.
    fn place(&mut self, output: &Output, manifest: &Manifest, places: &mut [Option<u64>]) -> Result<()> {
        let begin = self.bytes;
        let wanted = length_of(output)?;
        for part in parts_in_order(output)? {
            let id = part.blob.0 as usize;
            let (Some(blob), Some(place)) = (manifest.blobs.get(id), places.get_mut(id)) else {
                return Err(Error::request(format!("blob {id} does not exist")));
            };
            if place.replace(self.bytes).is_some() {
                return Err(Error::request(
                    "its bytes are shared with another tensor, which safetensors cannot express",
                ));
            }
            if output.dtype.bytes(part.region.size.elements(), Packing::Dense) != Some(blob.bytes) {
                let message = format!("a part of shape {} does not fill its {} bytes", part.region.size, blob.bytes);
                return Err(Error::request(message));
            }
            self.bytes = self.bytes.checked_add(blob.bytes).ok_or_else(|| Error::request("more than 2^64 bytes"))?;
        }
        if self.bytes - begin != wanted {
            return Err(Error::request(format!("{} bytes are given, but it has {wanted}", self.bytes - begin)));
        }
        let (name, shape, end) = (output.name.clone(), output.shape.clone(), self.bytes);
        self.header.tensors.push(header::Tensor { name, dtype: output.dtype, shape, begin, end });
        Ok(())
    }
}

/// The metadata to write: those of the inputs of this format, the first input's first; for inputs of other formats
/// alone the conventional ones.
fn metadata_of(manifest: &Manifest) -> (Metadata, Vec<String>) {
    let mut inputs: Vec<_> = manifest.extras.iter().filter_map(|(id, e)| Some((*id, e.get::<Metadata>()?))).collect();
    inputs.sort_by_key(|&(input, _)| input);
    let Some((&(_, first), others)) = inputs.split_first() else {
        return (Metadata::conventional(), Vec::new());
    };
    let mut metadata = first.clone();
    let clashes =
        others.iter().flat_map(|&(input, other)| metadata.join(other).into_iter().map(move |key| (input, key)));
    let note =
        |(input, key)| format!("metadata {key:?} of input {input} differs from an earlier input's and is left out");
    let notes = clashes.map(note).collect();
    (metadata.completed(), notes)
}

fn check_name<'a>(output: &'a Output, names: &mut HashSet<&'a str>) -> Result<()> {
    if let Some(problem) = name_problem(&output.name) {
        return Err(Error::request(format!("the name {problem}")));
    }
    if !names.insert(&output.name) {
        return Err(Error::request("two tensors of this name, where names must differ"));
    }
    Ok(())
}

/// The length of a tensor in the file.
fn length_of(output: &Output) -> Result<u64> {
    let Output { dtype, shape, .. } = output;
    if dtype::packing(*dtype) != Some(output.packing) {
        return Err(Error::request(format!("safetensors files cannot hold {dtype} ({:?})", output.packing)));
    }
    let bits = u128::from(dtype.bits().unwrap_or(0)) * u128::from(shape.elements());
    if bits % 8 != 0 {
        let message = format!("{dtype} of shape {shape} does not fill whole bytes, which safetensors files need");
        return Err(Error::request(message));
    }
    let bytes = dtype.bytes(shape.elements(), Packing::Dense);
    bytes.ok_or_else(|| Error::request(format!("{dtype} of shape {shape} has more than 2^63 bytes")))
}

/// The parts of a tensor in row-major order. Each must be a run of the tensor's bytes that fills its blob.
fn parts_in_order(output: &Output) -> Result<Vec<&Part>> {
    let strides = output.shape.contiguous_strides();
    let first = |part: &Part| part.region.start.iter().zip(&strides).map(|(&i, &s)| i.saturating_mul(s)).sum::<u64>();
    let mut parts: Vec<&Part> = output.parts.iter().collect();
    parts.sort_by_key(|part| first(part));
    let mut covered = 0;
    for part in &parts {
        let fits = part.region.lies_within(&output.shape)
            && is_run(part, output)
            && part.layout.offset == 0
            && part.layout.is_contiguous(&part.region.size);
        if !fits || (part.region.size.elements() > 0 && first(part) != covered) {
            return Err(Error::request("its parts are no runs of row-major bytes that follow each other"));
        }
        covered += part.region.size.elements();
    }
    Ok(parts)
}

/// Whether the elements of a part follow each other in the tensor: before the first axis longer than one, anything;
/// after it, whole axes.
fn is_run(part: &Part, output: &Output) -> bool {
    let axes = part.region.size.dims().iter().zip(output.shape.dims());
    axes.skip_while(|&(&part, _)| part == 1).skip(1).all(|(part, whole)| part == whole)
}

/// Starts a file.
pub(crate) fn create(
    files: Arc<dyn Files>,
    path: &Path,
    manifest: &Manifest,
    options: &WriteOptions,
) -> Result<Box<dyn CheckpointWriter>> {
    let Plan { header, places, bytes, mut notes } = Plan::new(manifest)?;
    let text = header::render(&header)?;
    notes.extend(header_note(text.len()));
    let head = header::padded(&text);
    let start = head.len() as u64;
    let total = start.checked_add(bytes).filter(|&total| total <= i64::MAX as u64);
    let total = total.ok_or_else(|| Error::request("the file would have more than 2^63 bytes").in_file(path))?;
    let mut commit = Commit::new(files, options.replace);
    let sink = commit.create(path)?;
    sink.reserve(total)?;
    sink.write_all_at(&head, 0)?;
    let blobs = places.into_iter().map(|(begin, len)| Blob { start: start + begin, len, written: AtomicU64::new(0) });
    Ok(Box::new(Writer { commit, sink, blobs: blobs.collect(), notes }))
}

/// A warning for a header that the reference does not read.
fn header_note(length: usize) -> Option<String> {
    let length = length.next_multiple_of(LENGTH_BYTES as usize);
    (length > READABLE_HEADER).then(|| {
        format!("the header has {length} bytes, but the safetensors library reads {READABLE_HEADER} at the most")
    })
}

#[derive(Debug)]
struct Blob {
    start: u64,
    len: u64,
    written: AtomicU64,
}

/// A file under way: the header is there, the data arrive.
#[derive(Debug)]
struct Writer {
    commit: Commit,
    sink: Arc<FileSink>,
    blobs: Vec<Blob>,
    notes: Vec<String>,
}

impl Writer {
    /// The blob and the place in the file of `len` bytes at `offset` of it.
    fn place(&self, id: BlobId, offset: u64, len: u64) -> Result<(&Blob, u64)> {
        let request = |message: String| Error::request(message).in_file(self.sink.path());
        let blob = self.blobs.get(id.0 as usize).ok_or_else(|| request(format!("blob {} does not exist", id.0)))?;
        if offset.checked_add(len).is_none_or(|end| end > blob.len) {
            let message = format!("{len} bytes at {offset} of blob {}, which has {}", id.0, blob.len);
            return Err(request(message));
        }
        Ok((blob, blob.start + offset))
    }
}

impl CheckpointWriter for Writer {
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()> {
        let (blob, place) = self.place(blob, offset, bytes.len() as u64)?;
        self.sink.write_all_at(bytes, place)?;
        blob.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn copy_from(&self, blob: BlobId, offset: u64, range: &FileRange) -> Result<bool> {
        let (blob, place) = self.place(blob, offset, range.bytes.len())?;
        let copied = self.sink.copy_from(place, range)?;
        if copied {
            blob.written.fetch_add(range.bytes.len(), Ordering::Relaxed);
        }
        Ok(copied)
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Writer { commit, sink, blobs, notes } = *self;
        for (id, blob) in blobs.iter().enumerate() {
            let written = blob.written.load(Ordering::Relaxed);
            if written != blob.len {
                let message = format!("{written} of the {} bytes of blob {id} were written", blob.len);
                return Err(Error::request(message).in_file(sink.path()));
            }
        }
        Ok(Written { files: commit.commit(None)?, notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightlift_core::{DType, Extras, Layout, Region, Shape};

    fn shape(dims: &[u64]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn part(blob: u32, start: &[u64], size: &[u64]) -> Part {
        let region = Region { start: start.to_vec(), size: shape(size) };
        Part { blob: BlobId(blob), layout: Layout::contiguous(&region.size), region }
    }

    /// A manifest with one tensor of u8 in these parts.
    fn parts(dims: &[u64], parts: Vec<Part>) -> Manifest {
        let mut manifest = Manifest::default();
        manifest.add_tensor("w", DType::U8, shape(dims));
        manifest.blobs.clear();
        for part in &parts {
            manifest.add_blob(part.region.size.elements(), None);
        }
        manifest.tensors[0].parts = parts;
        manifest
    }

    #[test]
    fn parts_that_are_runs_follow_each_other() {
        let rows = parts(&[3, 4], vec![part(0, &[2, 0], &[1, 4]), part(1, &[0, 0], &[2, 4])]);
        assert_eq!(Plan::new(&rows).unwrap().places, [(8, 4), (0, 8)]);
        let columns = parts(&[3, 4], vec![part(0, &[0, 0], &[3, 2]), part(1, &[0, 2], &[3, 2])]);
        assert!(Plan::new(&columns).is_err());
        let gap = parts(&[3, 4], vec![part(0, &[0, 0], &[1, 4]), part(1, &[2, 0], &[1, 4])]);
        assert!(Plan::new(&gap).is_err());
        let halves = parts(&[1, 4], vec![part(0, &[0, 0], &[1, 3]), part(1, &[0, 3], &[1, 1])]);
        assert_eq!(Plan::new(&halves).unwrap().places, [(0, 3), (3, 1)]);
        assert!(Plan::new(&parts(&[3], vec![part(0, &[0], &[2])])).is_err(), "one element is missing");
        let mut transposed = parts(&[2, 2], vec![part(0, &[0, 0], &[2, 2])]);
        transposed.tensors[0].parts[0].layout.strides = vec![1, 2];
        assert!(Plan::new(&transposed).is_err());
    }

    #[test]
    fn what_the_format_cannot_hold_is_refused() {
        let refused = |dtype, dims: &[u64]| {
            let mut manifest = Manifest::default();
            manifest.add_tensor("w", dtype, shape(dims));
            Plan::new(&manifest).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(refused(DType::C128, &[2]).contains("tensor \"w\": safetensors files cannot hold c128"));
        assert!(refused(DType::F4E2m1, &[3]).contains("whole bytes"));
        assert_eq!(refused(DType::F4E2m1, &[2, 3]), "");
        let mut reserved = Manifest::default();
        reserved.add_tensor("__metadata__", DType::U8, shape(&[1]));
        assert!(Plan::new(&reserved).is_err());
        let mut twice = Manifest::default();
        twice.add_tensor("w", DType::U8, shape(&[1]));
        twice.add_tensor("w", DType::U8, shape(&[1]));
        assert!(Plan::new(&twice).is_err());
        let mut shared = Manifest::default();
        shared.add_tensor("a", DType::U8, shape(&[1]));
        shared.add_tensor("b", DType::U8, shape(&[1]));
        shared.tensors[1].parts[0].blob = BlobId(0);
        assert!(Plan::new(&shared).is_err());
        let mut unused = Manifest::default();
        unused.add_blob(4, None);
        assert!(Plan::new(&unused).is_err());
    }

    #[test]
    fn metadata_come_from_the_inputs_of_this_format() {
        let with = |extras: Vec<(u32, Extras)>| Plan::new(&Manifest { extras, ..Manifest::default() }).unwrap();
        let metadata = |pairs: &[(&str, &str)]| {
            let mut metadata = Metadata::from_pairs(Vec::new());
            pairs.iter().for_each(|(key, value)| metadata.set(key, value));
            metadata
        };
        assert_eq!(with(vec![]).header.metadata, Metadata::conventional());
        assert_eq!(with(vec![(0, Extras::new("foreign"))]).header.metadata, Metadata::conventional());
        assert!(with(vec![(0, Extras::new(Metadata::absent()))]).header.metadata.is_absent());
        let second = (1, Extras::new(metadata(&[("a", "2"), ("b", "3")])));
        let first = (0, Extras::new(metadata(&[("format", "tf"), ("a", "1")])));
        let plan = with(vec![second, first]);
        assert_eq!(plan.header.metadata, metadata(&[("format", "tf"), ("a", "1"), ("b", "3")]));
        assert_eq!(plan.notes, ["metadata \"a\" of input 1 differs from an earlier input's and is left out"]);
    }

    #[test]
    fn headers_beyond_the_reference_are_noted() {
        assert_eq!(header_note(100_000_000), None);
        assert!(header_note(99_999_999).is_none());
        assert!(header_note(100_000_001).unwrap().contains("100000008"));
    }
}
