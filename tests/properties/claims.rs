//! Steps that ask for a permit.

use crate::{
    case::{Case, Handle, Outcome},
    model::{Id, Want},
    world::World,
};
use proptest::prelude::*;
use tower_semaphore::{AcquireError, Permit};

impl<W: World> Case<'_, W> {
    pub(crate) async fn acquire(&mut self, process: usize, key: usize, want: Want) -> Outcome {
        let id = self.ids.next().expect("numbers do not end");
        let claim = self.world.claim(key);
        let claim = claim.with_limit(want.limit).with_weight(want.weight);
        let held = self.models[key].held();
        let granted = self.models[key].acquire(id, want);
        match self.world.store(process).acquire(claim).await {
            Ok(permit) => {
                prop_assert!(granted, "granted, although {held} units are held: {want:?}");
                self.granted(id, key, want, permit).await
            }
            Err(AcquireError::Full { limit, held: told }) => {
                prop_assert!(
                    !granted,
                    "refused, although {held} units are held: {want:?}"
                );
                prop_assert_eq!(limit, want.limit);
                // A claim that is heavier than its limit is refused before anybody looks.
                prop_assert!(told == held || want.weight > limit, "not {held}: {told}");
                Ok(())
            }
            Err(error) => Err(TestCaseError::fail(format!("{error:?}"))),
        }
    }

    async fn granted(&mut self, id: Id, key: usize, want: Want, permit: Permit) -> Outcome {
        prop_assert_eq!(permit.limit(), want.limit);
        prop_assert_eq!(permit.remaining(), want.limit - self.models[key].held());
        let (token, last) = (permit.token(), self.tokens[key]);
        prop_assert!(token > last, "token {token} after {last}");
        self.tokens[key] = token;
        let name = self.world.name(key).await;
        self.handles.push(Handle {
            id,
            key,
            name,
            permit,
        });
        Ok(())
    }
}
