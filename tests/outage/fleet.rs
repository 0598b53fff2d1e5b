//! Five processes under load, a server that is killed for a while, and a witness outside of all.
//!
//! `OUTAGE_SECONDS=60 cargo test --test outage -- five_processes --nocapture` runs it for as
//! long as that.

use crate::server::{BOUND, builder, know_each_other};
use std::{
    collections::HashMap,
    env,
    io::{Read, Write},
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use testing::{child::child, redis::RedisServer, resp::Raw, rng::Rng, wait::eventually};
use tokio::{sync::Notify, time::sleep};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore, redis::WhenUnavailable};

/// Shorter than the outage, and long enough for a busy machine to refresh it.
const LEASE: Duration = Duration::from_secs(4);
const PROCESSES: usize = 5;
const LIMIT: u32 = 20;
/// What is rounded up, by all but one of the processes.
const ROUNDING: i64 = 4;
const KEYS: usize = 3;
/// Of each process and key: together more than the limit.
const TASKS: usize = 12;
/// Of each process, on the first key, from the start to the end.
const STREAMS: usize = 2;
const URL: &str = "OUTAGE_URL";
const SOCKET: &str = "OUTAGE_SOCKET";

/// What the witness has seen. A message is a letter and a key.
#[derive(Default)]
struct Seen {
    in_flight: HashMap<u8, i64>,
    most: i64,
    starts: usize,
    lost: usize,
    degraded: i64,
}

impl Seen {
    fn take(&mut self, letter: u8, key: u8) {
        match letter {
            b'+' => {
                let in_flight = self.in_flight.entry(key).or_default();
                *in_flight += 1;
                self.most = self.most.max(*in_flight);
                self.starts += 1;
            }
            b'-' => *self.in_flight.entry(key).or_default() -= 1,
            b'l' => self.lost += 1,
            b'd' => self.degraded += 1,
            b'g' => self.degraded -= 1,
            other => panic!("{other}"),
        }
    }
}

/// One socket for all processes, so messages are in the order in which they were sent.
fn witness(path: &Path) -> Arc<Mutex<Seen>> {
    let socket = UnixDatagram::bind(path).expect("the folder is ours");
    let seen = Arc::<Mutex<Seen>>::default();
    let log = seen.clone();
    std::thread::spawn(move || {
        let mut message = [0; 2];
        while socket.recv(&mut message).is_ok() {
            log.lock()
                .expect("no test panics")
                .take(message[0], message[1]);
        }
    });
    seen
}

/// A process of the fleet, until it is dropped.
struct Process(Child);

impl Process {
    fn start(url: &str, socket: &Path) -> Self {
        let child = child(module_path!(), "a_process_of_the_fleet")
            .env(URL, url)
            .env(SOCKET, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("the child starts"))
    }
}

