//! Pairs of acquire and release per second, and latency, with limits that operators have set, relative to a store
//! without such limits.

use crate::{load, rival::Rival};
use std::{sync::Arc, time::Duration};
use testing::bench::{
    figures::{median, ratio},
    run::{bar, pick},
    table::{Table, figure},
};
use tower_semaphore::{Operate, Policy, RedisSemaphore};

const TASKS: [usize; 3] = [1, 16, 256];

/// The name of each case, and the number of limits that are set in it. In case `0`, one limit was set and taken away.
const SET: [(&str, usize); 4] = [("none", 0), ("0", 0), ("1", 1), ("1,000", 1_000)];

/// Higher than the number of permits that are held or not yet released, so that no claim is refused.
const LIMIT: u32 = 10_000;

pub(crate) async fn compare(url: &str) {
    let (rounds, span_ms) = pick((3, 200), (15, 400));
    let mut stores = Vec::new();
    for (name, count) in SET {
        stores.push(Arc::new(Rival::Ours(limited(url, name, count).await)));
    }
    let head = [
        "tasks",
        "limits",
        "pairs/s",
        "× none",
        "acquire p50 µs",
        "× none",
    ];
    let title = "Uncontended pairs beside limits that are set";
    let mut table = Table::new(title, &head);
    for tasks in TASKS {
        let progress = bar(&format!("{tasks} tasks"), (rounds + 1) * SET.len());
        let mut series = vec![(Vec::new(), Vec::new()); SET.len()];
        for round in 0..=rounds {
            for (store, (pairs, p50)) in stores.iter().zip(&mut series) {
                let keys = (0..tasks).map(|key| format!("account-{key}"));
                let span = Duration::from_millis(span_ms);
                let outcome = load::run(store, keys.collect(), LIMIT, span).await;
                assert_eq!(outcome.refused, 0);
                // The first round is a warm-up.
                if round > 0 {
                    pairs.push(outcome.pairs);
                    p50.push(outcome.acquire.p50());
                }
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        let (none, none_p50) = series[0].clone();
        for ((name, _), (pairs, p50)) in SET.iter().zip(&series) {
            let own = [
                median(pairs),
                ratio(pairs, &none),
                median(p50),
                ratio(p50, &none_p50),
            ];
            let named = [tasks.to_string(), (*name).to_owned()];
            table.row(named.into_iter().chain(own.map(figure)));
        }
    }
    println!("{table}");
}

/// A separate store with `count` limits, which apply to the first keys.
async fn limited(url: &str, name: &str, count: usize) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().prefix(format!("{name}:"));
    let store = builder.connect(url).await.expect("the server is there");
    let (policy, last) = (Policy::DEFAULT, count.max(1) - 1);
    let key = |key: usize| format!("account-{key}").into();
    // In case `0` this sets one limit, which is taken away below.
    for at in (0..=last).filter(|_| name != "none") {
        let set = store.set_limit(&policy, Some(&key(at)), Some(LIMIT), "");
        set.await.expect("the store answers");
    }
    let in_force = (count > 0).then_some(LIMIT);
    if name == "0" {
        let removed = store.set_limit(&policy, Some(&key(0)), None, "").await;
        removed.expect("the store answers");
    }
    // The store reads the limits in the background. Wait until it knows the last.
    loop {
        let usage = store.usage(&policy, &key(last)).await;
        let usage = usage.expect("the store answers");
        if usage.limit.filter(|_| usage.is_limit_set) == in_force {
            break store;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
