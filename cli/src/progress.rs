//! The progress of a command, on standard error.

use indicatif::{ProgressBar, ProgressStyle};

/// A running count of keys, on a terminal. Its end is unknown, because no server reports the total.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// `is_alone` is true if no results are printed to the same terminal. Otherwise nothing is shown.
    pub(crate) fn new(is_alone: bool) -> Self {
        let bar = match is_alone {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{spinner} {human_pos} keys, {per_sec}");
        Self(match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    pub(crate) fn set(&self, count: u64) {
        self.0.set_position(count);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
