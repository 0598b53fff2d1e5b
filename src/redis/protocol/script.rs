//! Commands that run scripts, and conversions of redis-rs's replies.
//!
//! Frequent commands use `EVALSHA`, and `EVAL` if the server does not know the script. Rare ones use `EVAL`.
//! `SCRIPT LOAD` is not used: it would have to reach every node, so one dead node would break all others.

use proto::verbs::{Owner, Query, Reply, Sink, Verb};
use redis::{Cmd, RedisWrite, Value};
use std::{fmt, sync::LazyLock};

static SCRIPTS: LazyLock<[Script; Verb::ALL.len()]> =
    LazyLock::new(|| Verb::ALL.map(Script::for_verb));

/// How a command names its script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Form {
    Hash,
    Source,
}

struct Script {
    source: &'static str,
    /// SHA-1 of the source.
    hash: String,
}

impl Script {
    fn for_verb(verb: Verb) -> Self {
        let source = verb.source();
        let hash = redis::Script::new(source).get_hash().to_owned();
        Self { source, hash }
    }
}

/// Starts the command that runs a script, with room for `items` keys and arguments of `size` bytes in total.
pub(in crate::redis) fn script_command(verb: Verb, form: Form, items: usize, size: usize) -> Cmd {
    let script = &SCRIPTS[verb as usize];
    // Three more: `EVAL` or `EVALSHA`, the script, and the number of keys.
    let mut command = Cmd::with_capacity(items + 3, size);
    match form {
        Form::Hash => command.arg("EVALSHA").arg(&script.hash),
        Form::Source => command.arg("EVAL").arg(script.source),
    };
    command
}

/// The command that runs check.lua.
pub(super) fn check(form: Form, keys: &[String], args: &[&dyn fmt::Display]) -> Cmd {
    let mut command = script_command(Verb::Check, form, keys.len() + args.len(), 0);
    command.arg(keys.len()).arg(keys);
    for arg in args {
        command.arg(arg.to_string());
    }
    command
}

/// The command that runs an operator's query.
pub(in crate::redis) fn query_command(form: Form, owner: &Owner, query: &Query<'_>) -> Cmd {
    let command = Cmd::new();
    let mut writer = CommandWriter { form, command };
    query.encode(owner, &mut writer);
    writer.command
}

/// Encodes a script run as a command of redis-rs.
struct CommandWriter {
    form: Form,
    command: Cmd,
}

impl Sink for CommandWriter {
    fn begin(&mut self, verb: Verb, keys: usize, args: usize) {
        self.command = script_command(verb, self.form, keys + args, 0);
        self.command.arg(keys);
    }

    fn add(&mut self, item: impl fmt::Display) {
        self.command.write_arg_fmt(item);
    }
}

/// Converts a reply of redis-rs to a reply as `proto` reads it.
pub(in crate::redis) fn convert_reply(value: Value) -> Reply {
    match value {
        Value::Int(number) => Reply::Integer(number),
        Value::Array(items) => Reply::List(items.into_iter().map(convert_reply).collect()),
        Value::BulkString(bytes) => Reply::Text(
            String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        ),
        _ => Reply::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::verbs::UsageListing;

    #[test]
    fn a_member_that_is_no_utf8_is_listed() {
        let text = |text: &[u8]| Value::BulkString(text.to_vec());
        let list = |members| Value::Array(vec![text(b"-"), Value::Array(members)]);
        let held = list(vec![text(b"\xff"), text(b"200"), text(b"a"), text(b"300")]);
        let page = Value::Array(vec![Value::Int(100), held, list(vec![]), list(vec![])]);
        let mut usage = UsageListing::default();
        assert!(usage.add(&convert_reply(page)).is_some());
        assert_eq!(usage.held.len(), 2);
    }
}
