//! After the load, no permit, waiter or descriptor may be left.

use super::{
    client::Client,
    figures::Figures,
    fixture::Fixture,
    fleet::PROCESSES,
    plan::{ACCOUNTS, FLEET_LIMIT, LIMIT},
    streams::{ENDLESS, Visit},
};
use http::Response;
use hyper::body::Incoming;
use rustix::process::Signal;
use std::time::Duration;
use testing::resp::Raw;
use tokio::time::{Instant, sleep, timeout};

/// The longest time until nothing is left, even on a busy machine.
const BOUND: Duration = Duration::from_secs(60);
/// The longest time until the head of a stream arrives.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn judge(fixture: &Fixture, figures: &Figures) {
    // Clients that stall in the middle of a body. The market must end their permits too.
    let stalled = take(fixture, LIMIT as usize).await;
    expect_nothing(fixture, "something is held or waits in the end").await;
    let all = take(fixture, FLEET_LIMIT as usize).await;
    if all.len() < FLEET_LIMIT as usize {
        let example = format!("{} of {FLEET_LIMIT}", all.len());
        fixture
            .report
            .wrong("the whole limit cannot be had in the end", example);
    }
    drop((stalled, all));
    expect_nothing(fixture, "something is held after the last clients").await;
    let too_many = async || figures.too_many_descriptors(fixture);
    if let Some(example) = lasting(too_many).await {
        fixture.report.wrong("descriptors are left", example);
    }
}

/// Opens streams over all accounts and processes. They are not read.
async fn take(fixture: &Fixture, count: usize) -> Vec<Response<Incoming>> {
    let mut streams = Vec::new();
    for number in 0..count {
        let visit = Visit {
            fixture,
            process: number % PROCESSES,
            account: ACCOUNTS[number % ACCOUNTS.len()],
            client: Client::narrow(),
        };
        streams.extend(
            visit
                .head(ENDLESS, PATIENCE)
                .await
                .map(|(_, stream)| stream),
        );
    }
    streams
}

async fn expect_nothing(fixture: &Fixture, what: &'static str) {
    let mut raw = Raw::connect(fixture.port).await;
    if let Some(example) = lasting(async || find_residue(&mut raw).await).await {
        fixture.report.wrong(what, example);
    }
}

/// Returns what `look` still finds after the bound, if anything.
async fn lasting(mut look: impl AsyncFnMut() -> Option<String>) -> Option<String> {
    let end = Instant::now() + BOUND;
    loop {
        let is_last = Instant::now() >= end;
        let found = look().await;
        if found.is_none() || is_last {
            return found;
        }
        sleep(PAUSE).await;
    }
}

/// A held unit or a live waiter, if any.
async fn find_residue(raw: &mut Raw) -> Option<String> {
    let now = raw.server_time_ms().await as f64;
    for key in raw.keys("semaphore:*").await {
        let name = String::from_utf8_lossy(&key).into_owned();
        if !name.ends_with(":held") && !name.ends_with(":alive") {
            continue;
        }
        let members = raw.zmembers(&key).await;
        if let Some((member, end)) = members.iter().find(|(_, end)| *end > now) {
            let member = String::from_utf8_lossy(member);
            return Some(format!("{member} of {name}, for {} ms more", end - now));
        }
    }
    None
}

/// Ends all processes as an operator would.
pub(crate) async fn close(fixture: &Fixture) {
    fixture.fleet.report_failures(&fixture.report);
    for at in 0..PROCESSES {
        let Some(mut market) = fixture.fleet.take(at) else {
            continue;
        };
        market.signal(Signal::TERM);
        let ended = timeout(BOUND, market.ended()).await;
        if !ended.is_ok_and(|status| status.success()) {
            let example = market.panic().unwrap_or_default();
            fixture.report.wrong("a process did not end well", example);
        }
    }
}
