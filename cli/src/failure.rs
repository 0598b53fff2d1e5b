//! Why a command ends before it is done, and with which status.

use std::{
    error::Error,
    io::{self, ErrorKind},
    iter::successors,
    process::ExitCode,
};

#[derive(Debug)]
pub(crate) enum Failure {
    /// There is nothing to show, or nothing of that name.
    Nothing(String),
    /// The arguments cannot be meant.
    Usage(String),
    /// The store failed.
    Store(String),
    /// What is printed cannot be written.
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
            // Whoever reads has seen enough, as `head` has.
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => 0,
            Self::Nothing(_) => 1,
            Self::Usage(_) => 2,
            Self::Store(_) | Self::Output(_) => 3,
            Self::Interrupted => INTERRUPTED,
        })
    }

    /// What to tell a person.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Nothing(text) | Self::Usage(text) | Self::Store(text) => Some(text.clone()),
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => None,
            Self::Output(error) => Some(format!("the output cannot be written: {error}")),
            Self::Interrupted => None,
        }
    }
}

/// An error, and what has caused it.
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

/// The status of a program that SIGINT has ended, as shells count it.
pub(crate) const INTERRUPTED: u8 = 128 + 2;

/// The same of SIGTERM.
pub(crate) const TERMINATED: u8 = 128 + 15;
