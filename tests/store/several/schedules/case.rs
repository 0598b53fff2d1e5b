//! One schedule: the same operations on a store and on the model, compared after each.

use super::{
    driver::{claim, counts},
    model::{Each, Id, Part, Seen, Spec, State, Step},
    waiter::{Answer, Waiter},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::{Duration, Instant},
};
use tokio::task::yield_now;
use tower_semaphore::{
    AcquireError, Claim, Claims, MemorySemaphore, Permit, Semaphore, semaphore::Level,
};

/// The longest time that the store may take to show what has happened.
pub(crate) const BOUND: Duration = Duration::from_secs(30);
/// The highest limit of any claim.
pub(crate) const MOST_UNITS: u32 = 3;
/// Longer than any schedule.
const HEAD_START: Duration = Duration::from_secs(3_600);

pub(crate) type Outcome = Result<(), String>;

/// A store, its model, and the permits and waiters of all owners.
pub(crate) struct Case {
    store: MemorySemaphore,
    pub(crate) specs: Vec<Spec>,
    /// All states that the store may be in, given what was observed.
    pub(crate) possible: BTreeSet<State>,
    pub(crate) permits: BTreeMap<Id, Permit>,
    pub(crate) waiters: BTreeMap<Id, Waiter>,
    /// The greatest token seen at each key.
    tokens: Each<u64>,
    /// For each claim, `tokens` at the time when it was made.
    earlier: Vec<Each<u64>>,
    /// The operations so far.
    pub(crate) log: Vec<String>,
}

impl Case {
    pub(crate) fn new() -> Self {
        Self {
            store: MemorySemaphore::new(),
            specs: Vec::new(),
            possible: [State::default()].into(),
            permits: BTreeMap::new(),
            waiters: BTreeMap::new(),
            tokens: Each::default(),
            earlier: Vec::new(),
            log: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, spec: Spec) -> Id {
        let id = self.specs.len();
        self.log.push(format!("{id}: {spec:?}"));
        self.specs.push(spec);
        self.earlier.push(self.tokens);
        id
    }

    pub(crate) fn claims(&self, id: Id, wait: Duration) -> Claims {
        let spec = &self.specs[id];
        let claim = |part: &Part| -> Claim {
            let claim = claim(part.level, part.key).with_limit(part.limit);
            let claim = claim.with_weight(part.weight).with_wait(wait);
            claim.with_head_start(HEAD_START * spec.head_start)
        };
        spec.parts.iter().map(claim).collect()
    }

    /// Applies `change` and these steps to the model. The steps may run in any order.
    pub(crate) fn apply(&mut self, steps: &[Step], change: impl Fn(&mut State)) {
        let specs = &self.specs;
        let outcomes = mem::take(&mut self.possible)
            .into_iter()
            .flat_map(|mut state| {
                change(&mut state);
                state.outcomes(specs, steps.to_vec())
            });
        self.possible = outcomes.collect();
    }

    /// The steps that free everything that a claim holds or waits for.
    pub(crate) fn free_steps(&self, id: Id) -> Vec<Step> {
        let parts = self.specs[id].parts.iter();
        parts
            .map(|part| Step::Free(id, part.level, part.key))
            .collect()
    }

    /// Waits until the store is in one of the possible states.
    pub(crate) async fn wait_until_possible(&mut self) -> Outcome {
        let start = Instant::now();
        loop {
            let is_late = start.elapsed() > BOUND;
            self.collect()?;
            let seen = self.seen();
            let specs = &self.specs;
            let is_over = |part: &Part| seen.held[part.level][part.key] > MOST_UNITS;
            if let Some(part) = specs
                .iter()
                .flat_map(|spec| &spec.parts)
                .find(|part| is_over(part))
            {
                return Err(format!("over the limit: {part:?} in {seen:?}"));
            }
            if self.possible.iter().any(|state| state.seen(specs) == seen) {
                self.possible.retain(|state| state.seen(specs) == seen);
                return Ok(());
            }
            if is_late {
                return Err(format!(
                    "the store is {seen:?}, not one of {:?}",
                    self.possible
                ));
            }
            yield_now().await;
        }
    }

    fn seen(&self) -> Seen {
        let (held, waiting) = counts(&self.store);
        let granted = self.permits.keys().copied().collect();
        Seen {
            granted,
            held,
            waiting,
        }
    }

    /// Checks and keeps the permits of granted waiters.
    fn collect(&mut self) -> Outcome {
        let waiters = mem::take(&mut self.waiters).into_iter();
        let (finished, waiting) = waiters.partition(|(_, waiter)| waiter.is_finished());
        self.waiters = waiting;
        let finished: BTreeMap<_, Waiter> = finished;
        for (id, waiter) in finished {
            let permit = waiter.permit()?;
            self.hold(id, permit)?;
        }
        Ok(())
    }

    /// Keeps a permit, whose tokens must be higher than all that were seen before its claim was made.
    pub(crate) fn hold(&mut self, id: Id, permit: Permit) -> Outcome {
        let levels = permit.levels().map(Level::limit);
        let limits = self.specs[id].parts.iter().map(|part| part.limit);
        if !levels.eq(limits) {
            return Err(format!("{permit:?} is not for {:?}", self.specs[id]));
        }
        for (level, part) in permit.levels().zip(&self.specs[id].parts) {
            let token = level.token().unwrap_or(0);
            if token <= self.earlier[id][part.level][part.key] {
                return Err(format!(
                    "{token} is the token of {permit:?}, after {:?}",
                    self.earlier[id]
                ));
            }
            let last = &mut self.tokens[part.level][part.key];
            *last = token.max(*last);
        }
        self.permits.insert(id, permit);
        Ok(())
    }

    /// True if the store's refusal names the part that refuses in the model.
    pub(crate) fn names_part(&self, error: &AcquireError, part: Part) -> bool {
        let own = claim(part.level, part.key);
        matches!(error, AcquireError::Full { policy, limit, .. }
            if policy == own.policy() && *limit == part.limit)
    }

    pub(crate) fn spawn(&mut self, id: Id, wait: Duration) {
        let waiter = Waiter::spawn(self.store.acquire_all(self.claims(id, wait)));
        self.waiters.insert(id, waiter);
    }

    pub(crate) async fn answer(&self, id: Id, wait: Duration) -> Answer {
        self.store.acquire_all(self.claims(id, wait)).await
    }
}
