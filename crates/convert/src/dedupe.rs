//! Tensors with equal bytes, found by their checksums and compared in full, so that they are written once.

use crate::inputs::{Inputs, Place};
use crate::plan::{OutputSpec, Resolved};
use crate::run::{Conversion, Options};
use crate::tiles::Tiles;
use crate::value::{Reader, Value};
use std::collections::HashMap;
use weightlift_core::{Error, Result};
use weightlift_kernels::cast::Overflow;
use weightlift_kernels::checksum::Algorithm;

/// Ties outputs whose values are equal, bit for bit, and are treated alike; answers a line that names them.
///
/// # Errors
/// `Request` where the target cannot tie tensors; `Malformed`, `Io`.
pub(crate) fn dedupe(
    conversion: &Conversion<'_>,
    resolved: &mut Resolved,
    options: &Options,
) -> Result<Option<String>> {
    const SHOWN: usize = 5;
    if !conversion.target.capabilities.shares_storage {
        let message = format!("a {} holds every tensor by itself, so that nothing is saved", conversion.target.name);
        return Err(Error::request(message).help("leave out --dedupe, or write another format"));
    }
    let catalogs = conversion.catalogs();
    let place = |value: &Value| {
        let inputs = Inputs(&catalogs);
        value.entry().and_then(|origin| Place::of(origin.input, inputs.entry(origin)))
    };
    let sources = conversion.sources();
    let mut twins = Twins { reader: Reader::new(&sources, Overflow::Inf), tile: options.tile_bytes };
    let mut tied = Vec::new();
    for group in alike(&resolved.outputs) {
        let mut known: HashMap<(u32, u32), Vec<usize>> = HashMap::new();
        for at in group {
            let value = resolved.outputs[at].value.clone();
            let same = known.entry(twins.digest(&value)?).or_default();
            let mut first = None;
            for &earlier in same.iter() {
                if twins.equal(&resolved.outputs[earlier].value, &value)? {
                    first = Some(earlier);
                    break;
                }
            }
            match first {
                None => same.push(at),
                Some(first) => {
                    let (one, other) = (&resolved.outputs[first], &resolved.outputs[at]);
                    if place(&one.value).is_none() || place(&one.value) != place(&other.value) {
                        tied.push(format!("{} = {}", other.name, one.name));
                    }
                    resolved.outputs[at].value = resolved.outputs[first].value.clone();
                }
            }
        }
    }
    let count = tied.len();
    tied.truncate(SHOWN);
    if count > SHOWN {
        tied.push(format!("and {} more", count - SHOWN));
    }
    Ok((count > 0).then(|| format!("equal values are stored once: {}", tied.join(", "))))
}

/// Positions of outputs that could be tied: those of one shape and dtype that are treated alike.
fn alike(outputs: &[OutputSpec]) -> Vec<Vec<usize>> {
    let mut groups: HashMap<_, Vec<usize>> = HashMap::new();
    for (at, output) in outputs.iter().enumerate() {
        if output.bytes > 0 && !output.from.is_opaque() && output.value.element().is_ok() {
            groups.entry((output.from, output.to, &output.shape)).or_default().push(at);
        }
    }
    let mut groups: Vec<_> = groups.into_values().filter(|group| group.len() > 1).collect();
    groups.sort();
    groups
}

/// Reads values to compare them.
struct Twins<'a> {
    reader: Reader<'a>,
    tile: u64,
}

impl Twins<'_> {
    fn tiles(&self, value: &Value) -> Result<(Tiles, u64)> {
        let element = value.element()?;
        Ok((Tiles::of(value.shape(), self.tile / element), element))
    }

    fn read(&mut self, value: &Value, tiles: &Tiles, tile: u64, element: u64, bytes: &mut Vec<u8>) -> Result<()> {
        let region = tiles.region(tile);
        bytes.resize((region.size.elements() * element) as usize, 0);
        self.reader.read(value, &region, bytes)
    }

    /// Two checksums of all bytes.
    fn digest(&mut self, value: &Value) -> Result<(u32, u32)> {
        let (tiles, element) = self.tiles(value)?;
        let mut sums = (Algorithm::Crc32.of(&[]), Algorithm::Crc32c.of(&[]));
        let mut bytes = Vec::new();
        for tile in 0..tiles.count() {
            self.read(value, &tiles, tile, element, &mut bytes)?;
            sums = (Algorithm::Crc32.extend(sums.0, &bytes), Algorithm::Crc32c.extend(sums.1, &bytes));
        }
        Ok(sums)
    }

    fn equal(&mut self, one: &Value, other: &Value) -> Result<bool> {
        let (tiles, element) = self.tiles(one)?;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for tile in 0..tiles.count() {
            self.read(one, &tiles, tile, element, &mut a)?;
            self.read(other, &tiles, tile, element, &mut b)?;
            if a != b {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
