//! The largest errors of a cast: blocks of both sides as f64, compared by one plain loop.

use super::Reader;
use crate::cast::CastPair;
use crate::cast::deviation::{Deviation, is_single};
use crate::cast::format::Element;

/// Elements a block.
const BLOCK: usize = 512;

/// The comparison, or `None` where only the definition has it.
pub(in crate::cast) fn run(pair: CastPair, src: &[u8], dst: &[u8]) -> Option<Deviation> {
    let (from, to) = (Element::of(pair.from)?, Element::of(pair.to)?);
    let (sources, targets) = (Reader::new(pair.from)?, Reader::new(pair.to)?);
    let (mut x, mut y, mut found) = ([0.0; BLOCK], [0.0; BLOCK], Deviation::default());
    for (src, dst) in src.chunks(BLOCK * from.bytes).zip(dst.chunks(BLOCK * to.bytes)) {
        let count = src.len() / from.bytes;
        sources.read(src, &mut x);
        targets.read(dst, &mut y);
        let (x, y) = (&x[..count], &y[..count]);
        found.merge(&if is_single(&from.coding, from.bytes) { in_f32(x, y) } else { in_f64(x, y) });
    }
    Some(found)
}

/// The largest of numbers that are not negative: their bits are in the order of their values, and integers have a
/// maximum that compilers turn into vector code.
macro_rules! compare {
    ($name:ident, $float:ident, $bits:ident) => {
        fn $name(x: &[f64], y: &[f64]) -> Deviation {
            let (mut absolute, mut relative, mut zeros) = (0, 0, 0);
            for (&x, &y) in x.iter().zip(y) {
                let finite = x.abs() < f64::INFINITY && y.abs() < f64::INFINITY;
                let (x, y) = (x as $float, y as $float);
                let error = if finite { (x - y).abs() } else { 0.0 };
                let share = if finite && x != 0.0 { error / x.abs() } else { 0.0 };
                absolute = error.to_bits().max(absolute);
                relative = share.to_bits().max(relative);
                zeros += $bits::from(x == 0.0);
            }
            let value = |bits| f64::from($float::from_bits(bits));
            Deviation { absolute: value(absolute), relative: value(relative), numbers: 0, zeros: zeros.into() }
        }
    };
}

compare!(in_f32, f32, u32);
compare!(in_f64, f64, u64);