impl Process {
    /// Begins what is next: its streams, then its load.
    fn begin(&mut self) {
        let input = self.0.stdin.as_mut().expect("it is piped");
        input.write_all(b"!").expect("the child reads");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process's side: streams from the first byte of its standard input, load from the second one,
/// until that ends.
#[test]
#[ignore = "other tests start it as a process of its own"]
fn a_process_of_the_fleet() {
    let (url, path) = (
        env::var(URL).expect("a parent"),
        env::var(SOCKET).expect("a parent"),
    );
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.connect(path).expect("the witness is there");
    let socket = Arc::new(socket);
    let begin = Arc::new(Notify::new());
    let begins = begin.clone();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.spawn(async move {
        let store = builder(WhenUnavailable::Share)
            .lease(LEASE)
            .connect(url)
            .await;
        let store = store.expect("the server is there");
        begins.notified().await;
        for _ in 0..STREAMS {
            let permit = store.acquire(claim(0)).await.expect("there is room");
            tokio::spawn(stream(permit, socket.clone()));
        }
        begins.notified().await;
        for task in 0..TASKS * KEYS {
            let rng = Rng::new((u64::from(std::process::id()) << 8) + task as u64);
            tokio::spawn(load(
                store.clone(),
                socket.clone(),
                (task % KEYS) as u8,
                rng,
            ));
        }
    });
    let mut input = std::io::stdin();
    while input.read(&mut [0]).is_ok_and(|bytes| bytes > 0) {
        begin.notify_one();
    }
}

fn say(socket: &UnixDatagram, letter: u8, key: u8) {
    // The witness goes first.
    let _ = socket.send(&[letter, key]);
}

fn claim(key: u8) -> Claim {
    Claim::new(u64::from(key)).with_limit(LIMIT)
}

/// Short requests, one after the other.
async fn load(store: RedisSemaphore, socket: Arc<UnixDatagram>, key: u8, mut rng: Rng) {
    loop {
        // Some wait for their turn.
        let wait = Duration::from_millis(if rng.once_in(4) { 300 } else { 0 });
        match store.acquire(claim(key).with_wait(wait)).await {
            Ok(permit) => {
                say(&socket, b'+', key);
                sleep(rng.millis(5..120)).await;
                say(&socket, b'-', key);
                drop(permit);
            }
            Err(_) => sleep(rng.millis(2..15)).await,
        }
    }
}

/// A permit that is held all the time.
async fn stream(permit: Permit, socket: Arc<UnixDatagram>) {
    say(&socket, b'+', 0);
    let watched = permit.clone();
    let log = socket.clone();
    tokio::spawn(async move {
        watched.lost().await;
        say(&log, b'l', 0);
    });
    let mut was_degraded = false;
    loop {
        if permit.is_degraded() != was_degraded {
            was_degraded = !was_degraded;
            say(&socket, if was_degraded { b'd' } else { b'g' }, 0);
        }
        sleep(Duration::from_millis(5)).await;
    }
}

fn outage() -> Duration {
    let seconds = env::var("OUTAGE_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(6))
}

#[tokio::test(flavor = "multi_thread")]
async fn five_processes_keep_a_limit_while_the_server_is_gone_and_when_it_returns() {
    let mut server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("witness");
    let seen = witness(&socket);
    let look = |what: fn(&Seen) -> i64| what(&seen.lock().expect("no test panics"));
    let start = || Process::start(&server.url(), &socket);
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    know_each_other(&server, PROCESSES).await;
    let streams = (PROCESSES * STREAMS) as i64;
    processes.iter_mut().for_each(Process::begin);
    eventually("each has its streams", BOUND, async || {
        look(|seen| seen.starts as i64) == streams
    })
    .await;
    processes.iter_mut().for_each(Process::begin);
    eventually("the load is on", BOUND, async || {
        look(|seen| seen.most) >= 20
    })
    .await;

    assert_eq!(
        look(|seen| seen.lost as i64),
        0,
        "this machine is too busy to refresh"
    );
    server.kill();
    let before = look(|seen| seen.starts as i64);
    sleep(outage()).await;
    let during = look(|seen| seen.starts as i64) - before;
    assert_eq!(
        look(|seen| seen.degraded),
        streams,
        "each stream goes on without its lease"
    );
    let (most_during, bound) = (look(|seen| seen.most), i64::from(LIMIT) + ROUNDING);
    println!(
        "{during} requests were admitted in {:?}, {most_during} in flight",
        outage()
    );
    assert!(most_during <= bound, "{most_during} in flight");

    server.restart();
    let back = Instant::now();
    let mut raw = Raw::connect(server.port()).await;
    let within = LEASE * 2 / 3 + Duration::from_secs(2);
    eventually("streams are in the books", within, async || {
        look(|seen| seen.degraded) == 0
    })
    .await;
    let took = back.elapsed();
    let held = raw.zcard("semaphore:{concurrency:0}:held").await;
    assert!(held >= streams as usize, "{held} in the books");
    // Until claims go to the server as ever, and for a while longer.
    sleep(Duration::from_secs(5)).await;
    let most = look(|seen| seen.most);
    println!("{most} in flight when it has returned; streams in the books after {took:?}");
    assert!(during > 100, "only {during} requests were admitted");
    assert!(most <= bound, "{most} in flight");
    assert_eq!(
        look(|seen| seen.lost as i64),
        0,
        "streams were told that they are lost"
    );
}
