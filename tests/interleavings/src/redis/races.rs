//! Races of a claim with its grant, its drop, and the end of the driver.
//!
//! Promises: P9, P11, P14.

use super::{
    carry::{Carrier, Link},
    claim::{Driver, HeldPermit},
    shared::Shared,
    transport::{Messages, ServerConnection, Transport},
};
use crate::{
    explore::{block_on, explore_most, join, poll},
    semaphore::Policy,
};
use loom::thread;
use proto::{
    core::{CallFailure, CoreSettings, LevelClaim, PermitId, RuntimeId, THREAD, Time},
    verbs::{Acquired, Answer, Command, OperatorLimits},
};
use std::{
    future::{pending, poll_fn},
    iter,
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::runtime::Handle;

/// A transport that never answers. The scenarios answer calls themselves.
struct Silent;

impl Transport for Silent {
    type Connection = Self;

    async fn connect(&self, _: usize, _: Option<Messages>) -> Option<Self> {
        pending().await
    }
}

impl ServerConnection for Silent {
    async fn call(&self, _: Vec<Command>, _: Duration) -> Result<Vec<Answer>, CallFailure> {
        pending().await
    }

    async fn closed(&self) {}
}

/// A clock that stands still.
fn clock() -> Time {
    Time::from_secs(1)
}

/// A connected driver. The scenario plays the driver's thread.
struct World {
    driver: Driver<Silent>,
    shared: Arc<Shared<Silent>>,
    _links: [Link<Silent>; 2],
}

/// The runtime of the scenario's threads.
const OWN: RuntimeId = RuntimeId(1);

impl World {
    fn new() -> Self {
        let settings = CoreSettings {
            lease: Duration::from_secs(10),
            timeout: Duration::from_millis(250),
            claims: true,
            ..CoreSettings::default()
        };
        // The observer, `drop`, ignores all news.
        let driver = Driver::new(Silent, settings, (Box::new(drop), clock));
        let shared = Arc::clone(&driver.0.0);
        shared.change(|rest| {
            rest.keeper.runs = true;
            assert_eq!(rest.runtimes.enter(here()), OWN);
            assert!(
                [THREAD, OWN].map(|own| rest.runtimes.begin_connecting(clock(), own, 0))
                    == [true; 2]
            );
        });
        let links = [THREAD, OWN].map(|runtime| Link::new(&shared, runtime, 0));
        let connection = Arc::new(Silent);
        let [first, none] = links.each_ref().map(|link| link.connected(&connection));
        assert!(first.len() == 1 && none.is_empty());
        // The thread's first call asks for the server's clock.
        for carrier in first {
            answer(Some(carrier));
        }
        assert!(carriers(&shared).is_empty());
        Self {
            driver,
            shared,
            _links: links,
        }
    }

    /// Begins a claim. Returns its permit, which is not granted yet, and the call to send.
    fn claim(&self) -> (HeldPermit<Silent>, Option<Carrier<Silent>>) {
        claim(&self.driver)
    }

    fn held(&self) -> HeldPermit<Silent> {
        let (held, carrier) = self.claim();
        answer(carrier);
        held
    }

    /// Returns true if the driver still has the permit.
    fn knows(&self, id: PermitId) -> bool {
        self.shared.change(|rest| rest.cells.get(id).is_some())
    }
}

fn here() -> Option<tokio::runtime::Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

fn claim(driver: &Driver<Silent>) -> (HeldPermit<Silent>, Option<Carrier<Silent>>) {
    let level = LevelClaim {
        name: "a".into(),
        slot: 0,
        limit: 9,
        weight: 1,
        charge: None,
        wait: None,
        is_strict: false,
        label: None,
        flow: None,
    };
    let claimed = driver
        .clone()
        .claim(here(), (&[level], vec![Policy::DEFAULT]));
    claimed.unwrap_or_else(|_| panic!("the store is open"))
}

/// The calls that the driver's thread would send now.
fn carriers(shared: &Arc<Shared<Silent>>) -> Vec<Carrier<Silent>> {
    let calls = iter::from_fn(|| shared.run_keeper_step().call);
    calls.map(|call| Carrier::new(shared, call)).collect()
}

/// The time on the server's clock, in milliseconds, in all answers.
const SERVER_NOW: u64 = 1_000_000;

/// Answers a call: grants its claims with token 1 as the only unit held, and confirms its other commands.
fn answer(carrier: Option<Carrier<Silent>>) {
    let mut carrier = carrier.expect("a call that is sent at once");
    let commands = carrier.commands();
    let answers = commands.iter().map(|command| match command {
        Command::Acquire { claims, .. } => {
            let each = claims.iter().map(|_| Acquired::Granted(vec![(1, 1)]));
            Answer::Acquired(SERVER_NOW, each.collect())
        }
        Command::Release { .. } | Command::Leave | Command::Asking => Answer::Done,
        Command::Refresh { groups, .. } => Answer::Held(vec![true; groups.len()]),
        Command::Presence(_) => Answer::Presence(
            SERVER_NOW,
            Some(0),
            Some(1),
            Some(OperatorLimits::default()),
        ),
        Command::Confirm { replicas, .. } => Answer::Replicas(*replicas),
    });
    let answers = answers.collect();
    assert!(carrier.report(Ok(answers)).is_empty());
}

/// Waits for the outcome of a claim. Returns true if it is a grant.
async fn is_granted(held: &HeldPermit<Silent>) -> bool {
    poll_fn(|cx| held.cell.poll_outcome(cx)).await.is_ok()
}

/// Returns true if the driver's thread was woken since the last check.
fn was_woken(shared: &Shared<Silent>) -> bool {
    poll(&mut pin!(shared.bell.notified())).is_ready()
}

#[test]
fn a_drop_takes_effect_while_another_thread_holds_the_lock() {
    explore_most(|| {
        let world = World::new();
        let held = world.held();
        let id = held.id;
        let other = thread::spawn(move || drop(held));
        let claimed = world.claim();
        other.join().expect("no assertion has failed");
        assert!(!world.knows(id));
        drop(claimed);
    });
}

#[test]
fn two_drops_and_a_claim_leave_nothing_in_the_inbox() {
    explore_most(|| {
        let world = World::new();
        let all = [world.held(), world.held()];
        let ids = all.each_ref().map(|held| held.id);
        let others = all.map(|held| thread::spawn(move || drop(held)));
        let claimed = world.claim();
        join(others);
        assert!(ids.iter().all(|id| !world.knows(*id)));
        drop(claimed);
    });
}

#[test]
fn a_grant_that_arrives_while_its_waker_is_registered_is_seen() {
    explore_most(|| {
        let world = World::new();
        let (held, carrier) = world.claim();
        let other = thread::spawn(move || answer(carrier));
        assert!(block_on(is_granted(&held)));
        assert!(!held.is_lost() && held.token(0) == 1);
        other.join().expect("no assertion has failed");
    });
}

/// Another claim is made and dropped beside that.
#[test]
fn a_claim_whose_carrier_is_dropped_is_sent_by_the_thread() {
    explore_most(|| {
        let world = World::new();
        let (held, carrier) = world.claim();
        let others = [
            thread::spawn(move || drop(carrier)),
            thread::spawn({
                let driver = world.driver.clone();
                move || drop(claim(&driver))
            }),
        ];
        join(others);
        for carrier in carriers(&world.shared) {
            answer(Some(carrier));
        }
        assert!(block_on(is_granted(&held)));
    });
}

#[test]
fn a_claim_that_is_dropped_while_it_is_granted_is_released() {
    explore_most(|| {
        let world = World::new();
        let (held, carrier) = world.claim();
        let id = held.id;
        let other = thread::spawn(move || drop(held));
        answer(carrier);
        other.join().expect("no assertion has failed");
        assert!(!world.knows(id));
        // The thread is woken to send the release.
        assert!(was_woken(&world.shared));
    });
}

/// The last permit and the last handle are dropped while the thread sleeps or is about to sleep. It must be woken, or
/// wake soon.
#[test]
fn the_thread_wakes_after_the_last_drops() {
    explore_most(|| {
        let world = World::new();
        let (shared, held) = (Arc::clone(&world.shared), world.held());
        // The claim has woken the thread. It has nothing to do, and is idle afterwards.
        assert!(was_woken(&shared) && carriers(&shared).is_empty());
        assert!(carriers(&shared).is_empty() && !was_woken(&shared));
        let World { driver, _links, .. } = world;
        let other = thread::spawn(move || {
            drop(driver);
            drop(held);
        });
        let early = shared.run_keeper_step();
        assert!(!early.is_over);
        other.join().expect("no assertion has failed");
        assert!(
            was_woken(&shared) || !early.sleep.is_zero() && early.sleep < Duration::from_secs(1)
        );
        if let Some(call) = early.call {
            answer(Some(Carrier::new(&shared, call)));
        }
        drop(_links);
        drop(shared);
    });
}

/// The thread checks if it may end, while a claim is made and dropped together with the last handle.
#[test]
fn the_thread_does_not_end_while_a_claim_needs_a_release() {
    explore_most(|| {
        let World {
            driver,
            shared,
            _links,
        } = World::new();
        let other = thread::spawn(move || {
            let claimed = claim(&driver);
            drop(driver);
            claimed.1.is_some()
        });
        let early = shared.run_keeper_step().is_over;
        assert!(other.join().expect("no assertion has failed"));
        let is_late = shared.run_keeper_step().is_over;
        // The claim's call exists, so its release is still owed.
        assert!(!early && !is_late);
        drop(_links);
    });
}
