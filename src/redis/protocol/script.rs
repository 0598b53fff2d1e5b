//! A script, how a command names it to the server, and replies of redis-rs.
//!
//! A command is `EVALSHA` first and, if the server does not know the script, `EVAL`. With
//! `SCRIPT LOAD` on every node instead, one dead shard would break all others.

use proto::verbs::{Owner, Query, Reply, Sink, Verb};
use redis::{Cmd, RedisWrite, Value};
use std::{fmt, sync::LazyLock};

static SCRIPTS: LazyLock<[Script; Verb::ALL.len()]> = LazyLock::new(|| Verb::ALL.map(Script::of));

/// How a script is named to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Form {
    Hash,
    Source,
}

/// A script.
struct Script {
    source: &'static str,
    /// SHA-1 of the source.
    hash: String,
}

impl Script {
    fn of(verb: Verb) -> Self {
        let source = verb.source();
        let hash = redis::Script::new(source).get_hash().to_owned();
        Self { source, hash }
    }
}

/// Begins a run of a script, with room for `size` bytes of arguments.
pub(in crate::redis) fn call(verb: Verb, form: Form, args: usize, size: usize) -> Cmd {
    let script = &SCRIPTS[verb as usize];
    let mut command = Cmd::with_capacity(args, size);
    match form {
        Form::Hash => command.arg("EVALSHA").arg(&script.hash),
        Form::Source => command.arg("EVAL").arg(script.source),
    };
    command
}

/// A run of the script that checks a server, on these keys.
pub(super) fn check(form: Form, keys: &[String], args: &[&dyn fmt::Display]) -> Cmd {
    let mut command = call(Verb::Check, form, 8, 0);
    command.arg(keys.len()).arg(keys);
    for arg in args {
        command.arg(arg.to_string());
    }
    command
}

/// A query of an operator as a command.
pub(in crate::redis) fn query(form: Form, owner: &Owner, query: &Query<'_>) -> Cmd {
    let mut written = Written(form, Cmd::new());
    query.encode(owner, &mut written);
    written.1
}

/// A run that is being written.
struct Written(Form, Cmd);

impl Sink for Written {
    fn begin(&mut self, verb: Verb, keys: usize, args: usize) {
        self.1 = call(verb, self.0, keys + args + 3, 0);
        self.1.arg(keys);
    }

    fn plain(&mut self, words: &[&dyn fmt::Display]) {
        words.iter().for_each(|word| self.add(word));
    }

    fn add(&mut self, item: impl fmt::Display) {
        self.1.write_arg_fmt(item);
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
