//! The grant behind a permit. It is acquired at all limits of a request, or at none.

use super::{
    budget::BudgetState,
    entry::{Counts, Entry, EntryMut},
    holders::Details,
    keys::Keys,
    queue::{KeyGrant, KeyRefusal, WaiterNotice, deliver},
    shard::{KeyPlace, Shard, ShardTable, Tables},
    units::HeldUnits,
};
use crate::{
    observe::{BudgetUse, Store, contain},
    semaphore::{
        AcquireError, BoxFuture, Charge, Claim, ClaimError, Few, Grant, LevelState, Loss, Pause,
        Permit, PermitEnd, PermitLost, Resize, Resizing, SemaphoreId, StoreError, Units,
    },
};
use std::{future::ready, sync::Arc, time::Duration};

/// Acquires the units of all claims in one step, or nothing. A refusal is that of the first claim that is refused.
pub(super) fn acquire_all(keys: &Keys, claims: &[Claim]) -> Result<Few<MemoryLevel>, AcquireError> {
    after_pauses_of(keys, claims, || try_all(keys, claims))
}

/// Returns the answer of `decide`. Ends pauses of the claims' keys that are over, if they would refuse a claim.
pub(super) fn after_pauses_of<T>(
    keys: &Keys,
    claims: &[Claim],
    decide: impl Fn() -> Result<T, AcquireError>,
) -> Result<T, AcquireError> {
    let end_pauses = || {
        for claim in claims {
            keys.change(claim, |entry, _| entry.drop_ended_pause());
        }
    };
    decided_after_pauses(decide, end_pauses)
}

/// Returns the first answer of `decide` that is not a refusal by a pause that is over. `end_pauses` ends such pauses,
/// and grants to the waiters first.
fn decided_after_pauses<T>(
    decide: impl Fn() -> Result<T, AcquireError>,
    end_pauses: impl Fn(),
) -> Result<T, AcquireError> {
    loop {
        match decide() {
            Err(AcquireError::Paused {
                retry_after: Duration::ZERO,
                ..
            }) => end_pauses(),
            answer => return answer,
        }
    }
}

fn try_all(keys: &Keys, claims: &[Claim]) -> Result<Few<MemoryLevel>, AcquireError> {
    let loss = keys.lists_holders.then(Arc::default);
    let details = |claim| loss.as_ref().map(|loss| keys.details(claim, loss));
    if let [claim] = claims {
        let level = MemoryLevel::acquire(keys, claim, details(claim));
        let level = level.map_err(|refusal| refusal.error(claim.policy()))?;
        return Ok(Few::One([level]));
    }
    let wanted = claims.iter();
    let wanted = wanted.map(|claim| (claim, claim.checked_units(), keys.place(claim.key())));
    let mut tables = Tables::lock(wanted.clone().map(|(.., place)| place));
    for (claim, units, place) in wanted.clone() {
        let (entry, counts) = tables.table(place).entry(place.0, claim);
        if !entry.admits(units) {
            let (refusal, notices) = (entry.refusal(units), entry.look_at_budget_queue(counts));
            drop(tables);
            deliver(notices);
            return Err(refusal.error(claim.policy()));
        }
    }
    let levels = wanted.map(|(claim, units, place)| {
        let (details, (entry, counts)) =
            (details(claim), tables.table(place).entry(place.0, claim));
        let acquired = entry.acquire(units, counts, details.as_ref());
        MemoryLevel::new(place, units, acquired, details)
    });
    Ok(levels.collect())
}

/// Acquires the units of all these budgets in one step, or nothing. Fails with the number of the first claim that is
/// refused. `details` has one item per claim. A claim that waits in its budget's queue leaves the queue when it is
/// granted.
pub(super) fn acquire_budgets(
    keys: &Keys,
    claims: &[Claim],
    details: &[Arc<Details>],
) -> Result<Vec<MemoryLevel>, (usize, KeyRefusal)> {
    let wanted = claims.iter().zip(details);
    let wanted = wanted.map(|(claim, details)| (claim, details, keys.place(claim.key())));
    let mut tables = Tables::lock(wanted.clone().map(|(.., place)| place));
    let (mut notices, mut unused) = (Vec::new(), Vec::new());
    for (at, (claim, details, place)) in wanted.clone().enumerate() {
        let (entry, counts) = tables.table(place).entry(place.0, claim);
        entry.drop_ended_pause();
        if let Err(refusal) = entry.admits_in_turn(details) {
            let notices = entry.look_at_budget_queue(counts);
            drop(tables);
            deliver(notices);
            return Err((at, refusal));
        }
    }
    let levels = wanted.map(|(claim, details, place)| {
        let (entry, counts) = tables.table(place).entry(place.0, claim);
        unused.extend(entry.queue.pop_if(details));
        let acquired = entry.acquire(details.units, counts, details.listed());
        notices.extend(entry.grant(counts));
        MemoryLevel::from_grant(place, acquired, details)
    });
    let levels = levels.collect();
    drop(tables);
    // The callbacks of these waiters are not needed: this function returns their levels.
    contain(|| drop(unused));
    deliver(notices);
    Ok(levels)
}

