//! Acquire and release with limits that operators have set, relative to a store without any.

use crate::{
    measure::{Bench, Estimate},
    pairs::{LIMIT, pairs},
    rival::Rival,
};
use futures_util::FutureExt;
use testing::bench::table::{Table, figure};
use tower_semaphore::{MemorySemaphore, Operate, Policy};

/// The numbers of limits. In the first case a limit is set and taken away again.
const SET: [usize; 3] = [0, 1, 1_000];

pub(crate) fn compare(bench: &mut Bench) {
    let keys: Vec<String> = (0..100).map(|key| format!("account-{key}")).collect();
    let without = MemorySemaphore::new();
    keys.iter().for_each(|key| drop(without.take(key, LIMIT)));
    let mut rows: Vec<(usize, Estimate, f64)> = Vec::new();
    for set in SET {
        let store = MemorySemaphore::new();
        (0..set.max(1)).for_each(|key| set_limit(&store, key, Some(LIMIT)));
        // For 0 limits, the one limit is taken away again.
        (set..1).for_each(|key| set_limit(&store, key, None));
        keys.iter().for_each(|key| drop(store.take(key, LIMIT)));
        let ours = |count| pairs(&store, &keys, 1, count);
        let rival = |count| pairs(&without, &keys, 1, count);
        let id = ["limits", "MemorySemaphore", &set.to_string()];
        rows.extend(
            bench
                .compare(id, ours, rival)
                .map(|(took, ratio)| (set, took, ratio)),
        );
    }
    if rows.is_empty() {
        return;
    }
    let title = "Acquire and release in memory, beside limits that are set";
    let mut table = Table::new(title, &["limits", "ns", "× none"]);
    for (set, took, ratio) in rows {
        table.row([set.to_string(), figure(took), figure(ratio)]);
    }
    println!("{table}");
}

fn set_limit(store: &MemorySemaphore, key: usize, limit: Option<u32>) {
    let key = format!("account-{key}").into();
    let set = store.set_limit(&Policy::DEFAULT, Some(&key), limit, "");
    let set = set.now_or_never().expect("it is ready at once");
    set.expect("the store answers");
}
