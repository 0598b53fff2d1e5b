//! The driver over a transport in memory: the times of its calls, and the work of its thread.
//!
//! Promises: P6, P9, P11.

use super::{
    driver::{ClaimRefusal, Driver, HeldPermit, StoreHealth, boot_time},
    fake::{Deaths, Fake, settings},
    pairs::{claim_levels, level},
};
use proto::{
    core::{CallFailure, Change, Core, CoreSettings, LevelClaim, LevelWait, THREAD, Time},
    verbs::Answer,
};
use std::{
    env,
    future::poll_fn,
    pin::pin,
    process::Command,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};

const LEASE: Duration = Duration::from_secs(10);

fn driver(fake: &Fake, lease: Duration) -> (Driver<Fake>, Deaths) {
    let deaths = Deaths::default();
    let driver = Driver::start(fake.clone(), settings(lease), deaths.observer());
    (driver, deaths)
}

fn started(lease: Duration) -> (Fake, Driver<Fake>, Deaths) {
    let fake = Fake::new(lease, Duration::ZERO);
    let (driver, deaths) = driver(&fake, lease);
    (fake, driver, deaths)
}

fn limited(name: &str, limit: u32) -> LevelClaim {
    LevelClaim {
        limit,
        ..level(name)
    }
}

fn waiting(name: &str, limit: u32) -> LevelClaim {
    let wait = LevelWait {
        time: Duration::from_secs(20),
        max_waiting: 100,
        head_start: Duration::ZERO,
    };
    LevelClaim {
        wait: Some(wait),
        ..limited(name, limit)
    }
}

