//! Runs the program to its end.

use std::{
    ffi::OsStr,
    process::{Command, Output, Stdio},
};
use testing::redis::RedisServer;

/// Options for a long wait for a connection, because the machine may be busy.
pub(crate) const PATIENT: [&str; 2] = ["--connect-timeout", "5"];

/// The output of a run, and its exit status.
#[derive(Debug)]
pub(crate) struct Run {
    /// 0: done, 1: nothing was found, 2: the arguments are wrong, 3: the store failed.
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

/// The program with an empty environment and without a terminal.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semaphore"));
    command.env_clear().stdin(Stdio::null());
    command
}

/// The program with the options [`PATIENT`].
pub(crate) fn patient() -> Command {
    let mut command = program();
    command.args(PATIENT);
    command
}

/// The patient program with the URL of this server as its argument.
pub(crate) fn on(server: &RedisServer) -> Command {
    let mut command = patient();
    command.args(["--url", &server.url()]);
    command
}

pub(crate) fn run(mut command: Command) -> Run {
    command.output().expect("it runs").into()
}

/// Runs the program on a server.
pub(crate) fn run_on<A: AsRef<OsStr>>(server: &RedisServer, args: &[A]) -> Run {
    let mut command = on(server);
    command.args(args);
    run(command)
}

/// Runs the program on a server, with arguments that are separated by spaces.
pub(crate) fn run_line(server: &RedisServer, args: &str) -> Run {
    run_on(server, &args.split(' ').collect::<Vec<_>>())
}
