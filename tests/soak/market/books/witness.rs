//! Reads `MONITOR` for as long as the run lasts, also after Redis was gone.

use super::{
    history::History,
    line::Line,
    model::{Model, Seen},
    snapshot,
};
use crate::market::{
    fixture::Fixture,
    plan::{LEASE, micros},
};
use std::{io, time::Duration};
use testing::resp::Raw;
use tokio::time::sleep;

/// How often units that have ended are looked for, in microseconds of the server's clock.
const SWEEP: i64 = 500_000;
const PAUSE: Duration = Duration::from_millis(5);

/// The one who watches.
pub(crate) struct Witness<'a> {
    fixture: &'a Fixture,
    model: Model,
    history: History,
    swept: i64,
}

impl<'a> Witness<'a> {
    pub(crate) fn new(fixture: &'a Fixture) -> Self {
        Self {
            fixture,
            model: Model::default(),
            history: History::default(),
            swept: 0,
        }
    }

    /// Never ends.
    pub(crate) async fn watch(&mut self) {
        for session in 0.. {
            if self.watch_one(session).await.is_err() {
                sleep(PAUSE).await;
            }
        }
    }

    /// Until Redis is gone.
    async fn watch_one(&mut self, session: u64) -> io::Result<()> {
        let mut monitor = Raw::try_connect(self.fixture.port).await?;
        monitor.try_cmd(&["MONITOR"]).await?;
        let mut raw = Raw::try_connect(self.fixture.port).await?;
        let mark = format!("MARK-{session}");
        let model = snapshot::read(&mut raw, &mark).await?;
        while !Line::of(monitor.next().await?.text()).is_some_and(|line| line.has(&mark)) {}
        self.model = model;
        loop {
            let reply = monitor.next().await?;
            let Some(line) = Line::of(reply.text()) else {
                continue;
            };
            if line.has("semaphore:") {
                self.history.push(line.at, reply.text());
            }
            self.see(&line);
        }
    }

    fn see(&mut self, line: &Line<'_>) {
        if !line.is_inside {
            self.model.next_call();
        } else if line.has("semaphore:") {
            let seen = self.model.apply(line.at, &line.words());
            self.judge(seen);
        }
        if line.at > self.swept + SWEEP {
            self.swept = line.at;
            let seen = self.model.sweep(line.at);
            self.judge(seen);
        }
    }

    fn judge(&self, seen: Vec<Seen>) {
        for seen in seen {
            let report = &self.fixture.report;
            match seen {
                Seen::Granted(of) => report.count(format_args!("units of {of} granted at once")),
                Seen::GrantedFromQueue(of) => {
                    report.count(format_args!("units of {of} granted from a queue"));
                }
                Seen::Released => report.count("units released"),
                Seen::Expired { id, end } => self.judge_end(&id, end * 1_000),
                Seen::Untaken => report.count("units that a waiter did not take in time"),
                Seen::Wrong(what, example) => report.wrong(what, example),
            }
        }
    }

    /// A permit is refreshed until it is released, unless its process has trouble.
    fn judge_end(&self, id: &str, end: i64) {
        let fixture = self.fixture;
        fixture.report.count("units left to their leases");
        let whom = fixture.fleet.owner(id);
        if !fixture.troubles.had(whom, end - 2 * micros(LEASE), end) {
            let history = self.history.of(id);
            let example = format!("{id} at {end}, of {whom:?}: {history}");
            let what = "a permit ended with its lease for no reason";
            fixture.report.wrong(what, example);
        }
    }
}
