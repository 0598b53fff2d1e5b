//! Two stores at work on one key, of which some permits are held all the time.

use std::time::Duration;
use testing::{
    in_flight::{InFlight, One},
    resp::Raw,
    rng::Rng,
    wait::eventually,
};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

/// Long enough that a busy machine loses no permit, nor fails a claim under the longest timeout.
const LEASE: Duration = Duration::from_secs(6);
/// A refresh interval, and what a busy machine takes.
const TOLD: Duration = Duration::from_secs(2 + 3);
const BOUND: Duration = Duration::from_secs(20);
pub(crate) const LIMIT: usize = 6;
/// Permits that are held all the time.
pub(crate) const STREAMS: usize = 3;
const TASKS: u64 = 12;
pub(crate) const HELD: &str = "semaphore:{concurrency:a}:held";

fn claim() -> Claim {
    Claim::new("a").with_limit(LIMIT as u32)
}

/// See the module docs.
pub(crate) struct Crowd {
    in_flight: InFlight,
    streams: Vec<Stream>,
    stop: CancellationToken,
    load: JoinSet<()>,
}

/// A permit that is held all the time.
struct Stream {
    permit: Permit,
    /// Of its first grant.
    token: Option<u64>,
    _one: One,
    /// Ends when the holder is told that the permit is lost.
    told: JoinHandle<()>,
}

/// Short permits, some from the queue, until the end. A loss is for its holder to see; the work goes on.
async fn work(store: RedisSemaphore, in_flight: InFlight, mut rng: Rng) {
    loop {
        let wait = rng.millis(0..400) * u32::from(rng.once_in(2));
        if let Ok(permit) = store.acquire(claim().with_wait(wait)).await {
            let one = in_flight.begin();
            sleep(rng.millis(5..60)).await;
            drop((one, permit));
        }
        sleep(rng.millis(1..5)).await;
    }
}

impl Crowd {
    /// On the server at `url`. Returns once the limit is reached.
    pub(crate) async fn start(url: &str) -> Self {
        let builder = || RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
        let ours = builder().connect(url).await.expect("it connects");
        let other = builder().connect(url).await.expect("it connects");
        let mut crowd = Self {
            in_flight: InFlight::default(),
            streams: Vec::new(),
            stop: CancellationToken::new(),
            load: JoinSet::new(),
        };
        for _ in 0..STREAMS {
            let permit = ours.acquire(claim()).await.expect("there is room");
            let watched = permit.clone();
            crowd.streams.push(Stream {
                token: permit.token(),
                permit,
                _one: crowd.in_flight.begin(),
                told: tokio::spawn(async move { watched.lost().await }),
            });
        }
        for seed in 0..TASKS {
            let store = [&ours, &other][seed as usize % 2].clone();
            let work = work(store, crowd.in_flight.clone(), Rng::new(seed));
            let stop = crowd.stop.clone();
            crowd.load.spawn(async move {
                stop.run_until_cancelled(work).await;
            });
        }
        crowd.goes_on().await;
        assert_eq!(crowd.in_flight.most(), LIMIT);
        crowd
    }

    /// Waits until many more permits have been granted.
    pub(crate) async fn goes_on(&self) {
        let before = self.in_flight.begun();
        eventually("permits are granted", BOUND, async || {
            self.in_flight.begun() > before + 40
        })
        .await;
    }

    /// The most that ever held a permit, as they knew.
    pub(crate) fn most(&self) -> usize {
        self.in_flight.most()
    }

    /// Each stream is told that its permit is lost, unless there is room for it when it asks: then
    /// it is granted anew.
    pub(crate) async fn is_told_or_back(&self) {
        eventually("each holder is told, or back", TOLD, async || {
            let mut streams = self.streams.iter();
            streams.all(|stream| stream.told.is_finished() || stream.permit.token() > stream.token)
        })
        .await;
    }

    /// Ends the load. Returns once each stream has its unit again, and nothing else is held.
    pub(crate) async fn settles(mut self, raw: &mut Raw) {
        self.stop.cancel();
        while self.load.join_next().await.is_some() {}
        eventually("each stream is back", BOUND, async || {
            let is_held = |stream: &Stream| !stream.permit.is_lost();
            self.streams.iter().all(is_held) && raw.zcard(HELD).await == STREAMS
        })
        .await;
    }
}
