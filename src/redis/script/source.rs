//! How a script is put together and named.
//!
//! `EVALSHA` first and, where the server does not know the script, `EVAL`: a `SCRIPT LOAD` to
//! every node would let one dead shard break all others.

use redis::Cmd;

/// What scripts include, by a line that says so. The first includes another.
const INCLUDED: [(&str, &str); 5] = [
    ("-- include claim.lua\n", include_str!("../claim.lua")),
    ("-- include keys.lua\n", include_str!("../keys.lua")),
    ("-- include clock.lua\n", include_str!("../clock.lua")),
    ("-- include lines.lua\n", include_str!("../lines.lua")),
    ("-- include line.lua\n", include_str!("../line.lua")),
];

/// How a script is named to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Hash,
    Source,
}

/// What the names of a semaphore's keys end with, in the order of `keys.lua`.
const KEYS: [&str; 4] = ["held", "line", "beat", "ticket"];

/// A script with what it includes.
pub(super) struct Script {
    source: String,
    /// How many of a semaphore's keys it is given.
    keys: usize,
    /// SHA-1 of the source.
    hash: String,
}

impl Script {
    /// A script that is given all keys of a semaphore.
    pub(super) fn new(source: &str) -> Self {
        let include = |source: String, (line, text)| source.replace(line, text);
        let source = INCLUDED.into_iter().fold(source.to_owned(), include);
        let hash = redis::Script::new(&source).get_hash().to_owned();
        let keys = KEYS.len();
        Self { source, keys, hash }
    }

    /// The same, if it is given only the first of a semaphore's keys.
    pub(super) fn on_held(self) -> Self {
        Self { keys: 1, ..self }
    }

    /// What the names of the keys end with that it is given of each semaphore.
    pub(super) fn keys(&self) -> &'static [&'static str] {
        &KEYS[..self.keys]
    }

    /// Begins a call, with room for `size` bytes of arguments.
    pub(super) fn call(&self, form: Form, args: usize, size: usize) -> Cmd {
        let mut command = Cmd::with_capacity(args, size);
        match form {
            Form::Hash => command.arg("EVALSHA").arg(&self.hash),
            Form::Source => command.arg("EVAL").arg(&self.source),
        };
        command
    }
}
