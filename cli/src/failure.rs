//! The reasons why a command fails, and their exit statuses.

use std::{
    error::Error,
    io::{self, ErrorKind},
    iter::successors,
    process::ExitCode,
};

#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing to show, or nothing with that name exists.
    Nothing(String),
    /// The arguments are wrong.
    Usage(String),
    /// The store failed.
    Store(String),
    /// The output cannot be written.
    Output(io::Error),
    /// Ctrl-C.
    Interrupted,
}

impl Failure {
    pub(crate) fn nothing(what: &str) -> Self {
        Self::Nothing(what.to_owned())
    }

    /// An error of the store, with its causes.
    pub(crate) fn store(error: &dyn Error) -> Self {
        Self::Store(causes(error))
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            // The reader has closed the pipe, as `head` does.
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => 0,
            Self::Nothing(_) => 1,
            Self::Usage(_) => 2,
            Self::Store(_) | Self::Output(_) => 3,
            Self::Interrupted => INTERRUPTED,
        })
    }

    /// The message for the user. `None` if the failure needs no message.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Nothing(text) | Self::Usage(text) | Self::Store(text) => Some(text.clone()),
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => None,
            Self::Output(error) => Some(format!("the output cannot be written: {error}")),
            Self::Interrupted => None,
        }
    }
}

/// An error and its causes.
pub(crate) fn causes(error: &dyn Error) -> String {
    let causes = successors(Some(error), |&error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// The status of a program that SIGINT has ended, as shells report it.
pub(crate) const INTERRUPTED: u8 = 128 + 2;

/// The status of a program that SIGTERM has ended.
pub(crate) const TERMINATED: u8 = 128 + 15;
