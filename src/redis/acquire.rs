//! Turns claims into permits or refusals, and implements the permits: their loss, their changes of weight, and their
//! release.

use super::{
    driver::ClaimRefusal,
    error::CallError,
    protocol::flow_name,
    report::known_token,
    reserved::ReservedUnits,
    store::{RedisPermit, Store},
};
use crate::{
    observe::{Outcome, Store::Redis as REDIS, WaitCounter},
    semaphore::{
        AcquireError, BoxFuture, Charge, Claim, ClaimError, Claims, Few, Grant, LevelState, Loss,
        Pause, Permit, PermitEnd, PermitLost, Policy, Resize, Resizing, SemaphoreId, StoreError,
    },
};
use proto::{
    core::{LevelClaim, LevelWait, Refusal},
    verbs::{self, Flow, tag_of},
};
use scopeguard::{ScopeGuard, guard};
use std::{
    future::ready,
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

impl Store {
    pub(super) async fn acquire(self: Arc<Self>, claims: Claims) -> Result<Permit, AcquireError> {
        let claims = claims.as_slice();
        if let Some(full) = claims
            .iter()
            .find_map(|claim| self.refusal_by_outer_permit(claim))
        {
            return Err(full);
        }
        let _place = self.place(claims)?;
        let levels: Vec<_> = claims.iter().map(|claim| self.level(claim)).collect();
        check_waits(claims, &levels)?;
        let policies = claims.iter().map(|claim| claim.policy().clone());
        let mut queue = QueueWait::default();
        let queued = |level: usize| queue.join(level, &claims[level], &self);
        let wanted = (levels, policies.collect());
        let answer = self.driver.clone().acquire(wanted, queued).await;
        queue.leave(&answer);
        self.report_to_operators(&answer);
        match answer {
            Ok(held) if held.is_gone() => Err(self.revoked()),
            // The claim was granted, but its future was not polled before the lease ended.
            Ok(held) if held.is_lost() => Err(self
                .failure(&CallError::Expired(self.settings.lease))
                .into()),
            Ok(held) => Ok(self.permit(held, claims)),
            Err(why) => Err(self.refusal(why, claims.len(), |level| {
                let claim = &claims[level];
                RefusingLevel {
                    policy: claim.policy(),
                    window: claim.window(),
                    semaphore: self.semaphore_id(&self.name_of(claim)),
                }
            })),
        }
    }

    /// Takes a place among the claims that may wait, if these claims wait. Dropping the result frees the place.
    fn place(&self, claims: &[Claim]) -> Result<Option<impl Sized>, AcquireError> {
        let mut waits = claims.iter().filter_map(Claim::wait).peekable();
        if waits.peek().is_none() {
            return Ok(None);
        }
        // Claims of limits in shadow have a separate counter.
        let waiting = &self.waiting[usize::from(waits.any(|wait| wait.is_trial))];
        let already_waiting = waiting.fetch_add(1, Relaxed);
        let place = guard(waiting, |waiting| _ = waiting.fetch_sub(1, Relaxed));
        match already_waiting < self.max_waiting {
            true => Ok(Some(place)),
            false => Err(AcquireError::Overloaded),
        }
    }

    /// The refusal of a claim if its own request already holds a permit of the same semaphore, because the claim would
    /// wait for a permit that its own request keeps.
    fn refusal_by_outer_permit(&self, claim: &Claim) -> Option<AcquireError> {
        if claim.outer().is_empty() {
            return None;
        }
        let semaphore = self.semaphore_id(&self.name_of(claim));
        let limit = claim.limit().unwrap_or_default();
        let full = || AcquireError::full(claim, limit).by_semaphore(semaphore);
        claim.is_within(semaphore).then(full)
    }

    /// Converts a claim to a level of the core's claim. Also keeps the longest window, for the check.
    fn level(&self, claim: &Claim) -> LevelClaim {
        let wait = claim.wait().map(|wait| LevelWait {
            time: wait.time,
            max_waiting: wait.max_waiting,
            head_start: wait.head_start,
        });
        let (name, units) = (self.name_of(claim), claim.checked_units());
        if let Some(budget) = units.budget {
            let window = budget.window.time().as_millis();
            self.longest_window_ms.fetch_max(window as u32, Relaxed);
        }
        LevelClaim {
            slot: self.topology.slot(&name),
            name,
            limit: units.limit,
            weight: units.weight,
            charge: units.budget.map(|budget| match budget.charge {
                Charge::Grant => verbs::Charge::Grant,
                Charge::Settlement => verbs::Charge::Settlement,
            }),
            wait,
            is_strict: claim.is_strict(),
            label: claim.label().map(Arc::from),
            flow: claim
                .flow()
                .map(|flow| Flow::new(claim.share(), &flow_name(flow))),
        }
    }

    /// The permit of claims that were granted.
    fn permit(self: &Arc<Self>, held: RedisPermit, claims: &[Claim]) -> Permit {
        let levels = claims.iter().map(|claim| {
            let (policy, units) = (claim.policy(), claim.checked_units());
            RedisLevel {
                policy: policy.clone(),
                weight: AtomicU32::new(units.weight),
                limit: units.limit,
                reserved: units
                    .budget
                    .map(|budget| ReservedUnits::granted(policy, units.weight, budget.charge)),
            }
        });
        let grant = RedisGrant {
            levels: levels.collect(),
            change_lock: ChangeLock::default(),
            is_released: AtomicBool::new(false),
            store: Arc::clone(self),
            held,
        };
        Permit::granted(grant, REDIS, claims, |grant, level| {
            grant.held.units_at_grant(level)
        })
    }

    /// The error of a refused claim with this number of levels. Of several levels, a level that was full to the end of
    /// the wait, or whose queue was full, is reported as `Full`, which names that level.
    fn refusal<'a>(
        &self,
        why: ClaimRefusal,
        levels: usize,
        level_at: impl Fn(usize) -> RefusingLevel<'a>,
    ) -> AcquireError {
        use Refusal::{Full, Paused, QueueFull, Revoked, TimedOut};
        let full = |level, held, limit| {
            let refusing = level_at(level);
            AcquireError::under(refusing.policy, limit, held, refusing.semaphore)
                .of_window(refusing.window)
        };
        let fields = |level| {
            let refusing = level_at(level);
            let policy = refusing.policy.clone();
            (policy, refusing.window, Some(refusing.semaphore))
        };
        match why {
            ClaimRefusal::By(TimedOut(level, _, limit)) if levels == 1 => {
                let (policy, window, semaphore) = fields(level);
                AcquireError::TimedOut {
                    policy,
                    limit,
                    window,
                    semaphore,
                }
            }
            ClaimRefusal::By(QueueFull(level, limit)) if levels == 1 => {
                let (policy, window, semaphore) = fields(level);
                AcquireError::QueueFull {
                    policy,
                    limit,
                    window,
                    semaphore,
                }
            }
            ClaimRefusal::By(Full(level, held, limit, retry_after)) => {
                let mut error = full(level, held, limit);
                if let AcquireError::Full {
                    retry_after: unset, ..
                } = &mut error
                {
                    *unset = retry_after;
                }
                error
            }
            ClaimRefusal::By(TimedOut(level, held, limit)) => full(level, held, limit),
            ClaimRefusal::By(QueueFull(level, limit)) => {
                let held = limit;
                full(level, held, limit)
            }
            ClaimRefusal::By(Paused(level, limit, retry_after)) => {
                let (policy, window, semaphore) = fields(level);
                AcquireError::Paused {
                    policy,
                    limit,
                    window,
                    retry_after,
                    semaphore,
                }
            }
            ClaimRefusal::By(Revoked) => self.revoked(),
            why => match self.fault(why) {
                Some(fault) if !self.driver.is_shut() => self.failure(&fault).into(),
                _ => AcquireError::Closed,
            },
        }
    }

    /// The failure behind a refusal, of a server or of this process. `None` for other refusals.
    fn fault(&self, why: ClaimRefusal) -> Option<CallError> {
        match why {
            ClaimRefusal::By(Refusal::Unavailable(server) | Refusal::Failed(server)) => {
                Some(self.cause(server))
            }
            ClaimRefusal::By(Refusal::Congested(_)) => Some(CallError::Congested),
            ClaimRefusal::PausedClock => Some(CallError::PausedClock),
            ClaimRefusal::By(_) | ClaimRefusal::CorePanicked => None,
        }
    }

    /// The cause of a server's failure. If no error is known, an answer was only too slow.
    fn cause(&self, server: usize) -> CallError {
        let too_slow = CallError::Timeout(self.settings.timeout);
        self.error(server).unwrap_or(too_slow)
    }

    /// Reports to operators when claims begin to fail, and when they succeed again.
    fn report_to_operators(&self, answer: &Result<RedisPermit, ClaimRefusal>) {
        let fault = match answer {
            Err(
                ClaimRefusal::CorePanicked | ClaimRefusal::By(Refusal::Closed | Refusal::Revoked),
            ) => {
                return;
            }
            Err(why) => self.fault(*why),
            Ok(held) => held.is_degraded().then(|| self.cause(0)),
        };
        match fault {
            Some(fault) => self
                .reports
                .claim_failed(&fault, || self.origin().error(&fault)),
            None => self.reports.claim_worked(),
        }
    }

    /// The error of a claim that an operator has revoked, or that was granted just before a shutdown.
    fn revoked(&self) -> AcquireError {
        match self.driver.is_shut() {
            true => AcquireError::Closed,
            false => AcquireError::Revoked,
        }
    }
}

