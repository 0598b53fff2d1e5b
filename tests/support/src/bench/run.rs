//! A benchmark's flags and progress bar.

#[cfg(feature = "bench")]
use indicatif::{ProgressBar, ProgressStyle};
use std::env;

/// Returns true if `--quick` was given. Other flags, such as cargo's `--bench`, are ignored.
pub fn is_quick() -> bool {
    env::args().any(|arg| arg == "--quick")
}

/// Returns `quick` under `--quick`, else `full`.
pub fn pick<T>(quick: T, full: T) -> T {
    match is_quick() {
        true => quick,
        false => full,
    }
}

/// A progress bar on standard error, if that is a terminal.
#[cfg(feature = "bench")]
pub fn bar(what: &str, steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>10} [{bar:40}] {pos}/{len} {msg} {eta}")
        .expect("the template is valid");
    ProgressBar::new(steps as u64)
        .with_style(style)
        .with_prefix(what.to_owned())
}