/// Held units of a key. Dropping the level releases them.
pub(super) struct MemoryLevel {
    hash: u64,
    shard: Arc<Shard>,
    acquired: KeyGrant,
    /// The limit of the claim.
    claimed: u32,
    /// The units that are held. If the level is listed, its details have them instead.
    held: HeldUnits,
    details: Option<Arc<Details>>,
}

impl MemoryLevel {
    /// Acquires the units of one claim. Lists them under the details, if given.
    #[inline(always)]
    pub(super) fn acquire(
        keys: &Keys,
        claim: &Claim,
        details: Option<Arc<Details>>,
    ) -> Result<Self, KeyRefusal> {
        let (place, units) = (keys.place(claim.key()), claim.checked_units());
        let acquired = place.1.acquire(place.0, claim, details.as_ref())?;
        Ok(Self::new(place, units, acquired, details))
    }

    #[inline(always)]
    fn new(
        (hash, shard): KeyPlace<'_>,
        units: Units,
        acquired: KeyGrant,
        details: Option<Arc<Details>>,
    ) -> Self {
        Self {
            hash,
            shard: Arc::clone(shard),
            acquired,
            claimed: units.limit,
            held: HeldUnits::new(units.weight),
            details,
        }
    }

    /// The level that a claim with these details has acquired.
    pub(super) fn from_grant(
        place: KeyPlace<'_>,
        acquired: KeyGrant,
        details: &Arc<Details>,
    ) -> Self {
        Self::new(place, details.units, acquired, details.listed().cloned())
    }

    #[inline]
    fn units(&self) -> &HeldUnits {
        match &self.details {
            None => &self.held,
            Some(details) => &details.held,
        }
    }

    #[inline]
    pub(super) fn weight(&self) -> u32 {
        self.units().weight()
    }

    /// Charges a claim that has all of its levels for the units of a budget.
    fn charge(&self, charge: Charge) {
        self.change_budget(|budget| budget.charge(self.units(), charge));
    }

    fn settle(&self, total: u32) {
        self.change_budget(|budget| budget.settle(self.units(), total));
    }

    fn change_budget(&self, change: impl FnOnce(&mut BudgetState) -> (BudgetUse, u32)) {
        let counted = self.change(|entry, _| entry.change_budget(|budget| Some(change(budget))));
        if let Some(counted) = counted.flatten() {
            counted.record();
        }
    }

    #[inline]
    fn change<R>(&self, change: impl FnOnce(&mut Entry, &mut Counts) -> R) -> Option<R> {
        let is_it = |entry: &Entry| entry.id == self.acquired.id;
        self.shard.change(self.hash, is_it, change)
    }

    /// The refusal of these units if the key is paused now.
    pub(super) fn pause(&self, units: Units) -> Option<KeyRefusal> {
        let refusal = |entry: &mut Entry, _: &mut Counts| {
            entry.pause_in_force()?;
            Some(entry.refusal(units))
        };
        self.change(refusal).flatten()
    }

    /// Releases the units. Returns true if any were still held.
    #[inline]
    fn release(&self) -> bool {
        let released = self.change(|entry, counts| {
            let taken = match &self.details {
                Some(details) => entry
                    .queue
                    .unlist_permit(details.serial)
                    .map(|(_, taken)| taken),
                None => Some(self.held.take()),
            };
            let taken = taken.unwrap_or_default();
            let counted = entry.free(taken, PermitEnd::Released, counts);
            (taken.weight > 0, counted)
        });
        let Some((was_held, counted)) = released else {
            return false;
        };
        if let Some(counted) = counted {
            counted.record();
        }
        was_held
    }

    fn place(&self) -> KeyPlace<'_> {
        (self.hash, &self.shard)
    }

    /// Returns the level's units and its entry. Fails if the level was released.
    fn held_in<'a>(&self, table: &'a mut ShardTable) -> Result<(u32, EntryMut<'a>), AcquireError> {
        let weight = self.weight();
        let entry = table.entry_with_id(self.hash, self.acquired.id);
        let entry = entry.filter(|_| weight > 0).ok_or_else(lost)?;
        Ok((weight, entry))
    }

    /// Fails if the weight grows beyond the limit, because that can never be granted.
    fn check_limit(&self, weight: u32, table: &mut ShardTable) -> Result<(), AcquireError> {
        let (before, (entry, _)) = self.held_in(table)?;
        let limit = entry.limit.unwrap_or(self.claimed);
        match weight > limit.max(before) {
            true => Err(ClaimError::TooHeavy { weight, limit }.into()),
            false => Ok(()),
        }
    }

    /// Fails if added units do not fit, or if units are added to a lost permit.
    fn check_room(
        &self,
        weight: u32,
        table: &mut ShardTable,
        is_lost: bool,
    ) -> Result<(), AcquireError> {
        let (before, (entry, _)) = self.held_in(table)?;
        match weight.saturating_sub(before) {
            0 => Ok(()),
            _ if is_lost => Err(lost()),
            added => {
                let units = Units {
                    limit: self.claimed,
                    weight: added,
                    budget: None,
                };
                match entry.admits(units) {
                    true => Ok(()),
                    false => Err(entry.refusal(units).error(&entry.policy)),
                }
            }
        }
    }

    /// Changes the weight. Returns the waiters that are granted as a result.
    fn resize(
        &self,
        weight: u32,
        table: &mut ShardTable,
    ) -> Result<Vec<WaiterNotice>, AcquireError> {
        let (before, (entry, counts)) = self.held_in(table)?;
        self.units().set_weight(weight);
        entry.held = entry.held - before + weight;
        Ok(entry.grant(counts))
    }
}

