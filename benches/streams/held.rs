//! Permits that are held without any other activity.

use crate::child::{Holder, LEASE, Load};
use std::time::Duration;
use testing::{
    bench::{
        plot::{self, Title},
        proc::{cpu, resident},
        run::{bar, pick},
        table::{Table, figure},
    },
    redis::RedisServer,
    resp::Raw,
};
use tokio::time::{Instant, sleep};

/// The number of permits, and of the keys that they are spread over.
const LOADS: [(usize, usize); 4] = [
    (1_000, 200),
    (10_000, 2_000),
    (100_000, 20_000),
    (100_000, 100_000),
];

/// The cost of held permits.
struct Cost {
    /// Commands that reach the server, per second.
    commands: f64,
    /// Processor time in percent of one processor.
    server_cpu: f64,
    process_cpu: f64,
    /// Bytes per permit.
    server_bytes: f64,
    process_bytes: f64,
    lost: usize,
}

pub(crate) async fn compare() {
    let title = "Permits held, lease 10 s";
    let head = [
        "permits",
        "keys",
        "commands/s",
        "Redis CPU %",
        "process CPU %",
        "Redis bytes each",
        "process bytes each",
        "lost",
    ];
    let mut table = Table::new(title, &head);
    let mut costs = Vec::new();
    let progress = bar("held", LOADS.len());
    for (permits, keys) in LOADS {
        let cost = measure(permits, keys).await;
        let named = [permits, keys].map(|number| figure(number as f64));
        let figures = [
            cost.commands,
            cost.server_cpu,
            cost.process_cpu,
            cost.server_bytes,
            cost.process_bytes,
            cost.lost as f64,
        ];
        table.row(named.into_iter().chain(figures.map(figure)));
        costs.push(cost);
        progress.inc(1);
    }
    progress.finish_and_clear();
    println!("{table}");
    draw(title, &costs);
}

async fn measure(permits: usize, keys: usize) -> Cost {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let empty = used_memory(&mut raw).await;
    let load = Load {
        url: server.url(),
        permits,
        keys,
    };
    let holder = tokio::task::spawn_blocking(move || Holder::start(&load));
    let holder = holder.await.expect("the child holds its permits");
    // Wait for one refresh interval, so that the refreshes of all permits are spread out.
    sleep(LEASE / 3).await;

    raw.reset_stats().await;
    let start = Instant::now();
    let (server_before, process_before) = (cpu(server.pid()), cpu(holder.pid()));
    sleep(pick(LEASE * 2 / 3, LEASE)).await;
    let span = start.elapsed();
    let (server_after, process_after) = (cpu(server.pid()), cpu(holder.pid()));
    let stats = raw.commandstats().await;
    let calls: u64 = ["evalsha", "eval"]
        .iter()
        .filter_map(|name| stats.get(*name))
        .sum();
    let percent =
        |from: Duration, to: Duration| 100.0 * (to - from).as_secs_f64() / span.as_secs_f64();
    let each = |bytes: u64| bytes as f64 / permits as f64;
    Cost {
        commands: calls as f64 / span.as_secs_f64(),
        server_cpu: percent(server_before, server_after),
        process_cpu: percent(process_before, process_after),
        server_bytes: each(used_memory(&mut raw).await.saturating_sub(empty)),
        process_bytes: each(resident(holder.pid()).saturating_sub(holder.before)),
        lost: holder.end(),
    }
}

async fn used_memory(raw: &mut Raw) -> u64 {
    let info = raw.cmd(&["INFO", "memory"]).await;
    let used = info
        .text()
        .lines()
        .find_map(|field| field.strip_prefix("used_memory:"));
    used.and_then(|used| used.trim().parse().ok())
        .expect("the server has it")
}

fn draw(text: &str, costs: &[Cost]) {
    let groups = LOADS.map(|(permits, keys)| {
        format!("{} on {} keys", figure(permits as f64), figure(keys as f64))
    });
    let series = [
        (
            "Redis".to_owned(),
            costs.iter().map(|cost| cost.server_cpu).collect(),
        ),
        (
            "process".to_owned(),
            costs.iter().map(|cost| cost.process_cpu).collect(),
        ),
    ];
    let title = Title {
        file: "streams",
        text,
        x: "",
        y: "% of one processor",
    };
    plot::bars(title, &groups, &series);
}
