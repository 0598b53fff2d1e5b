//! [`Operate`] for the store in Redis: usage, keys, revocations, limits, pauses, counts and processes.

use super::{
    ask::{To, only, with_metrics},
    budgets::{BudgetFields, NO_WINDOW},
    error::CallError,
    protocol::{
        Form, convert_reply, flow_of, key_of, limit_command, limit_target_and_note, name_start,
        query_command, read_limit, read_limits, read_process,
    },
    store::{RedisSemaphore, Store},
    transport::ServerRole,
};
use crate::semaphore::{
    BoxFuture, Key, KeyCounts, KeyPage, KeyStream, LimitInfo, LimitStream, MAX_WEIGHT, Operate,
    Pause, PauseInfo, PermitInfo, Policy, Process, StoreError, StoredKey, Usage,
};
use futures_util::{StreamExt, TryStreamExt, future::join_all, stream};
use proto::verbs::{Cursors, PauseEntry, Query, RevokeQuery, UnitId, UsageListing, is_done};
use redis::{Value, cmd};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The approximate number of names that a server visits per call, in less than a millisecond.
const SCAN_COUNT: usize = 1_000;

/// The time that the stream of all keys spends on one page.
const PAGE_TIME: Duration = Duration::from_millis(100);

/// The suffixes of keys that exist only while a semaphore has permits or waiters.
const SUFFIXES: [&str; 2] = [":held", ":queue"];

