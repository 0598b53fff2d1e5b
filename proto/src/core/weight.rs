//! Changes the weight or the id of a permit.
//!
//! A growth is a separate permit, which lives and dies with the permit that it is added to. Units that are taken
//! away become a debt. So a change can fail only in the ways in which an acquire or a release can fail.
//!
//! Each answer visits all growths of a permit, so their number is bounded. Once a level has [`MERGED_FROM`]
//! growths ([`MOST_GROWTHS`] with [`Merge::Nothing`]), the next one also claims the units of the two smallest. The
//! caller releases those two once the new growth is granted.

use super::{
    Core,
    call::Call,
    debt::Debt,
    id::{LeaseRef, PermitId, RuntimeId},
    lease::Lease,
    permit::{ClaimedLevel, Merge, PermitState},
    time::Time,
};
use crate::verbs::{LeaseId, LeaseName, LeaseUnits};

/// Once a level has this many growths, its two smallest are merged, because these need the fewest free units.
const MERGED_FROM: usize = 16;

/// The number of growths to a level that stay separate if the level has no room to merge them.
const MOST_GROWTHS: usize = 32;

/// A claim of more units for a level of a permit.
#[derive(Debug)]
pub struct Growth {
    pub id: PermitId,
    pub call: Option<Call>,
    /// The units of earlier growths that the claim includes. The caller releases these once the claim is granted.
    pub merged: u32,
}

impl Core {
    /// Claims `more` units under `limit` for a level of the permit `root`, without waiting (rule 13). The caller awaits
    /// the outcome before it grows the level again. The core reports the outcome for the growth, and later events for
    /// the root. Returns `None` if the root has ended.
    pub fn grow(
        &mut self,
        now: Time,
        from: RuntimeId,
        (root, level): (PermitId, usize),
        (more, limit): (u32, u32),
        merge: Merge,
    ) -> Option<Growth> {
        self.now = now;
        self.permits
            .get(root)
            .filter(|permit| !permit.has_ended())?;
        let merged = self.units_to_merge(root, level, merge);
        let permit = &self.permits[root];
        let lease = &permit.leases[permit.lease_with(level)];
        let (slot, key) = (lease.route.slot, permit.levels[level].key);
        let is_strict = permit.is_strict;
        let id = self.permits.next_id();
        let since = self.servers[self.slots.owner_of(slot)].clock_at(now);
        let permit = &mut self.permits[root];
        permit.last_growth += 1;
        let lease = LeaseId {
            name: LeaseName::new(root.serial, permit.last_growth),
            limit,
            weight: more + merged,
            since,
            flow: None,
            label: None,
        };
        let levels = vec![ClaimedLevel::new(key, LeaseUnits::new(lease), None)];
        let leases = vec![Lease::new(slot, 0..1)];
        let mut growth = PermitState::new(id, (now, from), levels, leases, &self.settings);
        (growth.adds_to, growth.is_strict) = (Some((root, level)), is_strict);
        self.permits[root].growths.push(id);
        let (id, call) = self.claim(growth);
        Some(Growth { id, call, merged })
    }

    /// The units of the two growths that the next growth merges, or 0 if it merges none.
    fn units_to_merge(&self, root: PermitId, level: usize, merge: Merge) -> u32 {
        let growths = self.granted_growths(root, level);
        let separate = match merge {
            Merge::Smallest => MERGED_FROM,
            Merge::Nothing => MOST_GROWTHS,
        };
        let smallest = growths.iter().take(2).map(|(units, _)| units);
        if growths.len() < separate {
            0
        } else {
            smallest.sum()
        }
    }