/// Waits for a condition, in or outside of a runtime.
fn until(what: &str, mut is_met: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_met() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

async fn acquire(driver: &Driver<Fake>, level: LevelClaim) -> HeldPermit<Fake> {
    claim_levels(driver, vec![level]).await.expect("a permit")
}

/// Polls a future once.
async fn once<R>(mut future: std::pin::Pin<&mut impl Future<Output = R>>) -> Poll<R> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Waits until the driver's thread has ended, so that only `fake` still holds the server.
fn assert_over(fake: &Fake) {
    until("nothing holds the transport", || {
        Arc::strong_count(&fake.0) == 1
    });
}

#[test]
fn a_release_is_sent_within_milliseconds_without_a_runtime() {
    let (fake, driver, _) = started(LEASE);
    let runtime = runtime();
    let held = runtime.block_on(acquire(&driver, limited("a", 1)));
    drop(runtime);
    let since = Instant::now();
    drop(held);
    until("the thread releases", || fake.0.holds("a") == (0, 0));
    assert!(
        since.elapsed() < Duration::from_secs(1),
        "{:?}",
        since.elapsed()
    );
}

/// Usually the drop itself sends the release. If the thread has the lock at that moment, the thread sends it: half of
/// the drops allow for a busy machine.
#[test]
fn the_release_of_a_full_key_is_sent_by_the_drop_itself() {
    let (fake, driver, _) = started(LEASE);
    runtime().block_on(async {
        let mut at_once = 0;
        for _ in 0..100 {
            let held = acquire(&driver, limited("a", 1)).await;
            drop(held);
            at_once += usize::from(fake.0.holds("a") == (0, 0));
            until("it is released", || fake.0.holds("a") == (0, 0));
        }
        assert!(at_once >= 50, "{at_once}");
    });
}

/// A client that sends one request after another leaves its key unused in between, so the store forgets the key.
#[test]
fn a_key_that_was_full_counts_as_full_after_the_store_has_forgotten_it() {
    let (_fake, driver, _) = started(LEASE);
    runtime().block_on(async {
        let first = acquire(&driver, limited("a", 2)).await;
        assert!(!first.is_full());
        let second = acquire(&driver, limited("a", 2)).await;
        assert!(first.is_full() && second.is_full());
        assert!(first.release().await && second.release().await);
        for _ in 0..3 {
            let held = acquire(&driver, limited("a", 2)).await;
            assert!(held.is_full());
            assert!(held.release().await);
        }
        let other = acquire(&driver, limited("b", 2)).await;
        assert!(!other.is_full());
    });
}

#[test]
fn the_release_of_a_key_that_is_not_full_shares_the_call_of_the_next_claim() {
    let (fake, driver, _) = started(LEASE);
    runtime().block_on(async {
        drop(acquire(&driver, limited("a", 9)).await);
        let before = fake.0.calls.load(SeqCst);
        for _ in 0..100 {
            drop(acquire(&driver, limited("a", 9)).await);
        }
        let calls = fake.0.calls.load(SeqCst) - before;
        // Separate calls would be 200, and shared calls are 100.
        assert!(calls < 150, "{calls}");
    });
}

#[test]
fn the_thread_sends_the_release_of_a_runtime_that_stands_still() {
    let (lease, timeout) = (Duration::from_secs(24), Duration::from_secs(8));
    let fake = Fake::new(lease, Duration::ZERO);
    let patient = CoreSettings {
        timeout,
        ..settings(lease)
    };
    let driver = Driver::start(fake.clone(), patient, Deaths::default().observer());
    runtime().block_on(async {
        let held = acquire(&driver, limited("a", 1)).await;
        fake.0.is_stuck.store(true, SeqCst);
        let since = Instant::now();
        drop(held);
        until("it is released", || fake.0.holds("a") == (0, 0));
        let took = since.elapsed();
        // The thread takes over after a quarter of a timeout.
        assert!(took < timeout * 3 / 4, "{took:?}");
    });
}

/// Drops a permit and then the driver, as at the end of a `main`. Returns true if nothing is held then.
async fn end((fake, driver): (&Fake, Driver<Fake>), limit: u32) -> bool {
    let held = acquire(&driver, limited("a", limit)).await;
    fake.0.is_stuck.store(true, SeqCst);
    drop(held);
    drop(driver);
    fake.0.holds("a") == (0, 0)
}

/// Ends twenty drivers, in runtimes with several threads and with one. Returns the number of drivers that have sent
/// their last release.
fn ends_that_sent(limit: u32) -> usize {
    let ends = (0..20).filter(|number| {
        let (fake, driver, _) = started(LEASE);
        let runtime = match number % 2 {
            0 => runtime(),
            _ => {
                let runtime = Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime")
            }
        };
        runtime.block_on(end((&fake, driver), limit))
    });
    ends.count()
}

/// The last drop waits for the thread only for a moment. On a busy machine that may be too short, so one good try of
/// twenty is enough. The limit decides if the key is full, and thus if the release is urgent.
#[test]
fn the_end_of_a_store_outside_of_a_task_sends_pending_releases() {
    for limit in [1, 9] {
        let mut tries = (0..20).map(|_| ends_that_sent(limit));
        // A good try: 15 of its 20 drivers.
        assert!(tries.any(|ends| ends >= 15), "limit {limit}");
    }
}

#[test]
fn the_end_of_a_store_waits_for_a_moment_outside_of_a_task_and_not_at_all_inside() {
    let drop_with_silent_server = async || {
        let (fake, driver, _) = started(LEASE);
        let held = acquire(&driver, limited("a", 9)).await;
        fake.0.is_silent.store(true, SeqCst);
        drop(held);
        let since = Instant::now();
        drop(driver);
        since.elapsed()
    };
    let (runtime, moment) = (runtime(), Duration::from_millis(10));
    let took = runtime.block_on(drop_with_silent_server());
    assert!((moment..moment * 100).contains(&took), "{took:?}");
    let in_tasks = (0..10).map(|_| runtime.block_on(runtime.spawn(drop_with_silent_server())));
    let fastest = in_tasks.map(|took| took.expect("it ends")).min();
    assert!(fastest < Some(moment), "{fastest:?}");
}

/// Claims "b", and drops the claim while its call is in flight.
fn drop_in_flight(fake: &Fake, driver: &Driver<Fake>) {
    fake.0.is_silent.store(true, SeqCst);
    let mut claim = Box::pin(claim_levels(driver, vec![limited("b", 1)]));
    until("its call arrives", || {
        let _ = claim.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        fake.0.holds("b").0 == 1
    });
    drop(claim);
    fake.0.is_silent.store(false, SeqCst);
}

/// The server may run the dropped call until its deadline. The shutdown must not wait for a second deadline.
#[test]
fn a_dropped_call_delays_a_shutdown_by_one_deadline_at_most() {
    let lease = LEASE * 3 / 2;
    let (fake, timeout) = (Fake::new(lease, Duration::ZERO), lease / 3);
    let patient = CoreSettings {
        timeout,
        ..settings(lease)
    };
    let driver = Driver::start(fake.clone(), patient, Deaths::default().observer());
    runtime().block_on(async {
        drop(acquire(&driver, limited("a", 1)).await);
        drop_in_flight(&fake, &driver);
        let since = Instant::now();
        assert!(driver.shutdown(since + 3 * timeout).await.is_empty());
        let took = since.elapsed();
        assert!(took < timeout * 3 / 2, "{took:?}");
    });
}

#[test]
fn a_blocked_runtime_loses_no_permit() {
    let lease = Duration::from_millis(500);
    let (fake, driver, _) = started(lease);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let held = acquire(&driver, limited("a", 1)).await;
        thread::sleep(lease * 4);
        assert!(!held.is_lost());
        assert_eq!(fake.0.lost.load(SeqCst), 0);
    });
}

