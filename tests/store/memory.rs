//! The store in memory under many threads, judged by the tests' own counters and flags.
//!
//! Promises: P1, P5, P11, P14.

use bytes::Bytes;
use futures_util::FutureExt;
use std::{
    collections::VecDeque,
    panic::panic_any,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};
use tokio::runtime::Runtime;
use tower_semaphore::{
    Acquire, AcquireError, Claim, Key, MemorySemaphore, Operate, Permit, Policy, Semaphore,
};

const THREADS: u64 = 8;

/// Generous: no test here measures time, and a busy machine may run another program after each yield.
const BOUND: Duration = Duration::from_secs(60);

/// Far more processor time than linear work over a crowd needs, and far less than quadratic work needs.
const LINEAR: Duration = Duration::from_secs(3);

/// A pseudo-random number (splitmix64).
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn try_acquire(store: &MemorySemaphore, claim: Claim) -> Option<Permit> {
    let answer = store.acquire(claim).now_or_never();
    answer
        .expect("a claim without a wait is answered at once")
        .ok()
}

/// The units of a resource in use, as its users count them.
#[derive(Default)]
struct Usage(AtomicU32);

impl Usage {
    /// Checks the limit while `weight` units are in use for a moment.
    fn hold(&self, permit: Permit, weight: u32, limit: u32) {
        let held = self.0.fetch_add(weight, SeqCst) + weight;
        assert!(held <= limit, "{held} of {limit}");
        thread::yield_now();
        self.0.fetch_sub(weight, SeqCst);
        drop(permit);
    }
}

/// A key's state as its users observe it.
#[derive(Default)]
struct Observed {
    is_held: AtomicBool,
    last_token: AtomicU64,
}

impl Observed {
    fn hold(&self, permit: Permit) {
        assert!(
            !self.is_held.swap(true, SeqCst),
            "{permit:?} is a second holder"
        );
        let token = permit.token().expect("it is granted");
        let last = self.last_token.swap(token, SeqCst);
        assert!(last < token, "{permit:?} follows token {last}");
        self.is_held.store(false, SeqCst);
        drop(permit);
    }
}

#[test]
fn evicted_keys_keep_their_limit_and_their_tokens_grow() {
    const KEYS: usize = 30_000;
    let store = MemorySemaphore::new();
    let keys: Vec<_> = (0..KEYS).map(|_| Observed::default()).collect();
    // These keys fill the store's capacity, so each further key is evicted as soon as it is idle.
    let others: Vec<_> = (0..20_000)
        .map(|key| try_acquire(&store, Claim::new(format!("other {key}")).with_limit(1)))
        .collect();
    let work = |seed| {
        for round in 0..100_000 {
            let dice = mix(seed + THREADS * round) as usize;
            // Half of the claims are for a few busy keys.
            let range = [8, KEYS][dice % 2];
            let key = dice / 2 % range;
            let permit = try_acquire(&store, Claim::new(key as u64).with_limit(1));
            permit.into_iter().for_each(|permit| keys[key].hold(permit));
        }
    };
    thread::scope(|scope| {
        let work = &work;
        (0..THREADS).for_each(|seed| drop(scope.spawn(move || work(seed))));
    });
    assert_eq!(store.busy_keys(), others.len());
}

