//! The three scripts: one function each, and nothing else sends them.
//!
//! `EVALSHA` first and, where the server does not know the script, `EVAL`: a `SCRIPT LOAD` to
//! every node would let one dead shard break all others.

use super::{
    answer::{Answer, Held},
    connection::Connection,
    error::Error,
    lease::Lease,
    outbox::Group,
};
use redis::{Cmd, RedisWrite, ToRedisArgs, Value};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// The scripts, and the way to where they run.
pub(super) struct Scripts {
    connection: Connection,
    process: Arc<str>,
    lease_ms: u64,
    acquire: Script,
    refresh: Script,
    release: Script,
}

/// How a claim waits, told with each acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// How long its owner counts as alive without a further word. Zero: it does not wait.
    pub(super) alive: Duration,
    /// How many may wait.
    pub(super) longest: u32,
    /// The ticket that it was given before; 0 for none.
    pub(super) ticket: u64,
}

impl Scripts {
    pub(super) fn new(connection: Connection, process: Arc<str>, lease_ms: u64) -> Self {
        Self {
            connection,
            process,
            lease_ms,
            acquire: Script::new(include_str!("acquire.lua")),
            refresh: Script::new(include_str!("refresh.lua")),
            release: Script::new(include_str!("release.lua")),
        }
    }

    /// Takes a permit, or a place in the line. Over within two timeouts, a reconnect included.
    pub(super) async fn acquire(&self, lease: &Lease, place: Place) -> Result<Answer, Error> {
        let budget = self.connection.timeout() * 2;
        let start = Instant::now();
        let mut form = Form::Hash;
        loop {
            let left = budget.saturating_sub(start.elapsed());
            match self
                .connection
                .call(self.acquire_command(lease, place, form), left)
                .await
            {
                Err(error) if error.is_no_script() && form == Form::Hash => form = Form::Source,
                Err(error) if error.is_disconnect() && start.elapsed() < budget => {}
                answer => return answer.and_then(|value| Answer::read(&value)),
            }
        }
    }

    /// Takes permits again that were lost.
    pub(super) async fn reacquire(&self, leases: &[Arc<Lease>]) -> Vec<Result<Answer, Error>> {
        let answers = self
            .run(leases, |lease, form| {
                self.acquire_command(lease, Place::default(), form)
            })
            .await;
        let read = |answer: Result<Value, Error>| answer.and_then(|value| Answer::read(&value));
        answers.into_iter().map(read).collect()
    }

    /// Moves the ends of leases. For each group, which of its units are held.
    pub(super) async fn refresh(&self, groups: &[Group]) -> Vec<Result<Held, Error>> {
        self.units(&self.refresh, groups, |_| self.lease_ms).await
    }

    /// Gives units back. For each group, which of its units were held, or how many if `ask` is
    /// not set.
    pub(super) async fn release(&self, groups: &[Group]) -> Vec<Result<Held, Error>> {
        self.units(&self.release, groups, |group| u64::from(group.ask))
            .await
    }

    /// Runs a script on the units of each group.
    async fn units(
        &self,
        script: &Script,
        groups: &[Group],
        first: impl Fn(&Group) -> u64,
    ) -> Vec<Result<Held, Error>> {
        let make = |group: &Group, form| {
            let mut command = script.command(form, &group.name);
            command.arg(first(group));
            self.members(command, group)
        };
        let answers = self.run(groups, make).await;
        let read = |answer: Result<Value, Error>| answer.and_then(Held::read);
        answers.into_iter().map(read).collect()
    }

    fn acquire_command(&self, lease: &Lease, place: Place, form: Form) -> Cmd {
        let mut command = self.acquire.command(form, &lease.name);
        command
            .arg(Text(lease.id(&self.process, self.lease_ms)))
            .arg(lease.units.limit)
            .arg(lease.units.weight)
            .arg(self.lease_ms)
            .arg(place.alive.as_millis() as u64)
            .arg(place.longest)
            .arg(place.ticket);
        command
    }

    fn members(&self, mut command: Cmd, group: &Group) -> Cmd {
        for lease in &group.leases {
            for member in lease.members(&self.process, self.lease_ms) {
                command.arg(Text(member));
            }
        }
        command
    }

    /// Sends a command for each item, and those that the server did not know once more.
    async fn run<T>(
        &self,
        items: &[T],
        make: impl Fn(&T, Form) -> Cmd,
    ) -> Vec<Result<Value, Error>> {
        let commands = items.iter().map(|item| make(item, Form::Hash)).collect();
        let mut answers = self.connection.batch(commands).await;
        let unknown: Vec<usize> = (0..answers.len())
            .filter(|&i| answers[i].as_ref().is_err_and(Error::is_no_script))
            .collect();
        if !unknown.is_empty() {
            let again = unknown
                .iter()
                .map(|&i| make(&items[i], Form::Source))
                .collect();
            let again = self.connection.batch(again).await;
            for (i, answer) in unknown.into_iter().zip(again) {
                answers[i] = answer;
            }
        }
        answers
    }
}

/// What the names of a semaphore's keys end with, in the order of `keys.lua`.
const KEYS: [&str; 4] = ["held", "line", "beat", "ticket"];

/// How a script is named to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Hash,
    Source,
}

struct Script {
    source: String,
    /// SHA-1 of the source.
    hash: String,
}

impl Script {
    /// A script with what it includes.
    fn new(source: &str) -> Self {
        let source = source
            .replace("-- include keys.lua\n", include_str!("keys.lua"))
            .replace("-- include line.lua\n", include_str!("line.lua"));
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }

    /// The script with its keys, ready for its arguments.
    fn command(&self, form: Form, name: &str) -> Cmd {
        let mut command = Cmd::new();
        match form {
            Form::Hash => command.arg("EVALSHA").arg(&self.hash),
            Form::Source => command.arg("EVAL").arg(&self.source),
        };
        command.arg(KEYS.len());
        for suffix in KEYS {
            command.arg(Text(format_args!("{name}:{suffix}")));
        }
        command
    }
}

/// An argument written by its `Display`, without a string in between.
struct Text<T>(T);

impl<T: fmt::Display> ToRedisArgs for Text<T> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(&self.0);
    }
}
