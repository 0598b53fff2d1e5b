//! The last lines of `MONITOR`, to be shown when something is wrong.

use crate::market::plan::{LEASE, micros};
use std::collections::VecDeque;

/// How much of a line is shown: of its beginning, and around what it is shown for.
const SHOWN: usize = 90;

#[derive(Debug, Default)]
pub(super) struct History(VecDeque<(i64, String)>);

impl History {
    pub(super) fn push(&mut self, at: i64, line: &str) {
        self.0.push_back((at, line.to_owned()));
        while let Some((first, _)) = self.0.front()
            && *first + 3 * micros(LEASE) < at
        {
            self.0.pop_front();
        }
    }

    /// The lines about an id.
    pub(super) fn of(&self, id: &str) -> String {
        let about = self.0.iter().filter(|(_, line)| line.contains(id));
        about.map(|(_, line)| shortened(line, id)).collect()
    }
}

fn shortened(line: &str, id: &str) -> String {
    let at = line.find(id).unwrap_or_default();
    let around = at.saturating_sub(SHOWN)..(at + SHOWN).min(line.len());
    let start = line.get(..SHOWN.min(line.len())).unwrap_or_default();
    let around = line.get(around).unwrap_or_default();
    format!("\n    {start} … {around}")
}
