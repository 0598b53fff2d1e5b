//! A server on a simulated separate machine.

use crate::setup::Setup;
use std::{
    io,
    time::{Duration, Instant},
};
use testing::{
    front::Front,
    redis::RedisServer,
    resp::{Raw, Reply},
    wait::eventually,
};
use tokio::{task::block_in_place, time::sleep};

/// The longest time for servers to agree.
pub(crate) const BOUND: Duration = Duration::from_secs(120);

/// The pause between two checks whether servers agree.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// A server, and the port through which all others reach it while its machine is up.
pub(crate) struct Node {
    server: RedisServer,
    pub(crate) front: Front,
    /// The delay of its writes on the way to a replica.
    lag: Duration,
}

impl Node {
    /// Starts a server that announces its address to the others.
    pub(crate) async fn start(setup: Setup, args: &[&str]) -> Self {
        let front = Front::open(setup.lag).await;
        let port = front.port().to_string();
        let mut all = vec!["--repl-diskless-sync", "yes"];
        all.extend(["--repl-diskless-sync-delay", "0"]);
        all.extend(["--replica-announce-ip", "127.0.0.1"]);
        all.extend(["--replica-announce-port", &port]);
        if args.contains(&"--cluster-enabled") {
            all.extend(["--cluster-announce-port", &port]);
        }
        all.extend(setup.server_args());
        all.extend(args);
        let server = RedisServer::with(&all);
        front.point_at(server.port());
        let lag = setup.lag;
        Self { server, front, lag }
    }

    /// The server's own port, which is reachable only on its machine.
    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.front.port())
    }

    pub(crate) async fn raw(&self) -> Raw {
        Raw::connect(self.port()).await
    }

    /// Stops delivering this server's writes to its replicas: the delay is longer than the benchmark waits.
    pub(crate) fn stall(&self) {
        self.front.set_lag(BOUND);
    }

    /// Kills the machine.
    pub(crate) fn kill_machine(&mut self) {
        self.front.cut();
        block_in_place(|| self.server.kill());
    }

    /// Restarts the server without data. Other servers cannot reach it yet.
    pub(crate) fn restart_without_data(&mut self) {
        block_in_place(|| self.server.restart());
    }

    /// Makes the server reachable again.
    pub(crate) fn open(&self) {
        self.front.set_lag(self.lag);
        self.front.point_at(self.port());
    }

    /// Sends `REPLICAOF`. The port 0 stands for `ONE`, as in `REPLICAOF NO ONE`.
    pub(crate) async fn replicaof(&self, host: &str, port: u16) {
        let port = port.to_string();
        let port = if port == "0" { "ONE" } else { &port };
        let reply = self.raw().await.cmd(&["REPLICAOF", host, port]).await;
        assert_eq!(reply, Reply::Simple("OK".to_owned()));
    }

    /// Waits until the server is a primary. Returns the time at which it was.
    pub(crate) async fn until_promoted(&self) -> Instant {
        let end = Instant::now() + BOUND;
        while !self.is_primary().await.unwrap_or(false) {
            assert!(Instant::now() < end, "the replica was not promoted");
            sleep(Duration::from_millis(2)).await;
        }
        Instant::now()
    }

    /// Fails if the connection is closed, as a Sentinel does when it promotes a server.
    async fn is_primary(&self) -> io::Result<bool> {
        let mut raw = Raw::try_connect(self.port()).await?;
        let role = raw.try_cmd(&["ROLE"]).await?;
        Ok(role.array()[0].text() == "master")
    }

    /// True if the server is a primary that a replica follows.
    pub(crate) async fn is_replicated(&self) -> bool {
        is_replicated(self.port()).await.unwrap_or(false)
    }

    /// Waits until a replica follows this primary.
    pub(crate) async fn until_replicated(&self) {
        eventually("a replica follows it", BOUND, async || {
            self.is_replicated().await
        })
        .await;
    }
}

async fn is_replicated(port: u16) -> io::Result<bool> {
    let mut raw = Raw::try_connect(port).await?;
    let info = raw.try_cmd(&["INFO", "replication"]).await?;
    let is_online = info.text().contains("state=online");
    Ok(is_online && raw.try_cmd(&["WAIT", "1", "100"]).await? == Reply::Int(1))
}
