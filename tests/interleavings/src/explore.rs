//! Runs a scenario in every order of its threads, and drives futures inside it.

use loom::{model::Builder, sync::Notify, thread::JoinHandle};
use std::{
    env,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Instant,
};

/// The bound on the steps of one execution. Only a thread that retries endlessly takes more.
const MAX_STEPS: usize = 10_000;

/// The bound on the preemptions of one execution in [`explore_most`]: switches to another thread although the current
/// one could run. Two preemptions are enough for most races.
const PREEMPTIONS: usize = 3;

/// Runs `scenario` once for each possible order of its threads, and prints the number of orders. Fails if all threads
/// of a scenario wait.
pub(crate) fn explore(scenario: impl Fn() + Sync + Send + 'static) {
    run(None, scenario);
}

/// Like `explore`, for a scenario with very many orders. Skips the orders with more than a few preemptions, unless
/// `EXHAUSTIVE` is set.
pub(crate) fn explore_most(scenario: impl Fn() + Sync + Send + 'static) {
    let is_bounded = env::var_os("EXHAUSTIVE").is_none();
    run(is_bounded.then_some(PREEMPTIONS), scenario);
}

fn run(preemptions: Option<usize>, scenario: impl Fn() + Sync + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    // A claim that waits needs a clock. This clock stands still, so no wait ends by time.
    let _entered = runtime.enter();
    let (executions, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let counted = Arc::clone(&executions);
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = MAX_STEPS;
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        scenario();
    });
    println!(
        "{}: {} executions in {:.1} s",
        thread::current().name().unwrap_or_default(),
        executions.load(Relaxed),
        start.elapsed().as_secs_f64()
    );
}

/// Runs `scenario` once, on one thread. It may claim thousands of keys, so its bound on the steps is higher.
pub(crate) fn explore_once(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.max_branches = 100 * MAX_STEPS;
    builder.check(scenario);
}

/// Wakes the thread that drives a future.
#[derive(Default)]
struct Unpark(Notify);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// Drives a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark::default());
    let waker = Waker::from(Arc::clone(&unpark));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        unpark.0.wait();
    }
}

/// Polls a future once.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits for a scenario's other threads, and returns their results.
pub(crate) fn join<T, const N: usize>(threads: [JoinHandle<T>; N]) -> [T; N] {
    threads.map(|thread| thread.join().expect("no assertion has failed"))
}
