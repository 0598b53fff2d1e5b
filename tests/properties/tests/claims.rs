//! Steps that acquire a permit.

use crate::{
    case::{Case, Handle, Outcome},
    driver::{Driver, Name},
    model::{Answer, Id, Units},
    op::{ClaimSpec, LONG_WAIT, SHORT_WAIT},
    waiter::Waiter,
};
use proptest::prelude::*;
use tower_semaphore::{AcquireError, Permit, semaphore::ClaimError};

impl<W: Driver> Case<'_, W> {
    pub(crate) async fn acquire(&mut self, spec: ClaimSpec) -> Outcome {
        let id = self.ids.next().expect("the range has no end");
        let max_waiting = spec.wait.map(|wait| wait.max_waiting);
        let expected = self.models[spec.key].acquire(id, spec.units, max_waiting);
        // A short wait may time out before the store has answered, whatever the answer would be.
        let is_short = expected == Answer::Waits && spec.wait.is_some_and(|wait| wait.is_short);
        let claim = spec.of(
            self.driver.claim(spec.key),
            if is_short { SHORT_WAIT } else { LONG_WAIT },
        );
        let acquire = self.driver.store(spec.process).acquire(claim);
        if expected == Answer::Waits && !is_short {
            let waiter = Waiter::enqueue(self.driver, id, spec.key, acquire).await;
            self.waiters.push(waiter);
            return Ok(());
        }
        let answer = acquire.await;
        self.compare(id, spec, expected, answer).await
    }

    async fn compare(
        &mut self,
        id: Id,
        ClaimSpec { key, units, .. }: ClaimSpec,
        expected: Answer,
        answer: Result<Permit, AcquireError>,
    ) -> Outcome {
        let model = &mut self.models[key];
        match (expected, answer) {
            (Answer::Granted, Ok(permit)) => return self.grant(id, key, units, permit).await,
            (Answer::Full, Err(AcquireError::Full { limit, held, .. })) => {
                prop_assert_eq!(limit, units.limit);
                // A limit of 0 is refused without counting the units held.
                prop_assert!(held == model.held() || limit == 0, "held: {held}");
            }
            (
                Answer::TooHeavy,
                Err(AcquireError::Invalid {
                    source: ClaimError::TooHeavy { weight, limit, .. },
                    ..
                }),
            ) => prop_assert_eq!((weight, limit), (units.weight, units.limit)),
            (Answer::QueueFull, Err(AcquireError::QueueFull)) => {}
            (Answer::Waits, Err(AcquireError::TimedOut)) => drop(model.end(id)),
            (_, answer) => prop_assert!(false, "{units:?} is not {expected:?}: {answer:?}"),
        }
        Ok(())
    }

    async fn grant(&mut self, id: Id, key: usize, units: Units, permit: Permit) -> Outcome {
        prop_assert_eq!(permit.remaining(), units.limit - self.models[key].held());
        let name = self.driver.name(key).await;
        self.hold(id, key, units, name, permit)
    }

    pub(crate) fn hold(
        &mut self,
        id: Id,
        key: usize,
        units: Units,
        name: Name,
        permit: Permit,
    ) -> Outcome {
        prop_assert_eq!(permit.limit(), units.limit);
        let (token, last) = (permit.token(), self.tokens[key]);
        prop_assert!(token > last, "token {token:?} after {last:?}");
        self.tokens[key] = token;
        self.handles.push(Handle {
            id,
            key,
            name,
            permit,
        });
        Ok(())
    }
}
