//! `Retry-After` names a time at which the client is admitted. Run with `--nocapture` to see the figures.
//!
//! Promises: P21.

mod simulation;
mod waits;

use simulation::{CLIENTS, Hold, Load, Outcome, run};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

/// Each simulation runs once for each seed, and the outcomes are added.
const SEEDS: u64 = 4;

/// The 50 clients are 2, 5 and 10 times these limits.
const LIMITS: [u32; 3] = [25, 10, 5];

async fn outcome(load: Load) -> Outcome {
    let sum = Outcome::default();
    for seed in 1..=SEEDS {
        sum.add(&*run(Load { seed, ..load }).await);
    }
    sum
}

fn report(name: &str, limit: u32, outcome: &Outcome) {
    let clients = (SEEDS * CLIENTS as u64) as f64;
    println!(
        "{name:<24} limit {limit:>2}: {:>4.0} % in at the first return, {:>5.1} requests, \
         {:>6.1} s until in, Retry-After at most {:>3} s",
        outcome.share() * 100.0,
        outcome.requests.load(Relaxed) as f64 / clients,
        outcome.waited_ms.load(Relaxed) as f64 / 1_000.0 / clients,
        outcome.longest_retry_after.load(Relaxed),
    );
}

/// Asserts for each limit that at least `least` percent of the refused clients are admitted when they first return.
/// Also prints the figures of clients that return after one second instead.
async fn assert_share(name: &str, hold: Hold, change: impl Fn(Load) -> Load, least: f64) {
    for limit in LIMITS {
        let load = change(Load::new(limit, hold));
        let result = outcome(load).await;
        report(name, limit, &result);
        let constant = outcome(Load {
            constant: true,
            ..load
        });
        report("  1 s", limit, &constant.await);
        let share = result.share() * 100.0;
        assert!(share >= least, "{name}, limit {limit}: {share:.0} %");
    }
}

/// Asserts that 80 % are admitted when they first return, for holds of this mean in seconds. `name` is the mean as
/// text.
async fn assert_most_get_in(name: &str, mean: f64) {
    for (shape, hold) in [
        ("exactly", Hold::Exactly(mean)),
        ("about", Hold::About(mean)),
        ("mixed", Hold::Mixed(mean)),
    ] {
        assert_share(&format!("{shape} {name}"), hold, |load| load, 80.0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn most_clients_get_in_at_their_first_return_if_permits_are_held_for_10_ms() {
    assert_most_get_in("10 ms", 0.01).await;
}

#[tokio::test(start_paused = true)]
async fn most_clients_get_in_at_their_first_return_if_permits_are_held_for_a_second() {
    assert_most_get_in("1 s", 1.0).await;
}

#[tokio::test(start_paused = true)]
async fn most_clients_get_in_at_their_first_return_if_permits_are_held_for_half_a_minute() {
    assert_most_get_in("30 s", 30.0).await;
}

#[tokio::test(start_paused = true)]
async fn heavy_claims_get_in_too() {
    let heavy = |load| Load {
        heaviest: 3,
        ..load
    };
    assert_share("weights 1 to 3", Hold::About(1.0), heavy, 80.0).await;
}

#[tokio::test(start_paused = true)]
async fn clients_that_waited_in_vain_get_in_too() {
    let wait = Duration::from_millis(500);
    let waiting = |load| Load { wait, ..load };
    assert_share("wait 500 ms", Hold::About(1.0), waiting, 80.0).await;
}

#[tokio::test(start_paused = true)]
async fn before_any_permit_has_ended_clients_get_in_if_holds_are_short() {
    // The layer assumes half a second until a permit has ended.
    let unseen = |load| Load { before: 0, ..load };
    assert_share("10 ms, nothing seen", Hold::About(0.01), unseen, 80.0).await;
    assert_share("1 s, nothing seen", Hold::About(1.0), unseen, 50.0).await;
}

#[tokio::test(start_paused = true)]
async fn a_fifth_of_the_clients_get_in_at_their_first_return_if_processes_share_a_limit() {
    // Each process spreads its clients as if it had the whole limit, so more return than find room.
    for processes in [2, 4] {
        let shared = |load| Load { processes, ..load };
        let name = format!("{processes} processes, 1 s");
        assert_share(&name, Hold::About(1.0), shared, 20.0).await;
        let name = format!("{processes} processes, 30 s");
        assert_share(&name, Hold::About(30.0), shared, 20.0).await;
    }
}
