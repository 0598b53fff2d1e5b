//! How far a command is, on standard error.

use indicatif::{ProgressBar, ProgressStyle};

/// A count of keys, on a terminal. How many there will be, no server says.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// It is shown if standard error is a terminal, and results are not printed there too.
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
