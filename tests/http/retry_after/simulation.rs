//! Simulates clients that obey `Retry-After`, against the real layer. Tokio's clock is paused, so hours pass in
//! milliseconds.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use testing::rng::Rng;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore};

pub(crate) const CLIENTS: usize = 50;

/// The bound of a random delay, so that clients do not act in lockstep.
const JITTER_MS: usize = 10;

/// The distribution of the times for which permits are held.
#[derive(Clone, Copy)]
pub(crate) enum Hold {
    /// Always this time, in seconds.
    Exactly(f64),
    /// Exponentially distributed, with this mean in seconds.
    About(f64),
    /// One in ten is eleven times as long as the others. The mean is in seconds.
    Mixed(f64),
}

impl Hold {
    fn draw(self, rng: &mut Rng) -> Duration {
        let part = (rng.below(1_000_000) + 1) as f64 / 1e6;
        Duration::from_secs_f64(match self {
            Self::Exactly(mean) => mean,
            Self::About(mean) => -mean * part.ln(),
            Self::Mixed(mean) if part < 0.1 => mean * 5.5,
            Self::Mixed(mean) => mean * 0.5,
        })
    }
}

/// The parameters of a simulation.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) limit: u32,
    pub(crate) hold: Hold,
    /// Each client's claim weighs between 1 and this many units.
    pub(crate) heaviest: usize,
    /// The number of processes that share the limit, each with a separate layer.
    pub(crate) processes: usize,
    /// The time that a request may wait for its permit.
    pub(crate) wait: Duration,
    /// The number of permits of each process that have ended before the clients arrive.
    pub(crate) before: usize,
    /// True if clients return after one second whatever `Retry-After` asks for.
    pub(crate) constant: bool,
    pub(crate) seed: u64,
}

impl Load {
    pub(crate) fn new(limit: u32, hold: Hold) -> Self {
        Self {
            limit,
            hold,
            heaviest: 1,
            processes: 1,
            wait: Duration::ZERO,
            before: 50,
            constant: false,
            seed: 1,
        }
    }
}

/// The results of a simulation.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) requests: AtomicU64,
    /// The clients that were refused at first.
    pub(crate) returned: AtomicU64,
    /// The clients that were admitted when they first returned.
    pub(crate) at_first_return: AtomicU64,
    /// The longest `Retry-After`, in seconds.
    pub(crate) longest_retry_after: AtomicU64,
    /// The sum over all clients of the time until they were admitted.
    pub(crate) waited_ms: AtomicU64,
}

impl Outcome {
    /// The share of the refused clients that were admitted when they first returned.
    pub(crate) fn share(&self) -> f64 {
        self.at_first_return.load(Relaxed) as f64 / self.returned.load(Relaxed).max(1) as f64
    }

    pub(crate) fn add(&self, other: &Self) {
        for (sum, part) in [
            (&self.requests, &other.requests),
            (&self.returned, &other.returned),
            (&self.at_first_return, &other.at_first_return),
            (&self.waited_ms, &other.waited_ms),
        ] {
            sum.fetch_add(part.load(Relaxed), Relaxed);
        }
        let longest = other.longest_retry_after.load(Relaxed);
        self.longest_retry_after.fetch_max(longest, Relaxed);
    }
}

/// All clients send their first request at once, and each returns until it is admitted.
pub(crate) async fn run(load: Load) -> Arc<Outcome> {
    let store = MemorySemaphore::new();
    let claims = |parts: &http::request::Parts| {
        let weight = parts.extensions.get::<u32>().copied();
        Claim::new("all").with_weight(weight.unwrap_or(1))
    };
    let layer = || {
        ConcurrencyLimitLayer::new(load.limit, claims, store.clone())
            .with_wait(load.wait)
            .layer(service_fn(hold_permit))
    };
    let services: Vec<_> = (0..load.processes).map(|_| layer()).collect();
    let mut rng = Rng::new(load.seed);
    for service in &services {
        for _ in 0..load.before {
            let request = request(load.hold.draw(&mut rng), 1);
            let Ok(answer) = service.clone().oneshot(request).await;
            assert_eq!(answer.status(), 200);
        }
    }
    let outcome = Arc::new(Outcome::default());
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let service = services[client % load.processes].clone();
        let seed = load.seed * 1_000 + client as u64;
        clients.spawn(come_back(service, load, seed, Arc::clone(&outcome)));
    }
    while let Some(client) = clients.join_next().await {
        client.expect("a client gets in");
    }
    outcome
}

/// One client: it sends its request again after each `Retry-After` until it is admitted.
async fn come_back<S, B>(service: S, load: Load, seed: u64, outcome: Arc<Outcome>)
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    let mut rng = Rng::new(seed);
    let jitter = |rng: &mut Rng| Duration::from_millis(rng.below(JITTER_MS) as u64);
    let weight = 1 + rng.below(load.heaviest) as u32;
    let start = Instant::now();
    sleep(jitter(&mut rng)).await;
    for attempt in 0_u64.. {
        let sent = Instant::now();
        let hold = load.hold.draw(&mut rng);
        let Ok(answer) = service.clone().oneshot(request(hold, weight)).await;
        let is_in = answer.status() == 200;
        outcome.requests.fetch_add(1, Relaxed);
        if attempt == 1 {
            outcome.returned.fetch_add(1, Relaxed);
            outcome.at_first_return.fetch_add(is_in.into(), Relaxed);
        }
        if is_in {
            let waited = (sent - start).as_millis() as u64;
            outcome.waited_ms.fetch_add(waited, Relaxed);
            return;
        }
        let wait = answer.headers()["retry-after"].to_str().expect("digits");
        let wait = wait.parse().expect("seconds");
        outcome.longest_retry_after.fetch_max(wait, Relaxed);
        let wait = if load.constant { 1 } else { wait };
        sleep(Duration::from_secs(wait) + jitter(&mut rng)).await;
    }
}

fn request(hold: Duration, weight: u32) -> Request<String> {
    let mut request = Request::new(String::new());
    request.extensions_mut().insert(hold);
    request.extensions_mut().insert(weight);
    request
}

/// Holds the permit for the time that the request carries.
async fn hold_permit(request: Request<String>) -> Result<Response<Full<Bytes>>, Infallible> {
    let hold = request.extensions().get().copied();
    sleep(hold.unwrap_or_default()).await;
    Ok(Response::new(Full::default()))
}
