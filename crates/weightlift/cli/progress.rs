//! The progress bar: bytes, rate, time left. On stderr, and only where that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use weightlift::Progress;

/// A bar that shows once the work takes a moment.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// A bar, or nothing where `quiet`.
    pub(crate) fn new(quiet: bool) -> Bar {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let template =
            "{wide_bar:.cyan/dim} {decimal_bytes}/{decimal_total_bytes}  {decimal_bytes_per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Bar(bar)
    }

    /// Takes the bar off the screen.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn begin(&self, bytes: u64) {
        self.0.set_length(bytes);
        self.0.reset();
    }

    fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}
