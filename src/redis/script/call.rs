//! From semaphores to calls, and from the answers back to each.

use super::{
    Scripts,
    part::{Part, Text},
    source::{Form, Script},
};
use crate::redis::error::Error;
use redis::{Cmd, Value};
use std::{iter, sync::atomic::Ordering};

/// Semaphores of one call: what the server does without a pause that others would feel.
const SHARED: usize = 64;

/// Arguments of semaphores in one call, for the same reason.
pub(super) const ARGS: usize = 500;

/// Semaphores that are sent together. The server answers others between two batches, and is done
/// with one well within a timeout.
const BATCH: usize = 256;

/// What a script says of one semaphore.
#[derive(Clone)]
pub(in crate::redis) enum Reply {
    /// All went as it should.
    Done,
    /// As many items as its part expects.
    Items(Vec<Value>),
}

impl Scripts {
    /// Runs a script for each of the parts, many in a call where the server lets them. As many
    /// replies, in their order. When one batch has no answer, those after it are not sent.
    pub(super) async fn run<P: Part>(
        &self,
        script: &Script,
        first: u64,
        parts: &[P],
    ) -> Vec<Result<Reply, Error>> {
        let mut replies = Vec::with_capacity(parts.len());
        for batch in parts.chunks(BATCH) {
            match self.batch(script, first, batch).await {
                Ok(own) => replies.extend(own),
                Err(error) => {
                    replies.resize(parts.len(), Err(error));
                    break;
                }
            }
        }
        replies
    }

    async fn batch<P: Part>(
        &self,
        script: &Script,
        first: u64,
        parts: &[P],
    ) -> Result<Vec<Result<Reply, Error>>, Error> {
        let calls = self.calls(parts);
        let answers = self.known(script, first, &calls).await?;
        let mut replies = Vec::with_capacity(parts.len());
        for (call, answer) in calls.into_iter().zip(answers) {
            match answer {
                Err(error) if call.len() > 1 && error.is_of_a_key() => {
                    replies.extend(self.apart(script, first, call, &error).await);
                }
                answer => replies.extend(share(call, answer)),
            }
        }
        Ok(replies)
    }

    /// Asks for each semaphore alone, so that what is wrong with one does not touch the others.
    async fn apart<P: Part>(
        &self,
        script: &Script,
        first: u64,
        parts: &[P],
        error: &Error,
    ) -> Vec<Result<Reply, Error>> {
        if error.is_cross_slot() {
            self.apart.store(true, Ordering::Relaxed);
        }
        let calls: Vec<_> = parts.chunks(1).collect();
        let answers = self.known(script, first, &calls).await;
        // The other calls of the batch have their answers already, whatever becomes of these.
        let answers = answers.unwrap_or_else(|error| vec![Err(error); calls.len()]);
        let replies = calls.into_iter().zip(answers);
        replies
            .flat_map(|(call, answer)| share(call, answer))
            .collect()
    }

    /// Sends a call for each list of parts, and again with the script where it is not known.
    async fn known<P: Part>(
        &self,
        script: &Script,
        first: u64,
        calls: &[&[P]],
    ) -> Result<Vec<Result<Value, Error>>, Error> {
        let mut answers = self.send(script, Form::Hash, first, calls).await?;
        let unknown: Vec<usize> = (0..calls.len())
            .filter(|&at| answers[at].as_ref().is_err_and(Error::is_no_script))
            .collect();
        if !unknown.is_empty() {
            let calls: Vec<_> = unknown.iter().map(|&at| calls[at]).collect();
            let again = self.send(script, Form::Source, first, &calls).await;
            let again = again.unwrap_or_else(|error| vec![Err(error); calls.len()]);
            for (at, answer) in unknown.into_iter().zip(again) {
                answers[at] = answer;
            }
        }
        Ok(answers)
    }

    /// Sends a call for each list of parts.
    async fn send<P: Part>(
        &self,
        script: &Script,
        form: Form,
        first: u64,
        calls: &[&[P]],
    ) -> Result<Vec<Result<Value, Error>>, Error> {
        let commands = calls.iter().map(|parts| {
            let mut command = begin(script, form, parts);
            command.arg(first);
            for part in *parts {
                command.arg(part.args());
                part.write(&self.ids, &mut command);
            }
            command
        });
        self.connection.send(commands.collect()).await
    }

    /// Which parts share a call: none on a cluster, where their keys live on several nodes.
    fn calls<'a, P: Part>(&self, parts: &'a [P]) -> Vec<&'a [P]> {
        if !self.connection.is_one_server() || self.apart.load(Ordering::Relaxed) {
            return parts.chunks(1).collect();
        }
        let (mut count, mut args) = (1, parts.first().map_or(0, P::args));
        let fits = |_: &P, next: &P| {
            (count, args) = (count + 1, args + next.args());
            let fits = count <= SHARED && args <= ARGS;
            if !fits {
                (count, args) = (1, next.args());
            }
            fits
        };
        parts.chunk_by(fits).collect()
    }
}

/// A call with its keys, and with room for the rest of its arguments.
fn begin<P: Part>(script: &Script, form: Form, parts: &[P]) -> Cmd {
    /// An id's length, about.
    const ARG: usize = 56;
    let keys = script.keys();
    let args: usize = parts.iter().map(|part| part.args() + keys.len() + 1).sum();
    let names = parts.iter().map(|part| part.name().len() * keys.len());
    let mut command = script.call(form, args + 4, names.sum::<usize>() + args * ARG);
    command.arg(keys.len() * parts.len());
    for part in parts {
        for suffix in keys {
            command.arg(Text(format_args!("{}:{suffix}", part.name())));
        }
    }
    command
}

/// Gives each part of a call its share of the answer.
fn share<P: Part>(call: &[P], answer: Result<Value, Error>) -> Vec<Result<Reply, Error>> {
    let expected: usize = call.iter().map(P::items).sum();
    let same = |reply| iter::repeat_n(reply, call.len()).collect();
    match answer {
        Ok(Value::Int(_)) => same(Ok(Reply::Done)),
        Ok(Value::Array(items)) if items.len() == expected => {
            let mut items = items.into_iter();
            let own = |part: &P| Ok(Reply::Items(items.by_ref().take(part.items()).collect()));
            call.iter().map(own).collect()
        }
        Ok(_) => same(Err(Error::Reply)),
        Err(error) => same(Err(error)),
    }
}
