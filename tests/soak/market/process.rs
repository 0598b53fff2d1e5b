//! A market as a process of its own.

use super::plan::{FLEET_LIMIT, LEASE, LIMIT, MAX_STALL, WAIT};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, File},
    path::PathBuf,
    process::{ExitStatus, Stdio},
};
use testing::example;
use tokio::process::Child;

/// A running market. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Market {
    child: Child,
    pub(crate) url: String,
    /// What it prints on standard error.
    log: PathBuf,
}

impl Market {
    /// Starts one; what it says if it ends before it listens.
    pub(crate) async fn start(redis_url: &str, log: PathBuf) -> Result<Self, String> {
        let ms = |duration: std::time::Duration| duration.as_millis().to_string();
        let (limit, fleet) = (LIMIT.to_string(), FLEET_LIMIT.to_string());
        let (lease, wait, stall) = (ms(LEASE), ms(WAIT), ms(MAX_STALL));
        let settings = [
            ("PORT", "0"),
            ("REDIS_URL", redis_url),
            ("LIMIT", &*limit),
            ("FLEET_LIMIT", &*fleet),
            ("LEASE_MS", &*lease),
            ("WAIT_MS", &*wait),
            ("MAX_STALL_MS", &*stall),
        ];
        let mut command = example::command("market", &settings);
        let stderr = File::create(&log).expect("a log can be made");
        command.stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("the market starts");
        match example::try_address(&mut child).await {
            Some(url) => Ok(Self { child, url, log }),
            None => Err(fs::read_to_string(&log).expect("the log is text")),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.pid().try_into().ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("it is our child");
    }

    /// How it has ended, if it has.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let ended = self.child.wait().await;
        ended.expect("it is our child")
    }

    /// The first panic that it has printed.
    pub(crate) fn panic(&self) -> Option<String> {
        let log = fs::read_to_string(&self.log).expect("the log is text");
        let at = log.find("panicked at")?;
        Some(log[at..].chars().take(300).collect())
    }
}
