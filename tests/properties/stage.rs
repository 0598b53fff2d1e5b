//! Plays scenes: permits lose their leases while their holders still run.

use crate::{
    actor::{Actor, Lack},
    case::{BOUND, Outcome},
    scene::Scene,
    server::Redis,
    waiter::Waiter,
    world::World,
};
use proptest::prelude::*;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A scene that has begun.
pub(crate) struct Stage {
    pub(crate) key: usize,
    pub(crate) limit: u32,
    pub(crate) actors: Vec<Actor>,
    /// Those who wait, as they came.
    pub(crate) line: Vec<Place>,
    /// The last end of a lease.
    pub(crate) end: f64,
}

/// One who waits.
pub(crate) struct Place {
    pub(crate) waiter: Waiter,
    pub(crate) weight: u32,
    pub(crate) brief: bool,
}

/// Plays the scenes to their end.
pub(crate) async fn play(world: &mut Redis, scenes: Vec<Scene>) -> Outcome {
    let mut stages = Vec::new();
    for (key, scene) in scenes.into_iter().enumerate() {
        stages.push(Stage::begin(world, key, scene).await);
    }
    let keys = stages.len();
    for stage in &mut stages {
        until(async || stage.is_settled(world).await).await?;
    }
    drop(stages);
    until(async || {
        let mut left = 0;
        for key in 0..keys {
            let (held, line) = world.look(key).await;
            left += held as usize + line.len();
        }
        Ok((left == 0)
            .then_some(())
            .ok_or("something is left when all are done"))
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
            line: Vec::new(),
            end: 0.0,
        };
        for (weight, _) in &scene.holders {
            assert!(stage.try_one(world, 0, *weight).await, "there is room");
        }
        for (id, waiter) in scene.waiters.into_iter().enumerate() {
            stage.wait(world, id, waiter).await;
        }
        stage.meet(world, scene.holders).await;
        for weight in scene.rivals {
            stage.try_one(world, 1, weight).await;
        }
        let units = world.units(key).await;
        stage.end = units.iter().map(|(_, end)| *end).fold(0.0, f64::max);
        stage
    }
}
