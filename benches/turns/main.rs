//! A client that keeps to its limit and alternates between two processes over one Redis: how many of its requests are
//! refused, and the cost of a pair on a key that is full or has room. Also a process that ends right after a permit:
//! whether it leaves the permit behind.
//!
//! `cargo bench -p tower-semaphore-benches --bench turns` takes about a minute, with `-- --quick` half of it.

mod client;
mod job;
mod pairs;
mod process;

use client::Loops;
use process::Server;
use std::time::Duration;
use testing::{
    bench::{
        run::pick,
        table::{Table, figure},
    },
    redis::RedisServer,
};

fn main() {
    if process::serves_as_child() || job::runs_as_child() {
        return;
    }
    println!("{}", turns());
    println!("{}", pairs::table());
    println!("{}", job::table());
}

/// How many of 500 requests are refused: the median and the maximum of some rounds.
fn turns() -> Table {
    let (rounds, requests) = pick((3, 500), (7, 500));
    let head = [
        "loops and limit",
        "pause",
        "refused of 500",
        "most",
        "scripts a request",
        "CPU µs a request",
    ];
    let mut table = Table::new("One client, two processes by turns", &head);
    for loops in [1, 5] {
        for pause in [0, 1, 3].map(Duration::from_millis) {
            let mut all: Vec<_> = (0..rounds)
                .map(|_| {
                    let redis = RedisServer::start();
                    let servers = [(); 2].map(|()| Server::start(&redis.url(), loops));
                    client::run(
                        &redis,
                        &servers,
                        &Loops {
                            loops,
                            pause,
                            requests,
                        },
                    )
                })
                .collect();
            all.sort_by_key(|outcome| outcome.refused);
            let middle = &all[all.len() / 2];
            table.row([
                loops.to_string(),
                format!("{pause:?}"),
                middle.refused.to_string(),
                all[all.len() - 1].refused.to_string(),
                figure(middle.scripts),
                figure(middle.cpu),
            ]);
        }
    }
    table
}
