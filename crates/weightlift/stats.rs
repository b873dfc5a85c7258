//! Summing up the values of a checkpoint.

use crate::Opened;
use weightlift_convert::{Options, Progress, Survey, survey};
use weightlift_core::{DType, EntryId, Result};

impl Opened {
    /// What the values of tensors are like, and, with `to`, what a cast of the floating-point ones would lose. Tensors
    /// stream through; the answer does not depend on the number of threads.
    ///
    /// # Errors
    /// `Checksum` or `Malformed` for damaged tensors, `Io`.
    pub fn stats(
        &self,
        entries: &[EntryId],
        to: Option<DType>,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<Vec<Survey>> {
        survey(self.files.as_ref(), self.checkpoint(), entries, to, options, progress)
    }
}
