//! Follows `MONITOR` for the whole run, across restarts of Redis. Applies each command to a model of the data, and
//! reports the changes that break a rule.

use super::{
    fixture::Fixture,
    model::{Model, Seen},
    plan::{LEASE, micros, now},
};
use std::{collections::VecDeque, io, time::Duration};
use testing::resp::{Raw, Reply};
use tokio::time::sleep;

/// The time between two sweeps of expired units, in microseconds of the server's clock.
const SWEEP: i64 = 500_000;
const PAUSE: Duration = Duration::from_millis(5);

/// The observer of Redis.
pub(crate) struct Witness<'a> {
    fixture: &'a Fixture,
    model: Model,
    history: History,
    /// The time of the last sweep.
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

    /// Runs forever.
    pub(crate) async fn watch(&mut self) {
        for session in 0.. {
            if self.watch_one(session).await.is_err() {
                sleep(PAUSE).await;
            }
        }
    }

    /// Takes a snapshot, and then follows `MONITOR` until Redis is gone. The mark shows where the snapshot is in the
    /// output of `MONITOR`.
    async fn watch_one(&mut self, session: u64) -> io::Result<()> {
        let mut monitor = Raw::try_connect(self.fixture.port).await?;
        monitor.try_cmd(&["MONITOR"]).await?;
        let mut raw = Raw::try_connect(self.fixture.port).await?;
        let mark = format!("MARK-{session}");
        let model = snapshot(&mut raw, &mark).await?;
        while !Line::parse(monitor.next().await?.text()).is_some_and(|line| line.has(&mark)) {}
        self.model = model;
        loop {
            let reply = monitor.next().await?;
            let Some(line) = Line::parse(reply.text()) else {
                continue;
            };
            if line.has("semaphore:") {
                self.history.push(line.at, reply.text());
            }
            self.see(&line);
        }
    }

    /// Applies a command to the model.
    fn see(&mut self, line: &Line<'_>) {
        if !line.is_in_script {
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
                Seen::Granted(policy) => {
                    report.count(format_args!("units of {policy} granted at once"));
                }
                Seen::GrantedFromQueue(policy) => {
                    report.count(format_args!("units of {policy} granted from a queue"));
                }
                Seen::Released => report.count("units released"),
                Seen::Expired { id, end } => self.judge_end(&id, end * 1_000),
                Seen::Untaken => report.count("units that a waiter did not take in time"),
                Seen::Wrong(what, example) => report.wrong(what, example),
            }
        }
    }

    /// Judges a lease that ended without a release. A permit is refreshed until its release, unless its process or
    /// Redis has trouble.
    fn judge_end(&self, id: &str, end: i64) {
        let fixture = self.fixture;
        fixture.report.count("units left to their leases");
        let whom = fixture.fleet.owner(id);
        if !fixture.troubles.had(whom, end - 2 * micros(LEASE), end) {
            let history = self.history.lines_with(id);
            let example = format!("{id} at {end}, of {whom:?}: {history}");
            let what = "a permit ended with its lease for no reason";
            fixture.report.wrong(what, example);
        }
    }
}

/// Returns each sorted set of the library and its members. `ARGV[1]` is the mark.
const ALL: &str = "local all = {} \
    for _, key in ipairs(redis.call('KEYS', 'semaphore:*')) do \
      if redis.call('TYPE', key).ok == 'zset' then \
        all[#all + 1] = key \
        all[#all + 1] = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') \
      end \
    end \
    return all";

/// Reads all sorted sets, and leaves `mark` in the output of `MONITOR`.
async fn snapshot(raw: &mut Raw, mark: &str) -> io::Result<Model> {
    let all = raw.try_cmd(&["EVAL", ALL, "0", mark]).await?;
    if let Reply::Error(error) = all {
        return Err(io::Error::other(error));
    }
    let mut model = Model::default();
    for pair in all.array().chunks_exact(2) {
        let members = pair[1].array().chunks_exact(2);
        let members: Vec<_> = members.map(member_and_score).collect();
        model.load(now(), pair[0].text(), &members);
    }
    Ok(model)
}

fn member_and_score(pair: &[Reply]) -> (String, f64) {
    let score = pair[1].text().parse().expect("a score is a number");
    (pair[0].text().to_owned(), score)
}

/// A command as `MONITOR` shows it: `1700000000.000000 [0 lua] "ZADD" "key" "1" "member"`.
#[derive(Debug)]
struct Line<'a> {
    /// Microseconds since 1970, taken just after the command ran.
    at: i64,
    /// True if a script ran the command.
    is_in_script: bool,
    words: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (head, words) = line.split_once("] ")?;
        let (time, source) = head.split_once(" [")?;
        let (seconds, micros) = time.split_once('.')?;
        Some(Self {
            at: seconds.parse::<i64>().ok()? * 1_000_000 + micros.parse::<i64>().ok()?,
            is_in_script: source.ends_with("lua"),
            words: words.trim_matches('"'),
        })
    }

    /// The command's name and arguments. The library's arguments contain no quotes, so none is escaped.
    fn words(&self) -> Vec<&'a str> {
        self.words.split("\" \"").collect()
    }

    fn has(&self, text: &str) -> bool {
        self.words.contains(text)
    }
}

/// The number of bytes of a line that are shown at its beginning, and on either side of the id.
const SHOWN: usize = 90;

/// The commands of the last three leases, with their times.
#[derive(Debug, Default)]
struct History(VecDeque<(i64, String)>);

impl History {
    fn push(&mut self, at: i64, line: &str) {
        self.0.push_back((at, line.to_owned()));
        while let Some((first, _)) = self.0.front()
            && *first + 3 * micros(LEASE) < at
        {
            self.0.pop_front();
        }
    }

    /// The lines that contain an id, shortened.
    fn lines_with(&self, id: &str) -> String {
        let about = self.0.iter().filter(|(_, line)| line.contains(id));
        about.map(|(_, line)| shortened(line, id)).collect()
    }
}

fn shortened(line: &str, id: &str) -> String {
    let at = line.find(id).unwrap_or_default();
    let around = at.saturating_sub(SHOWN)..(at + SHOWN).min(line.len());
    let start = line.get(..SHOWN.min(line.len())).unwrap_or_default();
    let around = line.get(around).unwrap_or_default();
    format!("\n    {start} … {around}")
}
