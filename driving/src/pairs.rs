//! How fast the driver is, over a server that is made up.

use super::{
    core::Level,
    driver::Driver,
    fake::{Deaths, Fake, settings},
};
use crate::sync;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const TIME: Duration = Duration::from_secs(2);

/// Prints a row.
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
        Deaths::default(),
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
                drop(driver.acquire(vec![level.clone()]).await.expect("room"));
                pairs.fetch_add(1, Relaxed);
                tokio::task::coop::consume_budget().await;
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    tokio::time::sleep(TIME / 4).await;
    sync::measure();
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

fn cpu() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

pub(super) fn level(name: &str) -> Level {
    Level {
        name: name.into(),
        server: 0,
        limit: 1_000_000,
        weight: 1,
        wait: None,
        label: None,
    }
}
