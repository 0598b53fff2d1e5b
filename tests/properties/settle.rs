//! What happens in a scene, and what has to come of it.

use crate::{
    actor::{Actor, Lack},
    case::Outcome,
    model::Id,
    op::LONG,
    scene::Fate,
    server::Redis,
    stage::{Place, Stage},
    waiter::Waiter,
    world::{Name, World},
};
use proptest::prelude::*;
use std::{mem, time::Duration};
use tower_semaphore::Claim;

/// Shorter than a beat.
const BRIEF: Duration = Duration::from_millis(400);

impl Stage {
    fn claim(&self, world: &Redis, weight: u32) -> Claim {
        let claim = world.claim(self.key).with_limit(self.limit);
        claim.with_weight(weight)
    }

    /// Whether a claim was granted that does not wait.
    pub(crate) async fn try_one(&mut self, world: &mut Redis, process: usize, weight: u32) -> bool {
        let claim = self.claim(world, weight);
        let Ok(permit) = world.store(process).acquire(claim).await else {
            return false;
        };
        let name = world.name(self.key).await;
        self.actors.push(Actor::new(name, weight, permit));
        true
    }

    /// A claim that waits, unless it is granted.
    pub(crate) async fn wait(&mut self, world: &mut Redis, id: Id, (weight, brief): (u32, bool)) {
        let weight = weight.min(self.limit);
        let wait = if brief { BRIEF } else { LONG };
        let claim = self.claim(world, weight).with_wait(wait);
        let acquire = world.store(1).acquire(claim);
        let waiter = Waiter::stand(world, id, self.key, acquire).await;
        self.line.push(Place {
            waiter,
            weight,
            brief,
        });
    }

    /// The holders meet their fates.
    pub(crate) async fn meet(&mut self, world: &mut Redis, fates: Vec<(u32, Fate)>) {
        for (actor, (_, fate)) in self.actors.iter_mut().zip(&fates) {
            match *fate {
                Fate::Kept => {}
                Fate::Lost { listed } => {
                    actor.lost = true;
                    world.strike(self.key, &actor.name, listed).await;
                }
                Fate::Gone => world.strike(self.key, &actor.name, false).await,
            }
        }
        let mut fates = fates.into_iter().map(|(_, fate)| fate);
        self.actors.retain(|_| fates.next() != Some(Fate::Gone));
    }

    /// Whether all who kept their leases were refreshed, all who waited are granted as far as
    /// there is room, and then all who lost their leases are back as far as there is more.
    pub(crate) async fn is_settled(&mut self, world: &mut Redis) -> Result<Lack, TestCaseError> {
        let units = world.units(self.key).await;
        let (held, line) = world.look(self.key).await;
        prop_assert!(held <= self.limit, "{held} units of {}", self.limit);
        self.admit(&line).await?;
        let back = self.actors.iter().find(|actor| actor.is_back(&units));
        prop_assert!(
            line.is_empty() || back.is_none(),
            "somebody came back past the line"
        );

        let room = self.limit - held;
        if self.line.first().is_some_and(|head| head.weight <= room) {
            return Ok(Err("the head of the line is not granted, with room for it"));
        }
        if self.line.iter().any(|place| place.brief) {
            return Ok(Err("a short wait is not over"));
        }
        let room = if line.is_empty() { room } else { 0 };
        let lack = |actor: &Actor| actor.lacks(&units, room, self.end);
        Ok(self.actors.iter().try_for_each(lack))
    }

    /// Those who have left the line hold their permits, or their wait was short.
    async fn admit(&mut self, line: &[Name]) -> Outcome {
        for place in mem::take(&mut self.line) {
            if line.contains(&place.waiter.name) {
                self.line.push(place);
                continue;
            }
            let name = place.waiter.name.clone();
            let answer = place.waiter.answer().await?;
            let Some(permit) = answer else {
                prop_assert!(place.brief, "a long wait is over");
                continue;
            };
            prop_assert!(self.line.is_empty(), "granted past one who came before");
            self.actors.push(Actor::new(name, place.weight, permit));
        }
        let names = self.line.iter().map(|place| &place.waiter.name);
        prop_assert!(
            names.eq(line),
            "the line is not in the order in which they came"
        );
        Ok(())
    }
}
