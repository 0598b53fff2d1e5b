//! A script, how a command names it to the server, and replies of redis-rs.
//!
//! A command is `EVALSHA` first and, if the server does not know the script, `EVAL`. With
//! `SCRIPT LOAD` on every node instead, one dead shard would break all others.

use proto::verbs::{Reply, Verb};
use redis::{Cmd, Value};
use std::fmt;

/// How a script is named to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Form {
    Hash,
    Source,
}

/// A script, and the keys that it takes for each semaphore.
pub(in crate::redis) struct Script {
    source: &'static str,
    /// SHA-1 of the source.
    hash: String,
    /// What the names of a semaphore's keys end with, in the order in which the script takes them.
    keys: &'static [&'static str],
}

impl Script {
    pub(in crate::redis) fn of(verb: Verb) -> Self {
        let (source, keys) = (verb.source(), verb.keys());
        let hash = redis::Script::new(source).get_hash().to_owned();
        Self { source, hash, keys }
    }

    /// Begins a run, with room for `size` bytes of arguments.
    pub(in crate::redis) fn call(&self, form: Form, args: usize, size: usize) -> Cmd {
        let mut command = Cmd::with_capacity(args, size);
        match form {
            Form::Hash => command.arg("EVALSHA").arg(&self.hash),
            Form::Source => command.arg("EVAL").arg(self.source),
        };
        command
    }

    /// A whole run.
    pub(super) fn run(&self, form: Form, keys: &[String], args: &[&dyn fmt::Display]) -> Cmd {
        let mut command = self.call(form, 8, 0);
        command.arg(keys.len()).arg(keys);
        for arg in args {
            command.arg(arg.to_string());
        }
        command
    }

    /// A run for one semaphore.
    pub(super) fn run_for(&self, form: Form, name: &str, args: &[&dyn fmt::Display]) -> Cmd {
        let keys = self.keys.iter().map(|end| format!("{name}{end}"));
        self.run(form, &keys.collect::<Vec<_>>(), args)
    }
}

/// A reply of redis-rs as the protocol reads it.
pub(in crate::redis) fn reply(value: Value) -> Reply {
    match value {
        Value::Int(number) => Reply::Integer(number),
        Value::Array(items) => Reply::List(items.into_iter().map(reply).collect()),
        Value::BulkString(bytes) => String::from_utf8(bytes).map_or(Reply::Other, Reply::Text),
        _ => Reply::Other,
    }
}
