//! What a finished job tells.

use crate::plan::LeftOut;
use std::path::PathBuf;
use std::time::Duration;
use weightlift_core::{Carried, DType};
use weightlift_kernels::cast::Tally;

/// One tensor that was cast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CastReport {
    /// Its name in the output.
    pub name: String,
    /// Its dtype before.
    pub from: DType,
    /// Its dtype after.
    pub to: DType,
    /// What happened to its values.
    pub tally: Tally,
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
    /// How many tensors kept their dtype, by dtype, in order of first appearance.
    pub kept: Vec<(DType, usize)>,
    /// What the output does not have, though nobody excluded it.
    pub left_out: Vec<LeftOut>,
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
