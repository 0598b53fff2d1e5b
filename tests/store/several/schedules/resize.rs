//! Permits that change their weight, at one limit or at all of them.

use super::{
    case::{Case, MOST_UNITS, Outcome},
    model::{Id, Part, State, Step},
};
use std::ops::Range;
use testing::rng::Rng;
use tower_semaphore::{
    AcquireError,
    semaphore::{ClaimError, Level},
};

/// A permit, the parts of it that change, and their new weight.
#[derive(Debug)]
pub(crate) struct Change {
    id: Id,
    parts: Range<usize>,
    weight: u32,
}

impl Case {
    pub(crate) async fn resize(&mut self, id: Id, rng: &mut Rng) -> Outcome {
        let change = self.change(id, rng);
        self.log.push(format!("{change:?}"));
        let permit = &self.permits[&id];
        let answer = match change.parts.len() == permit.levels().len() {
            true => permit.resize(change.weight).await,
            false => {
                let level = permit.levels().nth(change.parts.start);
                let policy = level.expect("a level").policy();
                permit.resize_at(policy, change.weight).await
            }
        };
        self.check_answer(&change, &answer)?;
        self.wait_until_possible().await?;
        self.weighs_as_expected(id)
    }

    fn change(&self, id: Id, rng: &mut Rng) -> Change {
        let all = self.specs[id].parts.len();
        let one = rng.below(all);
        Change {
            id,
            parts: match rng.once_in(2) {
                true => 0..all,
                false => one..one + 1,
            },
            weight: 1 + rng.below(MOST_UNITS as usize) as u32,
        }
    }

    /// The answer rules out the states for which the model expects another answer.
    fn check_answer(&mut self, change: &Change, answer: &Result<(), AcquireError>) -> Outcome {
        let is_right = |state: &State| match (self.refusing(state, change), answer) {
            (None, Ok(())) => true,
            (
                Some(part),
                Err(AcquireError::Invalid {
                    source: ClaimError::TooHeavy { limit, .. },
                    ..
                }),
            ) => change.weight > part.limit && *limit == part.limit,
            (Some(part), Err(error)) => change.weight <= part.limit && self.names_part(error, part),
            (None, Err(_)) | (Some(_), Ok(())) => false,
        };
        let possible = self.possible.iter().filter(|state| is_right(state));
        self.possible = possible.cloned().collect();
        if self.possible.is_empty() {
            return Err(format!("{change:?}: {answer:?}"));
        }
        if answer.is_ok() {
            self.set_weight(change);
        }
        Ok(())
    }

    /// The first part that refuses the change, if any. A weight above a part's limit is refused first, even if another
    /// part has no room.
    fn refusing(&self, state: &State, change: &Change) -> Option<Part> {
        let parts = &self.specs[change.id].parts[change.parts.clone()];
        let refuses = |part: &&Part| {
            let more = change.weight.saturating_sub(part.weight);
            more > 0 && !state.admits(&self.specs, part, more)
        };
        let exceeded = parts.iter().find(|part| change.weight > part.limit);
        exceeded.or_else(|| parts.iter().find(refuses)).copied()
    }

    /// Changes the weight in the model. Units that become free go to the claims that wait for them.
    fn set_weight(&mut self, change: &Change) {
        let parts = &mut self.specs[change.id].parts[change.parts.clone()];
        let lighter = parts.iter().filter(|part| change.weight < part.weight);
        let lighter = lighter.map(|part| Step::Advance(part.level, part.key));
        let steps: Vec<_> = lighter.collect();
        for part in parts {
            part.weight = change.weight;
        }
        self.apply(&steps, |_| {});
    }

    fn weighs_as_expected(&self, id: Id) -> Outcome {
        let (permit, spec) = (&self.permits[&id], &self.specs[id]);
        let levels = permit.levels().map(Level::weight);
        let expected = spec.parts.iter().map(|part| part.weight);
        match levels.eq(expected) && permit.weight() == spec.parts[0].weight {
            true => Ok(()),
            false => Err(format!("{permit:?} does not weigh as {spec:?}")),
        }
    }
}