/// Fails if a claim may wait behind a budget of another slot for longer than the budget's window.
fn check_waits(claims: &[Claim], levels: &[LevelClaim]) -> Result<(), ClaimError> {
    for (index, (claim, level)) in iter::zip(claims, levels).enumerate() {
        let Some(wait) = claim.wait().map(|wait| wait.time) else {
            continue;
        };
        let mut earlier = iter::zip(&claims[..index], levels);
        let window = earlier.find_map(|(earlier_claim, earlier_level)| {
            let window = earlier_claim.window()?;
            (earlier_level.slot != level.slot && wait > window).then_some(window)
        });
        if let Some(window) = window {
            return Err(ClaimError::LongWait { wait, window });
        }
    }
    Ok(())
}

/// Measures the waits of a claim in queues.
#[derive(Default)]
struct QueueWait {
    level: Option<usize>,
    waiting: WaitCounter,
}

impl QueueWait {
    /// Starts to measure the wait at this level. Does nothing if the claim already waits there.
    fn join(&mut self, level: usize, claim: &Claim, store: &Store) {
        if self.level.replace(level) != Some(level) {
            let name = || store.name_of(claim).to_string();
            self.waiting.join(REDIS, claim.policy().as_str(), name);
        }
    }

    /// Ends the wait, if the claim has waited, with the outcome for its last queue.
    fn leave(&mut self, answer: &Result<RedisPermit, ClaimRefusal>) {
        use Refusal::{Closed, Full, Paused, QueueFull, Revoked, TimedOut};
        self.waiting.leave(match answer {
            Ok(_) => Outcome::Admitted,
            // The level whose queue it waited in was granted, and then a wider level refused.
            Err(ClaimRefusal::By(Full(level, ..) | QueueFull(level, _) | Paused(level, ..)))
                if Some(*level) > self.level =>
            {
                Outcome::Admitted
            }
            // A limit of 0 closes the key.
            Err(ClaimRefusal::By(Full(_, _, 0, _))) => Outcome::KeyClosed,
            Err(ClaimRefusal::By(Full(..) | QueueFull(..) | TimedOut(..))) => Outcome::TimedOut,
            Err(ClaimRefusal::By(Paused(..))) => Outcome::Paused,
            Err(ClaimRefusal::By(Revoked)) => Outcome::Revoked,
            Err(ClaimRefusal::By(Closed)) => Outcome::Cancelled,
            Err(_) => Outcome::Unavailable,
        });
    }
}

