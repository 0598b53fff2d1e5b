//! A fleet of two processes with fixed permits, waiters and names. It is written to Redis in the library's format.

use testing::{redis::RedisServer, resp::Raw};

pub(crate) const MARKET: &str = "00000000000000a1";
pub(crate) const EXPORTS: &str = "00000000000000b2";

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The ages of claims, and the time until they end. Each is in the middle of the range that the command shows as one
/// value.
const LONG_AGO: i64 = 2 * HOUR + HOUR / 2;
const A_WHILE_AGO: i64 = 5 * MINUTE + MINUTE / 2;
const SOON: i64 = 30 * MINUTE + MINUTE / 2;

/// A server, and the connection that writes to it.
pub(crate) struct Fleet {
    pub(crate) server: RedisServer,
    pub(crate) raw: Raw,
    now: i64,
}

/// A permit or a waiter, in its process.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) process: &'a str,
    pub(crate) permit: i64,
    pub(crate) weight: i64,
    /// The end of its id: `SHARE.FLOW.LABEL`.
    pub(crate) share_flow_label: &'a str,
}

impl Fleet {
    /// A server that is not used yet.
    pub(crate) async fn empty() -> Self {
        let server = RedisServer::start();
        let mut raw = Raw::connect(server.port()).await;
        let now = raw.server_time_ms().await;
        Self { server, raw, now }
    }

    /// Two accounts: the first has three units held and two waiting claims, and the second has one unit held.
    pub(crate) async fn start() -> Self {
        let mut fleet = Self::empty().await;
        fleet.process(MARKET, "web%2D1 4711 market 0%2E1%2E0").await;
        fleet.process(EXPORTS, "web%2D2 99 exports 0%2E1%2E0").await;
        let claim = |process, permit, weight, share_flow_label| Claim {
            process,
            permit,
            weight,
            share_flow_label,
        };
        let export = claim(MARKET, 51, 2, "..GET~20~2Fmarket~2Fexport");
        fleet.holds("ann", export).await;
        fleet.holds("ann", claim(EXPORTS, 3, 1, "..")).await;
        fleet.waits("ann", claim(EXPORTS, 4, 1, "..nightly")).await;
        fleet.waits("ann", claim(MARKET, 72, 1, "1.team-7.")).await;
        fleet.holds("bob", claim(MARKET, 73, 1, "..")).await;
        fleet
    }

    async fn set(&mut self, command: &[&str]) {
        let reply = self.raw.cmd(command).await;
        assert!(reply.error().is_none(), "{command:?}: {reply:?}");
    }

    /// `about` is `HOST PID NAME VERSION`, each percent-encoded.
    pub(crate) async fn process(&mut self, id: &str, about: &str) {
        let key = format!("semaphore:2:process:{id}");
        self.set(&["SET", &key, about]).await;
        let (member, end) = (format!("{id}:{DAY}"), (self.now + DAY).to_string());
        self.set(&["ZADD", "semaphore:2:processes", &end, &member])
            .await;
    }

    /// `key` is encoded as in the names of Redis keys.
    pub(crate) async fn holds(&mut self, key: &str, claim: Claim<'_>) {
        let (id, end) = (self.id(claim, LONG_AGO), (self.now + SOON).to_string());
        let held = format!("semaphore:2:{{concurrency:{key}}}:held");
        // Each unit is a member of the set: the first is the id, and the others have a number too.
        for unit in 1..=claim.weight {
            let member = match unit {
                1 => id.clone(),
                unit => format!("{id}:{unit}"),
            };
            self.set(&["ZADD", &held, &end, &member]).await;
        }
    }

    pub(crate) async fn waits(&mut self, key: &str, claim: Claim<'_>) {
        let (id, end) = (self.id(claim, A_WHILE_AGO), (self.now + SOON).to_string());
        let base = format!("semaphore:2:{{concurrency:{key}}}");
        // The arrival in microseconds.
        let place = (self.now * 1_000).to_string();
        // Each further waiter is later, so that it is behind the earlier ones.
        self.now += 1;
        self.set(&["ZADD", &format!("{base}:queue"), &place, &id])
            .await;
        self.set(&["ZADD", &format!("{base}:alive"), &end, &id])
            .await;
    }

    /// A pause that began a while ago: an entry of the queue, see `pause.lua`. `note` is encoded like the label in a
    /// permit's id.
    pub(crate) async fn add_pause(&mut self, key: &str, note: &str) {
        let (since, end) = (self.now - A_WHILE_AGO, self.now + SOON);
        let length = base36(end - since);
        let id = format!("{MARKET}.0.0.0.0.1.{length}.{since}.1.!.{note}");
        let base = format!("semaphore:2:{{concurrency:{key}}}");
        self.set(&["ZADD", &format!("{base}:queue"), "0", &id])
            .await;
        let end = end.to_string();
        self.set(&["ZADD", &format!("{base}:alive"), &end, &id])
            .await;
    }

    fn id(&self, claim: Claim<'_>, ago: i64) -> String {
        let Claim {
            process,
            permit,
            weight,
            share_flow_label,
        } = claim;
        // The lease and the generation are 0, and the limit is 5.
        let numbers = [permit, 0, 0, 5, weight, DAY, self.now - ago].map(base36);
        format!("{process}.{}.{share_flow_label}", numbers.join("."))
    }

    /// A limit that an operator has set. `target` is `POLICY`, or `POLICY:KEY`.
    pub(crate) async fn limit(&mut self, target: &str, limit: &str, note: &str) {
        let value = format!("{limit} {} {note}", self.now - LONG_AGO);
        // Processes notice a change by the version: see `limits.lua`.
        let fields = ["*version", "1", target, &value];
        self.set(
            &[
                &["HSET", "semaphore:2:limits{semaphore:2:processes}"],
                &fields[..],
            ]
            .concat(),
        )
        .await;
    }

    /// Makes `count` keys with one permit each: `k1`, `k2` and so on.
    pub(crate) async fn keys(&mut self, count: u32) {
        // The lease in each id, `1ffuo0`, is a day.
        let script = "for number = 1, ARGV[1] do \
            local id = ARGV[3] .. string.format('.%d.0.0.5.1.1ffuo0.', number) .. ARGV[4] .. '...' \
            redis.call('ZADD', 'semaphore:2:{concurrency:k' .. number .. '}:held', ARGV[2], id) end";
        let (count, end) = (count.to_string(), (self.now + SOON).to_string());
        let since = base36(self.now - LONG_AGO);
        self.set(&["EVAL", script, "0", &count, &end, MARKET, &since])
            .await;
    }
}

/// Encodes a number as in an id.
fn base36(mut number: i64) -> String {
    let mut digits = Vec::new();
    while number > 0 || digits.is_empty() {
        let digit = u32::try_from(number % 36).expect("a digit");
        digits.push(char::from_digit(digit, 36).expect("a digit"));
        number /= 36;
    }
    digits.iter().rev().collect()
}
