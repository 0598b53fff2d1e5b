//! From what a server has of a semaphore to who holds what.

use super::protocol::{Ending, Listed, ReadId};
use crate::semaphore::{PermitInfo, Process, Usage};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The usage that a server lists. Of the processes only the ids are known yet.
pub(super) fn usage(listed: &Listed) -> Usage {
    let waiting = listed.waiting.iter();
    let waiting = waiting.filter_map(|(id, ends)| Some(info(id, &ReadId::read(id)?, 1, *ends)));
    let waiting = waiting.map(|mut info| {
        info.weight = claimed_weight(&info.id);
        info
    });
    let units = u32::try_from(listed.held.len()).unwrap_or(u32::MAX);
    let held = held(&listed.held);
    Usage::new(time(listed.now), units, held, waiting.collect())
}

/// How many units a claim that waits has claimed.
fn claimed_weight(id: &str) -> u32 {
    ReadId::read(id).map_or(1, |id| id.weight)
}

/// The permits that hold these units. Units that were added to a permit are that permit's.
fn held(units: &[Ending]) -> Vec<PermitInfo> {
    // In order, so that permits of one moment are listed alike each time.
    let mut permits: BTreeMap<(&str, u64), PermitInfo> = BTreeMap::new();
    for (unit, ends) in units {
        let id = unit.split(':').next().unwrap_or_default();
        let Some(read) = ReadId::read(id) else {
            continue;
        };
        let process = unit.split('.').next().unwrap_or_default();
        let new = info(id, &read, 0, *ends);
        let permit = permits.entry((process, read.permit()));
        let permit = permit.or_insert_with(|| new.clone());
        let (weight, ends) = (permit.weight + 1, permit.ends.min(new.ends));
        if !read.is_added() {
            *permit = new;
        }
        (permit.weight, permit.ends) = (weight, ends);
    }
    permits.into_values().collect()
}

fn info(id: &str, read: &ReadId<'_>, weight: u32, ends: u64) -> PermitInfo {
    let process = Process::new(read.process);
    // A lease is as long at least; an id without a time was written by an older version.
    let since = read.since.unwrap_or(ends.saturating_sub(read.lease_ms));
    let mut info = PermitInfo::new(id, process, weight, read.limit, time(since));
    info.label.clone_from(&read.label);
    info.ends = Some(time(ends));
    info
}

/// Time by the server's clock.
fn time(ms: u64) -> SystemTime {
    let since_epoch = UNIX_EPOCH.checked_add(Duration::from_millis(ms));
    since_epoch.unwrap_or(UNIX_EPOCH)
}