/// Half of the tasks wait and the others do not, so the queue keeps filling and emptying.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiters_among_claims_that_do_not_wait_are_granted() {
    let (store, usage) = (MemorySemaphore::new(), Arc::<Usage>::default());
    let tasks = (0..THREADS).map(|seed| {
        let (store, usage) = (store.clone(), Arc::clone(&usage));
        tokio::spawn(async move {
            for round in 0..1_000 {
                let weight = 1 + (mix(seed + THREADS * round) % 2) as u32;
                let claim = Claim::new("a").with_limit(3).with_weight(weight);
                let claim = claim.with_wait(if seed % 2 == 0 { BOUND } else { Duration::ZERO });
                match store.acquire(claim).await {
                    Ok(permit) => usage.hold(permit, weight, 3),
                    Err(refused) => assert_eq!(seed % 2, 1, "{refused:?}"),
                }
                tokio::task::yield_now().await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("the task did not panic");
    }
    assert_eq!(store.busy_keys(), 0);
}

/// A waker that does immediately what a task would do on its next run: it tries the same key and polls the waiting
/// claim.
struct Eager {
    store: MemorySemaphore,
    waiting: Mutex<Option<Acquire>>,
    /// For each try, true if it got a permit.
    tries: Mutex<Vec<bool>>,
}

impl Eager {
    fn queued(store: &MemorySemaphore) -> Arc<Self> {
        let eager = Arc::new(Self {
            store: store.clone(),
            waiting: Mutex::new(Some(store.acquire(patient()))),
            tries: Mutex::default(),
        });
        assert!(eager.poll().is_pending());
        eager
    }

    fn poll(self: &Arc<Self>) -> Poll<Result<Permit, AcquireError>> {
        let waker = Arc::clone(self).into();
        let mut waiting = self.waiting.lock().expect("no panic");
        let waiting = waiting.as_mut().expect("it waits");
        waiting.poll_unpin(&mut Context::from_waker(&waker))
    }
}

impl Wake for Eager {
    fn wake(self: Arc<Self>) {
        let is_granted = try_acquire(&self.store, patient().with_wait(Duration::ZERO)).is_some();
        self.tries.lock().expect("no panic").push(is_granted);
        // The lock is taken while the claim is being dropped. The claim is not polled then.
        if self
            .waiting
            .try_lock()
            .is_ok_and(|waiting| waiting.is_some())
        {
            assert!(matches!(self.poll(), Poll::Ready(Ok(_))), "it is granted");
        }
    }
}

/// A claim for the only unit of `a` that may wait.
fn patient() -> Claim {
    Claim::new("a").with_limit(1).with_wait(BOUND)
}

/// Runs code that might block forever, in a thread with a runtime for its timers.
fn within_bound<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().expect("a runtime");
        let _inside = runtime.enter();
        sender.send(run())
    });
    receiver.recv_timeout(BOUND).expect("it does not block")
}

#[test]
fn a_waker_may_claim_the_key_that_it_was_granted() {
    let tries = within_bound(|| {
        let store = MemorySemaphore::new();
        let held = try_acquire(&store, patient()).expect("there is room");
        let first = Eager::queued(&store);
        let second = Eager::queued(&store);
        drop(held);
        assert_eq!(store.busy_keys(), 0);
        [first, second].map(|eager| eager.tries.lock().expect("no panic").clone())
    });
    // Each waker found the key held by its own claim's grant.
    assert_eq!(tries, [[false], [false]]);
}

#[test]
fn a_waker_may_claim_the_key_whose_queue_its_waiter_leaves() {
    let tries = within_bound(|| {
        let store = MemorySemaphore::new();
        let held = try_acquire(&store, patient()).expect("there is room");
        let eager = Eager::queued(&store);
        let waiting = eager.waiting.lock().expect("no panic").take();
        drop(waiting);
        drop(held);
        eager.tries.lock().expect("no panic").clone()
    });
    assert!(
        tries.iter().all(|is_granted| !is_granted),
        "the key was held"
    );
}

#[test]
fn clones_that_change_their_weight_on_two_threads_agree_with_the_store() {
    const LIMIT: u32 = 10;
    let (store, claim) = (MemorySemaphore::new(), Claim::new("a").with_limit(LIMIT));
    let permit = try_acquire(&store, claim.clone()).expect("there is room");
    let runtime = Runtime::new().expect("a runtime");
    let change = &|weight| runtime.block_on(permit.resize(weight));
    for round in 0..5_000 {
        thread::scope(|scope| {
            for weight in [2, 7] {
                scope.spawn(move || change(weight).expect("there is room"));
            }
        });
        let rest = try_acquire(&store, claim.clone()).expect("there is room");
        // One unit is that of `rest`.
        let held = LIMIT - rest.remaining() - 1;
        assert_eq!(permit.weight(), held, "round {round}");
    }
}

