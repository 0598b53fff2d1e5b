//! Units that callers have added to permits, and units that they have taken away.

use super::{
    Verdict, Who,
    callers::Callers,
    check,
    record::{Record, State},
};
use crate::{
    process::Process,
    subject::{Call, Command, Key, PermitId, Resize},
};
use std::collections::{BTreeMap, BTreeSet};

/// The most leases of one semaphore under which a permit is refreshed: that of the claim, and those of 33 growths
/// while one of them replaces others.
const MOST_PARTS: usize = 34;

#[derive(Debug, Default)]
pub(super) struct Weights {
    /// The permit that each growth adds to.
    parents: BTreeMap<Who, Who>,
    /// The parts that callers have taken from permits, until their release is reported.
    parts: BTreeSet<Who>,
}

impl Weights {
    /// The permit that a growth adds to.
    pub(super) fn parent(&self, growth: Who) -> Option<Who> {
        self.parents.get(&growth).copied()
    }

    /// A process reports that a part taken from a permit is released.
    pub(super) fn released(&mut self, part: Who) -> Verdict {
        check(self.parts.remove(&part), "events", || {
            format!("{part:?} is released, which no caller has taken from a permit")
        })
    }

    /// Checks that the release of each part was reported, in processes that run.
    pub(super) fn check_all_reported(&self, processes: &[Process]) -> Verdict {
        let mut parts = self.parts.iter();
        let left = parts.find(|(at, _)| processes[*at].core.is_some());
        check(left.is_none(), "events", || {
            format!("the release of {left:?} is not reported")
        })
    }

    /// True if the release of each part of a process was reported.
    pub(super) fn has_reported_all(&self, at: usize) -> bool {
        !self.parts.iter().any(|(process, _)| *process == at)
    }
}

impl Callers {
    /// A caller claims more units for a permit.
    pub(super) fn grows(&mut self, growth: Who, parent: Who) {
        self.weights.parents.insert(growth, parent);
    }

    /// The permit under which callers know an id. For a granted growth, this is the permit to which it was added.
    pub(super) fn root(&self, who: Who) -> Who {
        let own = self.records.get(&who);
        let is_own = own.is_some_and(|record| !record.leases.is_empty());
        let parent = self.weights.parent(who).filter(|_| !is_own);
        parent.unwrap_or(who)
    }

    /// A permit, and every growth that was ever added to it.
    pub(super) fn with_growths(&self, who: Who) -> impl Iterator<Item = Who> {
        let growths = self.weights.parents.iter();
        let growths = growths.filter(move |(_, parent)| **parent == who);
        growths.map(|(growth, _)| *growth).chain([who])
    }

    /// A growth is granted. From now on, events name its permit.
    pub(super) fn grown(&mut self, growth: Who) {
        let Some(parent) = self.weights.parent(growth) else {
            return;
        };
        let Some(record) = self.records.get_mut(&growth) else {
            return;
        };
        let (leases, revoked) = (std::mem::take(&mut record.leases), record.revoked);
        (record.state, record.is_released) = (State::Over, true);
        if let Some(record) = self.records.get_mut(&parent) {
            // Sorted by request, because growths may be granted in another order.
            record.leases.extend(leases);
            record.leases.sort_by_key(|lease| lease.permit);
            record.revoked = record.revoked.or(revoked);
        }
    }

    /// A permit, and every growth that is or may be added to it.
    pub(super) fn family(&self, who: Who) -> BTreeSet<Who> {
        let leases = self.records.get(&who).into_iter();
        let own = leases.flat_map(|record| &record.leases);
        let own = own.map(|lease| (who.0, lease.permit));
        let growths = self.weights.parents.iter();
        let growths = growths.filter(|(_, parent)| **parent == who);
        let undecided = growths.filter(|(growth, _)| self.root(**growth) == **growth);
        own.chain(undecided.map(|(growth, _)| *growth))
            .chain([who])
            .collect()
    }

    /// Picks a level of a permit that a process holds. Returns the permit, the level with its units, and its key.
    pub(super) fn resizable(&self, at: usize, pick: usize) -> Option<(PermitId, Resize, Key)> {
        let levels: Vec<_> = self.held_levels(at).collect();
        levels.get(pick % levels.len().max(1)).copied()
    }

