//! The child's side: reads commands from standard input, and writes answers to standard output.

use super::{LEASE, MARK, RETRIES, URL, locks::Locks};
use std::{
    collections::HashMap,
    env,
    future::{Future, ready},
    io::Write,
    task::Poll,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

/// Connects, answers commands, and ends when standard input ends.
pub(super) fn run() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        let lease = env::var(LEASE)
            .expect("a parent sets it")
            .parse()
            .expect("it is a number");
        let lease = Duration::from_millis(lease);
        // A longer lease gets a longer timeout than the default, because a busy machine delays answers.
        let timeout = (lease / 12).max(Duration::from_millis(250));
        let builder = RedisSemaphore::builder().lease(lease).timeout(timeout);
        let url = env::var(URL).expect("a parent sets it");
        let store = builder.connect(url).await.expect("the server is there");
        print_answer("ready");
        let mut permits = HashMap::new();
        let mut contenders = JoinSet::new();
        let mut locks = Locks::new(store.clone());
        // These reads block only this thread. Contenders run on the runtime's workers, and the store's keeper has a
        // separate thread.
        for command in std::io::stdin().lines() {
            let command = command.expect("the parent writes text");
            let words: Vec<&str> = command.split(' ').collect();
            match locks.run(&words).await {
                Some(answer) => print_answer(&answer),
                None => print_answer(&answer(&store, &mut permits, &mut contenders, &words).await),
            }
        }
    });
}

fn print_answer(answer: &str) {
    println!("{MARK}{answer}");
    std::io::stdout().flush().expect("the parent reads");
}

type Answer = Result<Permit, AcquireError>;

/// Waits for the grant, and releases the permit. Returns the name and the token.
async fn contend(name: String, answer: impl Future<Output = Answer>) -> (String, u64) {
    let permit = answer.await.expect("it is granted in time");
    // A message may grant the claim while its poll is under way. A release before the poll's answer would be sent a
    // second time after it, and tests count the calls.
    sleep(Duration::from_millis(1)).await;
    let token = permit.token().expect("it is granted");
    permit.release().await;
    (name, token)
}

/// Retries when the store fails, because a call may time out on a busy machine.
async fn acquire(store: &RedisSemaphore, claim: &Claim) -> Answer {
    for _ in 0..RETRIES {
        match store.acquire(claim.clone()).await {
            Err(AcquireError::Store { .. }) => {}
            answer => return answer,
        }
    }
    store.acquire(claim.clone()).await
}

/// Runs a command about permits or the clock, and returns its answer.
async fn answer(
    store: &RedisSemaphore,
    permits: &mut HashMap<String, Permit>,
    contenders: &mut JoinSet<(String, u64)>,
    words: &[&str],
) -> String {
    match *words {
        ["acquire", name, key, limit] => {
            let claim = Claim::new(key.to_owned()).with_limit(limit.parse().expect("a number"));
            match acquire(store, &claim).await {
                Ok(permit) => {
                    let token = permit.token().expect("it is granted").to_string();
                    permits.insert(name.to_owned(), permit);
                    token
                }
                Err(AcquireError::Full { .. } | AcquireError::Paused { .. }) => "full".to_owned(),
                Err(error) => format!("{error:?}"),
            }
        }
        ["contend", name, key, limit, ref flow @ ..] => {
            let claim = Claim::new(key.to_owned()).with_limit(limit.parse().expect("a number"));
            // `flow` is one word or none.
            let claim = flow
                .iter()
                .fold(claim, |claim, flow| claim.with_flow((*flow).to_owned()));
            let mut acquire = store.acquire(claim.with_wait(Duration::from_secs(60)));
            // Polled here instead of in the task, so that claims keep the order of the commands.
            let name = name.to_owned();
            match futures_util::poll!(&mut acquire) {
                Poll::Ready(answer) => contenders.spawn(contend(name, ready(answer))),
                Poll::Pending => contenders.spawn(contend(name, acquire)),
            };
            "started".to_owned()
        }
        ["contended"] => {
            let mut granted = Vec::new();
            while let Some(one) = contenders.join_next().await {
                granted.push(one.expect("it did not panic"));
            }
            granted.sort_by_key(|(_, token)| *token);
            let pairs = granted
                .iter()
                .map(|(name, token)| format!("{name}={token}"));
            pairs.collect::<Vec<_>>().join(" ")
        }
        ["pause", name, millis] => {
            let time = Duration::from_millis(millis.parse().expect("a number"));
            match permits[name].pause("concurrency", time, "").await {
                Ok(()) => "paused".to_owned(),
                Err(error) => format!("{error:?}"),
            }
        }
        ["release", name] => {
            let permit = permits.remove(name).expect("it was acquired");
            permit.release().await.to_string()
        }
        ["lost", name] => permits[name].is_lost().to_string(),
        ["clock"] => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.expect("it is after 1970").as_secs().to_string()
        }
        _ => panic!("unknown command: {words:?}"),
    }
}
