//! Steps that ask for a permit.

use crate::{
    case::{Case, Handle, Outcome},
    model::{Answer, Id, Want},
    op::{Ask, LONG},
    world::{Name, World},
};
use proptest::prelude::*;
use tower_semaphore::{AcquireError, Permit};

impl<W: World> Case<'_, W> {
    pub(crate) async fn acquire(&mut self, ask: Ask) -> Outcome {
        let Ask {
            process,
            key,
            want,
            wait,
        } = ask;
        let id = self.ids.next().expect("numbers do not end");
        let claim = self
            .world
            .claim(key)
            .with_limit(want.limit)
            .with_weight(want.weight);
        let claim = match wait {
            Some((time, longest)) => claim.with_wait(time).with_max_waiting(longest),
            None => claim,
        };
        let held = self.models[key].held();
        let acquire = self.world.store(process).acquire(claim);
        let expected = self.models[key].acquire(id, want, wait.map(|(_, longest)| longest));
        if expected == Answer::Waits && wait.is_some_and(|(time, _)| time == LONG) {
            self.stand(id, key, acquire).await;
            return Ok(());
        }
        match (expected, acquire.await) {
            (Answer::Granted, Ok(permit)) => self.grant(id, key, want, permit).await,
            (Answer::Full, Err(AcquireError::Full { limit, held: told })) => {
                prop_assert_eq!(limit, want.limit);
                // A claim that is heavier than its limit is refused before anybody looks.
                prop_assert!(told == held || want.weight > limit, "not {held}: {told}");
                Ok(())
            }
            (Answer::LineFull, Err(AcquireError::LineFull)) => Ok(()),
            (Answer::Waits, Err(AcquireError::TimedOut)) => {
                self.models[key].end(id);
                Ok(())
            }
            (_, answer) => Err(TestCaseError::fail(format!("not {expected:?}: {answer:?}"))),
        }
    }

    async fn grant(&mut self, id: Id, key: usize, want: Want, permit: Permit) -> Outcome {
        prop_assert_eq!(permit.remaining(), want.limit - self.models[key].held());
        let name = self.world.name(key).await;
        self.hold(id, key, want, name, permit)
    }

    pub(crate) fn hold(
        &mut self,
        id: Id,
        key: usize,
        want: Want,
        name: Name,
        permit: Permit,
    ) -> Outcome {
        prop_assert_eq!(permit.limit(), want.limit);
        let (token, last) = (permit.token(), self.tokens[key]);
        prop_assert!(token > last, "token {token} after {last}");
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
