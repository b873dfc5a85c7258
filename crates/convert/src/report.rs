//! What a finished job tells.

use crate::plan::LeftOut;
use crate::run::{Chosen, Rates};
use std::path::PathBuf;
use std::time::Duration;
use weightlift_core::{Carried, DType};
use weightlift_kernels::cast::{CastPair, Deviation, Tally};

/// One tensor that was cast.
#[derive(Debug, Clone, PartialEq)]
pub struct CastReport {
    /// Its name in the output.
    pub name: String,
    /// Its dtype before.
    pub from: DType,
    /// Its dtype after.
    pub to: DType,
    /// What happened to its values.
    pub tally: Tally,
    /// How far they moved.
    pub deviation: Deviation,
}

impl CastReport {
    /// Whether more than one in a hundred of the numbers that were not zero became zero.
    pub fn vanishes(&self) -> bool {
        self.tally.to_zero > self.deviation.numbers.saturating_sub(self.deviation.zeros) / 100
    }
}

/// What casts took from a tensor, summed up tile by tile.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Losses {
    pub(crate) tally: Tally,
    pub(crate) deviation: Deviation,
}

impl From<(Tally, Deviation)> for Losses {
    fn from((tally, deviation): (Tally, Deviation)) -> Losses {
        Losses { tally, deviation }
    }
}

impl Losses {
    pub(crate) fn merge(&mut self, other: &Losses) {
        self.tally.merge(&other.tally);
        self.deviation.merge(&other.deviation);
    }

    /// Adds the losses of a pair to a list of pairs.
    pub(crate) fn add(list: &mut Vec<(CastPair, Losses)>, pair: CastPair, losses: &Losses) {
        match list.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, total)) => total.merge(losses),
            None => list.push((pair, *losses)),
        }
    }

    pub(crate) fn report(&self, name: &str, pair: CastPair) -> CastReport {
        let (from, to) = (pair.from(), pair.to());
        CastReport { name: name.to_owned(), from, to, tally: self.tally, deviation: self.deviation }
    }
}

/// What was done.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Tensors written.
    pub tensors: usize,
    /// Bytes of tensors read.
    pub bytes_read: u64,
    /// The files written with their lengths, the one to name first.
    pub files: Vec<(PathBuf, u64)>,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// The tensors that were cast, in order.
    pub casts: Vec<CastReport>,
    /// How many tensors came over as they were, by dtype, in order of first appearance.
    pub kept: Vec<(DType, usize)>,
    /// The same of tensors whose values or shapes steps made.
    pub edited: Vec<(DType, usize)>,
    /// What [`OnOverflow::Keep`](crate::OnOverflow::Keep) left in its own dtype, with what the cast would have done.
    pub kept_back: Vec<CastReport>,
    /// What a device did, where one was at hand.
    pub device: Option<DeviceReport>,
    /// What the output does not have, though nobody excluded it.
    pub left_out: Vec<LeftOut>,
    /// Tensors whose values are damaged, left out because that was asked for.
    pub lost: Vec<LeftOut>,
    /// What the input has beside tensors and the output has not, a line each.
    pub not_carried: Vec<String>,
    /// The `--key` of a state dict that stands beside other tensors, with its tensor count, where no key was given.
    pub suggested_key: Option<(String, usize)>,
    /// What came into the output without being read.
    pub carried: Option<Carried>,
    /// What else a user should know.
    pub notes: Vec<String>,
}

impl Report {
    /// Bytes of all files written.
    pub fn bytes_written(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The counts of all casts together.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.casts.iter().for_each(|cast| total.merge(&cast.tally));
        total
    }
}

/// What a device did of the bulk work.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceReport {
    /// The device.
    pub name: String,
    /// Bytes of input that the processor's threads did.
    pub by_processor: u64,
    /// Bytes of input that the device did.
    pub by_device: u64,
    /// Who was chosen; `None` where the work ended before a choice.
    pub chosen: Option<Chosen>,
    /// The rates of both sides, where they were tried.
    pub rates: Option<Rates>,
    /// Why it was given up; the processor has done the rest.
    pub failure: Option<String>,
}
