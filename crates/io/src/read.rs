//! Reading boxes of tensors, whatever their layout, as dense little-endian bytes.

use crate::{AlignedBuffer, FileSource, Sources};
use weightlift_core::{
    ByteOrder, ByteRange, Checkpoint, Checksum, DType, Entry, EntryId, Error, Extent, Files, Layout, Packing, Region,
    Result,
};
use weightlift_kernels::checksum::Algorithm;
use weightlift_kernels::{strided, swap};

/// The most bytes read at once to pick strided elements from.
const SPAN: u64 = 4 << 20;
/// Below this a read costs the same however much of it is wanted.
const PAGE: u64 = 4 << 10;
/// How much larger than its stored bytes a tensor may be to be read into memory.
const MOST_EXPANSION: u64 = 1000;

/// Where a box of an extent lies in the source as one run of bytes, if it does.
pub fn run_of(extent: &Extent, element: u64, region: &Region) -> Option<ByteRange> {
    let layout = sub_layout(extent, region)?;
    if !layout.is_contiguous(&region.size) {
        return None;
    }
    let len = region.size.elements().checked_mul(element)?;
    extent.bytes.slice(layout.offset.checked_mul(element)?, len)
}

/// The layout of a box within the extent's bytes.
fn sub_layout(extent: &Extent, region: &Region) -> Option<Layout> {
    let axes = extent.layout.strides.iter().zip(region.start.iter().zip(&extent.region.start));
    let offset = axes.into_iter().try_fold(extent.layout.offset, |at, (&stride, (&start, &base))| {
        at.checked_add(stride.checked_mul(start.checked_sub(base)?)?)
    })?;
    Some(Layout { offset, strides: extent.layout.strides.clone() })
}

/// Buffers reused between reads.
#[derive(Debug, Default)]
pub struct Scratch {
    span: Vec<u8>,
    dense: Vec<u8>,
}

/// Reads the box `region` of a tensor into `out` as dense row-major little-endian elements. Checksums are not
/// verified here: they cover whole ranges.
///
/// # Errors
/// `Request` where `out` has another length than the box or elements are no whole bytes; `Malformed`, `Io`.
pub fn read_box(
    sources: &Sources<'_>,
    entry: &Entry,
    region: &Region,
    out: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    for extent in entry.extents()? {
        let element = element_bytes(entry.dtype, extent.packing)?;
        if Some(out.len() as u64) != region.size.elements().checked_mul(element) {
            return Err(Error::request(format!("a buffer of {} bytes for a box of {}", out.len(), region.size)));
        }
        let Some(part) = region.intersection(&extent.region) else { continue };
        let reader = PartReader { source: sources.get(extent.source)?, extent, dtype: entry.dtype, element };
        reader.read(&part, region, out, scratch)?;
    }
    Ok(())
}

/// Brings elements read in `order` into little-endian order.
fn swap_to_little(order: ByteOrder, dtype: DType, bytes: &mut [u8]) {
    if order == ByteOrder::Big {
        swap::byteswap(dtype.swap_unit(), bytes);
    }
}

fn element_bytes(dtype: DType, packing: Packing) -> Result<u64> {
    dtype.element_bytes(packing).ok_or_else(|| {
        Error::request(format!("a part of a {dtype} tensor is no whole number of bytes; it can only be read whole"))
    })
}

/// One extent's share of a box.
struct PartReader<'a> {
    source: FileSource,
    extent: &'a Extent,
    dtype: DType,
    element: u64,
}

impl PartReader<'_> {
    /// Reads `part` to its place in the dense box `region`. A part whose elements are spread wide is cut along its
    /// widest axis until what is read is not much more than what is wanted.
    fn read(&self, part: &Region, region: &Region, out: &mut [u8], scratch: &mut Scratch) -> Result<()> {
        let mut pending = vec![part.clone()];
        while let Some(piece) = pending.pop() {
            let len = (piece.size.elements() * self.element) as usize;
            let span = self.span(&piece)?;
            if piece == *region {
                if span.len() == len as u64 || !too_wide(span.len(), len as u64) {
                    return self.read_piece(&piece, span, out, &mut scratch.span);
                }
            } else if !too_wide(span.len(), len as u64) {
                let mut dense = std::mem::take(&mut scratch.dense);
                dense.resize(len, 0);
                let done = self.read_piece(&piece, span, &mut dense, &mut scratch.span);
                let placed = done.and_then(|()| place(&dense, self.element, &piece, region, out));
                scratch.dense = dense;
                placed?;
                continue;
            }
            match halve(&piece, &self.extent.layout) {
                Some((first, rest)) => pending.extend([rest, first]),
                None => return Err(self.outside()),
            }
        }
        Ok(())
    }

    /// The bytes of the source from the first to the last element of a piece.
    fn span(&self, piece: &Region) -> Result<ByteRange> {
        let layout = sub_layout(self.extent, piece).ok_or_else(|| self.outside())?;
        let reach = Layout { offset: 0, strides: layout.strides }.reach(&piece.size)?;
        let (start, len) = (layout.offset.checked_mul(self.element), reach.checked_mul(self.element));
        let range = start.zip(len).and_then(|(start, len)| self.extent.bytes.slice(start, len));
        range.ok_or_else(|| self.outside())
    }

    fn read_piece(&self, piece: &Region, span: ByteRange, out: &mut [u8], buffer: &mut Vec<u8>) -> Result<()> {
        let layout = Layout { offset: 0, strides: self.extent.layout.strides.clone() };
        if layout.is_contiguous(&piece.size) {
            self.source.read_exact_at(out, span.start())?;
        } else {
            buffer.resize(span.len() as usize, 0);
            self.source.read_exact_at(buffer, span.start())?;
            strided::gather(buffer, self.element as usize, &layout, piece.size.dims(), out)
                .map_err(|error| error.in_file(self.source.path()))?;
        }
        swap_to_little(self.extent.order, self.dtype, out);
        Ok(())
    }

    fn outside(&self) -> Error {
        Error::malformed("a view leaves its storage").in_file(self.source.path()).at(self.extent.bytes.start())
    }
}