    /// The granted growths to a level and their units: the smallest first, and the latest first among equals.
    fn granted_growths(&self, root: PermitId, level: usize) -> Vec<(u32, PermitId)> {
        let growths = self.permits[root].growths.iter().rev();
        let growths = growths.map(|id| &self.permits[*id]);
        let granted =
            growths.filter(|growth| growth.adds_to == Some((root, level)) && growth.is_granted());
        let mut growths: Vec<_> = granted
            .map(|growth| (growth.levels[0].units.count(), growth.id))
            .collect();
        growths.sort_by_key(|(units, _)| *units);
        growths
    }

    /// Releases units of a level of a permit, but not all of them: those of growths first, the smallest growth first.
    /// Returns the released parts, and the core reports the release of each. Returns `None` if the permit has ended.
    pub fn shrink(
        &mut self,
        now: Time,
        root: PermitId,
        (level, mut units): (usize, u32),
    ) -> Option<Vec<PermitId>> {
        self.now = now;
        self.permits
            .get(root)
            .filter(|permit| !permit.has_ended())?;
        let mut parts = Vec::new();
        for (size, id) in self.granted_growths(root, level) {
            if units == 0 {
                break;
            }
            if size <= units {
                self.release(now, id, true);
                parts.push(id);
            } else {
                parts.push(self.split(id, 0, size - units));
            }
            units = units.saturating_sub(size);
        }
        if units > 0 {
            let size = self.permits[root].levels[level].units.count();
            parts.push(self.split(root, level, size - units));
        }
        Some(parts)
    }

    /// Keeps the first `keep` units of a level, and releases the others. Returns a permit that stands for their
    /// release.
    fn split(&mut self, id: PermitId, level: usize, keep: u32) -> PermitId {
        let permit = &mut self.permits[id];
        let number = permit.lease_with(level);
        let divided = &mut permit.levels[level];
        let (kept, others) = divided.units.split(keep);
        divided.units = kept;
        let key = divided.key;
        let lease = &mut permit.leases[number];
        lease.note_shrink();
        let is_missing = lease.is_missing();
        let may_exist = lease.remote.may_exist();
        self.keys[key].counted -= others.count();
        let part = self.permits.next_id();
        self.permits.insert(PermitState::given_up(part, may_exist));
        if may_exist {
            let others = vec![ClaimedLevel::new(key, others, None)];
            self.owe_part(Some(part), LeaseRef(id, number), others);
        }
        self.end_if_over(part);
        if is_missing {
            self.assign_new_id(LeaseRef(id, number));
            self.enqueue_if_due(LeaseRef(id, number));
            self.set_timer(id);
        }
        part
    }

    /// Gives a lease a new id, and releases everything that a server may have under the old one. The id stays if no
    /// server may know it and the lease still has all units of it.
    pub(super) fn assign_new_id(&mut self, at: LeaseRef) {
        let permit = &mut self.permits[at.0];
        let lease = &permit.leases[at.1];
        // An acquire of an id claims all units that the id was made with, even if fewer are left.
        let mut levels = permit.levels_of(at.1).iter();
        let is_whole = levels.all(|level| level.units.count() == level.units.members());
        let may_exist = lease.remote.may_exist();
        if !may_exist && is_whole {
            return;
        }
        let levels = lease.levels.clone();
        let is_granted = permit.is_granted();
        let levels = permit.levels[levels].iter_mut().map(|level| {
            let renewed = level.units.renewed();
            level.put_under(renewed, is_granted)
        });
        let levels = levels.collect();
        if may_exist {
            self.owe_part(None, at, levels);
        }
        self.permits[at].forget_calls();
    }

    /// Makes a debt of units that a lease gives up while it goes on. `permit` waits for their release, if any does.
    pub(super) fn owe_part(
        &mut self,
        permit: Option<PermitId>,
        at: LeaseRef,
        levels: Vec<ClaimedLevel>,
    ) {
        for level in &levels {
            self.keys[level.key].users += 1;
        }
        let lease = &self.permits[at];
        let (call, debt) = (lease.call(), Debt::new(lease, levels, None, self.now));
        self.owe(permit, (at, call), debt);
    }
}
