//! Checks of the servers, before a claim needs them.

use super::{
    ask::To,
    driver::StoreHealth,
    error::{CallError, deadline_after, finish_by},
    fault::{ConnectError, Kind, Origin, Unfit},
    protocol::{CHECK, OPERATOR_COMMANDS, failures, question_about, questions, redirect_probe},
    risk::{Checked, Risk},
    store::Store,
    transport::{ServerRole, field},
};
use crate::semaphore::{BoxFuture, timer::timeout_at};
use futures_util::{
    FutureExt,
    future::{Shared, join, join_all},
};
use redis::{Cmd, Value, cmd};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, select, time::sleep};

/// The longest time of a check.
const BOUND: Duration = Duration::from_secs(1);

/// A budget with a window of at least this is worth a warning if a restart of the server may lose it.
const LONG_WINDOW: Duration = Duration::from_secs(60 * 60);

/// If answers are still missing after this time, the check finds out at which command the server ends connections.
const PROBE_DELAY: Duration = Duration::from_millis(250);

/// The most servers at which a check tries to subscribe.
const MAX_TRIES: usize = 3;

/// The number of sample keys: enough that probably each server, and each part of the slots, has one.
const SAMPLES: usize = 128;

impl Store {
    /// See [`RedisSemaphore::check`](super::RedisSemaphore::check).
    pub(super) async fn check(self: &Arc<Self>) -> Checked {
        let deadline = deadline_after(BOUND);
        let checked = timeout_at(deadline, self.running_check(deadline)).await;
        checked.unwrap_or_else(|late| {
            Err(self
                .origin()
                .connect_error(late.or(CallError::Timeout(BOUND))))
        })
    }

    /// Returns the check that is running in this runtime, or else a new check. Each caller that is polled drives it, so
    /// a caller that is not polled delays no other. A check is not shared between runtimes, because each has its own
    /// connections.
    fn running_check(self: &Arc<Self>, deadline: Instant) -> Shared<BoxFuture<Checked>> {
        let (here, mut running) = (Handle::current().id(), self.running_check.lock());
        let joined = running
            .as_ref()
            .filter(|(runtime, until, _)| *runtime == here && Instant::now() < *until);
        let joined = joined.and_then(|(.., check)| check.upgrade());
        if let Some(check) = joined.filter(|check| check.peek().is_none()) {
            return check;
        }
        let store = Arc::clone(self);
        let check = Box::pin(async move { store.check_until(deadline).await }) as BoxFuture<_>;
        let check = check.shared();
        let weak = check.downgrade();
        // Not joined in its second half, because it would time out soon after the new caller has come.
        *running = weak.map(|weak| (here, deadline - BOUND / 2, weak));
        check
    }

    /// Runs the check. If answers are missing after `PROBE_DELAY`, also tests whether a server or a proxy ends
    /// connections at a command.
    async fn check_until(&self, deadline: Instant) -> Checked {
        let ended = async {
            sleep(PROBE_DELAY).await;
            self.ends_at(deadline).await
        };
        select! {
            checked = self.check_all(deadline) => checked,
            Some(error) = ended => Err(self.origin().connect_error(error)),
        }
    }

    /// The command at which the first server ends connections, as an error.
    async fn ends_at(&self, deadline: Instant) -> Option<CallError> {
        let first = *self.topology.servers().first()?;
        let connection = self.connection(first, deadline).await.ok()?;
        let command = connection.ends_at().await?;
        Some(CallError::unconnected(Unfit::EndsAt(command)))
    }

    async fn check_all(&self, deadline: Instant) -> Checked {
        let origin = self.origin();
        // The store itself must work, whatever its servers do.
        match self.driver.health() {
            StoreHealth::Well => {}
            StoreHealth::NoKeeper => {
                return Err(store_failure("the keeper's thread cannot be started"));
            }
            StoreHealth::Closed => {
                return Err(store_failure("the store has ended by a panic of its own"));
            }
        }
        let subscribed = self.check_messages(deadline);
        let (inspected, subscribed) = join(self.inspect(deadline), subscribed).await;
        if let Some(name) = self.server_name(&inspected) {
            self.server.get_or_init(|| name);
        }
        let mut risks = inspected.risks(&origin)?;
        inspected.verdict(&origin)?;
        if risks.contains(&Risk::ClusterNode) {
            let served = self.check_redirects(deadline).await;
            served.map_err(|error| origin.connect_error(error))?;
        }
        if let Err(error) = subscribed {
            let ended = match error.is_disconnect() || error.is_unexplained() {
                true => self.ends_at(deadline).await,
                false => None,
            };
            return Err(origin.check_error("SUBSCRIBE", ended.unwrap_or(error)));
        }
        let window = self.longest_window();
        if window >= LONG_WINDOW && inspected.field("aof_enabled") == Some("0") {
            risks.push(Risk::NoPersistence { window });
        }
        // The core reads the limits all the time, so they need no extra call.
        if !self.driver.reads_limits() {
            risks.push(Risk::NoLimits);
        }
        Ok(risks)
    }