#[test]
fn an_ended_runtime_loses_no_permit_and_its_claim_continues_in_another_runtime() {
    let lease = Duration::from_millis(500);
    let (fake, driver, _) = started(lease);
    let (one, other) = (runtime(), runtime());
    let held = one.block_on(acquire(&driver, limited("a", 1)));
    let mut claim = Box::pin(claim_levels(&driver, vec![waiting("a", 1)]));
    assert!(one.block_on(once(claim.as_mut())).is_pending());
    drop(one);
    thread::sleep(lease * 3);
    assert!(!held.is_lost());
    drop(held);
    let held = other.block_on(claim).expect("its turn");
    assert_eq!(fake.0.lost.load(SeqCst), 0);
    drop(held);
}

/// Without Tokio's runtime the thread sends the call.
#[test]
fn a_claim_outside_of_any_runtime_is_decided() {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (_, driver, _) = started(LEASE);
    let mut claim = pin!(claim_levels(&driver, vec![limited("a", 1)]));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let held = loop {
        match claim.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(held) => break held,
            Poll::Pending => thread::park_timeout(Duration::from_secs(20)),
        }
    };
    assert!(held.is_ok());
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a foreign waker");
    }
}

#[test]
fn a_waker_that_panics_kills_neither_thread_nor_core() {
    let (fake, driver, deaths) = started(LEASE);
    let runtime = runtime();
    let held = runtime.block_on(acquire(&driver, limited("a", 1)));
    let mut claim = Box::pin(claim_levels(&driver, vec![waiting("a", 1)]));
    let waker = Waker::from(Arc::new(Panics));
    until("it waits", || {
        let _entered = runtime.enter();
        let _ = claim.as_mut().poll(&mut Context::from_waker(&waker));
        fake.0.holds("a") == (1, 1)
    });
    drop(held);
    let granted = runtime.block_on(claim).expect("its turn");
    // The permit that was dropped had token 1.
    assert!(granted.token(0) == 2 && driver.health() == StoreHealth::Well);
    assert_eq!(
        deaths.0.each_ref().map(|deaths| deaths.load(SeqCst)),
        [0, 0]
    );
}

type Job = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task whose waker drops its job, if the keeper's thread calls the waker while `drops_job` is set.
struct Task {
    job: parking_lot::Mutex<Option<Job>>,
    drops_job: AtomicBool,
}

impl Task {
    fn start(job: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        let job = parking_lot::Mutex::new(Some(Box::pin(job) as Job));
        let drops_job = AtomicBool::new(false);
        Arc::new(Self { job, drops_job })
    }

    fn poll(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let mut job = self.job.lock().take();
        let context = &mut Context::from_waker(&waker);
        let polled = job.as_mut().map(|job| job.as_mut().poll(context));
        if polled.is_some_and(|polled| polled.is_pending()) {
            *self.job.lock() = job;
        }
    }

    fn is_gone(&self) -> bool {
        self.job.try_lock().is_some_and(|job| job.is_none())
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.drops_job.load(SeqCst) && thread::current().name() == Some("tower-semaphore") {
            let job = self.job.lock().take();
            drop(job);
        }
    }
}

