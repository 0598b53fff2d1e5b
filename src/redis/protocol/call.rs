//! From semaphores to calls, and from the answers back to each semaphore.

use super::{
    count::count,
    id::Owner,
    reply::{Replies, Reply},
    script::{Form, Script},
    share::{Share, command},
};
use crate::{
    redis::{
        clock::ServerClock,
        error::Error,
        outage::Breakers,
        transport::{Ask, Terms, Transport},
    },
    semaphore::BoxFuture,
};
use redis::Value;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// Semaphores of one call, to bound how long one script blocks the server: 64 single claims take
/// the server 0.4 ms, and in a larger call a claim is hardly cheaper (`benches/redis`).
const MAX_SEMAPHORES: usize = 64;

/// Units of one call, for the same reason: a refresh of 500 takes 0.3 ms. So many levels of claims, each with
/// four keys and four arguments, are 3,991 arguments: some services take 3,999.
pub(in crate::redis) const MAX_UNITS: usize = 490;

/// A script, the arguments that are for all semaphores, and the deadline of the answer.
pub(super) struct Call<'a> {
    pub(super) script: &'a Script,
    pub(super) head: &'a [u64],
    pub(super) deadline: Instant,
    /// Whether its answers count only if a failover keeps what it has written.
    pub(super) is_confirmed: bool,
}

/// Runs scripts on a server.
pub(in crate::redis) struct Protocol {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) clock: Arc<ServerClock>,
    pub(super) owner: Owner,
    /// Whether the server has refused a call for several semaphores.
    one_each: AtomicBool,
    /// Observes the outcome of each call.
    pub(in crate::redis) breakers: Arc<Breakers>,
    /// How many replicas must have a grant.
    pub(super) min_replicas: u32,
}

impl Protocol {
    /// Calls in the name of `process`, whose leases last `lease_ms`.
    pub(in crate::redis) fn new(
        transport: Arc<dyn Transport>,
        clock: Arc<ServerClock>,
        prefix: String,
        process: Arc<str>,
        lease_ms: u64,
        breakers: Arc<Breakers>,
        min_replicas: u32,
    ) -> Self {
        Self {
            transport,
            clock,
            owner: Owner {
                process,
                lease_ms,
                prefix,
                about: String::new(),
                parts: Vec::new(),
            },
            one_each: AtomicBool::new(false),
            breakers,
            min_replicas,
        }
    }

    /// Waits until there is a connection to the server of a semaphore.
    pub(in crate::redis) async fn ready(&self, name: &str, deadline: Instant) -> Result<(), Error> {
        let Some(ready) = self.transport.ready(name, deadline) else {
            return Ok(());
        };
        let answer = ready.await;
        if let Err(error) = &answer {
            self.breakers.failed(iter::once(name.into()), error);
        }
        answer
    }

    /// Whether this runtime has a connection to the server of a semaphore. If not, it is being made from
    /// now on.
    pub(in crate::redis) fn is_connected(&self, name: &str) -> bool {
        self.transport.is_connected(name)
    }

    /// Whether answers to claims wait until replicas have what they grant.
    pub(in crate::redis) fn is_confirmed(&self) -> bool {
        self.min_replicas > 0
    }

    /// Whether all keys live on one server for sure.
    pub(in crate::redis) fn is_one_server(&self) -> bool {
        self.transport.is_one_server()
    }

    /// All servers, each by itself. `None`: it is not known which there are.
    pub(in crate::redis) fn servers(&self) -> Option<BTreeMap<String, Ask>> {
        let servers = Arc::clone(&self.transport).servers()?.into_iter();
        let ask = |transport: Arc<dyn Transport>| {
            let ask = move |command, deadline| {
                let sent = transport.send(vec![command], Terms::by(deadline));
                Box::pin(async { sent.await?.pop().ok_or(Error::Reply)? }) as BoxFuture<_>
            };
            Arc::new(ask) as Ask
        };
        Some(
            servers
                .map(|(name, transport)| (name, ask(transport)))
                .collect(),
        )
    }

    /// The number of the server of a semaphore, as far as is known.
    pub(in crate::redis) fn server_of(&self, name: &str) -> Option<usize> {
        self.transport.server_of(name)
    }

    /// What has to run beside calls.
    pub(in crate::redis) fn watch(&self) -> BoxFuture<()> {
        Arc::clone(&self.transport).watch()
    }

