//! What operators ask, and what a check does: requests that the core need not know.
//!
//! They travel over the current runtime's connections, and follow a slot that has moved.

use super::metered::Metered;
use crate::redis::{
    clock::Times,
    driver::{Driver, Session, Wire},
    error::Error,
    protocol::{
        Inspected, Listed, Owner, elsewhere, is_revoked, listed, own_question, process, questions,
        revoke, usage,
    },
    transport::{Ask, Place, Replies, Topology, confirmed, with_wait},
};
use crate::{
    observe::{Answered, Store::Redis as REDIS, called},
    semaphore::{BoxFuture, Process, timer::timeout_at},
};
use futures_util::future::{join, join_all};
use redis::{Cmd, Value, cmd, from_redis_value};
use std::{
    collections::BTreeMap,
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// How often a request is sent elsewhere. While a slot moves two are usual: to the new node, and back.
const MOST_HOPS: usize = 5;

/// The pause before a request is sent again whose keys are just moving.
const PAUSE: Duration = Duration::from_millis(20);

/// At how many of several servers a check tries to subscribe.
const FEW: u32 = 3;

/// So many keys are on all servers, and in all parts of the slots.
const SAMPLES: usize = 128;

/// See the module docs.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) driver: Driver<Metered<Wire>>,
    pub(super) topology: Arc<dyn Topology>,
    pub(super) owner: Arc<Owner>,
    pub(super) times: Times,
    /// How many replicas must have what is written.
    pub(super) replicas: u32,
}

impl Requests {
    // What operators ask.

    /// Lists what is held of a semaphore, and what waits for it.
    pub(super) async fn usage(&self, name: &str, deadline: Instant) -> Result<Listed, Error> {
        let reply = self.counted("usage", name, usage(name), deadline);
        listed(reply.await?)
    }

    /// Revokes a permit. `false`: there is none of this id, or the text is no id.
    pub(super) async fn revoke(
        &self,
        name: &str,
        id: &str,
        deadline: Instant,
    ) -> Result<bool, Error> {
        let Some(command) = revoke(name, id, self.driver.floor()) else {
            return Ok(false);
        };
        let reply = self.counted("revoke", name, command, deadline);
        is_revoked(&reply.await?)
    }

    /// Who these processes are, as far as they have said so lately. A failure tells nothing of them.
    pub(super) async fn who(&self, ids: &[String], deadline: Instant) -> Vec<Process> {
        let all = ids.iter().map(async |id| {
            let (key, command) = self.owner.who(id);
            let reply = self.counted("presence", &key, command, deadline);
            process(id, reply.await.ok())
        });
        join_all(all).await
    }

    /// What other processes call this one.
    pub(super) fn own_id(&self) -> &str {
        &self.owner.process
    }

    /// Those that keys live on now, by names that all processes give them. `None`: that is not known.
    pub(super) fn servers(&self) -> Option<BTreeMap<String, Ask>> {
        let name = |server| match self.topology.place() {
            Place::Node => self.topology.address(server),
            _ => String::new(),
        };
        let servers = self.topology.servers().into_iter().map(|server| {
            let own = self.clone();
            let ask = move |command, deadline| {
                let own = own.clone();
                let asked = async move {
                    let replies = own.call(server, vec![command], (deadline, 0)).await?;
                    replies.into_iter().next().ok_or(Error::Reply)?
                };
                Box::pin(asked) as BoxFuture<_>
            };
            (name(server), Arc::new(ask) as Ask)
        });
        (self.topology.place() != Place::Supplied).then(|| servers.collect())
    }

    // What a check does.

    pub(super) fn place(&self) -> Place {
        self.topology.place()
    }

    /// Whether all keys live on one server for sure.
    pub(super) fn is_one_server(&self) -> bool {
        matches!(self.place(), Place::Url | Place::Primary)
    }