#[test]
fn a_waker_that_drops_a_lost_permit_does_not_stop_the_thread() {
    let (fake, driver, _) = started(Duration::from_millis(900));
    let runtime = runtime();
    let held = runtime.block_on(acquire(&driver, limited("a", 1)));
    let other = runtime.block_on(acquire(&driver, limited("b", 1)));
    let task = Task::start(async move { held.loss().wait().await });
    task.poll();
    task.drops_job.store(true, SeqCst);
    fake.0.is_silent.store(true, SeqCst);
    until("the other permit is lost", || other.is_lost());
    until("the waker returns", || task.is_gone());
    fake.0.is_silent.store(false, SeqCst);
    until("the other permit comes back", || !other.is_lost());
    until("the first is released", || fake.0.holds("a") == (0, 0));
}

#[test]
fn a_waker_that_drops_a_granted_claim_does_not_stop_the_thread() {
    let (fake, driver, _) = started(LEASE);
    let runtime = runtime();
    let held = runtime.block_on(acquire(&driver, limited("a", 1)));
    let claim = claim_levels(&driver, vec![waiting("a", 1)]);
    let task = Task::start(async move { drop(claim.await) });
    until("it waits", || {
        let _entered = runtime.enter();
        task.poll();
        fake.0.holds("a") == (1, 1)
    });
    task.drops_job.store(true, SeqCst);
    drop(held);
    until("the waker returns", || task.is_gone());
    until("its permit is released", || fake.0.holds("a") == (0, 0));
    drop(driver);
    assert_over(&fake);
}

/// A clock that panics in the keeper's thread, once after each time that `KILLS` is set.
fn deadly_clock() -> Time {
    let is_keeper = thread::current().name() == Some("tower-semaphore");
    let kills = is_keeper && !thread::panicking() && KILLS.swap(false, SeqCst);
    assert!(!kills, "a bug of the driver");
    boot_time()
}

static KILLS: AtomicBool = AtomicBool::new(false);

#[test]
fn a_thread_that_panics_is_restarted_and_loses_no_permit() {
    let lease = Duration::from_millis(900);
    let (fake, deaths) = (Fake::new(lease, Duration::ZERO), Deaths::default());
    let observer = Box::new(deaths.observer());
    let driver = Driver::new(fake.clone(), settings(lease), (observer, deadly_clock));
    runtime().block_on(async {
        let mut all = Vec::new();
        for _ in 0..1_000 {
            all.push(acquire(&driver, limited("a", 2_000)).await);
        }
        for death in 1..=5 {
            // A panic while a call is handled ends only the call, so `KILLS` is set again until the thread dies.
            until("it dies", || {
                let is_dead = deaths.0[0].load(SeqCst) >= death;
                KILLS.store(!is_dead, SeqCst);
                is_dead
            });
            until("another one runs", || driver.health() == StoreHealth::Well);
        }
        // Three refreshes of each of the 1,000 permits.
        let refreshed = fake.0.refreshes.load(SeqCst);
        until("all are refreshed", || {
            fake.0.refreshes.load(SeqCst) >= refreshed + 3_000
        });
        assert!(all.iter().all(|held| !held.is_lost()));
        assert_eq!(fake.0.lost.load(SeqCst), 0);
        // The runtime and the first thread have one connection each, and each restarted thread opens one. A second copy
        // of the thread would open another.
        let deaths = deaths.0[0].load(SeqCst);
        assert!(fake.0.connects.load(SeqCst) <= 2 + deaths);
        all.clear();
        until("all are released", || fake.0.holds("a") == (0, 0));
    });
    drop(driver);
    assert_over(&fake);
}

#[test]
fn a_panic_in_the_core_closes_the_store_and_permits_are_lost_at_the_ends_of_their_leases() {
    let lease = Duration::from_millis(800);
    let (fake, driver, deaths) = started(lease);
    runtime().block_on(async {
        let held = acquire(&driver, limited("a", 1)).await;
        let waiter = claim_levels(&driver, vec![waiting("a", 1)]);
        let waiter = tokio::spawn(waiter);
        until("it waits", || fake.0.holds("a") == (1, 1));
        // A claim without levels makes the core panic.
        assert_eq!(
            claim_levels(&driver, Vec::new()).await.err(),
            Some(ClaimRefusal::CorePanicked)
        );
        assert_eq!(
            waiter.await.expect("no panic").err(),
            Some(ClaimRefusal::CorePanicked)
        );
        assert_eq!(
            claim_levels(&driver, vec![level("b")]).await.err(),
            Some(ClaimRefusal::CorePanicked)
        );
        assert_eq!(driver.health(), StoreHealth::Closed);
        assert_eq!(
            deaths.0.each_ref().map(|deaths| deaths.load(SeqCst)),
            [0, 1]
        );
        assert!(!held.is_lost());
        tokio::time::timeout(lease * 2, held.loss().wait())
            .await
            .expect("its end");
        assert!(held.is_lost() && !held.release().await);
    });
    drop(driver);
    assert_over(&fake);
}

