//! Measures the driver's speed over a fake server.

use super::{
    driver::{ClaimRefusal, Driver, HeldPermit},
    fake::{Deaths, Fake, settings},
};
use crate::{semaphore::Policy, sync};
use proto::core::LevelClaim;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The time of one measurement, after a quarter of it to warm up.
const TIME: Duration = Duration::from_secs(2);

/// Claims these levels, all under the default policy.
pub(super) fn claim_levels(
    driver: &Driver<Fake>,
    levels: Vec<LevelClaim>,
) -> impl Future<Output = Result<HeldPermit<Fake>, ClaimRefusal>> + Send + 'static {
    let policies = vec![Policy::DEFAULT; levels.len()];
    driver.clone().acquire((levels, policies), |_| ())
}

/// Measures pairs of acquire and release while `tasks` claim `keys` in a loop, and prints a row. Each answer arrives
/// after `delay`.
pub fn measure(threads: usize, tasks: usize, delay: Duration, keys: usize) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads).enable_all().build();
    let row = runtime
        .expect("a runtime")
        .block_on(row(tasks, delay, keys));
    println!(
        "| {threads} | {tasks} | {keys} | {} µs | {row} |",
        delay.as_micros()
    );
}

async fn row(tasks: usize, delay: Duration, keys: usize) -> String {
    let fake = Fake::new(Duration::from_secs(10), delay);
    let driver = Driver::start(
        fake.clone(),
        settings(Duration::from_secs(10)),
        Deaths::default().observer(),
    );
    let (pairs, ends) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let workers = (0..tasks).map(|task| {
        let (driver, pairs, ends) = (driver.clone(), Arc::clone(&pairs), Arc::clone(&ends));
        let level = level(&format!("k{}", task % keys));
        tokio::spawn(async move {
            while !ends.load(Relaxed) {
                // On a busy machine a claim may fail, if the thread that has the core's lock is not scheduled.
                let held = claim_levels(&driver, vec![level.clone()]).await;
                pairs.fetch_add(usize::from(held.is_ok()), Relaxed);
                tokio::task::coop::consume_budget().await;
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    tokio::time::sleep(TIME / 4).await;
    sync::measure(false);
    let (from, calls) = (pairs.load(Relaxed), fake.0.calls.load(Relaxed));
    let (since, cpu) = (Instant::now(), cpu());
    tokio::time::sleep(TIME).await;
    let (made, cpu) = (pairs.load(Relaxed) - from, self::cpu() - cpu);
    let (calls, rate) = (
        fake.0.calls.load(Relaxed) - calls,
        made as f64 / since.elapsed().as_secs_f64(),
    );
    ends.store(true, Relaxed);
    for worker in workers {
        worker.await.expect("no panic");
    }
    let [p50, p99, p999, max] = sync::holds();
    format!(
        "{rate:.0} | {:.2} | {:.2} | {p50:?} | {p99:?} | {p999:?} | {max:?}",
        cpu.as_secs_f64() * 1e6 / made as f64,
        made as f64 / calls as f64,
    )
}

/// Prints how long the lock is held while many permits are acquired, held for two leases, and released.
pub fn many(permits: usize, keys: usize) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let lease = Duration::from_secs(6);
    let fake = Fake::new(lease, Duration::ZERO);
    let driver = Driver::start(fake.clone(), settings(lease), Deaths::default().observer());
    let print_row = |what: &str, since: Instant, cpu: Duration| {
        let [p50, p99, p999, max] = sync::holds();
        let (time, cpu) = (since.elapsed().as_secs_f64(), self::cpu() - cpu);
        let part = cpu.as_secs_f64() * 100.0 / time;
        println!(
            "| {permits} | {keys} | {what} | {time:.1} s | {part:.1} % | {p50:?} | {p99:?} | {p999:?} | {max:?} |"
        );
    };
    let (since, before) = (Instant::now(), cpu());
    sync::measure(true);
    let mut all = runtime.block_on(async {
        let mut all = Vec::new();
        for number in 0..permits {
            let level = level(&format!("k{}", number % keys));
            all.push(claim_levels(&driver, vec![level]).await.expect("room"));
        }
        all
    });
    print_row("acquired", since, before);
    let (since, before) = (Instant::now(), cpu());
    sync::measure(true);
    std::thread::sleep(lease * 2);
    print_row("held", since, before);
    assert!(all.iter().all(|held| !held.is_lost()));
    let (since, before) = (Instant::now(), cpu());
    sync::measure(true);
    all.clear();
    while (0..keys).any(|key| fake.0.holds(&format!("k{key}")).0 > 0) {
        std::thread::sleep(Duration::from_millis(1));
    }
    print_row("released", since, before);
}

/// The CPU time of this process.
fn cpu() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

pub(super) fn level(name: &str) -> LevelClaim {
    LevelClaim {
        name: name.into(),
        slot: 0,
        limit: 1_000_000,
        weight: 1,
        charge: None,
        wait: None,
        is_strict: false,
        label: None,
        flow: None,
    }
}
