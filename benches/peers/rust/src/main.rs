//! Drives the Rust semaphores: ours, under one limit or under four at once, and the crate distributed-lock with an
//! expiry of 10 s.

use distributed_lock_core::traits::{DistributedSemaphore, LockHandle, SemaphoreProvider};
use distributed_lock_redis::{RedisLockProvider, RedisSemaphoreHandle};
use std::{
    env,
    error::Error,
    iter, process,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

type BoxError = Box<dyn Error + Send + Sync>;

const PATIENCE: Duration = Duration::from_secs(60);

/// The wider limits of a claim under four, in addition to the limit of its key.
const WIDER: [&str; 3] = ["route", "model", "fleet"];

/// One of the two semaphores. Ours comes with the additional limits of its claims.
#[derive(Clone)]
enum Store {
    Ours(RedisSemaphore, &'static [&'static str]),
    Peer(Arc<RedisLockProvider>),
}

enum Held {
    Ours(Permit),
    Peer(RedisSemaphoreHandle),
}

impl Store {
    async fn connect(name: &str, url: &str) -> Result<Self, BoxError> {
        match name {
            "ours" => return Ok(Self::Ours(RedisSemaphore::connect(url).await?, &[])),
            "four" => return Ok(Self::Ours(RedisSemaphore::connect(url).await?, &WIDER)),
            _ => {}
        }
        let builder = RedisLockProvider::builder()
            .url(url)
            .expiry(Duration::from_secs(10));
        Ok(Self::Peer(builder.build().await?.into()))
    }

    async fn take(&self, key: &str, limit: u32) -> Result<Held, BoxError> {
        match self {
            Self::Ours(store, wider) => {
                let claim = |key: &str| {
                    let claim = Claim::new(key.to_owned());
                    claim.with_limit(limit).with_wait(PATIENCE)
                };
                let wider = wider.iter().map(|key| claim(key).with_policy(*key));
                let claims = iter::once(claim(key)).chain(wider).collect();
                Ok(Held::Ours(store.acquire_all(claims).await?))
            }
            Self::Peer(provider) => {
                let semaphore = provider.create_semaphore(key, limit);
                Ok(Held::Peer(semaphore.acquire(Some(PATIENCE)).await?))
            }
        }
    }
}

impl Held {
    /// Releases a permit as users would: ours by dropping it.
    async fn release(self) -> Result<(), BoxError> {
        match self {
            Self::Ours(permit) => drop(permit),
            Self::Peer(handle) => handle.release().await?,
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let args: Vec<String> = env::args().collect();
    let store = Store::connect(&args[1], &args[2]).await?;
    let key = args[4].as_str();
    match args[3].as_str() {
        "pairs" => pairs(&store, key, args[5].parse()?, args[6].parse()?).await?,
        "contend" => contend(&store, key).await?,
        "newcomer" => newcomer(&store, key).await?,
        "hold" => {
            let _held = store.take(key, 1).await?;
            println!("held {}", process::id());
            sleep(Duration::MAX).await;
        }
        // `wait`.
        _ => {
            let start = Instant::now();
            let _held = store.take(key, 1).await?;
            println!("{:.1}", start.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// Measures as `newcomer` in drive.mjs does, with a flow per tenant: the wait in holds, and the number of jobs begun
/// before.
async fn newcomer(store: &Store, key: &str) -> Result<(), BoxError> {
    const HOLD: Duration = Duration::from_millis(50);
    let Store::Ours(store, _) = store else {
        return Err("it knows no tenants".into());
    };
    let claim = Claim::new(key.to_owned()).with_limit(5).with_wait(PATIENCE);
    let claim = claim.with_max_waiting(1_000);
    let begun = Arc::new(AtomicUsize::new(0));
    let mut crowd = JoinSet::new();
    for _ in 0..1_000 {
        let (store, claim, begun) = (store.clone(), claim.clone().with_flow("ann"), begun.clone());
        crowd.spawn(async move {
            let _permit = store.acquire(claim).await;
            begun.fetch_add(1, SeqCst);
            sleep(HOLD).await;
        });
    }
    while begun.load(SeqCst) < 50 {
        sleep(HOLD / 5).await;
    }
    let (start, before) = (Instant::now(), begun.load(SeqCst));
    let _permit = store.acquire(claim.with_flow("bob")).await?;
    let holds = start.elapsed().as_secs_f64() / HOLD.as_secs_f64();
    println!("{holds:.1} {}", begun.load(SeqCst) - before);
    process::exit(0)
}

async fn pairs(store: &Store, key: &str, tasks: usize, seconds: u64) -> Result<(), BoxError> {
    let start = Instant::now();
    let mut work = JoinSet::new();
    for _ in 0..tasks {
        let (store, key) = (store.clone(), key.to_owned());
        work.spawn(async move {
            let mut count = 0_u64;
            while start.elapsed().as_secs() < seconds {
                store.take(&key, 1_000).await?.release().await?;
                count += 1;
            }
            Ok::<_, BoxError>(count)
        });
    }
    let mut count = 0;
    for done in work.join_all().await {
        count += done?;
    }
    if let Store::Ours(store, _) = store {
        // Waits until the last release has reached the server.
        store.shutdown(Duration::from_secs(5)).await;
    }
    println!("{:.0}", count as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

/// The contender, the time of its grant, and the time at which it was done.
type Seen = (u32, Duration, Duration);

/// Fifty contenders 4 ms apart, five permits, 100 ms each: prints the total and the inversions.
async fn contend(store: &Store, key: &str) -> Result<(), BoxError> {
    let start = Instant::now();
    let mut work = JoinSet::new();
    for at in 0..50 {
        work.spawn(contender(store.clone(), key.to_owned(), at, start));
    }
    let seen = work.join_all().await.into_iter();
    let seen = seen.collect::<Result<Vec<_>, _>>()?;
    let ends = seen.iter().map(|(.., end)| end.as_millis());
    println!("{} {}", ends.max().unwrap_or(0), inversions(&seen));
    // The last releases are still in flight.
    sleep(Duration::from_millis(200)).await;
    Ok(())
}

async fn contender(store: Store, key: String, at: u32, start: Instant) -> Result<Seen, BoxError> {
    sleep(Duration::from_millis(4) * at).await;
    let held = store.take(&key, 5).await?;
    let granted = start.elapsed();
    sleep(Duration::from_millis(100)).await;
    let end = start.elapsed();
    held.release().await?;
    Ok((at, granted, end))
}

/// The number of pairs in which the later contender was granted before the earlier one.
fn inversions(seen: &[Seen]) -> usize {
    let overtakers = |(earlier, granted, _): &Seen| {
        let all = seen.iter();
        let overtaking = all.filter(|(at, before, _)| at > earlier && before < granted);
        overtaking.count()
    };
    seen.iter().map(overtakers).sum()
}
