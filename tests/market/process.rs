//! A market that runs as a child process and ends with the test.

use crate::{client::Client, soon};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{ExitStatus, Stdio};
use testing::example;
use tokio::process::{Child, Command};

/// A running market. Dropping it kills the process.
pub(crate) struct Market {
    child: Child,
    url: String,
}

impl Market {
    /// Starts a market with these settings on a free port.
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

    /// A client of `account` that uses HTTP/1.1.
    pub(crate) fn client(&self, account: &str) -> Client {
        Client::http1(&self.url).with_account(account)
    }

    /// A client of `account` that uses HTTP/2 with prior knowledge.
    pub(crate) fn http2_client(&self, account: &str) -> Client {
        Client::http2(&self.url).with_account(account)
    }

    /// A client that names no account.
    pub(crate) fn anonymous_client(&self) -> Client {
        Client::http1(&self.url)
    }

    /// Sends a SIGTERM, as an operator would.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Stops the process with SIGSTOP.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues the process with SIGCONT.
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("it runs");
        let pid = pid.try_into().ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("it is our child");
    }

    /// Kills the process with SIGKILL.
    #[cfg(feature = "redis")]
    pub(crate) async fn kill(&mut self) {
        soon("the market is killed", self.child.kill())
            .await
            .expect("it runs");
    }

    /// Waits until the process has ended.
    pub(crate) async fn wait_until_ended(mut self) -> ExitStatus {
        let status = soon("the market ends", self.child.wait()).await;
        status.expect("a child can be waited for")
    }
}

/// The command that starts a market with these settings and no others.
pub(crate) fn command(settings: &[(&str, &str)]) -> Command {
    let mut command = example::command("market", settings);
    command.stderr(Stdio::null());
    command
}