/// Whether a read of `span` bytes is too much for the `wanted` bytes in it.
fn too_wide(span: u64, wanted: u64) -> bool {
    span > SPAN || (span > PAGE && span / 8 > wanted)
}

/// Copies a dense part to its place in a dense box that contains it.
///
/// # Errors
/// `Malformed` where lengths and boxes do not go together.
pub fn place(dense: &[u8], element: u64, part: &Region, region: &Region, out: &mut [u8]) -> Result<()> {
    let strides = region.size.contiguous_strides();
    let offset = (0..strides.len()).map(|axis| (part.start[axis] - region.start[axis]) * strides[axis]).sum();
    let layout = Layout { offset, strides };
    strided::scatter(dense, element as usize, &layout, part.size.dims(), out)
}

/// Cuts a box in two along the axis over which its elements are spread widest.
fn halve(region: &Region, layout: &Layout) -> Option<(Region, Region)> {
    let dims = region.size.dims();
    let spread = |&axis: &usize| layout.strides[axis].saturating_mul(dims[axis] - 1);
    let axis = (0..dims.len()).filter(|&axis| dims[axis] > 1).max_by_key(spread)?;
    region.halves(axis)
}

/// Reads one whole tensor into memory as dense row-major little-endian bytes, stored checksums verified; an opaque
/// entry as its stored bytes. For small tools and tests: the converter streams instead.
///
/// # Errors
/// `Checksum`, `Malformed`, `Io`, each naming tensor, file and offset.
pub fn read_entry(files: &dyn Files, checkpoint: &dyn Checkpoint, id: EntryId) -> Result<Vec<u8>> {
    let entry = checkpoint.catalog().entry(id);
    read_verified(files, checkpoint, id).map_err(|error| error.in_tensor(&entry.name))
}

fn read_verified(files: &dyn Files, checkpoint: &dyn Checkpoint, id: EntryId) -> Result<Vec<u8>> {
    let entry = checkpoint.catalog().entry(id);
    let sources = Sources::new(files, checkpoint, &std::env::temp_dir());
    for extent in entry.extents()? {
        match extent.checksum {
            Some(Checksum::OfFormat(_)) => checkpoint.verify(id)?,
            Some(checksum) => verify_range(&sources.get(extent.source)?, extent.bytes, checksum)?,
            None => {}
        }
    }
    if let [extent] = entry.extents()?
        && (entry.dtype.is_opaque() || entry.dtype.element_bytes(extent.packing).is_none())
    {
        return sources.get(extent.source)?.read_vec(extent.bytes, u64::MAX);
    }
    let stored: u64 = entry.extents()?.iter().map(|extent| extent.bytes.len()).sum();
    if entry.bytes / MOST_EXPANSION > stored {
        return Err(Error::limit(format!("{} bytes expanded from {stored} are not read into memory", entry.bytes)));
    }
    let mut out = vec![0; entry.bytes as usize];
    read_box(&sources, entry, &Region::whole(&entry.shape), &mut out, &mut Scratch::default())?;
    Ok(out)
}

/// Checks the stored checksum of a range in bounded memory. [`Checksum::OfFormat`] is not for this function and
/// passes.
///
/// # Errors
/// `Checksum` with the stored and the computed value; `Malformed`, `Io`.
pub fn verify_range(source: &FileSource, range: ByteRange, checksum: Checksum) -> Result<()> {
    let Some((algorithm, stored)) = Algorithm::expected(checksum) else { return Ok(()) };
    let mut buffer = AlignedBuffer::default();
    let (mut at, mut crc) = (range.start(), algorithm.of(&[]));
    while at < range.end() {
        let piece = buffer.bytes((range.end() - at).min(1 << 18) as usize, at);
        source.read_exact_at(piece, at)?;
        crc = algorithm.extend(crc, piece);
        at += piece.len() as u64;
    }
    if crc == stored {
        return Ok(());
    }
    Err(mismatch(stored, crc).in_file(source.path()).at(range.start()))
}

/// The error of a range whose bytes are not those that were written.
pub fn mismatch(stored: u32, computed: u32) -> Error {
    Error::checksum(format!("checksum mismatch: stored {stored:08x}, computed {computed:08x}: the file is damaged"))
}
