//! The message of an error, level by level.

use std::{error::Error, iter::successors};

/// The texts of an error and of each of its causes, joined as they are printed.
///
/// # Panics
///
/// If a level repeats another one.
pub fn causes(error: &dyn Error) -> String {
    let levels = successors(Some(error), |&error| error.source());
    let levels: Vec<_> = levels.map(ToString::to_string).collect();
    for (number, level) in levels.iter().enumerate() {
        let mut others = levels[..number].iter().chain(&levels[number + 1..]);
        assert!(!others.any(|other| other.contains(level)), "{levels:?}");
    }
    levels.join(": ")
}