/// Lists the permits of all processes. Each process that claims also stores its host, pid, name and version. Permits
/// that were admitted while Redis was unavailable are not listed.
///
/// The holder of a revoked permit is notified by a message at once. If the message is lost with its connection, the
/// holder learns of the revocation when its process has subscribed again. At the latest it learns of it at the next
/// refresh of the permit, a third of a lease later. The server stores the id of the permit for an hour, or for eight
/// leases if that is longer. So a holder that is cut off for no longer than that cannot regain the permit. A failover
/// may lose a revocation before the holder was notified, unless [`min_replicas`](super::Builder::min_replicas) requires
/// replicas to have it.
///
/// A call takes at most two [timeouts](super::Builder::timeout) once it is sent. A store has at most 32 such calls in
/// flight, and others wait for their turn. `usage`, `keys` and `counts` make one call per page, `usage` and `processes`
/// also one per process.
///
/// On every primary the user needs `ZSCAN` for `usage`, `ZCOUNT` for `counts`, and `SCAN` for `keys` and `keys_page`. A
/// store that [only operates](super::Builder::operator) also needs `HMGET` for `usage`.
impl Operate for RedisSemaphore {
    fn usage(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<Usage, StoreError>> {
        let (store, name) = (Arc::clone(&self.0), self.0.name(policy, key));
        self.0.answer(async move { store.usage(&name).await })
    }

    fn keys(&self, policy: &Policy) -> KeyStream {
        match Scan::new(&self.0, policy) {
            Ok(scan) => scan.stream(),
            Err(error) => Box::pin(stream::iter([Err(error)])),
        }
    }

    fn keys_page(
        &self,
        policy: &Policy,
        cursor: Option<&str>,
        time: Duration,
    ) -> BoxFuture<Result<Option<KeyPage>, StoreError>> {
        let from = cursor.map_or_else(|| Some(ScanCursor::default()), ScanCursor::parse);
        let scan = Scan::new(&self.0, policy);
        Box::pin(async move {
            let Some(from) = from else { return Ok(None) };
            scan?.page(from, time).await.map(Some)
        })
    }

    fn revoke(&self, policy: &Policy, key: &Key, id: &str) -> BoxFuture<Result<bool, StoreError>> {
        let (store, name, id) = (Arc::clone(&self.0), self.0.name(policy, key), id.to_owned());
        self.0.answer(async move { store.revoke(&name, &id).await })
    }

    fn set_limit(
        &self,
        policy: &Policy,
        key: Option<&Key>,
        limit: Option<u32>,
        note: &str,
    ) -> BoxFuture<Result<(), StoreError>> {
        let checked = LimitInfo::check(policy, key);
        let store = Arc::clone(&self.0);
        let [target, note] = limit_target_and_note(policy, key, note);
        let set = async move { store.set_limit(&target, limit, &note).await };
        let set = self.0.answer(set);
        Box::pin(async move {
            checked?;
            match set.await? {
                true => Ok(()),
                false => Err(StoreError::new("too many limits are set: remove one first")),
            }
        })
    }

    fn limits(&self) -> LimitStream {
        let store = Arc::clone(&self.0);
        let all = stream::once(self.0.answer(async move { store.limits().await }));
        Box::pin(all.map_ok(|all| stream::iter(all).map(Ok)).try_flatten())
    }

    fn pause(
        &self,
        policy: &Policy,
        key: &Key,
        time: Duration,
        note: &str,
    ) -> BoxFuture<Result<(), StoreError>> {
        let checked = Pause::check(policy, key);
        let (store, name) = (Arc::clone(&self.0), self.0.name(policy, key));
        let pause = Pause::new(time, note);
        let paused = self.0.answer(async move { store.pause(name, pause).await });
        Box::pin(async move {
            checked?;
            paused.await
        })
    }

    fn resume(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<bool, StoreError>> {
        let (store, name) = (Arc::clone(&self.0), self.0.name(policy, key));
        self.0.answer(async move { store.resume(name).await })
    }

    fn counts(
        &self,
        policy: &Policy,
        keys: &[StoredKey],
    ) -> BoxFuture<Result<Vec<KeyCounts>, StoreError>> {
        let (store, policy, keys) = (Arc::clone(&self.0), policy.clone(), keys.to_vec());
        self.0
            .answer(async move { store.counts(&policy, keys).await })
    }

    fn processes(&self) -> BoxFuture<Result<Vec<Process>, StoreError>> {
        let store = Arc::clone(&self.0);
        self.0.answer(async move { store.processes().await })
    }
}

impl Store {
    /// Boxes an operator's call, and converts its error.
    pub(super) fn answer<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> BoxFuture<Result<T, StoreError>> {
        let store = Arc::clone(self);
        Box::pin(async move { call.await.map_err(|error| store.failure(&error)) })
    }

    /// Revokes a permit. Returns false if `id` is malformed, or names no permit and no waiter.
    async fn revoke(&self, name: &str, id: &str) -> Result<bool, CallError> {
        if self.revoke_in(name, id, MAX_WEIGHT).await? {
            return Ok(true);
        }
        for name in self.budget_names(name).await? {
            if self.revoke_in(&name, id, u32::MAX).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Revokes a permit of one semaphore or budget. A permit has at most `max_weight` units of it.
    async fn revoke_in(&self, name: &str, id: &str, max_weight: u32) -> Result<bool, CallError> {
        let floor = self.driver.floor();
        let Some(revocation) = RevokeQuery::new(name, id, floor, max_weight) else {
            return Ok(false);
        };
        // Runs at most once, because a second run would report that the permit does not exist.
        let turn = self.operator_turn().await;
        self.change(Query::Revoke(revocation), To::KeyOnce(name), turn.deadline)
            .await
    }

    /// Runs a query that changes something. Returns true if it was done. Operators may run many of these at once, so
    /// the script is named by its hash. Its source is sent only if the server does not know the hash, or does not
    /// permit `EVALSHA`.
    async fn change(
        &self,
        change: Query<'_>,
        to: To<'_>,
        until: Instant,
    ) -> Result<bool, CallError> {
        let run = async |form| {
            let commands = vec![query_command(form, &self.owner, &change)];
            only(self.confirmed(to, commands, until).await)
        };
        let call = async {
            match run(Form::Hash).await {
                Err(error) if error.is_code(&["NOSCRIPT", "NOPERM"]) => run(Form::Source).await,
                done => done,
            }
        };
        let done = with_metrics(change.verb().name(), call).await?;
        is_done(&convert_reply(done)).ok_or(CallError::Reply)
    }

    /// Runs a query that only reads.
    async fn read(&self, reading: Query<'_>) -> Result<Value, CallError> {
        let name = reading.name(&self.owner);
        let commands = vec![query_command(Form::Source, &self.owner, &reading)];
        let turn = self.operator_turn().await;
        let read = async { only(self.call(To::Key(&name), commands, turn.deadline).await) };
        with_metrics(reading.verb().name(), read).await
    }

    /// Pauses a semaphore. `None` means a time below 1 ms, and changes nothing.
    pub(super) async fn pause(
        &self,
        name: Arc<str>,
        pause: Option<Pause>,
    ) -> Result<(), CallError> {
        if let Some(pause) = pause {
            // Noted before the call, so that claims decided without the server observe the pause at once.
            self.driver.note_pause(Arc::clone(&name), Some(pause.time));
            self.set_pause(&name, Some(&pause)).await?;
        }
        Ok(())
    }

    /// Ends the pause of a semaphore. Returns false if it was not paused. Unless the call certainly has not run, this
    /// process no longer observes the pause either.
    async fn resume(&self, name: Arc<str>) -> Result<bool, CallError> {
        let was_paused = self.set_pause(&name, None).await;
        if !matches!(was_paused, Err(CallError::Unavailable(_))) {
            self.driver.note_pause(name, None);
        }
        was_paused
    }

    /// Sets or ends a pause, of a semaphore and of the budgets of its key. Returns true if it has done so for any of
    /// them.
    async fn set_pause(&self, name: &str, pause: Option<&Pause>) -> Result<bool, CallError> {
        let mut has_changed = self.set_one_pause(name, pause).await?;
        // For windows that are not in use yet. Comes before the budgets are listed, so that a window that comes into
        // use in between is not missed.
        let unused = format!("{name}{NO_WINDOW}");
        let for_unused = self.set_one_pause(&unused, pause).await;
        let budgets = self.budget_names(name).await?;
        for name in &budgets {
            has_changed |= self.set_one_pause(name, pause).await?;
        }
        match for_unused {
            // A Redis user without rights for the keys of budgets has no budgets.
            Err(error) if error.is_denied() && budgets.is_empty() => Ok(has_changed),
            changed => Ok(has_changed | changed?),
        }
    }

    /// Sets or ends the pause of one semaphore or budget. An end runs at most once, because a second run would report
    /// that the key was not paused.
    async fn set_one_pause(&self, name: &str, pause: Option<&Pause>) -> Result<bool, CallError> {
        let pausing = Query::Pause {
            name,
            floor: self.driver.floor(),
            pause: pause.map(|pause| (pause.time, pause.note.as_deref().unwrap_or_default())),
        };
        let to = match pause {
            Some(_) => To::Key(name),
            None => To::KeyOnce(name),
        };
        let turn = self.operator_turn().await;
        self.change(pausing, to, turn.deadline).await
    }

    /// Sets a limit. If this process makes claims, waits until they use it. Returns false if too many limits are set.
    async fn set_limit(
        &self,
        target: &str,
        limit: Option<u32>,
        note: &str,
    ) -> Result<bool, CallError> {
        let setting = Query::SetLimit {
            of: target,
            limit,
            note,
        };
        let key = self.owner.limits_key();
        let turn = self.operator_turn().await;
        let set = self.change(setting, To::Key(&key), turn.deadline).await;
        // Waits until this process has read the limit that was set. After an error the limit may have been set too, so
        // the reading only begins: the deadline is now.
        let uses_limits = self.settings.claims && !self.driver.is_shut();
        let until = match set {
            Ok(_) if uses_limits => turn.deadline,
            _ => Instant::now(),
        };
        let is_read = self.driver.read_limits(until).await;
        match set? {
            true if uses_limits && !is_read => Err(CallError::Timeout(self.settings.call_time())),
            is_set => Ok(is_set),
        }
    }

    async fn limits(&self) -> Result<Vec<LimitInfo>, CallError> {
        read_limits(self.read(Query::Limits).await?)
    }

    async fn usage(&self, name: &str) -> Result<Usage, CallError> {
        let mut usage = usage_of(&self.read_listing(name).await?);
        let budgets = self.budgets(name).await?;
        for window in budgets.windows() {
            let listed = self.read_listing(&format!("{name}{window}")).await?;
            usage = with_budget(usage, &listed, window, &budgets);
        }
        let all = usage.held.iter().chain(&usage.waiting);
        let ids: BTreeSet<_> = all.map(|info| info.process.id.clone()).collect();
        let described = join_all(ids.iter().map(|id| self.described_process(id))).await;
        let processes: HashMap<_, _> = described
            .into_iter()
            .map(|process| (process.id.clone(), process))
            .collect();
        for info in usage.held.iter_mut().chain(&mut usage.waiting) {
            info.process.clone_from(&processes[&info.process.id]);
        }
        let limit = match self.settings.claims {
            true => self.driver.limit_of(name),
            // A store that only operates reads no limits in the background. On a cluster the node with the limits may
            // be down, and the usage is shown without them.
            false => match self.limit_of(name).await {
                Err(error) if error.may_pass() => None,
                limit => limit?,
            },
        };
        Ok(usage.under(limit))
    }

    /// Reads the limit that an operator has set for a semaphore or its policy.
    async fn limit_of(&self, name: &str) -> Result<Option<u32>, CallError> {
        let (key, command) = limit_command(&self.owner, name);
        let turn = self.operator_turn().await;
        let reply = self.ask(To::Key(&key), command, turn.deadline);
        read_limit(reply.await?)
    }

    /// Lists the permits and waiters of a semaphore or budget. Reads the list in pages, with one call each.
    async fn read_listing(&self, name: &str) -> Result<UsageListing, CallError> {
        let (mut listed, mut next) = (UsageListing::default(), Some(Cursors::first()));
        while let Some(from) = next {
            let page = self.read(Query::Usage { name, from: &from }).await?;
            next = listed.add(&convert_reply(page)).ok_or(CallError::Reply)?;
        }
        Ok(listed)
    }

    /// A process with its description. Has only its id if the description has expired or the call fails.
    pub(super) async fn described_process(&self, id: &str) -> Process {
        if *id == *self.owner.process {
            let mut own = Process::current();
            id.clone_into(&mut own.id);
            return own;
        }
        read_process(id, self.read(Query::Process(id)).await.ok())
    }
}

/// Converts a listing to a usage, in which processes have only their ids.
fn usage_of(listed: &UsageListing) -> Usage {
    let waiting = listed.waiting().into_iter().filter_map(|(id, ends)| {
        let read = UnitId::read(id).filter(|id| id.unit == 1)?;
        Some(permit_info(id, &read, read.lease.weight, ends))
    });
    let units = u32::try_from(listed.held.len()).unwrap_or(u32::MAX);
    let held = group_into_permits(&listed.held);
    let mut usage = Usage::new(system_time(listed.now), units, held, waiting.collect());
    usage.pause = listed.pause().map(pause_info);
    usage
}

/// Adds the usage of a budget to that of its key.
fn with_budget(usage: Usage, listed: &UsageListing, window: u32, budgets: &BudgetFields) -> Usage {
    let mut of_budget = usage_of(listed);
    for info in of_budget.held.iter_mut().chain(&mut of_budget.waiting) {
        // A reservation is listed as one unit, however many units it reserves. Its id has the number.
        info.weight = UnitId::read(&info.id).map_or(info.weight, |id| id.lease.weight);
        budgets.complete(info, window);
    }
    let budget = budgets.usage(window, listed.now, &of_budget.held);
    let used = budget.map_or(0, |budget| budget.spent.saturating_add(budget.reserved));
    let mut both = Usage::new(
        of_budget.now,
        usage.units.saturating_add(used),
        usage.held.into_iter().chain(of_budget.held).collect(),
        usage.waiting.into_iter().chain(of_budget.waiting).collect(),
    );
    both.budgets = usage.budgets.into_iter().chain(budget).collect();
    both.pause = usage.pause.or(of_budget.pause);
    both
}

/// Groups units into permits. A permit has the id of its first lease that still has units.
fn group_into_permits(units: &BTreeMap<String, u64>) -> Vec<PermitInfo> {
    // Sorted, so that permits with the same start are listed in the same order each time. The number is that of the
    // permit's first lease.
    let mut permits: BTreeMap<_, (u32, PermitInfo)> = BTreeMap::new();
    for (unit, ends) in units {
        let Some(read) = UnitId::read(unit) else {
            continue;
        };
        let id = unit.split(':').next().unwrap_or_default();
        let (name, new) = (read.lease.name, permit_info(id, &read, 0, *ends));
        let permit = permits.entry((read.process, name.permit));
        let (first, permit) = permit.or_insert_with(|| (name.lease, new.clone()));
        // A permit ends with the first of its leases that ends.
        let (weight, ends) = (permit.weight + 1, permit.ends.min(new.ends));
        if name.lease <= *first {
            (*first, *permit) = (name.lease, new);
        }
        (permit.weight, permit.ends) = (weight, ends);
    }
    permits.into_values().map(|(_, permit)| permit).collect()
}

/// Converts a pause, and its end in ms of the server's clock.
pub(super) fn pause_info((entry, ends): (PauseEntry, u64)) -> PauseInfo {
    let mut info = PauseInfo::new(system_time(entry.since), system_time(ends));
    info.note = entry.note;
    info
}

fn permit_info(id: &str, read: &UnitId<'_>, weight: u32, ends: u64) -> PermitInfo {
    let (process, lease) = (Process::new(read.process), &read.lease);
    let mut info = PermitInfo::new(id, process, weight, lease.limit, system_time(lease.since));
    info.label = lease.label.as_deref().map(str::to_owned);
    info.flow = lease.flow.as_ref().map(|flow| flow_of(flow.name()));
    info.ends = Some(system_time(ends));
    info
}

/// Converts ms since the epoch.
fn system_time(ms: u64) -> SystemTime {
    let since_epoch = UNIX_EPOCH.checked_add(Duration::from_millis(ms));
    since_epoch.unwrap_or(UNIX_EPOCH)
}

/// Finds the keys of one policy on all servers.
struct Scan {
    store: Arc<Store>,
    /// The servers that have keys, by their addresses on a cluster. A single server has an empty name.
    servers: BTreeMap<String, usize>,
    /// The start of the names of the policy's semaphores.
    name_start: String,
}

/// The position of a scan, which callers see as `CURSOR@SERVER`. If the server is gone, the scan continues at the start
/// of the next one.
#[derive(Default)]
struct ScanCursor {
    server: String,
    cursor: u64,
}

impl ScanCursor {
    fn parse(text: &str) -> Option<Self> {
        let (cursor, server) = text.split_once('@')?;
        let (cursor, server) = (cursor.parse().ok()?, server.to_owned());
        Some(Self { server, cursor })
    }
}

impl Scan {
    fn new(store: &Arc<Store>, policy: &Policy) -> Result<Self, StoreError> {
        let (topology, role) = (&store.topology, store.topology.role());
        let name = |server| match role {
            ServerRole::Node => topology.address(server),
            _ => String::new(),
        };
        let servers = topology.servers().into_iter();
        Ok(Self {
            store: Arc::clone(store),
            servers: servers.map(|server| (name(server), server)).collect(),
            name_start: name_start(&store.owner.prefix, policy),
        })
    }

    /// All keys, each once.
    fn stream(self) -> KeyStream {
        let scan = Arc::new(self);
        let pages = stream::try_unfold(Some(ScanCursor::default()), move |at| {
            let scan = Arc::clone(&scan);
            async move {
                let Some(at) = at else { return Ok(None) };
                let page = scan.page(at, PAGE_TIME).await?;
                let next = page.next.as_deref().and_then(ScanCursor::parse);
                Ok(Some((page.keys, next)))
            }
        });
        let mut seen = HashSet::new();
        let new = pages.map_ok(move |mut keys| {
            keys.retain(|key| seen.insert(key.clone()));
            stream::iter(keys).map(Ok)
        });
        Box::pin(new.try_flatten())
    }

    /// Collects keys from a position on, until it has [`KeyPage::MOST`] or `time` has passed. Makes at least one call.
    async fn page(&self, mut at: ScanCursor, time: Duration) -> Result<KeyPage, StoreError> {
        let (start, mut keys) = (Instant::now(), HashSet::new());
        let next = loop {
            // The first is the server of the position, or the next one if that server is gone.
            let mut servers = self.servers.range(at.server.clone()..);
            let Some((name, server)) = servers.next() else {
                break None;
            };
            let cursor = if *name == at.server { at.cursor } else { 0 };
            let names;
            let scanned = self.scan(*server, cursor).await;
            (at.cursor, names) = scanned.map_err(|error| self.store.failure(&error))?;
            keys.extend(names.iter().filter_map(|name| self.key_of(name)));
            // A cursor of 0 ends the scan of a server.
            let unfinished = (at.cursor > 0).then_some(name);
            let Some(name) = unfinished.or(servers.next().map(|(next, _)| next)) else {
                break None;
            };
            at.server.clone_from(name);
            if keys.len() >= KeyPage::MOST || start.elapsed() >= time {
                break Some(format!("{}@{}", at.cursor, at.server));
            }
        };
        Ok(KeyPage::new(keys.into_iter().collect(), next))
    }

    /// Runs one `SCAN`. Returns the next cursor and the names.
    async fn scan(&self, server: usize, cursor: u64) -> Result<(u64, Vec<Vec<u8>>), CallError> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg(literal(&self.name_start) + "*");
        scan.arg("COUNT").arg(SCAN_COUNT);
        let turn = self.store.operator_turn().await;
        self.store
            .ask(To::Server(server), scan, turn.deadline)
            .await
    }

    /// Parses the semaphore's key from the name of a key in Redis. Returns `None` unless the name ends in one of
    /// `SUFFIXES`.
    fn key_of(&self, name: &[u8]) -> Option<StoredKey> {
        let rest = str::from_utf8(name).ok()?.strip_prefix(&self.name_start)?;
        let mut suffixes = SUFFIXES.iter();
        let stem = suffixes.find_map(|suffix| rest.strip_suffix(suffix));
        stem.and_then(key_of)
    }
}

/// A pattern that matches this text only.
fn literal(text: &str) -> String {
    let escaped = text.chars().flat_map(|character| {
        let is_special = r"*?[]\^-".contains(character);
        let escape = is_special.then_some('\\');
        escape.into_iter().chain([character])
    });
    escaped.collect()
}