impl Drop for MemoryLevel {
    #[inline]
    fn drop(&mut self) {
        if self.weight() > 0 {
            self.release();
        }
    }
}

/// Makes the permit of these levels, charges its budgets, and links it to the levels' details.
pub(super) fn permit(claims: &[Claim], levels: Few<MemoryLevel>) -> Permit {
    let listed = levels.iter().filter_map(|level| level.details.clone());
    // All levels of a store are listed, or none is.
    let listed: Vec<_> = listed.collect();
    for (level, claim) in levels.iter().zip(claims) {
        if let Some(budget) = claim.checked_units().budget {
            level.charge(budget.charge);
        }
    }
    let permit = unlinked_permit(claims, levels);
    for (number, details) in listed.iter().enumerate() {
        details.link(&permit, number);
    }
    permit
}

/// Makes the permit of these levels, without a link from their details. If they are listed, the caller must link it.
///
/// Always inlined, so that the grant is not copied.
#[inline(always)]
pub(super) fn unlinked_permit(claims: &[Claim], levels: Few<MemoryLevel>) -> Permit {
    let loss = Loss::default();
    let grant = MemoryGrant { levels, loss };
    let held_and_limit = |grant: &MemoryGrant, at: usize| {
        let acquired = grant.levels[at].acquired;
        (acquired.held, acquired.limit)
    };
    Permit::granted(grant, Store::Memory, claims, held_and_limit)
}

struct MemoryGrant {
    levels: Few<MemoryLevel>,
    /// The loss of a permit that is not listed. A listed permit uses the loss in its details.
    loss: Loss,
}

impl MemoryGrant {
    /// Changes weights. Ends pauses that are over, if they would refuse the change.
    fn change(&self, wanted: &[Resize]) -> Result<(), AcquireError> {
        let end_pauses = || {
            for level in self.levels.iter() {
                level.change(|entry, _| entry.drop_ended_pause());
            }
        };
        decided_after_pauses(|| self.try_change(wanted), end_pauses)
    }

    /// Changes weights under the locks of all shards, so that no other thread sees a part of the change.
    fn try_change(&self, wanted: &[Resize]) -> Result<(), AcquireError> {
        let is_lost = self.loss().is_set();
        let wanted = wanted.iter();
        let wanted = wanted.map(|wanted| (&self.levels[wanted.level], wanted.weight));
        let mut tables = Tables::lock(wanted.clone().map(|(level, _)| level.place()));
        for (level, weight) in wanted.clone() {
            level.check_limit(weight, tables.table(level.place()))?;
        }
        for (level, weight) in wanted.clone() {
            level.check_room(weight, tables.table(level.place()), is_lost)?;
        }
        let mut granted = Vec::new();
        for (level, weight) in wanted {
            granted.extend(level.resize(weight, tables.table(level.place()))?);
        }
        drop(tables);
        deliver(granted);
        Ok(())
    }
}

fn lost() -> AcquireError {
    StoreError::new(PermitLost).into()
}

impl Grant for MemoryGrant {
    fn level(&self, level: usize) -> LevelState {
        let level = &self.levels[level];
        let mut state = LevelState::new(level.weight());
        state.token = Some(level.acquired.token);
        state
    }

    fn semaphore(&self, level: usize) -> Option<SemaphoreId> {
        Some(SemaphoreId::numbered(self.levels[level].acquired.id))
    }

    fn loss(&self) -> &Loss {
        match &self.levels[0].details {
            None => &self.loss,
            Some(details) => &details.loss,
        }
    }

    fn resize(&self, levels: Vec<Resize>) -> Resizing<'_> {
        Box::pin(async move { self.change(&levels) })
    }

    fn release(&self) -> BoxFuture<bool> {
        // Not `all`, which would stop at the first level that was not held.
        let released = self.levels.iter().map(MemoryLevel::release);
        Box::pin(ready(released.fold(true, |all, was_held| all & was_held)))
    }

    /// Works while the store has the key in memory, which is at least until the release.
    fn pause(&self, level: usize, time: Duration, note: &str) -> BoxFuture<Result<(), StoreError>> {
        let level = &self.levels[level];
        let (hash, shard, id) = (level.hash, Arc::clone(&level.shard), level.acquired.id);
        let pause = Pause::new(time, note);
        Box::pin(async move {
            match pause.is_none_or(|pause| shard.pause_entry(hash, id, &pause)) {
                true => Ok(()),
                false => Err(StoreError::new(PermitLost)),
            }
        })
    }

    fn settle(&self, level: usize, used: u32) {
        self.levels[level].settle(used);
    }

    fn awaits_release(&self) -> bool {
        false
    }
}
