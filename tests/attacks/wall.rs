//! The wall clock of a process is set forward, as NTP does.

use futures_util::future::join_all;
use std::{
    env,
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Stdio},
    time::Duration,
};
use testing::{
    child::child, clock::SteppedClock, machine::alone, proxy::Proxy, redis::RedisServer,
};
use tokio::time::{sleep, timeout};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const URL: &str = "WALL_URL";
const KEYS: &str = "WALL_KEYS";
/// So long that no permit ends in this test by itself.
const LEASE: Duration = Duration::from_secs(30);
/// How long the process waits for a loss.
const WATCHED: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "other tests start it as a process of its own"]
async fn a_process_that_holds_permits() {
    let (Ok(url), Ok(keys)) = (env::var(URL), env::var(KEYS)) else {
        return;
    };
    let (keys, mut number) = (keys.parse::<usize>().expect("a number"), 0);
    let builder = RedisSemaphore::builder().lease(LEASE);
    let store = builder.connect(url.as_str()).await.expect("it connects");
    let mut permits = Vec::new();
    while permits.len() < keys {
        let claims = (permits.len()..keys).take(50).map(|_| {
            number += 1;
            store.acquire(Claim::new(format!("k{number}")).with_limit(1))
        });
        permits.extend(join_all(claims).await.into_iter().flatten());
    }
    println!("\nholds");
    let lost = permits.iter().map(|permit| timeout(WATCHED, permit.lost()));
    let lost = join_all(lost).await.into_iter().filter(Result::is_ok);
    println!("\nlost {}", lost.count());
}

/// A process that holds permits, and its wall clock.
struct Holder {
    _server: RedisServer,
    proxy: Proxy,
    clock: SteppedClock,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    async fn start(keys: usize) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::start(&server).await;
        let clock = SteppedClock::compile();
        let mut child = child(module_path!(), "a_process_that_holds_permits")
            .envs([(URL, proxy.url()), (KEYS, keys.to_string())])
            .envs(clock.environment())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let out = child.stdout.take().expect("it is piped");
        let mut holder = Self {
            _server: server,
            proxy,
            clock,
            child,
            lines: BufReader::new(out).lines(),
        };
        holder.says("holds");
        holder
    }

    /// Waits for a line, and returns the rest of it.
    fn says(&mut self, start: &str) -> String {
        let lines = self.lines.by_ref().map_while(Result::ok);
        let mut said = lines.filter_map(|line| Some(line.strip_prefix(start)?.to_owned()));
        tokio::task::block_in_place(|| said.next().expect("it goes on"))
    }

    fn lost(mut self) -> String {
        let lost = self.says("lost ");
        self.child.wait().expect("it ends");
        lost
    }
}

/// So many that a refresh of all takes longer than a timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_is_set_forward_loses_no_permit() {
    let _alone = alone().await;
    let holder = Holder::start(2_000).await;
    let delay = Duration::from_millis(50);
    holder.proxy.delay(delay, delay);
    holder.clock.set(60);
    assert_eq!(holder.lost(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_is_set_forward_in_an_outage_loses_no_permit() {
    let _alone = alone().await;
    let holder = Holder::start(1).await;
    holder.proxy.black_hole();
    holder.clock.set(60);
    sleep(WATCHED / 2).await;
    holder.proxy.forward();
    assert_eq!(holder.lost(), "0");
}
