//! The program, run to its end.

use std::{
    ffi::OsStr,
    process::{Command, Output, Stdio},
};
use testing::redis::RedisServer;

/// What a run has printed, and its status.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("it prints text");
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

/// The program with an environment of its own, and no terminal.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semaphore"));
    command.env_clear().stdin(Stdio::null());
    command
}

/// The program, about to look at this server.
pub(crate) fn on(server: &RedisServer) -> Command {
    let mut command = program();
    command.args(["--url", &server.url()]);
    command
}

pub(crate) fn run(mut command: Command) -> Run {
    command.output().expect("it runs").into()
}

/// Runs it on a server.
pub(crate) fn run_on<A: AsRef<OsStr>>(server: &RedisServer, args: &[A]) -> Run {
    let mut command = on(server);
    command.args(args);
    run(command)
}

/// The same, with words.
pub(crate) fn words(server: &RedisServer, args: &str) -> Run {
    run_on(server, &args.split(' ').collect::<Vec<_>>())
}
