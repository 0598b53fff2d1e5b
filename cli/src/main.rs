//! The command `semaphore` shows who holds the permits of tower-semaphore over Redis, and sets the limits and pauses of
//! a whole fleet.
//!
//! It uses only the library's [`Operate`](tower_semaphore::Operate).

#![forbid(unsafe_code)]

mod act;
mod arguments;
mod connect;
mod failure;
mod json;
mod length;
mod look;
mod output;
mod progress;
mod screen;
mod table;
mod tally;
mod text;

use arguments::{Arguments, CliCommand, URLS};
use clap::{CommandFactory, FromArgMatches, parser::ValueSource};
use clap_complete::Shell;
use connect::Connector;
use failure::{Failure, INTERRUPTED, TERMINATED};
use output::Output;
use std::{
    future::pending,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};
use tokio::{runtime::Runtime, signal, task::JoinHandle};
use tower_semaphore::RedisSemaphore;

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    // Other users of the machine can read arguments, but not the environment.
    let is_public = matches.value_source(URLS) == Some(ValueSource::CommandLine);
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return report(Err(error.into())),
    };
    let run = runtime.spawn(run(arguments, is_public));
    let code = runtime.block_on(until_a_signal(run));
    screen::restore();
    // Does not wait for a thread that still reads the answer to a question.
    runtime.shutdown_background();
    code
}

/// Waits until the command ends or a signal arrives, and returns the exit code.
async fn until_a_signal(run: JoinHandle<Result<(), Failure>>) -> ExitCode {
    tokio::select! {
        outcome = run => match outcome {
            Ok(outcome) => report(outcome),
            // The status of a Rust program that panics. The panic hook has already printed the message.
            Err(_) => ExitCode::from(101),
        },
        _ = signal::ctrl_c() => ExitCode::from(INTERRUPTED),
        () = terminated() => ExitCode::from(TERMINATED),
    }
}

/// Waits for SIGTERM, or for SIGHUP, which means that the terminal is gone.
async fn terminated() {
    #[cfg(unix)]
    {
        use signal::unix::{SignalKind, signal};
        let signals = [SignalKind::terminate(), SignalKind::hangup()].map(signal);
        if let [Ok(mut terminate), Ok(mut hangup)] = signals {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            return;
        }
    }
    pending::<()>().await;
}

/// Prints a failure, and returns the exit code.
fn report(outcome: Result<(), Failure>) -> ExitCode {
    let Err(failure) = outcome else {
        return ExitCode::SUCCESS;
    };
    screen::restore();
    if let Some(text) = failure.text() {
        // An error is ignored, because standard error may be closed.
        let _ = writeln!(io::stderr(), "semaphore: {}", text::shown(&text));
    }
    failure.code()
}

async fn run(arguments: Arguments, is_public: bool) -> Result<(), Failure> {
    let output = Output::new(arguments.json);
    match &arguments.command {
        CliCommand::Completions { shell } => completions(*shell, output),
        CliCommand::Man { folder } => manual(folder.as_deref(), output),
        command => {
            let is_operator = !matches!(command, CliCommand::Check);
            let connector = Connector::new(&arguments.servers, is_public)?;
            let store = connector.connect(&arguments.servers, is_operator).await?;
            run_on(&store, command, output).await
        }
    }
}

async fn run_on(
    store: &RedisSemaphore,
    command: &CliCommand,
    output: Output,
) -> Result<(), Failure> {
    match command {
        CliCommand::Keys { policy } => look::keys(store, policy, output).await,
        CliCommand::Usage { key } => look::usage(store, key, output).await,
        CliCommand::Top { policy, pace } => look::top(store, policy, pace.every, output).await,
        CliCommand::Watch { key, pace } => look::watch(store, key, pace.every, output).await,
        CliCommand::Revoke {
            key, id: Some(id), ..
        } => act::revoke(store, key, id, output).await,
        CliCommand::Revoke { key, yes, .. } => act::revoke_key(store, key, *yes, output).await,
        CliCommand::Limits => look::limits(store, output).await,
        CliCommand::SetLimit { policy, set } => act::set_limit(store, policy, set, output).await,
        CliCommand::Pause { key, time, note } => act::pause(store, key, time, note, output).await,
        CliCommand::Resume { key } => act::resume(store, key, output).await,
        CliCommand::Processes => look::processes(store, output).await,
        CliCommand::Check => look::check(store, output).await,
        // `run` handles these, because they need no store.
        CliCommand::Completions { .. } | CliCommand::Man { .. } => Ok(()),
    }
}

fn completions(shell: Shell, output: Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "semaphore", &mut script);
    output.text(&String::from_utf8_lossy(&script))
}

fn manual(folder: Option<&Path>, output: Output) -> Result<(), Failure> {
    let command = Arguments::command();
    if let Some(folder) = folder {
        return Ok(clap_mangen::generate_to(command, folder)?);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    output.text(&String::from_utf8_lossy(&page))
}