/// The grant behind a permit. Dropping it releases all levels in one call.
struct RedisGrant {
    levels: Few<RedisLevel>,
    /// Locked while weights change, so that only one change runs at a time.
    change_lock: ChangeLock,
    is_released: AtomicBool,
    store: Arc<Store>,
    held: RedisPermit,
}

type ChangeLock = tokio::sync::Mutex<()>;

struct RedisLevel {
    policy: Policy,
    weight: AtomicU32,
    /// The limit of the claim.
    limit: u32,
    /// `None` if the level is not a budget.
    reserved: Option<ReservedUnits>,
}

/// The semaphore or budget that refuses a claim.
struct RefusingLevel<'a> {
    policy: &'a Policy,
    window: Option<Duration>,
    semaphore: SemaphoreId,
}

impl RedisGrant {
    async fn change(&self, wanted: Vec<Resize>) -> Result<(), AcquireError> {
        // Declared before `grown`, so that the lock is held until `grown` has undone a failed change.
        let _lock = self.change_lock.lock().await;
        wanted
            .iter()
            .try_for_each(|wanted| self.check_weight(*wanted))?;
        // If a level refuses, or the change is dropped before all levels have grown, this shrinks the grown levels by
        // the same units, without waiting for an answer. It does nothing if the permit was released in the meantime.
        let mut grown = guard(Vec::new(), |grown| {
            for (level, units) in grown {
                drop(self.shrink(level, units));
            }
        });
        for &Resize { level, weight } in &wanted {
            let more = weight.saturating_sub(self.weight_now(level));
            if more > 0 {
                self.grow(level, more).await?;
                grown.push((level, more));
            }
        }
        // The permit may have been released in the meantime.
        if self.held.is_gone() {
            return Err(lost());
        }
        ScopeGuard::into_inner(grown);
        // All releases are queued before the first is awaited.
        let releases = wanted.iter().map(|&Resize { level, weight }| {
            let fewer = self.weight_now(level).saturating_sub(weight);
            (fewer > 0).then(|| self.shrink(level, fewer))
        });
        let releases: Vec<_> = releases.flatten().collect();
        for release in releases {
            release.ok_or_else(lost)?.await;
        }
        Ok(())
    }

