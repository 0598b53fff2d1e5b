//! Heavy claims, beside another user of the server.

use futures_util::future::join_all;
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use testing::rig::{BOUND, Rig, warm};
use testing::{machine::alone, redis::RedisServer, resp::Raw};
use tokio::runtime;
use tower_semaphore::{
    Claim, RedisSemaphore, Semaphore,
    redis::{
        Builder,
        client::{AsyncConnectionConfig, Client},
    },
};

/// How often the slowest pings are measured at most: on a busy machine they may be late themselves.
const ROUNDS: usize = 8;
/// How long the server may work before it answers another user. This is its time on a processor, so
/// it hardly matters what else the machine does. For all units at once it works for half a second and more.
const STALL: Duration = Duration::from_millis(100);
/// Long enough for the server to do all of it.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Another user of the server, on a thread of its own.
struct Other {
    end: Arc<AtomicBool>,
    pings: JoinHandle<Duration>,
}

impl Other {
    fn start(server: &RedisServer) -> Self {
        let (port, pid) = (server.port(), server.pid());
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let pings = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime can be made");
            runtime.block_on(ping(port, pid, &ended))
        });
        Self { end, pings }
    }

    /// The longest work of the server before an answer.
    fn slowest(self) -> Duration {
        self.end.store(true, Ordering::Relaxed);
        self.pings.join().expect("it did not panic")
    }
}

async fn ping(port: u16, pid: u32, end: &AtomicBool) -> Duration {
    let mut raw = Raw::connect(port).await;
    let mut slowest = Duration::ZERO;
    while !end.load(Ordering::Relaxed) {
        let start = time_on_processor(pid);
        raw.cmd(&["PING"]).await;
        slowest = slowest.max(time_on_processor(pid) - start);
        thread::sleep(Duration::from_millis(1));
    }
    slowest
}

/// How long a process has run, as the kernel counts it in nanoseconds.
fn time_on_processor(pid: u32) -> Duration {
    let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat"));
    let schedstat = schedstat.expect("the server runs");
    let nanos = schedstat.split(' ').next().map(str::parse);
    Duration::from_nanos(nanos.expect("a field").expect("a number"))
}

/// The slowest pings while 300,000 units are acquired at once, and while they are released.
async fn heavy_round(rig: &mut Rig) -> [Duration; 2] {
    let claim = || Claim::new("a").with_limit(1_000_000).with_weight(1_000);
    let other = Other::start(&rig.server);
    let permits = join_all((0..300).map(|_| rig.store.acquire(claim()))).await;
    let acquired = other.slowest();
    assert!(permits.iter().all(Result::is_ok), "{permits:?}");

    let other = Other::start(&rig.server);
    drop(permits);
    rig.nothing_is_left(BOUND).await;
    [acquired, other.slowest()]
}

fn builder() -> Builder {
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(60));
    builder.timeout(TIMEOUT)
}

async fn stalls_no_other_user(mut rig: Rig) {
    let mut rounds = Vec::new();
    // A busy machine stalls some rounds, but not the best of several.
    for _ in 0..ROUNDS {
        rounds.push(heavy_round(&mut rig).await);
        let best = |phase: usize| rounds.iter().map(|round: &[_; 2]| round[phase]).min();
        if best(0).max(best(1)) < Some(STALL) {
            return;
        }
    }
    panic!("the slowest pings: {rounds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_claims_do_not_stall_other_users_of_the_server() {
    let _alone = alone().await;
    stalls_no_other_user(Rig::new(builder()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_claims_over_a_long_link_do_not_stall_other_users_of_the_server() {
    let _alone = alone().await;
    let mut rig = Rig::new(builder()).await;
    let delay = Duration::from_millis(50);
    rig.proxy.delay(delay, delay);
    // One that has never seen a shorter round trip.
    let store = builder().connect(rig.proxy.url()).await;
    rig.store = store.expect("it connects");
    warm(&rig.store).await;
    stalls_no_other_user(rig).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_claims_on_a_supplied_connection_do_not_stall_other_users_of_the_server() {
    let _alone = alone().await;
    let mut rig = Rig::new(builder()).await;
    let client = Client::open(rig.server.url()).expect("a local URL");
    // Its own, of half a second, is for commands that a busy machine answers at once.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
    let connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await;
    let store = builder().with_connection(connection.expect("the server answers"));
    rig.store = store.expect("right settings");
    warm(&rig.store).await;
    stalls_no_other_user(rig).await;
}
