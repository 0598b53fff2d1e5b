//! axum alone and under limits, on real sockets under load.
//!
//! `cargo bench -p tower-semaphore-benches --bench http` takes about a minute, with `-- --quick` ten seconds.

mod app;

use std::time::Duration;
use testing::{
    bench::{
        closed_loop::{self, Outcome},
        figures::{Latencies, median, ratio},
        plot::{self, Title},
        run::{bar, pick},
        table::{Table, figure},
    },
    redis::RedisServer,
};

const CONNECTIONS: usize = 64;

/// How long each app is under load in a round.
const ROUND: Duration = Duration::from_millis(250);

/// The results of all rounds of one app.
#[derive(Default)]
struct Series {
    rate: Vec<f64>,
    latencies: Latencies,
    refused: u64,
}

impl Series {
    fn add(&mut self, outcome: Outcome) {
        self.rate.push(outcome.rate);
        self.latencies.append(outcome.latencies);
        self.refused += outcome.refused;
    }
}

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    let apps = app::all(&server.url()).await;
    let rounds = pick(5, 40);
    let mut all: Vec<Series> = apps.iter().map(|_| Series::default()).collect();
    let progress = bar("requests", (rounds + 1) * apps.len());
    for round in 0..=rounds {
        for (app, series) in apps.iter().zip(&mut all) {
            let outcome = closed_loop::run(app.address, CONNECTIONS, ROUND).await;
            // The first round is a warm-up.
            if round > 0 {
                series.add(outcome);
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    report(&apps, &all);
}

fn report(apps: &[app::App], all: &[Series]) {
    let title = format!("Requests over {CONNECTIONS} keep-alive connections");
    let head = [
        "app",
        "requests/s",
        "× alone",
        "p50 µs",
        "p99 µs",
        "refused",
    ];
    let mut table = Table::new(&title, &head);
    for (app, own) in apps.iter().zip(all) {
        let [p50, p99] = own.latencies.quantiles([0.5, 0.99]);
        let relative = format!("{:.3}", ratio(&own.rate, &all[0].rate));
        table.row([
            app.name.to_owned(),
            figure(median(&own.rate)),
            relative,
            figure(p50),
            figure(p99),
            own.refused.to_string(),
        ]);
    }
    println!("{table}");
    draw(&title, apps, all);
}

fn draw(title: &str, apps: &[app::App], all: &[Series]) {
    let series = apps.iter().zip(all);
    let series: Vec<_> = series
        .map(|(app, own)| (app.name.to_owned(), vec![median(&own.rate)]))
        .collect();
    let title = Title {
        file: "http",
        text: title,
        x: "",
        y: "requests per second",
    };
    plot::bars(title, &["h1".to_owned()], &series);
}