    /// The permit of a process that holds the most units of a semaphore.
    pub(super) fn heaviest(&self, at: usize, key: Key) -> Option<(PermitId, Resize)> {
        let levels = self.held_levels(at).filter(|(_, _, other)| *other == key);
        let heaviest = levels.max_by_key(|(_, size, _)| size.units);
        heaviest.map(|(permit, size, _)| (permit, size))
    }

    /// The levels of the permits that a process holds.
    fn held_levels(&self, at: usize) -> impl Iterator<Item = (PermitId, Resize, Key)> {
        let own = self.records.range((at, PermitId(0))..(at + 1, PermitId(0)));
        let held = own.filter(|(_, record)| record.state == State::Holds);
        held.flat_map(|((_, permit), record)| {
            let levels = record.claim.levels().enumerate();
            levels.map(move |(number, level)| {
                let units = record.units(level.key);
                let limit = level.limit;
                let size = Resize {
                    level: number,
                    units,
                    limit,
                };
                (*permit, size, level.key)
            })
        })
    }

    /// A caller gives up units of a level. They are taken from the smallest growth first, from the latest of equal
    /// ones, and from the claim itself last. Returns how many units each affected lease keeps.
    pub(super) fn shrinks(
        &mut self,
        who: Who,
        (key, mut units): (Key, u32),
        parts: &[PermitId],
    ) -> Vec<(Who, u32)> {
        let parts = parts.iter().map(|part| (who.0, *part));
        self.weights.parts.extend(parts);
        let record = self.records.get_mut(&who).into_iter();
        let leases = record.flat_map(|record| record.leases.iter_mut().rev());
        let mut leases: Vec<_> = leases.filter(|lease| lease.has(key)).collect();
        leases.sort_by_key(|lease| {
            let units: u32 = lease.levels.iter().map(|level| level.weight).sum();
            (lease.permit == who.1, units)
        });
        let mut kept = Vec::new();
        for lease in leases {
            for level in lease.levels.iter_mut().filter(|level| level.key == key) {
                let less = units.min(level.weight);
                (level.weight, units) = (level.weight - less, units - less);
                kept.extend((less > 0).then_some(((who.0, lease.permit), level.weight)));
            }
        }
        // A growth that is given up as a whole is a separate permit again.
        for (part, _) in kept.iter().filter(|(_, keeps)| *keeps == 0) {
            self.weights.parents.remove(part);
        }
        if let Some(record) = self.records.get_mut(&who) {
            let has_units = |level: &crate::subject::Level| level.weight > 0;
            record
                .leases
                .retain(|lease| lease.levels.iter().any(has_units));
        }
        kept
    }

    /// Checks that the cost of a refresh does not grow with the history of a permit.
    pub(super) fn check_parts(&self, at: usize, call: &Call) -> Verdict {
        let mut parts = BTreeMap::<_, usize>::new();
        for command in &call.commands {
            let is_refresh = matches!(command, Command::Refresh { .. });
            for (key, id) in command.ids().into_iter().filter(|_| is_refresh) {
                let who = (at, id.permit());
                let root = self.weights.parent(who).unwrap_or(who);
                *parts.entry((root, key)).or_default() += 1;
            }
        }
        let most = parts.into_iter().max_by_key(|(_, parts)| *parts);
        check(
            most.is_none_or(|(_, parts)| parts <= MOST_PARTS),
            "the calls",
            || format!("refreshes too many leases of one permit: {most:?}"),
        )
    }

    /// The permits that are held, and the number of units that each part of them has of each semaphore.
    pub(super) fn holders(&self) -> impl Iterator<Item = (usize, &Record, Vec<(Who, Key, u32)>)> {
        let held = self.records.iter();
        let held = held.filter(|(_, record)| record.state == State::Holds);
        held.map(|((at, _), record)| {
            let units = record.leases.iter().flat_map(|lease| {
                let levels = lease.levels.iter();
                levels.map(|level| ((*at, lease.permit), level.key, level.weight))
            });
            (*at, record, units.collect())
        })
    }
}
