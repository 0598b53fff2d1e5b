//! Plays scenes: permits lose their leases while their holders still run.

use crate::{
    actor::{Actor, Lack},
    case::Outcome,
    scene::{Fate, Scene},
    server::Redis,
    world::World,
};
use proptest::prelude::*;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Many beats.
const BOUND: Duration = Duration::from_secs(10);

/// A scene that has begun.
struct Stage {
    key: usize,
    limit: u32,
    actors: Vec<Actor>,
    /// The last end of a lease.
    end: f64,
}

/// Plays the scenes to their end.
pub(crate) async fn play(world: &mut Redis, scenes: Vec<Scene>) -> Outcome {
    let mut stages = Vec::new();
    for (key, scene) in scenes.into_iter().enumerate() {
        stages.push(Stage::begin(world, key, scene).await);
    }
    let keys = stages.len();
    for stage in &stages {
        until(async || stage.is_settled(world).await).await?;
    }
    drop(stages);
    until(async || {
        let mut held = 0;
        for key in 0..keys {
            held += world.held(key).await;
        }
        Ok((held == 0)
            .then_some(())
            .ok_or("some are left when all are done"))
    })
    .await
}

/// Waits for a condition that says what it lacks; an error ends the wait at once.
async fn until(mut condition: impl AsyncFnMut() -> Result<Lack, TestCaseError>) -> Outcome {
    let start = Instant::now();
    loop {
        let late = start.elapsed() > BOUND;
        match condition().await? {
            Ok(()) => return Ok(()),
            Err(lack) => prop_assert!(!late, "not within {BOUND:?}: {lack}"),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

impl Stage {
    async fn begin(world: &mut Redis, key: usize, scene: Scene) -> Self {
        let taken: u32 = scene.holders.iter().map(|(weight, _)| weight).sum();
        let mut stage = Self {
            key,
            limit: taken + scene.spare,
            actors: Vec::new(),
            end: 0.0,
        };
        let mut fates = Vec::new();
        for (weight, fate) in scene.holders {
            assert!(stage.claim(world, 0, weight).await, "there is room");
            fates.push(fate);
        }
        stage.meet(world, &fates).await;
        for weight in scene.rivals {
            stage.claim(world, 1, weight).await;
        }
        let units = world.units(key).await;
        stage.end = units.iter().map(|(_, end)| *end).fold(0.0, f64::max);
        stage
    }

    /// Whether it was granted.
    async fn claim(&mut self, world: &mut Redis, process: usize, weight: u32) -> bool {
        let claim = world.claim(self.key).with_limit(self.limit);
        let Ok(permit) = world
            .store(process)
            .acquire(claim.with_weight(weight))
            .await
        else {
            return false;
        };
        let name = world.name(self.key).await;
        self.actors.push(Actor::new(name, weight, permit));
        true
    }

    /// The holders meet their fates.
    async fn meet(&mut self, world: &mut Redis, fates: &[Fate]) {
        for (actor, fate) in self.actors.iter_mut().zip(fates) {
            match *fate {
                Fate::Kept => {}
                Fate::Lost { listed } => {
                    actor.lost = true;
                    world.strike(self.key, &actor.name, listed).await;
                }
                Fate::Gone => world.strike(self.key, &actor.name, false).await,
            }
        }
        let mut fates = fates.iter();
        self.actors.retain(|_| fates.next() != Some(&Fate::Gone));
    }

    /// Whether all who kept their leases were refreshed, and all who lost them are back as far as
    /// there is room. Over the limit there is never anybody.
    async fn is_settled(&self, world: &mut Redis) -> Result<Lack, TestCaseError> {
        let units = world.units(self.key).await;
        let held = world.held(self.key).await;
        prop_assert!(held <= self.limit, "{held} units of {}", self.limit);
        let room = self.limit - held;
        let lack = self
            .actors
            .iter()
            .map(|actor| actor.lacks(&units, room, self.end));
        Ok(lack.collect())
    }
}
