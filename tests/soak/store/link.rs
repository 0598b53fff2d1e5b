//! The link to the server: its delay, its faults, and its state.
//!
//! The link has threads of its own, so that the load does not change its delay.

use super::{
    oracle::Oracle,
    plan::{Fault, Plan},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testing::rng::Rng;
use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
};
use tokio::{runtime::Runtime, task::JoinHandle, time::sleep};

/// Between two checks of the link.
const PROBE: Duration = Duration::from_millis(10);
/// The timers of the proxy, two on each way, round up.
const GRAIN: Duration = Duration::from_millis(5);

/// A server, and a proxy in front of it.
pub(crate) struct Link {
    // Dropped first, which ends every task that uses the other fields.
    runtime: Runtime,
    proxy: Arc<Proxy>,
    server: RedisServer,
    plan: Plan,
}

impl Link {
    /// Starts the server, with the way to it as long as planned.
    pub(crate) fn start(plan: Plan) -> Self {
        let runtime = Runtime::new().expect("a runtime starts");
        let server = RedisServer::start();
        let proxy = Arc::new(runtime.block_on(Proxy::start(&server)));
        delay(&proxy, plan.trip);
        Self {
            runtime,
            proxy,
            server,
            plan,
        }
    }

    /// Where stores find the server.
    pub(crate) fn url(&self) -> String {
        self.proxy.url()
    }

    /// Where the oracle finds the server, past the proxy.
    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    /// Sends `PING` again and again, and reports to the oracle how late the answers were.
    pub(crate) fn probe(&self, oracle: Arc<Oracle>) {
        let (port, trip) = (self.proxy.port(), self.plan.trip);
        self.runtime.spawn(async move {
            let mut raw = Raw::connect(port).await;
            loop {
                let start = Instant::now();
                if raw.try_cmd(&["PING"]).await.is_err() {
                    raw = Raw::connect(port).await;
                }
                oracle.link.took(start, trip + GRAIN);
                sleep(PROBE).await;
            }
        });
    }

    /// Does to the link what is planned, until then.
    pub(crate) fn inject_faults(&self, end: Instant) -> JoinHandle<()> {
        let (proxy, plan) = (Arc::clone(&self.proxy), self.plan);
        let rng = Rng::new(plan.seed);
        self.runtime.spawn(async move {
            match plan.fault {
                Fault::None | Fault::Kill => {}
                Fault::Cuts => cut(&proxy, rng, plan.trip, end).await,
                Fault::Silence => silence(&proxy, rng, plan.trip, end).await,
            }
        })
    }
}

fn delay(proxy: &Proxy, trip: Duration) {
    proxy.delay(trip / 2, trip / 2);
}

/// Long enough for a store to have connected again, now and then.
fn pause(rng: &mut Rng, trip: Duration) -> Duration {
    trip * 3 + rng.millis(20..400)
}

async fn cut(proxy: &Proxy, mut rng: Rng, trip: Duration, end: Instant) {
    while Instant::now() < end {
        sleep(pause(&mut rng, trip)).await;
        proxy.kill(rng.one_of(&[End::Close, End::HalfClose, End::Reset]));
    }
}

async fn silence(proxy: &Proxy, mut rng: Rng, trip: Duration, end: Instant) {
    while Instant::now() < end {
        sleep(pause(&mut rng, trip)).await;
        match rng.one_of(&[0, 1, 2]) {
            0 => proxy.black_hole(),
            1 => proxy.mute(),
            _ => proxy.kill(End::Silence),
        }
        sleep(rng.millis(20..600)).await;
        proxy.forward();
        delay(proxy, trip);
    }
}
