//! Tests with very many keys, and with a key that has very many permits.

use crate::{
    fleet::{Claim, Fleet, MARKET},
    program::{on, run_line},
};
use serde_json::Value;
use std::{
    collections::HashSet,
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

const MANY: u32 = 100_000;

/// Lists all keys. Returns them, and the program's peak memory in kB before it printed the last keys.
fn listed(fleet: &Fleet) -> (HashSet<String>, u64) {
    let mut command = on(&fleet.server);
    command
        .args(["--json", "keys", "concurrency"])
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let status = format!("/proc/{}/status", child.id());
    let out = BufReader::new(child.stdout.take().expect("it is piped"));
    let (mut keys, mut most) = (HashSet::new(), 0);
    for (number, line) in out.lines().enumerate() {
        let line = line.expect("text");
        let value: Value = serde_json::from_str(&line).expect("JSON");
        let is_new = keys.insert(value["key"].as_str().expect("a key").to_owned());
        assert!(is_new, "{line} comes twice");
        if number % 500 == 0 {
            most = most.max(memory(&status).unwrap_or_default());
        }
    }
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    (keys, most)
}

fn memory(status: &str) -> Option<u64> {
    let status = fs::read_to_string(status).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[tokio::test]
async fn a_hundred_thousand_keys_are_listed_once_each_in_little_memory() {
    let mut fleet = Fleet::empty().await;
    fleet.keys(5_000).await;
    let (few, kb_for_few) = listed(&fleet);
    assert_eq!(few.len(), 5_000);
    fleet.keys(MANY).await;
    let (many, kb_for_many) = listed(&fleet);
    assert_eq!(many.len(), MANY as usize);
    if cfg!(target_os = "linux") {
        // The program keeps a hash of each key: a few megabytes for 95,000 more.
        assert!(
            kb_for_few > 0 && kb_for_many < kb_for_few + 20_000,
            "{kb_for_few} kB, then {kb_for_many} kB"
        );
    }
}

#[tokio::test]
async fn the_top_of_a_hundred_thousand_keys_counts_all_of_them() {
    // Two keys with four units together, and the others with one each.
    let mut fleet = Fleet::start().await;
    fleet.keys(MANY).await;
    let top = run_line(&fleet.server, "--json top");
    let top: Value = serde_json::from_str(&top.out).expect("JSON");
    assert_eq!(
        (&top["keys"], &top["units"]),
        (&(MANY + 2).into(), &(MANY + 4).into())
    );
    assert_eq!(top["fullest"][0]["key"], "ann");
}

/// The scan of Redis finds the keys in no order.
#[tokio::test]
async fn the_top_of_a_few_keys_is_the_fullest_of_them() {
    const KEYS: i64 = 60;
    let mut fleet = Fleet::empty().await;
    for weight in 1..=KEYS {
        let claim = Claim {
            process: MARKET,
            permit: weight,
            weight,
            share_flow_label: "..",
        };
        fleet.holds(&format!("k{weight}"), claim).await;
    }
    let top = run_line(&fleet.server, "--json top");
    let top: Value = serde_json::from_str(&top.out).expect("JSON");
    let fullest = top["fullest"].as_array().expect("a list").iter();
    let units: Vec<_> = fullest.map(|row| row["units"].clone()).collect();
    let highest: Vec<Value> = (1..=KEYS)
        .rev()
        .take(units.len())
        .map(Value::from)
        .collect();
    assert!(units.len() >= 5);
    assert_eq!(units, highest);
}
