//! A primary and its replica. An operator promotes the replica, and points the clients' address at it.

use crate::{front::Front, setup::Setup};
use std::{
    mem::swap,
    time::{Duration, Instant},
};
use testing::{
    redis::RedisServer,
    resp::{Raw, Reply},
    wait::eventually,
};

/// How long servers may take to agree.
const BOUND: Duration = Duration::from_secs(20);

/// See the module docs.
pub(crate) struct Plain {
    /// The address that clients know.
    address: Front,
    primary: Node,
    replica: Node,
    /// The next replica.
    spare: Node,
    setup: Setup,
}

/// A server, and the address on which its replicas reach it.
struct Node {
    server: RedisServer,
    front: Front,
}

impl Node {
    async fn start(setup: Setup) -> Self {
        let mut args = vec!["--repl-diskless-sync", "yes"];
        args.extend(["--repl-diskless-sync-delay", "0"]);
        args.extend(setup.server_args());
        let (server, front) = (RedisServer::with(&args), Front::open(setup.lag).await);
        front.point_at(server.port());
        Self { server, front }
    }

    async fn raw(&self) -> Raw {
        Raw::connect(self.server.port()).await
    }

    async fn replicate(&self, primary: &Self) {
        let port = primary.front.port().to_string();
        self.replicaof("127.0.0.1", &port).await;
        let mut raw = primary.raw().await;
        eventually("the replica has what there is", BOUND, async || {
            // Not on a replica that is about to load: it answers only once it has loaded.
            let info = raw.cmd(&["INFO", "replication"]).await;
            info.text().contains("state=online")
                && raw.cmd(&["WAIT", "1", "100"]).await == Reply::Int(1)
        })
        .await;
    }

    async fn replicaof(&self, host: &str, port: &str) {
        let reply = self.raw().await.cmd(&["REPLICAOF", host, port]).await;
        assert_eq!(reply, Reply::Simple("OK".to_owned()));
    }
}

impl Plain {
    pub(crate) async fn start(setup: Setup) -> Self {
        let (primary, replica) = (Node::start(setup).await, Node::start(setup).await);
        replica.replicate(&primary).await;
        let address = Front::open(Duration::ZERO).await;
        address.point_at(primary.server.port());
        Self {
            address,
            primary,
            replica,
            spare: Node::start(setup).await,
            setup,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.address.port())
    }

    /// The primary's machine goes, and the replica is promoted. Returns when it was.
    pub(crate) async fn fail_over(&mut self) -> Instant {
        self.primary.front.cut();
        self.address.cut();
        self.primary.server.kill();
        self.replica.replicaof("NO", "ONE").await;
        let promoted = Instant::now();
        self.address.point_at(self.replica.server.port());
        swap(&mut self.primary, &mut self.replica);
        // The one that is gone.
        swap(&mut self.replica, &mut self.spare);
        promoted
    }

    /// A new server becomes the replica.
    pub(crate) async fn mend(&mut self) {
        self.replica.replicate(&self.primary).await;
        self.spare = Node::start(self.setup).await;
    }
}
