//! A market that runs as a child process and ends with the test.

use crate::{client::Client, soon};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{ExitStatus, Stdio};
use testing::example;
use tokio::process::{Child, Command};

/// A running market. Killed when it is dropped.
pub(crate) struct Market {
    child: Child,
    url: String,
}

impl Market {
    /// Starts one with these settings on a port of its own.
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let mut command = command(settings);
        command.env("PORT", "0").stdout(Stdio::piped());
        let mut child = command.spawn().expect("the market starts");
        let url = example::address(&mut child).await;
        Self { child, url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// A client that speaks HTTP/1.1 for `account`.
    pub(crate) fn client(&self, account: &str) -> Client {
        Client::http1(&self.url).with_account(account)
    }

    /// A client that speaks HTTP/2 for `account`, with prior knowledge.
    pub(crate) fn http2_client(&self, account: &str) -> Client {
        Client::http2(&self.url).with_account(account)
    }

    /// A client that names no account.
    pub(crate) fn nobody(&self) -> Client {
        Client::http1(&self.url)
    }

    /// Sends it a SIGTERM, as an operator would.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Stops it with SIGSTOP.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues it with SIGCONT.
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("it runs");
        let pid = pid.try_into().ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("it is our child");
    }

    /// Kills it with SIGKILL.
    #[cfg(feature = "redis")]
    pub(crate) async fn kill(&mut self) {
        soon("the market is killed", self.child.kill())
            .await
            .expect("it runs");
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        let status = soon("the market ends", self.child.wait()).await;
        status.expect("a child can be waited for")
    }
}

/// The market, about to start with these settings and no others.
pub(crate) fn command(settings: &[(&str, &str)]) -> Command {
    let mut command = example::command("market", settings);
    command.stderr(Stdio::null());
    command
}
