//! How a script is put together and named to the server.
//!
//! `EVALSHA` first and, where the server does not know the script, `EVAL`: a `SCRIPT LOAD` to
//! every node would let one dead shard break all others.

use redis::{Cmd, RedisWrite, ToRedisArgs};
use std::fmt;

/// How a script is named to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Hash,
    Source,
}

/// A script, and what it is given of each semaphore.
pub(super) struct Script {
    source: &'static str,
    /// SHA-1 of the source.
    hash: String,
    /// What the names of its keys end with, in the order in which it is given them.
    keys: &'static [&'static str],
}

impl Script {
    pub(super) fn new(source: &'static str, keys: &'static [&'static str]) -> Self {
        let hash = redis::Script::new(source).get_hash().to_owned();
        Self { source, hash, keys }
    }

    /// What the names of the keys of each semaphore end with.
    pub(super) fn keys(&self) -> &'static [&'static str] {
        self.keys
    }

    /// Begins a call, with room for `size` bytes of arguments.
    pub(super) fn call(&self, form: Form, args: usize, size: usize) -> Cmd {
        let mut command = Cmd::with_capacity(args, size);
        match form {
            Form::Hash => command.arg("EVALSHA").arg(&self.hash),
            Form::Source => command.arg("EVAL").arg(self.source),
        };
        command
    }
}

/// An argument written by its `Display`, without a string in between.
pub(super) struct Text<T>(pub(super) T);

impl<T: fmt::Display> ToRedisArgs for Text<T> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(&self.0);
    }
}