#[tokio::test]
async fn a_permit_that_is_lost_at_one_limit_grows_at_no_other() {
    let store = MemorySemaphore::builder().holders(true).build();
    let [narrow, wide] = ["narrow", "wide"].map(Policy::from);
    let claims = [&narrow, &wide].map(|policy| {
        let claim = Claim::new("a").with_policy(policy.clone());
        claim.with_limit(5)
    });
    let permit = store
        .acquire_all(claims.into())
        .await
        .expect("there is room");
    let usage = store
        .usage(&narrow, &"a".into())
        .await
        .expect("it is listed");
    let revoked = store.revoke(&narrow, &"a".into(), &usage.held[0].id).await;
    assert!(revoked.expect("it is there") && permit.is_lost());
    assert!(permit.resize_at(&wide, 5).await.is_err());
    let usage = store.usage(&wide, &"a".into()).await.expect("it is listed");
    assert_eq!(usage.units, 1);
}

#[tokio::test]
async fn a_change_that_an_outer_limit_refuses_lets_no_waiter_in() {
    let store = MemorySemaphore::new();
    let fleet = |weight| Claim::new("fleet").with_limit(3).with_weight(weight);
    let own = |weight| Claim::new("a").with_limit(5).with_weight(weight);
    let _others = try_acquire(&store, fleet(2)).expect("there is room");
    let outer = try_acquire(&store, fleet(1)).expect("there is room");
    let permit = try_acquire(&store, own(5)).expect("there is room");
    let permit = permit.with_outer(&outer);
    let mut waiter = store.acquire(own(2).with_wait(BOUND));
    assert!((&mut waiter).now_or_never().is_none());
    let refused = permit.resize(3).await;
    assert!(
        matches!(refused, Err(AcquireError::Full { .. })),
        "{refused:?}"
    );
    assert_eq!((permit.weight(), outer.weight()), (5, 1));
    assert!((&mut waiter).now_or_never().is_none());
}

#[tokio::test]
async fn a_hundred_claims_wait_for_a_key_at_most_unless_a_claim_sets_another_number() {
    let store = MemorySemaphore::new();
    let claim = || Claim::new("a").with_limit(1).with_wait(BOUND);
    let _held = store.acquire(claim()).await.expect("there is room");
    let waiting = (0..100).map(|_| {
        let mut acquire = store.acquire(claim());
        assert!((&mut acquire).now_or_never().is_none(), "it waits");
        acquire
    });
    let _waiting: Vec<_> = waiting.collect();
    let refused = store.acquire(claim()).await;
    assert!(
        matches!(refused, Err(AcquireError::QueueFull { .. })),
        "{refused:?}"
    );
}

/// The processor time of 10,000 claims, each of a new flow, if `waiters` claims wait before each grant.
async fn cost_of_claims_behind(waiters: u64) -> Duration {
    let store = MemorySemaphore::builder()
        .max_waiting_total(100_000)
        .build();
    let claim = |number: u64| {
        let claim = Claim::new("a").with_limit(1).with_wait(BOUND * 60);
        let claim = claim.with_flow(format!("flow-{number}"));
        claim.with_max_waiting(100_000)
    };
    let mut held = store.acquire(claim(0)).await.expect("there is room");
    let mut waiting = VecDeque::new();
    let join = |number| {
        let mut acquire = store.acquire(claim(number));
        assert!((&mut acquire).now_or_never().is_none(), "others wait");
        acquire
    };
    waiting.extend((1..=waiters).map(join));
    let before = processor_time();
    for number in 1..=10_000 {
        waiting.push_back(join(waiters + number));
        drop(held);
        let next = waiting.pop_front().expect("others wait");
        held = next.await.expect("it is granted");
    }
    processor_time() - before
}

/// The queue is never empty. A claim that looked at all flows would cost a hundred times as much.
#[tokio::test]
async fn flows_that_wait_or_have_gone_delay_no_claim() {
    let few = cost_of_claims_behind(100).await;
    let many = cost_of_claims_behind(10_000).await;
    assert!(many < few * 10, "{few:?} among few, {many:?} among many");
}

/// The resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let size = line.and_then(|line| line.split_whitespace().nth(1));
    size.and_then(|size| size.parse().ok()).expect("a size")
}

