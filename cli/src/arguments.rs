//! The arguments of the command line.

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use std::{ffi::OsString, path::PathBuf, time::Duration};

const AFTER: &str = "\
Environment:
  REDIS_URL       where the server is, unless --url is given
  REDIS_PASSWORD  the password, unless --password-file has it
  NO_COLOR        if it is set, nothing has colours

Exit status:
  0  done
  1  nothing was found
  2  the arguments are wrong
  3  the store failed, or what was printed could not be written

A KEY that begins with a dash follows `--`.";

/// Shows who holds the permits of tower-semaphore in Redis, frees them, and sets limits and pauses for a whole fleet.
#[derive(Debug, Parser)]
#[command(name = "semaphore", version, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
    /// Print JSON, one value per line, instead of tables
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// Where the servers are.
#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// The server's URL, without a password; or, separated by commas, the URLs of some nodes of a cluster, or of
    /// Sentinels
    #[arg(
        id = URLS,
        long = "url",
        value_name = "URL",
        env = "REDIS_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1/",
        global = true
    )]
    pub(crate) urls: Vec<String>,
    /// The URLs are nodes of a cluster
    #[arg(long, global = true, conflicts_with = "sentinel")]
    pub(crate) cluster: bool,
    /// The URLs are Sentinels, and NAME is their name for the primary
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) sentinel: Option<String>,
    /// A PEM file with the certificates of the authorities that may sign the server's certificate
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) ca: Option<PathBuf>,
    /// The prefix of the names of all keys in Redis
    #[arg(long, default_value = "semaphore:", global = true)]
    pub(crate) prefix: String,
    /// The user, if the URL names none; with --sentinel, the user of the primary
    #[arg(long, global = true)]
    pub(crate) user: Option<String>,
    /// A file with the password and nothing else, except a line end
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) password_file: Option<PathBuf>,
    /// The longest time to connect, in seconds, at most 5; `check` and --sentinel always have 5
    #[arg(long, value_name = "SECONDS", default_value = "0.95", value_parser = connect_seconds, global = true)]
    pub(crate) connect_timeout: Duration,
}

/// The id of the argument `--url`.
pub(crate) const URLS: &str = "urls";

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// List the keys of a policy that have permits or waiters, or are paused
    Keys {
        /// The policy: `concurrency` unless the layer has another one
        #[arg(value_name = "POLICY")]
        policy: String,
    },
    /// Show who holds permits of a key, who waits, and its pause
    Usage {
        #[command(flatten)]
        key: KeyArguments,
    },
    /// Show the fullest keys and the longest queues, live; q or Ctrl-C ends it
    Top {
        /// The policy
        #[arg(default_value = "concurrency")]
        policy: String,
        #[command(flatten)]
        pace: PaceArguments,
    },
    /// Show who holds permits of a key, live; q or Ctrl-C ends it
    Watch {
        #[command(flatten)]
        key: KeyArguments,
        #[command(flatten)]
        pace: PaceArguments,
    },
    /// End a permit, or a wait, by the id that `usage` shows
    Revoke {
        #[command(flatten)]
        key: KeyArguments,
        /// The id, whole or as the table shows it
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// End all permits of the key
        #[arg(long)]
        all: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// List the limits that operators have set
    Limits,
    /// Set the limit of a key, or of all keys of a policy, in all processes
    #[command(override_usage = "semaphore set-limit [OPTIONS] POLICY [KEY] LIMIT|default")]
    SetLimit {
        /// The policy
        #[arg(value_name = "POLICY")]
        policy: String,
        #[command(flatten)]
        set: SetLimitArguments,
    },
    /// Pause a key in all processes: until the pause ends, no claim of the key is granted, and waiters keep their
    /// places
    Pause {
        #[command(flatten)]
        key: KeyArguments,
        /// The length of the pause, as in 30s, 1h30m or 250ms: at most 31d. If the key's present pause ends later, that
        /// one stays in force
        #[arg(value_name = "TIME")]
        time: OsString,
        #[command(flatten)]
        note: Note,
    },
    /// End the pause of a key early: the next waiters are granted at once
    Resume {
        #[command(flatten)]
        key: KeyArguments,
    },
    /// List the processes that are alive
    Processes,
    /// Check whether the server has what an application needs, and permits it to this user
    Check,
    /// Print the completions of a shell
    Completions { shell: Shell },
    /// Print the manual page, or write the pages of all commands into a folder
    Man { folder: Option<PathBuf> },
}

/// A key of a policy.
#[derive(Debug, Args)]
pub(crate) struct KeyArguments {
    /// The policy: `concurrency` unless the layer has another one, and `lock` for locks
    #[arg(value_name = "POLICY")]
    pub(crate) policy: String,
    /// The key, byte for byte
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,
}

/// The arguments of `set-limit`.
#[derive(Debug, Args)]
pub(crate) struct SetLimitArguments {
    /// The key; without it, the limit is for all keys of the policy
    #[arg(value_name = "KEY")]
    pub(crate) key_or_limit: OsString,
    /// The limit: a number, or `default` for the limits of the claims. Without KEY it comes right after POLICY
    #[arg(value_name = "LIMIT")]
    pub(crate) limit_after_key: Option<OsString>,
    #[command(flatten)]
    pub(crate) note: Note,
}

/// The note of a limit or a pause.
#[derive(Debug, Args)]
pub(crate) struct Note {
    /// The author or the reason: at most 128 characters
    #[arg(
        id = "note",
        long = "note",
        value_name = "NOTE",
        env = "USER",
        hide_env_values = true,
        default_value = ""
    )]
    pub(crate) text: String,
}

#[derive(Debug, Args)]
pub(crate) struct PaceArguments {
    /// The number of seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) every: Duration,
}

/// After five seconds the library itself gives up.
fn connect_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        time if time > Duration::from_secs(5) => Err("it is more than 5".to_owned()),
        time => Ok(time),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "it is not a number")?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| "it is no time")?;
    match time >= Duration::from_millis(100) {
        true => Ok(time),
        false => Err("it is less than 0.1".to_owned()),
    }
}
