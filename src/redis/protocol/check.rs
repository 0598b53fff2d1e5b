//! The commands that check if a server permits what the scripts do. See `check.lua`.

use super::script::{self, Form};
use crate::redis::error::CallError;
use redis::{Cmd, RedisError, Value, cmd, from_redis_value, make_extension_error};
use std::{fmt::Display, iter, slice};

/// The name of the check that decides if a server works. Its reply lists the commands that failed.
pub(in crate::redis) const CHECK: &str = "EVAL";

/// The commands that only operators' calls need.
pub(in crate::redis) const OPERATOR_COMMANDS: [&str; 8] = [
    "HDEL", "HEXISTS", "HLEN", "HMGET", "HSET", "SCAN", "ZCOUNT", "ZSCAN",
];

/// The commands that check a server, each with its name in errors. The names of their keys begin with `key`.
pub(in crate::redis) fn questions(key: &str, channel: &str) -> [(String, Cmd); 2] {
    let keys = ["probe", "number"].map(|name| format!("{key}:{name}"));
    let command = |form| script::check(form, &keys, &[&channel]);
    [("EVALSHA", Form::Hash), (CHECK, Form::Source)]
        .map(|(name, form)| (name.to_owned(), command(form)))
}

/// The command that reads a key of the store, with a command name and its arguments. Its name in errors is the key.
pub(in crate::redis) fn question_about(key: String, read: &[&'static str]) -> (String, Cmd) {
    // The first argument is the channel, which this command does not use.
    let words = iter::once(&"").chain(read).map(|word| word as &dyn Display);
    let command = script::check(
        Form::Source,
        slice::from_ref(&key),
        &words.collect::<Vec<_>>(),
    );
    (key, command)
}

/// A command on a sample key. A node of a larger cluster answers `MOVED` if it does not have the slot of the key.
pub(in crate::redis) fn redirect_probe(prefix: &str, number: usize) -> Cmd {
    let key = format!("{prefix}{{{number}}}");
    cmd("EVAL").arg("return 0").arg(1).arg(key).take()
}

/// The failures in the answer to the check `name`: the commands that failed within it, or the check itself, each with
/// its error. An unknown script is no failure.
pub(in crate::redis) fn failures(
    name: &str,
    answer: Result<Value, CallError>,
) -> Vec<(String, CallError)> {
    let answer = answer.and_then(|answer| from_redis_value(answer).map_err(|_| CallError::Reply));
    let failed: Vec<(String, String)> = match answer {
        Ok(failed) => failed,
        Err(error) if error.is_code(&["NOSCRIPT"]) => Vec::new(),
        Err(error) => return vec![(name.to_owned(), error)],
    };
    let error = |(command, text): (_, String)| (command, CallError::Redis(script_error(&text)));
    failed.into_iter().map(error).collect()
}

/// Parses the error of a command in a script: `CODE text`, or before Redis 7 `@LOCATION: -CODE text` or
/// `@LOCATION: text`.
fn script_error(text: &str) -> RedisError {
    let text = text.trim_start_matches("ERR ");
    let text = match text.starts_with('@') {
        true => text.splitn(3, ": ").last().unwrap_or_default(),
        false => text,
    };
    let is_code = |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase());
    let (code, text) = match text.trim_start_matches('-').split_once(' ') {
        Some((code, rest)) if is_code(code) => (code, rest),
        _ => ("ERR", text),
    };
    make_extension_error(code.to_owned(), Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::script_error;

    #[test]
    fn an_error_in_a_script_keeps_its_code() {
        for (error, code, text) in [
            ("NOREPLICAS Not enough", "NOREPLICAS", "Not enough"),
            ("ERR The user can't", "ERR", "The user can't"),
            ("-MISCONF Errors", "MISCONF", "Errors"),
            ("@user_script: 7: -OOM too much", "OOM", "too much"),
            ("@user_script: 7: The user can't", "ERR", "The user can't"),
        ] {
            let error = script_error(error);
            assert_eq!((error.code(), error.detail()), (Some(code), Some(text)));
        }
    }
}