#[tokio::test]
#[ignore = "another test starts it as a process of its own"]
async fn a_process_with_long_keys() {
    const LONG: usize = 390_000;
    const COUNT: u32 = 60;
    let store = MemorySemaphore::new();
    let keys = |name: &'static str| {
        let key = move |number: u32| format!("{name}{number}").repeat(LONG / 8);
        (0..COUNT).map(key)
    };
    // Allocate everything that is allocated only once.
    for key in keys("warm") {
        drop(try_acquire(&store, Claim::new(key).with_limit(1)));
    }
    let before = resident();
    for key in keys("key") {
        let permit = try_acquire(&store, Claim::new(&*key).with_limit(1));
        assert!(permit.is_some());
        let limit = store.set_limit(&Policy::DEFAULT, Some(&key.into()), Some(2), "");
        limit.await.expect("it is set");
    }
    // Flows of a queue that is never empty.
    let patient = || patient().with_limit(1).with_max_waiting(10);
    let mut held = store.acquire(patient().with_flow("first")).await.ok();
    for flow in keys("flow") {
        let mut next = store.acquire(patient().with_flow(flow));
        assert!(futures_util::poll!(&mut next).is_pending());
        let gone = store.acquire(patient().with_flow("gone"));
        drop(held);
        held = next.await.ok();
        drop(gone);
    }
    let grown = resident().saturating_sub(before);
    println!("grown by {grown} KiB");
    // Kept whole, keys, limits and flows take 29 MiB; as digests they take less than 2.
    assert!(grown < 5 * 1_024, "{grown} KiB");
}

#[test]
fn long_keys_leave_little_memory_behind() {
    let child = testing::child::child(module_path!(), "a_process_with_long_keys");
    let output = { child }.output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("1 passed"), "{printed}");
}

/// The CPU time of this thread, which other load on the machine does not increase.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("procfs");
    let nanos = stat.split_whitespace().next().map(str::parse);
    Duration::from_nanos(nanos.and_then(Result::ok).expect("nanoseconds"))
}

const CROWD: u32 = 30_000;

const HOUR: Duration = Duration::from_secs(3_600);

/// Creates a store, a permit of its only key, and a crowd that waits for the key, spread over `flows` if given.
async fn crowd(flows: Option<u32>) -> (MemorySemaphore, Permit, Vec<Acquire>) {
    let store = MemorySemaphore::builder().max_waiting_total(CROWD).build();
    let held = store.acquire(patient()).await.expect("there is room");
    let mut waiting = Vec::new();
    for number in 0..CROWD {
        let claim = patient().with_wait(HOUR).with_max_waiting(CROWD);
        let claim = match flows {
            Some(flows) => claim.with_flow(number % flows),
            None => claim,
        };
        let mut acquire = store.acquire(claim);
        assert!(futures_util::poll!(&mut acquire).is_pending());
        waiting.push(acquire);
    }
    (store, held, waiting)
}

/// Covers plain and fair queues, in random order. When each claim was searched for linearly, this took half a minute.
#[tokio::test]
async fn a_crowd_leaves_its_queue_in_no_time() {
    for flows in [None, Some(100)] {
        let (store, _held, mut waiting) = crowd(flows).await;
        let mut at = 0;
        waiting.sort_by_cached_key(|_| {
            at += 1;
            mix(at)
        });
        let before = processor_time();
        drop(waiting);
        let took = processor_time() - before;
        assert!(took < LINEAR, "{flows:?} flows: {took:?}");
        assert_eq!(store.busy_keys(), 1);
    }
}

/// The key is closed by an operator.
#[tokio::test]
async fn a_crowd_is_refused_in_no_time() {
    for flows in [None, Some(100)] {
        let (store, _held, waiting) = crowd(flows).await;
        let key = Key::from("a");
        let before = processor_time();
        let set = store.set_limit(&Policy::DEFAULT, Some(&key), Some(0), "");
        set.await.expect("it is set");
        let took = processor_time() - before;
        assert!(took < LINEAR, "{flows:?} flows: {took:?}");
        for acquire in waiting {
            let refused = acquire.await;
            assert!(matches!(refused, Err(AcquireError::KeyClosed { .. })));
        }
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic_any(Payload);
    }
}