    fn weight_now(&self, level: usize) -> u32 {
        self.levels[level].weight.load(Relaxed)
    }

    /// The limit in force at a level, as far as this process knows: an operator's, or else the claim's.
    fn limit(&self, level: usize) -> u32 {
        let set = self.store.driver.limit_of(self.held.name(level));
        set.unwrap_or(self.levels[level].limit)
    }

    /// Fails if the weight grows beyond the limit, because that can never be granted.
    fn check_weight(&self, Resize { level, weight }: Resize) -> Result<(), AcquireError> {
        if weight <= self.weight_now(level) {
            return Ok(());
        }
        let limit = self.limit(level);
        match weight > limit {
            true => Err(ClaimError::TooHeavy { weight, limit }.into()),
            false => Ok(()),
        }
    }

    /// Acquires more units of a level.
    async fn grow(&self, level: usize, units: u32) -> Result<(), AcquireError> {
        if self.held.is_lost() || self.held.is_gone() {
            return Err(lost());
        }
        let limit = self.limit(level);
        let RedisLevel { policy, weight, .. } = &self.levels[level];
        let grown = self.held.grow(level, (units, limit)).await;
        grown.map_err(|why| match why {
            ClaimRefusal::By(Refusal::Revoked) => lost(),
            why => {
                let semaphore = self.store.semaphore_id(self.held.name(level));
                self.store.refusal(why, 1, |_| RefusingLevel {
                    policy,
                    window: None,
                    semaphore,
                })
            }
        })?;
        weight.fetch_add(units, Relaxed);
        Ok(())
    }

    /// Releases units of a level. The future is ready when they are free. Returns `None` if the permit was released.
    fn shrink(&self, level: usize, units: u32) -> Option<impl Future<Output = ()> + Send + use<>> {
        let release = self.held.shrink(level, units)?;
        self.levels[level].weight.fetch_sub(units, Relaxed);
        Some(release)
    }
}

impl RedisGrant {
    /// Counts the ends of the permit's reservations, for the metrics.
    fn end_budgets(&self) {
        let reserved = self
            .levels
            .iter()
            .filter_map(|level| level.reserved.as_ref());
        let end = match self.held.is_lost() {
            true => PermitEnd::Lost,
            false => PermitEnd::Released,
        };
        reserved.for_each(|reserved| reserved.end(end));
    }
}

impl Drop for RedisGrant {
    fn drop(&mut self) {
        self.end_budgets();
    }
}

impl Grant for RedisGrant {
    fn level(&self, level: usize) -> LevelState {
        let mut state = LevelState::new(match self.held.is_gone() {
            true => 0,
            false => self.weight_now(level),
        });
        // A budget has no tokens.
        let token = known_token(self.held.token(level));
        state.token = token.filter(|_| self.levels[level].reserved.is_none());
        // `is_lost` compares the end of the lease with the clock, because the keeper may be late to report a loss.
        state.is_lost = self.held.is_lost();
        state.is_degraded = self.held.is_degraded();
        state
    }

    fn semaphore(&self, level: usize) -> Option<SemaphoreId> {
        Some(self.store.semaphore_id(self.held.name(level)))
    }

    fn loss(&self) -> &Loss {
        self.held.loss()
    }

    fn resize(&self, levels: Vec<Resize>) -> Resizing<'_> {
        Box::pin(self.change(levels))
    }

    fn release(&self) -> BoxFuture<bool> {
        self.end_budgets();
        match self.is_released.swap(true, Relaxed) {
            true => Box::pin(ready(false)),
            false => Box::pin(self.held.release()),
        }
    }

    fn pause(&self, level: usize, time: Duration, note: &str) -> BoxFuture<Result<(), StoreError>> {
        let (store, name) = (Arc::clone(&self.store), Arc::clone(self.held.name(level)));
        let pause = Pause::new(time, note);
        self.store
            .answer(async move { store.pause(tag_of(&name).into(), pause).await })
    }

    fn settle(&self, level: usize, used: u32) {
        if let Some(reserved) = &self.levels[level].reserved
            && reserved.settle(used)
        {
            self.held.settle(level, used);
        }
    }

    fn awaits_release(&self) -> bool {
        !self.held.is_degraded() && self.held.is_full()
    }
}

fn lost() -> AcquireError {
    StoreError::new(PermitLost).into()
}