/// During this time another task claims and releases.
#[test]
fn ten_thousand_permits_are_held_for_several_leases() {
    let lease = Duration::from_secs(4);
    let (fake, driver, _) = started(lease);
    runtime().block_on(async {
        let mut all = Vec::new();
        for number in 0..10_000 {
            all.push(acquire(&driver, limited(&format!("k{}", number % 500), 99)).await);
        }
        let others = tokio::spawn({
            let driver = driver.clone();
            async move {
                loop {
                    drop(acquire(&driver, limited("other", 99)).await);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
        let since = Instant::now();
        while since.elapsed() < lease * 3 {
            assert!(all.iter().all(|held| !held.is_lost()));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        others.abort();
        assert_eq!(fake.0.lost.load(SeqCst), 0);
        drop(all);
        until("all are released", || {
            (0..500).all(|key| fake.0.holds(&format!("k{key}")).0 == 0)
        });
    });
}

/// Both the thread's connection and the runtime's stop answering.
#[test]
fn connections_that_stop_answering_are_replaced_before_a_claim_fails() {
    let (fake, driver, _) = started(LEASE);
    runtime().block_on(async {
        let held = acquire(&driver, limited("a", 2)).await;
        until("the runtime has a connection", || {
            fake.0.connects.load(SeqCst) == 2
        });
        drop(acquire(&driver, limited("a", 2)).await);
        fake.0.mute.store(2, SeqCst);
        drop(acquire(&driver, limited("a", 2)).await);
        assert!(!held.is_lost());
        until("both are replaced", || fake.0.connects.load(SeqCst) == 4);
        let refreshed = fake.0.refreshes.load(SeqCst);
        until("the thread refreshes", || {
            fake.0.refreshes.load(SeqCst) > refreshed
        });
        assert_eq!(fake.0.connects.load(SeqCst), 4);
    });
}

/// Breaks the connections of a driver that has 40,000 releases to send. Returns the number of calls that failed until
/// the driver connected again, and the number of new connections.
fn count_calls_that_fail_at_once() -> (usize, usize) {
    let (fake, driver, deaths) = started(LEASE);
    let counts = runtime().block_on(async {
        let mut all = Vec::new();
        for number in 0..40_000 {
            all.push(acquire(&driver, limited(&format!("k{number}"), 1)).await);
        }
        // The releases wait behind calls without an answer.
        fake.0.is_silent.store(true, SeqCst);
        drop(all);
        fake.0.is_silent.store(false, SeqCst);
        let (calls, connects) = (fake.0.calls.load(SeqCst), fake.0.connects.load(SeqCst));
        fake.0.is_gone.store(true, SeqCst);
        until("it connects again", || {
            fake.0.connects.load(SeqCst) > connects
        });
        fake.0.is_gone.store(false, SeqCst);
        let failed = fake.0.calls.load(SeqCst) - calls;
        let reconnects = fake.0.connects.load(SeqCst) - connects;
        until("all are released", || {
            (0..40_000).all(|key| fake.0.holds(&format!("k{key}")).0 == 0)
        });
        (failed, reconnects)
    });
    assert_eq!(deaths.0.each_ref().map(|died| died.load(SeqCst)), [0, 0]);
    counts
}

/// Each failed call is followed at once by the next one, so the thread must yield to the task that notices the broken
/// connection. Otherwise all releases, about 80 calls, fail first; half of them is the bound for each connection. On a
/// busy machine only some rounds succeed.
#[test]
fn calls_that_fail_at_once_let_the_thread_notice_that_the_connection_is_broken() {
    let mut rounds = Vec::new();
    while rounds.len() < 8 {
        let (failed, reconnects) = count_calls_that_fail_at_once();
        rounds.push((failed, reconnects));
        if failed < 40 * reconnects {
            return;
        }
    }
    panic!("failed calls, new connections: {rounds:?}");
}

#[test]
fn drops_and_claims_from_many_threads_leave_nothing() {
    let (fake, driver, _) = started(LEASE);
    let (send, receive) = mpsc::channel::<HeldPermit<Fake>>();
    let dropper = thread::spawn(move || receive.into_iter().for_each(drop));
    let ends = Arc::new(AtomicBool::new(false));
    let runtimes = [runtime(), runtime(), runtime()];
    let tasks = runtimes
        .iter()
        .flat_map(|runtime| (0..8).map(move |_| runtime))
        .map(|runtime| {
            let (driver, ends, send) = (driver.clone(), Arc::clone(&ends), send.clone());
            runtime.spawn(async move {
                let mut made = 0;
                while !ends.load(Relaxed) {
                    let claim = claim_levels(&driver, vec![waiting("a", 3)]);
                    // A timeout of 0, 1 or 2 ms drops some claims while they wait.
                    match tokio::time::timeout(Duration::from_millis(made % 3), claim).await {
                        Ok(held) => send
                            .send(held.expect("it waits long enough"))
                            .expect("a dropper"),
                        Err(_) => tokio::task::yield_now().await,
                    }
                    made += 1;
                }
            })
        });
    let tasks: Vec<_> = tasks.collect();
    thread::sleep(Duration::from_secs(3));
    ends.store(true, Relaxed);
    for task in tasks {
        runtimes[0].block_on(task).expect("no panic");
    }
    drop((send, runtimes));
    dropper.join().expect("no panic");
    until("nothing is left", || fake.0.holds("a") == (0, 0));
    drop(driver);
    assert_over(&fake);
}

/// The task that sends a call may notice the deadline before the thread does. It then abandons the call, which counts
/// as a timeout all the same. In the simulation no sender has a timer.
#[test]
fn a_silent_server_is_an_outage_although_each_call_is_abandoned_first() {
    let settings = settings(LEASE);
    let timeout = settings.timeout;
    let mut core = Core::new(settings);
    let mut now = Duration::from_secs(1_000);
    core.handle_servers(now, Change::Connected(THREAD, 0));
    // The first call is answered, and three are abandoned.
    for round in 0..4 {
        core.handle_timeout(now);
        let call = core.poll_call(now, THREAD).expect("it announces itself");
        let reply = match round {
            0 => Ok(vec![
                Answer::Presence(1_000_000, Some(1), Some(1), None);
                call.commands.len()
            ]),
            _ => Err(CallFailure::Abandoned),
        };
        now = if round == 0 { now } else { now + timeout };
        core.handle_reply(now, call.id, reply);
        now = core
            .poll_timeout()
            .expect("it announces itself again")
            .max(now);
    }
    assert!(core.is_in_outage(0));
}

/// The name of the next test, and the beginning of the line that it prints.
const CLOCK: (&str, &str) = (
    "redis::facts::time_for_which_the_machine_was_suspended_counts",
    "booted before ",
);

/// The time since the boot includes suspensions. If the system permits a time namespace, it adds an hour to that time,
/// like a suspension of an hour.
#[cfg(target_os = "linux")]
#[test]
fn time_for_which_the_machine_was_suspended_counts() {
    let own = boot_time().as_secs();
    println!("{}{own}", CLOCK.1);
    if env::var_os("SUSPENDED").is_some() {
        return;
    }
    let suspended = ["-r", "-T", "--boottime", "3600", "--fork", "--"];
    let child = Command::new("unshare")
        .args(suspended)
        .arg(env::current_exe().expect("it runs"))
        .args([CLOCK.0, "--exact", "--nocapture"])
        .env("SUSPENDED", "1")
        .output();
    let output = child.map(|child| String::from_utf8_lossy(&child.stdout).into_owned());
    let output = output.unwrap_or_default();
    let Some((_, rest)) = output.split_once(CLOCK.1) else {
        return eprintln!("no time namespace can be made here");
    };
    let seconds = rest.split_whitespace().next();
    let then: u64 = seconds
        .and_then(|text| text.parse().ok())
        .expect("it is a number");
    assert!((3_600..3_700).contains(&(then - own)), "{own}, then {then}");
}
