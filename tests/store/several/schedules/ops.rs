//! The operations of a schedule.

use super::{
    case::{Case, Outcome},
    driver::LONG_WAIT,
    model::{Id, KEYS, LEVELS, Part, Spec, State, Step},
};
use std::time::Duration;
use testing::rng::Rng;
use tower_semaphore::AcquireError;

/// The number of clients that make the claims.
const OWNERS: usize = 3;
const OPERATIONS: usize = 28;
/// The most claims that hold or wait at one time.
const MOST: usize = 12;
/// A wait that times out soon.
const SHORT_WAIT: Duration = Duration::from_millis(2);

/// Runs a schedule until every waiter is granted.
pub(crate) async fn run(seed: u64) -> Outcome {
    let mut case = Case::new();
    let mut rng = Rng::new(seed);
    let done = run_all(&mut case, &mut rng).await;
    done.map_err(|why| format!("{}\n{why}", case.log.join("\n")))
}

async fn run_all(case: &mut Case, rng: &mut Rng) -> Outcome {
    for _ in 0..OPERATIONS {
        case.operation(rng).await?;
    }
    while let Some(&id) = case.permits.keys().next() {
        case.release(id).await?;
    }
    match case.waiters.is_empty() && case.possible == [State::default()].into() {
        true => Ok(()),
        false => Err(format!("something is left: {:?}", case.possible)),
    }
}

fn random_spec(rng: &mut Rng) -> Spec {
    // The levels of the claim, as bits; at least one.
    let bits = 1 + rng.below((1 << LEVELS) - 1);
    let levels = (0..LEVELS).filter(|level| bits & 1 << level != 0);
    let parts = levels.map(|level| Part {
        level,
        // At the widest level most claims use one key, so that they meet there.
        key: rng.below(KEYS).saturating_sub(level),
        limit: 2 + u32::from(rng.once_in(4)),
        weight: 1 + u32::from(rng.once_in(4)),
    });
    Spec {
        parts: parts.collect(),
        owner: rng.below(OWNERS),
        head_start: rng.one_of(&[0, 0, 1, 2]),
    }
}

impl Case {
    async fn operation(&mut self, rng: &mut Rng) -> Outcome {
        let (held, waiting) = (self.permits.len(), self.waiters.len());
        match rng.below(24) {
            0..12 if held + waiting < MOST => self.claim(rng).await,
            12..15 if waiting > 0 => {
                let id = *self.waiters.keys().nth(rng.below(waiting)).expect("one");
                self.cancel(id).await
            }
            15 => self.give_all_up(rng.below(OWNERS)).await,
            16..21 if held > 0 => self.resize(self.any_permit(rng), rng).await,
            21 if held > 0 => self.give_up(self.any_permit(rng), rng.once_in(2)).await,
            _ if held > 0 => self.release(self.any_permit(rng)).await,
            _ => Ok(()),
        }
    }

    fn any_permit(&self, rng: &mut Rng) -> Id {
        let mut permits = self.permits.keys();
        let any = permits.nth(rng.below(permits.len()));
        *any.expect("one is held")
    }

    async fn claim(&mut self, rng: &mut Rng) -> Outcome {
        let id = self.add(random_spec(rng));
        match rng.below(8) {
            0..2 => self.try_one(id, Duration::ZERO).await,
            2 if self.waits_in_every_state(id) => self.try_one(id, SHORT_WAIT).await,
            _ => {
                self.spawn(id, LONG_WAIT);
                self.apply(&[Step::Arrive(id, 0)], |_| {});
                self.wait_until_possible().await
            }
        }
    }

    fn waits_in_every_state(&self, id: Id) -> bool {
        let mut states = self.possible.iter();
        states.all(|state| !state.would_wait_at(&self.specs, id).is_empty())
    }

    /// Tries a claim that waits briefly or not at all.
    async fn try_one(&mut self, id: Id, wait: Duration) -> Outcome {
        self.log.push(format!("{id} waits for {wait:?}"));
        let is_alone = self.specs[id].parts.len() == 1;
        match self.answer(id, wait).await {
            Ok(permit) if wait.is_zero() => {
                self.hold(id, permit)?;
                let specs = &self.specs;
                self.possible
                    .retain(|state| state.refuses(specs, id).is_none());
                self.apply(&[Step::Arrive(id, 0)], |_| {});
            }
            // The refusal of several claims names the limit instead.
            Err(AcquireError::TimedOut { .. }) if is_alone && !wait.is_zero() => {}
            Err(error) => self.refused(id, wait, &error)?,
            Ok(_) => return Err("there was no room".to_owned()),
        }
        self.wait_until_possible().await
    }

    /// A refusal rules out the states in which the model refuses at another level.
    fn refused(&mut self, id: Id, wait: Duration, error: &AcquireError) -> Outcome {
        let possible = self.possible.iter().filter(|state| {
            // A short wait may time out at any level.
            let mut refusing = Vec::from_iter(state.refuses(&self.specs, id));
            if !wait.is_zero() {
                refusing.extend(state.would_wait_at(&self.specs, id));
            }
            refusing.iter().any(|part| self.names_part(error, *part))
        });
        self.possible = possible.cloned().collect();
        match self.possible.is_empty() {
            true => Err(format!("{:?} is refused: {error:?}", self.specs[id])),
            false => Ok(()),
        }
    }

    async fn cancel(&mut self, id: Id) -> Outcome {
        self.log.push(format!("{id} is cancelled"));
        self.waiters.remove(&id);
        let steps = self.free_steps(id);
        self.apply(&steps, |_| {});
        self.wait_until_possible().await
    }

    pub(crate) async fn release(&mut self, id: Id) -> Outcome {
        self.log.push(format!("{id} is released"));
        let permit = self.permits.remove(&id).expect("it is held");
        match permit.release().await {
            true => self.freed(id).await,
            false => Err(format!("{:?} was not held", self.specs[id])),
        }
    }

    /// Ends a permit: with `has_bound` by its longest hold, otherwise by dropping its last clone.
    async fn give_up(&mut self, id: Id, has_bound: bool) -> Outcome {
        self.log
            .push(format!("{id} is given up, by a bound: {has_bound}"));
        let permit = self.permits.remove(&id).expect("it is held");
        if has_bound {
            permit.end_after(Duration::ZERO);
            permit.lost().await;
        }
        drop(permit);
        self.freed(id).await
    }

    async fn freed(&mut self, id: Id) -> Outcome {
        let steps = self.free_steps(id);
        self.apply(&steps, |state| state.granted.retain(|other| *other != id));
        self.wait_until_possible().await
    }

    /// Cancels and releases everything that an owner has, as when the owner ends.
    async fn give_all_up(&mut self, owner: usize) -> Outcome {
        for id in self.owned_by(owner, self.waiters.keys()) {
            // The previous cancellation may have let this claim be granted.
            if self.waiters.contains_key(&id) {
                self.cancel(id).await?;
            }
        }
        for id in self.owned_by(owner, self.permits.keys()) {
            self.release(id).await?;
        }
        Ok(())
    }

    fn owned_by<'a>(&self, owner: usize, ids: impl Iterator<Item = &'a Id>) -> Vec<Id> {
        ids.copied()
            .filter(|id| self.specs[*id].owner == owner)
            .collect()
    }
}
