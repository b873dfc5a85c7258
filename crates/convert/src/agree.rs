//! Tensors that several inputs must have alike: compared before anything is written.

use crate::plan::Resolved;
use crate::run::{Conversion, Options};
use crate::tiles::Tiles;
use crate::value::{Reader, Source, Value};
use crate::workers::parallel;
use weightlift_core::{Checksum, Entry, Error, Extent, Origin, Result};
use weightlift_io::verify_range;
use weightlift_kernels::cast::Overflow;

/// An output that is taken from the first input because the others have the same.
#[derive(Debug, Clone)]
pub struct Agreement {
    /// Its name.
    pub name: String,
    /// What must be equal, bit for bit.
    pub values: Vec<Value>,
}

/// Bytes that are compared at once.
const PIECE: u64 = 1 << 20;

/// A box of a value, or stored bytes of what has no boxes: strings, and elements that share a byte.
enum Task {
    Box(usize, Tiles, u64),
    Stored(usize),
}

/// Compares all that must agree.
///
/// # Errors
/// `Request` that names the first tensor that differs; `Checksum`, `Malformed`, `Io`.
pub(crate) fn check(conversion: &Conversion<'_>, resolved: &Resolved, options: &Options) -> Result<()> {
    let agreements = &resolved.agreements;
    if agreements.is_empty() {
        return Ok(());
    }
    let sources = conversion.sources();
    let mut tasks = Vec::new();
    for (at, agreement) in agreements.iter().enumerate() {
        let Some(first) = agreement.values.first() else { continue };
        match first.element() {
            Ok(element) => {
                let tiles = Tiles::of(first.shape(), PIECE / element);
                tasks.extend((0..tiles.count()).map(|tile| Task::Box(at, tiles.clone(), tile)));
            }
            Err(_) => tasks.push(Task::Stored(at)),
        }
    }
    if options.verify {
        verify(agreements, &sources, options.threads)?;
    }
    parallel(
        options.threads,
        tasks.len(),
        || (Reader::new(&sources, Overflow::Inf), Vec::new(), Vec::new()),
        |(reader, a, b), task| match &tasks[task] {
            Task::Box(at, tiles, tile) => compare(&agreements[*at], tiles, *tile, reader, (a, b)),
            Task::Stored(at) => compare_stored(&agreements[*at], &sources, (a, b)),
        },
    )
}

fn differ(agreement: &Agreement, other: &Value, place: &str) -> Error {
    let (first, dtype) = (&agreement.values[0], agreement.values[0].dtype());
    let error = Error::request(format!("{first} and {other} differ{place}; nothing was written"));
    let why = format!("{dtype} tensors are not averaged, and what is not joined must be the same in all inputs");
    error.in_tensor(&agreement.name).help(format!("{why}; --exclude before it leaves it out"))
}

fn compare(
    agreement: &Agreement,
    tiles: &Tiles,
    tile: u64,
    reader: &mut Reader<'_>,
    (a, b): (&mut Vec<u8>, &mut Vec<u8>),
) -> Result<()> {
    let Some((first, others)) = agreement.values.split_first() else { return Ok(()) };
    let (region, element) = (tiles.region(tile), first.element()?);
    let len = (region.size.elements() * element) as usize;
    a.resize(len, 0);
    b.resize(len, 0);
    let named = |error: Error| error.in_tensor(&agreement.name);
    reader.read(first, &region, a).map_err(named)?;
    for other in others {
        reader.read(other, &region, b).map_err(named)?;
        if let Some(at) = a.iter().zip(b.iter()).position(|(a, b)| a != b) {
            let before: u64 = tiles.runs(tile).first().map_or(0, |(first, ..)| *first);
            // Boxes that are runs begin at an element of the tensor.
            return Err(differ(agreement, other, &format!(" at element {}", before + at as u64 / element)));
        }
    }
    Ok(())
}

/// The stored bytes of a tensor that is one of an input.
fn stored<'a>(value: &Value, sources: &'a [Source<'_>]) -> Result<(&'a Source<'a>, &'a Entry)> {
    let unlike = || Error::request(format!("{value}: its elements are no whole bytes, and it was changed"));
    let Origin { input, entry } = value.entry().ok_or_else(unlike)?;
    let source = &sources[input as usize];
    Ok((source, source.checkpoint.catalog().entry(entry)))
}

fn compare_stored(agreement: &Agreement, sources: &[Source<'_>], (a, b): (&mut Vec<u8>, &mut Vec<u8>)) -> Result<()> {
    let Some((first, others)) = agreement.values.split_first() else { return Ok(()) };
    let (own, entry) = stored(first, sources)?;
    for other in others {
        let (theirs, same) = stored(other, sources)?;
        let (ours, others): (&[Extent], &[Extent]) = (entry.extents()?, same.extents()?);
        let alike = |(a, b): (&Extent, &Extent)| {
            (a.bytes.len(), &a.region, &a.layout, a.packing) == (b.bytes.len(), &b.region, &b.layout, b.packing)
        };
        if ours.len() != others.len() || !ours.iter().zip(others).all(alike) {
            return Err(differ(agreement, other, " in their lengths"));
        }
        for (one, two) in ours.iter().zip(others) {
            let mut at = 0;
            while at < one.bytes.len() {
                let len = PIECE.min(one.bytes.len() - at) as usize;
                a.resize(len, 0);
                b.resize(len, 0);
                own.sources.get(one.source)?.read_exact_at(a, one.bytes.start() + at)?;
                theirs.sources.get(two.source)?.read_exact_at(b, two.bytes.start() + at)?;
                if a != b {
                    return Err(differ(agreement, other, ""));
                }
                at += len as u64;
            }
        }
    }
    Ok(())
}

/// Verifies the stored checksums of all but the first, which is verified when it is written.
fn verify(agreements: &[Agreement], sources: &[Source<'_>], threads: usize) -> Result<()> {
    let mut origins: Vec<Origin> =
        agreements.iter().flat_map(|agreement| agreement.values.iter().skip(1).flat_map(Value::entries)).collect();
    origins.sort_by_key(|origin| (origin.input, origin.entry));
    origins.dedup();
    parallel(
        threads,
        origins.len(),
        || (),
        |(), at| {
            let Origin { input, entry: id } = origins[at];
            let source = &sources[input as usize];
            let entry = source.checkpoint.catalog().entry(id);
            let one = |extent: &Extent| match extent.checksum {
                Some(Checksum::OfFormat(_)) => source.checkpoint.verify(id),
                Some(checksum) => verify_range(&source.sources.get(extent.source)?, extent.bytes, checksum),
                None => Ok(()),
            };
            entry.extents()?.iter().try_for_each(one).map_err(|error| error.in_tensor(&entry.name))
        },
    )
}