    /// Runs a script for all shares, many in a call where the server permits that. Returns a reply
    /// for each share, in the order of the shares.
    pub(super) async fn run<P: Share>(&self, call: &Call<'_>, shares: &[P]) -> Replies {
        let batches = self.batches(shares);
        let answers = match self.known(call, &batches).await {
            Ok(answers) => answers,
            Err(error) => return vec![Err(error); shares.len()],
        };
        let mut replies = Vec::with_capacity(shares.len());
        for (batch, answer) in batches.into_iter().zip(answers) {
            match answer {
                Err(error) if by_key(batch).len() > 1 && error.is_of_a_key() => {
                    replies.extend(self.run_one_each(call, batch, &error).await);
                }
                answer => {
                    if answer.as_ref().is_err_and(Error::is_cross_slot) {
                        self.one_each.store(true, Ordering::Relaxed);
                    }
                    replies.extend(self.split(batch, answer));
                }
            }
        }
        replies
    }

    /// Makes a call for each semaphore alone, so that an error of one does not affect the others.
    /// The aborted call may have served some of them already.
    async fn run_one_each<P: Share>(&self, call: &Call<'_>, batch: &[P], error: &Error) -> Replies {
        if error.is_cross_slot() {
            self.one_each.store(true, Ordering::Relaxed);
        }
        let batches = by_key(batch);
        let answers = self.known(call, &batches).await;
        // The aborted call may have had an effect, so no error that denies that replaces its own.
        let answers = answers.unwrap_or_else(|_| vec![Err(error.clone()); batches.len()]);
        let answers = answers.into_iter().map(|answer| match answer {
            Err(own) if own.had_no_effect() => Err(error.clone()),
            answer => answer,
        });
        let replies = batches.into_iter().zip(answers);
        let replies = replies.flat_map(|(one, answer)| self.split(one, answer));
        replies.map(|reply| reply.map(Reply::repeated)).collect()
    }

    /// Sends a call for each batch, again with the script's source if the server does not know it.
    async fn known<P: Share>(
        &self,
        call: &Call<'_>,
        batches: &[&[P]],
    ) -> Result<Vec<Result<Value, Error>>, Error> {
        let mut answers = self.send(call, Form::Hash, batches).await?;
        let unknown: Vec<usize> = (0..batches.len())
            .filter(|&at| answers[at].as_ref().is_err_and(Error::is_no_script))
            .collect();
        if !unknown.is_empty() {
            let batches: Vec<_> = unknown.iter().map(|&at| batches[at]).collect();
            let again = self.send(call, Form::Source, &batches).await;
            let again = again.unwrap_or_else(|error| vec![Err(error); batches.len()]);
            for (at, answer) in unknown.into_iter().zip(again) {
                answers[at] = answer;
            }
        }
        Ok(answers)
    }

    async fn send<P: Share>(
        &self,
        call: &Call<'_>,
        form: Form,
        batches: &[&[P]],
    ) -> Result<Vec<Result<Value, Error>>, Error> {
        let commands = batches.iter();
        let commands =
            commands.map(|shares| command(call.script, form, call.head, &self.owner, shares));
        let replicas = self.min_replicas * u32::from(call.is_confirmed);
        let terms = Terms {
            deadline: call.deadline,
            replicas,
        };
        let sent = Instant::now();
        let answers = self.transport.send(commands.collect(), terms).await;
        count(call.script.verb, sent, batches, &answers);
        match &answers {
            Ok(answers) => self.breakers.observe(answers, sent, |at| key(batches[at])),
            Err(error) => self
                .breakers
                .failed(batches.iter().map(|shares| key(shares)), error),
        }
        answers
    }

    /// Whether a call may name several semaphores, as far as is known.
    pub(in crate::redis) fn takes_several(&self) -> bool {
        self.transport.is_one_server() && !self.one_each.load(Ordering::Relaxed)
    }

    /// Divides shares into calls: one for each semaphore on a cluster, because keys live on several nodes.
    fn batches<'a, P: Share>(&self, shares: &'a [P]) -> Vec<&'a [P]> {
        if !self.takes_several() {
            return by_key(shares);
        }
        let (mut count, mut units) = (1, shares.first().map_or(0, P::units));
        let fits = |_: &P, next: &P| {
            (count, units) = (count + 1, units + next.units());
            let fits = count <= MAX_SEMAPHORES && units <= MAX_UNITS;
            if !fits {
                (count, units) = (1, next.units());
            }
            fits
        };
        shares.chunk_by(fits).collect()
    }
}

/// Shares that follow one another and are for the same semaphores.
fn by_key<P: Share>(shares: &[P]) -> Vec<&[P]> {
    shares.chunk_by(|a, b| a.names().eq(b.names())).collect()
}

/// A key on the server of a call: all that it names is on one server.
fn key<P: Share>(shares: &[P]) -> Cow<'_, str> {
    shares.first().map(P::key).unwrap_or_default()
}

#[cfg(test)]
mod tests;
