//! The walks: each row of this table is a scenario.
#![doc = include_str!("scenarios.md")]

use crate::{
    scenario::{Claim, Leaps, Level, Scenario},
    time::TICK,
};

/// Every scenario.
pub fn all() -> impl Iterator<Item = Scenario> {
    let rows = include_str!("scenarios.md").lines();
    rows.filter(|line| line.starts_with("| ")).skip(1).map(row)
}

/// The scenario of this name.
///
/// # Panics
///
/// If no scenario has this name.
pub fn named(name: &str) -> Scenario {
    let found = all().find(|scenario| scenario.name == name);
    found.unwrap_or_else(|| panic!("no scenario is called {name}"))
}

fn row(row: &'static str) -> Scenario {
    let columns: Vec<_> = row.split('|').map(str::trim).collect();
    let [_, name, states, clients, rules, ..] = columns[..] else {
        panic!("columns are missing: {row}");
    };
    let clients = clients
        .split(';')
        .map(|claims| claims.split(',').map(claim));
    let clients = clients.map(Iterator::collect).collect();
    let states = states.parse().expect("a number of states");
    let rules = rules.split(", ").filter(|rule| !rule.is_empty());
    rules.fold(Scenario::new(name, clients, states), with_rule)
}

fn with_rule(mut scenario: Scenario, rule: &str) -> Scenario {
    match rule {
        "messages" => scenario.splits_calls = true,
        "batches" => scenario.has_batches = true,
        "no loss" => scenario.loses = false,
        "none late" => scenario.late = 0,
        "two late" => scenario.late = 2,
        "no crash" => scenario.crashes = false,
        "no refresh" => scenario.holders_do_nothing = true,
        "lighter" => scenario.lightens = true,
        "clock" => scenario.sets_clock_back = true,
        "revokes" => scenario.revokes = true,
        "advance 1" => scenario.max_advanced = Some(1),
        leaps => scenario.leaps = self::leaps(leaps),
    }
    scenario
}

/// Reads a rule such as `leaps 2: -3 4`: two leaps, each by one of these numbers of ticks.
fn leaps(rule: &str) -> Leaps {
    let rule = rule.strip_prefix("leaps ");
    let (count, ticks) = rule.and_then(|rule| rule.split_once(": ")).expect("a rule");
    let ticks = ticks.split(' ').map(str::parse::<i64>);
    let ms = ticks.map(|ticks| ticks.expect("ticks") * TICK);
    Leaps {
        distances: ms.collect(),
        most: count.parse().expect("a number of leaps"),
    }
}

fn claim(text: &str) -> Claim {
    text.trim().split('>').map(level).collect()
}

fn level(text: &str) -> Level {
    let number = |mark: char| {
        let (_, number) = text.split_once(mark)?;
        let end = number.find(|c: char| !c.is_ascii_digit());
        number[..end.unwrap_or(number.len())].parse().ok()
    };
    let flow = text.split_once('@');
    let key = text.chars().next().expect("a key");
    Level {
        key: key as u8 - b'a',
        limit: number(key).expect("a limit"),
        weight: number('*').unwrap_or(1),
        // A bound of 9 is no bound: no scenario has that number of clients.
        waits: (!text.contains('?')).then(|| number('<').unwrap_or(9)),
        head_start: if text.contains('^') { 2 * TICK } else { 0 },
        flow: flow.map_or(0, |(_, flow)| flow.as_bytes()[0]),
        share: number('/').unwrap_or(1),
        added_to: number('+'),
    }
}