    /// The home server: the server of the `processes` key, which all stores of one prefix share.
    fn home_server(&self) -> usize {
        let [_, processes] = self.owner.keys();
        self.server_of(&processes)
    }

    /// The `run_id` of the home server, or its address if it does not permit `INFO`.
    fn server_name(&self, inspected: &Inspected) -> Option<String> {
        match &inspected.info {
            Info::Known(info) => field(info, "run_id").map(str::to_owned),
            Info::NotPermitted => Some(self.topology.address(self.home_server())),
            Info::Unanswered => None,
        }
    }

    /// Runs `INFO`, and each command that a script needs, on a key of each server.
    async fn inspect(&self, deadline: Instant) -> Inspected {
        let left = deadline.saturating_duration_since(Instant::now());
        // One of several nodes may be silent. So the commands end early enough to report the answers of the others.
        let spare = match self.topology.servers().len() {
            ..=1 => Duration::ZERO,
            _ => left / 4,
        };
        let until = deadline - spare;
        let questions = self.questions().into_iter();
        let answers = questions.map(async |(server, questions)| {
            let (names, commands): (Vec<_>, _) = questions.into_iter().unzip();
            let replies = self.confirmed(To::Server(server), commands, until);
            // `INFO` is sent separately, because with too few replicas every reply above is an error.
            let info = self.info(server, until);
            let (info, replies) = join(info, replies).await;
            (server, info, names.into_iter().zip(replies))
        });
        let (mut inspected, home) = (Inspected::default(), self.home_server());
        for (server, info, replies) in join_all(answers).await {
            // The home server's answer is preferred, and any answer is better than none.
            let is_answer = info != Info::Unanswered;
            if inspected.info == Info::Unanswered || server == home && is_answer {
                inspected.info = info;
            }
            replies.for_each(|(name, reply)| inspected.add(&name, reply));
        }
        inspected
    }

    async fn info(&self, server: usize, until: Instant) -> Info {
        let Ok(connection) = self.connection(server, until).await else {
            return Info::Unanswered;
        };
        if connection.is_basic() {
            return Info::NotPermitted;
        }
        let asked = self.ask(To::Server(server), cmd("INFO"), until);
        match asked.await {
            Ok(info) => Info::Known(info),
            Err(error) if error.is_an_answer() => Info::NotPermitted,
            Err(_) => Info::Unanswered,
        }
    }

    /// The commands for each server, with their names in errors.
    fn questions(&self) -> BTreeMap<usize, Vec<(String, Cmd)>> {
        let (prefix, mut asked) = (&self.owner.prefix, BTreeMap::new());
        let channel = format!("{prefix}wake:check");
        // One sample key of each server.
        for key in (0..SAMPLES).map(|number| format!("{prefix}{{check{number}}}")) {
            let of_server = asked.entry(self.server_of(&key));
            of_server.or_insert_with(|| Vec::from(questions(&key, &channel)));
        }
        let [clock, processes] = self.owner.keys();
        // The store's other keys, each with a command that reads it.
        let own: [(_, &[_]); 3] = [
            (clock, &["GET"]),
            (processes, &["ZCARD"]),
            (self.owner.limits_key(), &["HGET", "*version"]),
        ];
        for (key, read) in own {
            let asked = asked.entry(self.server_of(&key)).or_default();
            asked.push(question_about(key, read));
        }
        asked
    }

    /// Fails if the only known server redirects some keys to another server, because then it is one node of a larger
    /// cluster.
    async fn check_redirects(&self, deadline: Instant) -> Result<(), CallError> {
        let commands = (0..SAMPLES).map(|number| redirect_probe(&self.owner.prefix, number));
        let replies = self.call(To::Server(0), commands.collect(), deadline).await;
        let mut errors = replies.into_iter().filter_map(Result::err);
        let error = errors.find(|error| error.is_moving() || !error.is_an_answer());
        error.map_or(Ok(()), Err)
    }

    /// Tries to subscribe until the deadline, to check that this client has the right. Tries a few servers until one
    /// answers, because messages come through any of them.
    async fn check_messages(&self, deadline: Instant) -> Result<(), CallError> {
        let servers = self.topology.servers();
        let mut subscribed = Ok(());
        for (&server, tries_left) in servers.iter().zip((1..=servers.len().min(MAX_TRIES)).rev()) {
            let time = deadline.saturating_duration_since(Instant::now()) / tries_left as u32;
            let until = deadline_after(time);
            let subscribe = async { self.connection(server, until).await?.subscribe().await };
            subscribed = finish_by(until, CallError::Timeout(time), subscribe)
                .await
                .map(drop);
            if subscribed.is_ok() {
                break;
            }
        }
        subscribed
    }
}

