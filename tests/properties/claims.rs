//! Steps that ask for a permit.

use crate::{
    case::{Case, Handle, Outcome},
    model::{Answer, Id, Want},
    op::{Ask, BRIEF, LONG},
    waiter::Waiter,
    world::{Name, World},
};
use proptest::prelude::*;
use tower_semaphore::{AcquireError, Permit, semaphore::ClaimError};

impl<W: World> Case<'_, W> {
    pub(crate) async fn acquire(&mut self, ask: Ask) -> Outcome {
        let id = self.ids.next().expect("numbers do not end");
        let longest = ask.wait.map(|wait| wait.longest);
        let expected = self.models[ask.key].acquire(id, ask.want, longest);
        // A short wait may be over before the store has answered, and then nothing is sure.
        let brief = expected == Answer::Waits && ask.wait.is_some_and(|wait| wait.brief);
        let claim = ask.of(self.world.claim(ask.key), if brief { BRIEF } else { LONG });
        let acquire = self.world.store(ask.process).acquire(claim);
        if expected == Answer::Waits && !brief {
            let waiter = Waiter::stand(self.world, id, ask.key, acquire).await;
            self.waiters.push(waiter);
            return Ok(());
        }
        let told = acquire.await;
        self.compare(id, ask, expected, told).await
    }

    async fn compare(
        &mut self,
        id: Id,
        Ask { key, want, .. }: Ask,
        expected: Answer,
        told: Result<Permit, AcquireError>,
    ) -> Outcome {
        let model = &mut self.models[key];
        match (expected, told) {
            (Answer::Granted, Ok(permit)) => return self.grant(id, key, want, permit).await,
            (Answer::Full, Err(AcquireError::Full { limit, held, .. })) => {
                prop_assert_eq!(limit, want.limit);
                // A limit of 0 is refused without a look at what is held.
                prop_assert!(held == model.held() || limit == 0, "held: {held}");
            }
            (
                Answer::TooHeavy,
                Err(AcquireError::Invalid(ClaimError::TooHeavy { weight, limit })),
            ) => prop_assert_eq!((weight, limit), (want.weight, want.limit)),
            (Answer::QueueFull, Err(AcquireError::QueueFull)) => {}
            (Answer::Waits, Err(AcquireError::TimedOut)) => drop(model.end(id)),
            (_, told) => prop_assert!(false, "{want:?} is not {expected:?}: {told:?}"),
        }
        Ok(())
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
