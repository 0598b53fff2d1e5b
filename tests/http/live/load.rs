//! Raises and lowers the limit while clients keep sending requests.

use super::{layer, request};
use http::{Request, Response};
use parking_lot::Mutex;
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use testing::{
    rng::Rng,
    stores::{Store, facts_of_two},
};
use tokio::{sync::watch, task::JoinSet, time::sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::Permit;

facts_of_two! { nobody_is_admitted_above_the_limit_in_force }

const CLIENTS: u64 = 24;
const HIGHEST: u32 = 8;
const CHANGES: u32 = 60;

/// Counts running requests independently of the store.
#[derive(Default)]
struct Witness {
    /// The limit of each running request.
    running: Mutex<Vec<u32>>,
    /// The most requests that ran at the same time.
    most: AtomicU32,
    /// The requests that began while more ran than the highest of their limits.
    above: AtomicUsize,
    /// The requests that were admitted under another limit than `now`.
    of_old_limit: AtomicUsize,
    stopped: AtomicBool,
    /// The only limit that may be in force now; 0 while it changes.
    now: AtomicU32,
}

impl Witness {
    /// Counts the request only while its permit is held, so the count never exceeds the permits held.
    async fn handle(&self, request: Request<String>) -> Response<String> {
        let permit = request.extensions().get::<Permit>().cloned();
        let limit = permit.as_ref().map_or(0, Permit::limit);
        let (running, highest) = self.begin(limit);
        self.most.fetch_max(running, SeqCst);
        self.above.fetch_add((running > highest).into(), SeqCst);
        let now = self.now.load(SeqCst);
        let is_old = now != 0 && limit != now;
        self.of_old_limit.fetch_add(is_old.into(), SeqCst);
        sleep(Duration::from_millis(3)).await;
        self.end(limit);
        drop(permit);
        Response::new(String::new())
    }

    /// Starts a request. Returns the number of running requests and the highest of their limits. The number may not
    /// exceed that limit: the last admitted request was within its own limit, even if another request starts running
    /// first.
    fn begin(&self, limit: u32) -> (u32, u32) {
        let mut running = self.running.lock();
        running.push(limit);
        let highest = running.iter().max();
        (running.len() as u32, *highest.expect("this one runs"))
    }

    fn end(&self, limit: u32) {
        let mut running = self.running.lock();
        let index = running.iter().position(|other| *other == limit);
        running.swap_remove(index.expect("it runs"));
    }
}

/// Sends one request after the other until the test is over.
async fn keep_sending<S, B>(service: S, witness: Arc<Witness>)
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    while !witness.stopped.load(SeqCst) {
        let Ok(answer) = service.clone().oneshot(request()).await;
        if answer.status() != 200 {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn nobody_is_admitted_above_the_limit_in_force(store: Store) {
    let witness = Arc::new(Witness::default());
    let (operator, limit) = watch::channel(1);
    let handler = Arc::clone(&witness);
    let service = layer(limit, store).layer(service_fn(move |request| {
        let witness = Arc::clone(&handler);
        async move { Ok::<_, Infallible>(witness.handle(request).await) }
    }));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(keep_sending(service.clone(), Arc::clone(&witness)));
    }
    let mut rng = Rng::new(3);
    for _ in 0..CHANGES {
        let limit = 1 + rng.below(HIGHEST as usize) as u32;
        operator.send(limit).expect("the layer lives");
        sleep(rng.millis(1..30)).await;
    }
    for limit in [HIGHEST, 2] {
        assert_in_force(&operator, &witness, limit).await;
    }
    witness.stopped.store(true, SeqCst);
    clients.join_all().await;
    assert_eq!(
        witness.above.load(SeqCst),
        0,
        "above the limit in force at admission"
    );
}

/// Sets the limit, and waits until the claims under the old limit are over. Then asserts that every request is admitted
/// under this limit and that all its units are used.
async fn assert_in_force(operator: &watch::Sender<u32>, witness: &Witness, limit: u32) {
    operator.send(limit).expect("the layer lives");
    // A request takes 3 ms.
    sleep(Duration::from_millis(300)).await;
    witness.most.store(0, SeqCst);
    witness.now.store(limit, SeqCst);
    let all = async || witness.most.load(SeqCst) == limit;
    testing::wait::eventually("all units are used", super::BOUND, all).await;
    assert_eq!(witness.of_old_limit.load(SeqCst), 0, "under another limit");
    witness.now.store(0, SeqCst);
    assert!(witness.most.load(SeqCst) <= limit);
}