/// The error of a store that has failed itself, while its servers may work.
fn store_failure(reason: &str) -> ConnectError {
    ConnectError::unavailable(io::Error::other(reason))
}

/// The servers' answers about themselves and about this client's rights.
#[derive(Default)]
struct Inspected {
    info: Info,
    /// The commands that failed, each with its error.
    failed: Vec<(String, CallError)>,
    /// The commands of operators' calls that a server does not permit.
    denied: BTreeSet<String>,
    /// True once all commands have worked on one server.
    works: bool,
}

/// The answer to `INFO`.
#[derive(Default, PartialEq)]
enum Info {
    Known(String),
    /// The server does not permit the command, or is never sent it because it gets no optional commands.
    NotPermitted,
    #[default]
    Unanswered,
}

impl Inspected {
    fn add(&mut self, name: &str, reply: Result<Value, CallError>) {
        let (name, reply) = match reply {
            // Without a connection the command was not sent, so the error does not name it.
            Err(CallError::Unavailable(error)) => ("", Err(CallError::Unavailable(error))),
            // The last attempt had only the rest of the time, but the error shows the whole bound.
            Err(CallError::Timeout(_)) => (name, Err(CallError::Timeout(BOUND))),
            reply => (name, reply),
        };
        let is_of_operators = |(name, _): &(String, _)| OPERATOR_COMMANDS.contains(&&**name);
        let failures = failures(name, reply).into_iter();
        let (for_operators, failures): (Vec<_>, Vec<_>) = failures.partition(is_of_operators);
        let denied = for_operators
            .into_iter()
            .filter(|(_, error)| error.is_denied());
        self.denied.extend(denied.map(|(name, _)| name));
        self.works |= name == CHECK && failures.is_empty();
        self.failed.extend(failures);
    }

    /// Fails if any error needs a person to correct it. An error that may pass counts only if no server works, because
    /// a cluster's node that is down affects only its own keys.
    fn verdict(&self, origin: &Origin<'_>) -> Result<(), ConnectError> {
        let failed = self.failed.iter();
        let errors = failed.map(|(command, error)| origin.check_error(command, error.clone()));
        let may_pass = |error: &ConnectError| error.kind() == Kind::Unavailable;
        let errors = errors.filter(|error| !(self.works && may_pass(error)));
        // `false` is less than `true`, so an error that needs a person comes first.
        errors.min_by_key(may_pass).map_or(Ok(()), Err)
    }

    fn risks(&self, origin: &Origin<'_>) -> Result<Vec<Risk>, ConnectError> {
        let denied = (!self.denied.is_empty()).then(|| Risk::NoOperate {
            commands: self.denied.iter().cloned().collect(),
        });
        if !matches!(self.info, Info::Known(_)) {
            let no_info = (self.info == Info::NotPermitted).then_some(Risk::NoInfo);
            return Ok(no_info.into_iter().chain(denied).collect());
        }
        if self.field("redis_mode") == Some("sentinel") {
            let text = "the server is a Sentinel, which `connect_sentinel` connects to";
            return Err(ConnectError::of_setting("url", text));
        }
        if self.field("role") == Some("slave") {
            return Err(origin.replica());
        }
        if let Some(found) = self.field("redis_version").filter(|found| is_old(found)) {
            let text = format!("Redis {found} is older than 6.2: use a newer one");
            return Err(ConnectError::of_setting("url", text));
        }
        let is_bounded = self.field("maxmemory").is_some_and(|bytes| bytes != "0");
        let policy = self.field("maxmemory_policy").filter(|_| is_bounded);
        let evicts = policy.filter(|policy| *policy != "noeviction");
        let eviction = evicts.map(|policy| Risk::Eviction {
            policy: policy.to_owned(),
        });
        let is_of_cluster = self.field("cluster_enabled") == Some("1");
        let is_node = is_of_cluster && matches!(origin.role, ServerRole::Url | ServerRole::Primary);
        let risks = [eviction, is_node.then_some(Risk::ClusterNode), denied];
        Ok(risks.into_iter().flatten().collect())
    }

    /// A field of `INFO`.
    fn field(&self, name: &str) -> Option<&str> {
        match &self.info {
            Info::Known(info) => field(info, name),
            _ => None,
        }
    }
}

/// True if a version is below 6.2. A version that cannot be parsed does not count as old.
fn is_old(version: &str) -> bool {
    let mut parts = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let version = (parts.next(), parts.next());
    version.1.is_some() && version < (Some(6), Some(2))
}

#[cfg(test)]
mod tests;
