//! Clients that read short or long responses, hang up in the middle, stall, or give up before an answer.

use super::{
    client::Client,
    fixture::Fixture,
    fleet::PROCESSES,
    in_flight::Ticket,
    plan::{ACCOUNTS, LEASE, MAX_STALL, WAIT, micros, now},
    report::Whom,
};
use http::{Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::{ops::Range, sync::Arc, time::Duration};
use testing::rng::Rng;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Longer than any answer may take.
const LONGEST: Duration = Duration::from_secs(30);
/// The time for which a client stalls: sometimes for longer than the market allows.
const STALLED_MS: Range<u64> = 100..MAX_STALL.as_millis() as u64 * 2;
/// A connection may break because of a trouble that ended up to this long before.
const AFTERMATH: Duration = Duration::from_secs(2);
/// The habit of a client that does not read: the index that `roam` draws.
const STALL: usize = 3;
pub(crate) const ENDLESS: &str = "/market/export?rows=100000000&interval_ms=20";

/// One request of one client.
pub(crate) struct Visit<'a> {
    pub(crate) fixture: &'a Fixture,
    pub(crate) process: usize,
    pub(crate) account: &'static str,
    pub(crate) client: Client,
}

/// Makes one request after another until the load ends.
pub(crate) async fn roam(fixture: Arc<Fixture>, mut rng: Rng) {
    while !fixture.quiet.is_cancelled() {
        let http = rng.one_of(&[Client::http1, Client::http2]);
        let habit = rng.below(5);
        let visit = Visit {
            fixture: &fixture,
            process: rng.below(PROCESSES),
            account: rng.one_of(&ACCOUNTS),
            client: if habit == STALL {
                Client::narrow()
            } else {
                http()
            },
        };
        match habit {
            0 => visit.look().await,
            1 => visit.read(&mut rng).await,
            2 => visit.leave(rng.millis(20..1_500)).await,
            STALL => visit.stall(rng.millis(STALLED_MS)).await,
            _ => visit.give_up(rng.millis(0..WAIT.as_millis() as u64)).await,
        }
        sleep(rng.millis(5..100)).await;
    }
}

impl Visit<'_> {
    /// Makes a short request.
    async fn look(&self) {
        if let Some((_, response)) = self.head("/market", LONGEST).await {
            let _ = timeout(LONGEST, response.into_body().collect()).await;
        }
    }

    /// Reads a body to its end. The body is sent slowly, so the earliest possible end is known.
    async fn read(&self, rng: &mut Rng) {
        let (rows, interval) = (rng.below(20) + 1, rng.millis(10..60).as_millis());
        let path = format!("/market/export?rows={rows}&interval_ms={interval}");
        let earliest_end = Instant::now() + Duration::from_millis(rows as u64 * interval as u64);
        let Some((ticket, response)) = self.head(&path, LONGEST).await else {
            return;
        };
        let number = self.begin(ticket);
        let mut body = response.into_body();
        while let Ok(Some(Ok(_))) = timeout_at(earliest_end, body.frame()).await {}
        self.fixture.in_flight.end(number);
        let whole = timeout(LONGEST, body.collect()).await;
        let whole = whole.is_ok_and(|read| read.is_ok());
        self.count(if whole {
            "read to the end"
        } else {
            "broken off"
        });
    }

    /// Hangs up in the middle of the body.
    async fn leave(&self, after: Duration) {
        let Some((ticket, response)) = self.head(ENDLESS, LONGEST).await else {
            return;
        };
        let number = self.begin(ticket);
        let mut body = response.into_body();
        let end = Instant::now() + after;
        while let Ok(Some(Ok(_))) = timeout_at(end, body.frame()).await {}
        self.fixture.in_flight.end(number);
        self.count("hung up in the body");
    }

    /// Hangs up without reading the body. The market may have ended the permit before.
    async fn stall(&self, after: Duration) {
        if let Some((_, response)) = self.head(ENDLESS, LONGEST).await {
            sleep(after).await;
            drop(response);
            self.count("stalled");
        }
    }

    /// Hangs up before the answer or at the same moment.
    async fn give_up(&self, after: Duration) {
        drop(self.head(ENDLESS, after).await);
    }

    /// The head of a response, if the request was admitted.
    pub(crate) async fn head(
        &self,
        path: &str,
        patience: Duration,
    ) -> Option<(Ticket, Response<Incoming>)> {
        let ticket = self.fixture.in_flight.ticket(self.process);
        let url = self.fixture.fleet.url(self.process)? + path;
        let sent = now();
        let request = self.client.send(Method::GET, &url, self.account, "");
        let Ok(answer) = timeout(patience, request).await else {
            self.count("hung up before the head");
            if patience == LONGEST {
                self.needs_a_reason("a request got no answer", &url, sent);
            }
            return None;
        };
        match answer {
            Err(error) => self.needs_a_reason("a connection broke", &format!("{error:?}"), sent),
            Ok(answer) if self.is_admitted(answer.status().as_u16()) => {
                return Some((ticket, answer));
            }
            Ok(_) => {}
        }
        None
    }

    fn is_admitted(&self, status: u16) -> bool {
        let report = &self.fixture.report;
        report.count(format_args!("answers to clients: {status}"));
        match status {
            200 | 429 => {}
            503 if self.is_calm() => report.count("answers of 503 for no reason that is known"),
            503 => {}
            _ => report.wrong("a client got another answer", status),
        }
        status == 200
    }

    /// True if neither this process nor Redis has had trouble for two leases.
    fn is_calm(&self) -> bool {
        let from = now() - 2 * micros(LEASE);
        let troubles = &self.fixture.troubles;
        !troubles.had(Whom::Process(self.process), from, now())
    }

    /// Counts a response in flight, and reports any excess over a limit.
    fn begin(&self, ticket: Ticket) -> Option<u64> {
        let (number, excess) = self.fixture.in_flight.begin(ticket, self.account);
        if let Some(excess) = excess {
            let what = "clients had more responses than the limit";
            self.fixture.report.wrong(what, excess);
        }
        number
    }

    /// Reports a failed request as a defect, unless a trouble explains it.
    fn needs_a_reason(&self, what: &'static str, example: &str, sent: i64) {
        let from = sent - micros(AFTERMATH);
        let process = Whom::Process(self.process);
        if !self.fixture.troubles.had(process, from, now()) {
            self.fixture.report.wrong(what, example);
        }
        self.count("got no answer");
    }

    fn count(&self, what: &str) {
        self.fixture.report.count(format_args!("clients: {what}"));
    }
}