    /// Runs `INFO`, and each command that a script needs, on a key of each server. `channel` is that of this
    /// process.
    pub(super) async fn inspect(
        &self,
        channel: &str,
        deadline: Instant,
    ) -> Result<Inspected, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        let asked = self.reached(self.questions(channel), deadline - left / 2);
        let asked = asked.await?;
        // Before the deadline, so that one silent node leaves time for what the others say.
        let bound = deadline - left / 4;
        let info = self.info(asked.first().map_or(0, |(server, _)| *server), bound);
        let answers = asked.into_iter().map(async |(server, questions)| {
            let (names, commands): (Vec<_>, _) = questions.into_iter().unzip();
            (
                names,
                self.call(server, commands, (bound, self.replicas)).await,
            )
        });
        let (info, answers) = join(info, join_all(answers)).await;
        let is_silent = |(_, replies): &(_, Result<Replies, Error>)| replies.is_err();
        if answers.iter().all(is_silent)
            && let Some((_, Err(error))) = answers.first()
        {
            return Err(error.clone());
        }
        let answers = answers.into_iter().flat_map(|(names, replies)| {
            let replies = replies.unwrap_or_else(|error| vec![Err(error); names.len()]);
            names.into_iter().zip(replies)
        });
        Ok(Inspected::new(info, answers))
    }

    /// It travels alone, because with too few replicas no other answer counts.
    async fn info(&self, server: usize, deadline: Instant) -> Result<String, Error> {
        let mut info = self.call(server, vec![cmd("INFO")], (deadline, 0)).await?;
        let info = info.pop().ok_or(Error::Reply)??;
        from_redis_value(info).map_err(|_| Error::Reply)
    }

    /// What each server is asked.
    fn questions(&self, channel: &str) -> BTreeMap<usize, Vec<(String, Cmd)>> {
        let mut servers = BTreeMap::<_, Vec<_>>::new();
        for key in self.probes() {
            let asked = servers.entry(self.server_of(&key)).or_default();
            asked.extend(questions(&key, channel));
        }
        for (key, is_clock) in self.owner.keys().into_iter().zip([true, false]) {
            let asked = servers.entry(self.server_of(&key)).or_default();
            asked.push(own_question(&key, is_clock));
        }
        servers
    }

    /// Keys of a check, one of each server.
    fn probes(&self) -> Vec<String> {
        let keys = (0..SAMPLES).map(|number| format!("{}{{check{number}}}", self.owner.prefix));
        let keys: BTreeMap<_, _> = keys.map(|key| (self.server_of(&key), key)).collect();
        keys.into_values().collect()
    }

    /// Those of the servers that can be reached until then, or why none can.
    async fn reached<Q>(
        &self,
        servers: BTreeMap<usize, Q>,
        deadline: Instant,
    ) -> Result<Vec<(usize, Q)>, Error> {
        let reach = servers.into_iter().map(async |(server, asked)| {
            let connection = self.connection(server, deadline).await;
            connection.map(|_| (server, asked))
        });
        let outcomes = join_all(reach).await.into_iter();
        let (reached, errors): (Vec<_>, Vec<_>) = outcomes.partition(Result::is_ok);
        match errors.into_iter().find_map(Result::err) {
            Some(error) if reached.is_empty() => Err(error),
            _ => Ok(reached.into_iter().flatten().collect()),
        }
    }

    /// Fails if the only server says that another one has some of the keys: one node of a cluster of several.
    pub(super) async fn elsewhere(&self, deadline: Instant) -> Result<(), Error> {
        let commands = (0..SAMPLES).map(|number| elsewhere(&self.owner.prefix, number));
        let replies = self.call(0, commands.collect(), (deadline, 0)).await?;
        let mut errors = replies.into_iter().filter_map(Result::err);
        errors.find(Error::is_moving).map_or(Ok(()), Err)
    }

    /// Subscribes until then, to see whether this client may. Where there are several servers it is enough that one
    /// of a few answers: messages come through any of them.
    pub(super) async fn subscribes(&self, deadline: Instant) -> Result<(), Error> {
        let servers = self.topology.servers().into_iter();
        let mut subscribed = Ok(());
        for (server, left) in servers.zip((1..=FEW).rev()) {
            let time = deadline.saturating_duration_since(Instant::now()) / left;
            let until = Instant::now() + time;
            let subscribe = async { self.connection(server, until).await?.subscribes().await };
            let outcome = timeout_at(until, subscribe).await;
            subscribed = outcome.unwrap_or_else(|late| Err(late.or(Error::Timeout(time))));
            if subscribed.is_ok() {
                break;
            }
        }
        subscribed
    }

    // How they travel.

    /// The number of the server of a key, as far as is known.
    fn server_of(&self, key: &str) -> usize {
        self.driver.server_at(self.topology.slot(key))
    }

    async fn connection(&self, server: usize, until: Instant) -> Result<Arc<Session>, Error> {
        let connection = self.driver.connection(server, until).await;
        connection
            .map(|connection| Arc::clone(connection.inner()))
            .ok_or_else(|| {
                let cause = self.driver.error(server);
                let cause = cause
                    .as_ref()
                    .and_then(|cause| cause.downcast_ref::<Error>());
                let unknown = || Error::unconnected(io::Error::from(io::ErrorKind::NotConnected));
                cause.cloned().unwrap_or_else(unknown)
            })
    }

    /// Sends commands to a server. As many replies, which count if so many replicas have what was written.
    async fn call(
        &self,
        server: usize,
        commands: Vec<Cmd>,
        (deadline, replicas): (Instant, u32),
    ) -> Result<Replies, Error> {
        let connection = self.connection(server, deadline).await?;
        let sent = Instant::now();
        let deadline = deadline.min(sent + self.times.timeout);
        let left = deadline.saturating_duration_since(sent);
        let commands = with_wait(commands, replicas, left / 2);
        let replies = timeout_at(deadline, connection.request(commands)).await;
        let replies = replies.map_err(|late| late.or(Error::Timeout(sent.elapsed())))?;
        Ok(confirmed(replies, replicas))
    }

    /// Asks the server of a key, and counts that.
    async fn counted(
        &self,
        verb: &'static str,
        key: &str,
        command: Cmd,
        deadline: Instant,
    ) -> Result<Value, Error> {
        let sent = Instant::now();
        let reply = self.ask(key, command, deadline).await;
        let answered = match &reply {
            Ok(_) => Answered::Ok,
            Err(Error::Timeout(_)) => Answered::Timeout,
            Err(_) => Answered::Error,
        };
        called(REDIS, verb, sent.elapsed(), [(1, answered)].into_iter());
        reply
    }

    async fn ask(&self, key: &str, command: Cmd, deadline: Instant) -> Result<Value, Error> {
        let (mut server, mut is_asking) = (self.server_of(key), false);
        for _ in 0..MOST_HOPS {
            let asking = is_asking.then(|| cmd("ASKING"));
            let commands = asking.into_iter().chain([command.clone()]).collect();
            let mut replies = self
                .call(server, commands, (deadline, self.replicas))
                .await?;
            let error = match replies.pop().ok_or(Error::Reply)? {
                Err(error) if error.is_moving() && Instant::now() < deadline => error,
                reply => return reply,
            };
            let redirect = error.redirect();
            let next = redirect.and_then(|(address, _)| self.topology.server_at(address, server));
            is_asking = redirect.is_some_and(|(_, is_moving)| is_moving);
            match next {
                Some(next) => server = next,
                None => sleep(PAUSE).await,
            }
        }
        Err(Error::Timeout(self.times.timeout))
    }
}