/// The payload of a panic, whose drop panics too.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("a payload panics");
    }
}

/// A waker that panics when it is woken.
fn panics() -> Waker {
    Arc::new(Panics).into()
}

/// The drop that woke the waker does not panic either.
#[tokio::test]
async fn a_waker_that_panics_keeps_no_other_claim_waiting() {
    let store = MemorySemaphore::new();
    let claim = patient().with_limit(2);
    let held = store.acquire(claim.clone().with_weight(2)).await;
    let mut first = store.acquire(claim.clone());
    let polled = first.poll_unpin(&mut Context::from_waker(&panics()));
    assert!(polled.is_pending());
    let mut second = store.acquire(claim);
    assert!(futures_util::poll!(&mut second).is_pending());
    drop(held.expect("there is room"));
    for granted in [first, second] {
        let granted = granted.now_or_never().expect("it is granted");
        assert!(granted.is_ok(), "{granted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_at_a_loss_keeps_no_unit() {
    let store = MemorySemaphore::builder().holders(true).build();
    let revoked = try_acquire(&store, Claim::new("a").with_limit(1)).expect("there is room");
    let bounded = try_acquire(&store, Claim::new("b").with_limit(1)).expect("there is room");
    bounded.end_after(BOUND);
    let mut lost = [Box::pin(revoked.lost()), Box::pin(bounded.lost())];
    for lost in &mut lost {
        let polled = lost.poll_unpin(&mut Context::from_waker(&panics()));
        assert!(polled.is_pending());
    }
    let (policy, key) = (Policy::DEFAULT, Key::from("a"));
    let usage = store.usage(&policy, &key).await.expect("it answers");
    let is_revoked = store.revoke(&policy, &key, &usage.held[0].id).await;
    assert!(is_revoked.expect("it answers"));
    tokio::time::sleep(BOUND * 2).await;
    assert_eq!(store.busy_keys(), 0);
}

/// The key must not keep the owner of its bytes, whose drop could call the store.
#[test]
fn nothing_that_a_key_was_made_of_outlives_its_making() {
    struct Owner {
        _alive: Arc<()>,
    }
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &[b'k'; 100]
        }
    }
    let alive = Arc::new(());
    let key = Key::from(Bytes::from_owner(Owner {
        _alive: Arc::clone(&alive),
    }));
    assert_eq!(Arc::strong_count(&alive), 1);
    assert_eq!(key.as_bytes(), [b'k'; 100]);
}

/// Other flows wait all the time.
#[tokio::test(start_paused = true)]
async fn a_flow_that_was_idle_for_an_hour_has_saved_nothing_up() {
    let store = MemorySemaphore::new();
    let join = |flow| {
        let claim = Claim::new("a").with_limit(1).with_wait(HOUR * 2);
        let mut acquire = store.acquire(claim.with_flow(flow));
        assert!((&mut acquire).now_or_never().is_none(), "it waits");
        (flow, acquire)
    };
    let mut held = try_acquire(&store, Claim::new("a").with_limit(1).with_flow("bob"));
    let mut waiting: VecDeque<_> = (0..40).map(|_| join("ann")).collect();
    for _ in 0..30 {
        tokio::time::sleep(HOUR / 30).await;
        drop(held.take());
        let (_, next) = waiting.pop_front().expect("others wait");
        held = next.await.ok();
    }
    waiting.extend((0..5).map(|_| join("bob")));
    let mut order = Vec::new();
    while order.len() < 10 {
        drop(held.take());
        let is_next = |(_, acquire): &mut (_, Acquire)| acquire.now_or_never();
        let mut next = waiting.iter_mut().enumerate();
        let next = next.find_map(|(at, waiter)| Some((at, is_next(waiter)?)));
        let (at, permit) = next.expect("one is granted");
        held = permit.ok();
        order.extend(waiting.remove(at).map(|(flow, _)| flow));
    }
    assert_eq!(order, ["ann", "bob"].repeat(5));
}
