//! Answers of a shape that no script returns: real answers in which a value is replaced.
//!
//! Promises: P6, P18.

use futures_util::future::join_all;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, Parser, ProtocolVersion,
    RedisResult, Value, aio::MultiplexedConnection,
};
use std::{
    io::Write,
    net::Shutdown,
    panic::{self, Location},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use testing::{redis::RedisServer, rng::Rng, stores::connected, wait::eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex, split},
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_millis(900);
const BOUND: Duration = Duration::from_secs(20);
/// The time for which odd answers are sent.
const TIME: Duration = Duration::from_secs(2);
const LIMIT: u32 = 5;

/// Replaces values in answers while `is_on` is set.
#[derive(Clone)]
struct Odd {
    is_on: Arc<AtomicBool>,
    rng: Arc<Mutex<Rng>>,
}

impl Odd {
    /// Replaces one value, at any depth, in three of four answers.
    fn spoil(&self, answer: Value) -> Value {
        let mut rng = self.rng.lock().expect("no panic");
        if !self.is_on.load(SeqCst) || rng.once_in(4) {
            return answer;
        }
        spoil(answer, &mut rng)
    }

    /// A connector that spoils the answers of command connections. The connection for messages, which uses RESP3, is
    /// not touched.
    async fn connect(
        self,
        info: ConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        if info.redis_settings().protocol() == ProtocolVersion::RESP3 {
            let client = Client::open(info)?;
            return client
                .get_multiplexed_async_connection_with_config(&config)
                .await;
        }
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            panic!("the server listens at a port");
        };
        let requests = std::net::TcpStream::connect((&**host, *port))?;
        let answers = requests.try_clone()?;
        // redis-rs uses `ours` as its socket. Requests are read from `theirs`, and spoiled answers are written to it.
        let (ours, theirs) = duplex(1 << 16);
        let (mut requested, mut answered) = split(theirs);
        let (sender, mut spoiled) = mpsc::unbounded_channel();
        thread::spawn(move || {
            let mut parser = Parser::new();
            while let Ok(answer) = parser.parse_value(&answers) {
                let _ = sender.send(encoded(&self.spoil(answer)));
            }
        });
        tokio::spawn(async move {
            let mut request = [0; 1 << 14];
            while let Ok(length @ 1..) = requested.read(&mut request).await {
                // Requests are short enough for a blocking write.
                let _ = (&requests).write_all(&request[..length]);
            }
            let _ = requests.shutdown(Shutdown::Both);
        });
        tokio::spawn(async move {
            while let Some(answer) = spoiled.recv().await {
                let _ = answered.write_all(&answer).await;
            }
        });
        let (connection, driver) =
            MultiplexedConnection::new_with_config(info.redis_settings(), ours, config).await?;
        tokio::spawn(driver);
        Ok(connection)
    }
}

/// Encodes a value as a server sends it.
fn encoded(value: &Value) -> Vec<u8> {
    let items = |head: char, count: usize, items: &mut dyn Iterator<Item = &Value>| {
        let mut bytes = format!("{head}{count}\r\n").into_bytes();
        items.for_each(|item| bytes.extend(encoded(item)));
        bytes
    };
    match value {
        Value::Int(number) => format!(":{number}\r\n").into_bytes(),
        Value::SimpleString(text) => format!("+{text}\r\n").into_bytes(),
        Value::Okay => b"+OK\r\n".to_vec(),
        Value::Double(number) => format!(",{number}\r\n").into_bytes(),
        Value::Boolean(is) => format!("#{}\r\n", if *is { 't' } else { 'f' }).into_bytes(),
        Value::BulkString(text) => {
            let head = format!("${}\r\n", text.len());
            [head.as_bytes(), text, b"\r\n"].concat()
        }
        Value::Array(all) => items('*', all.len(), &mut all.iter()),
        Value::Map(all) => {
            let mut both = all.iter().flat_map(|(name, value)| [name, value]);
            items('%', all.len(), &mut both)
        }
        Value::ServerError(error) => {
            let text = error.details().unwrap_or_default();
            format!("-{} {text}\r\n", error.code()).into_bytes()
        }
        _ => b"$-1\r\n".to_vec(),
    }
}

fn spoil(value: Value, rng: &mut Rng) -> Value {
    match value {
        Value::Array(mut items) if !items.is_empty() && !rng.once_in(4) => {
            let at = rng.below(items.len());
            match rng.below(4) {
                0 => drop(items.remove(at)),
                1 => items.insert(at, any(rng)),
                _ => items[at] = spoil(items[at].clone(), rng),
            }
            Value::Array(items)
        }
        _ => any(rng),
    }
}

/// A random value, which scripts rarely return in this place.
fn any(rng: &mut Rng) -> Value {
    let numbers = [i64::MIN, -1, 0, 1, 7, 1 << 53, i64::MAX];
    let texts = ["", "-1", "1 2 3", "99999999999999999999", "nan", "\u{fffd}"];
    match rng.below(9) {
        0 => Value::Nil,
        1 | 2 => Value::Int(rng.one_of(&numbers)),
        3 => Value::BulkString(rng.one_of(&texts).into()),
        4 => Value::SimpleString(rng.one_of(&texts).into()),
        5 => Value::Array(Vec::new()),
        6 => Value::Array(vec![any(rng), any(rng)]),
        7 => Value::Double(f64::NAN),
        _ => Value::Map(vec![(Value::Okay, Value::Boolean(true))]),
    }
}

/// Counts the panics of all threads from now on, except those of tests.
fn panics() -> Arc<AtomicUsize> {
    let (count, usual) = (Arc::<AtomicUsize>::default(), panic::take_hook());
    let panics = Arc::clone(&count);
    panic::set_hook(Box::new(move |info| {
        let is_of_a_test = |location: &Location<'_>| location.file().starts_with("tests/");
        panics.fetch_add(
            usize::from(!info.location().is_some_and(is_of_a_test)),
            SeqCst,
        );
        usual(info);
    }));
    count
}

/// Claims, holds, resizes and releases in a loop. Returns the number of claims that failed on an odd answer.
async fn work(store: RedisSemaphore, mut rng: Rng, start: Instant) -> usize {
    let mut odd = 0;
    while start.elapsed() < TIME {
        let claim = Claim::new(rng.below(3) as u64).with_limit(LIMIT);
        let claim = claim.with_weight(1 + rng.below(3) as u32);
        let claim = claim.with_wait(Duration::from_millis(rng.one_of(&[0, 0, 50])));
        let answer = timeout(BOUND, store.acquire(claim)).await;
        match answer.expect("each claim is answered") {
            Ok(permit) => {
                sleep(rng.millis(0..30)).await;
                if rng.once_in(3) {
                    let _ = permit.resize(1 + rng.below(4) as u32).await;
                }
                if rng.once_in(2) {
                    let released = timeout(BOUND, permit.release()).await;
                    released.expect("each release is answered");
                }
            }
            Err(AcquireError::Store { source, .. }) => {
                odd += usize::from(format!("{source:?}").contains("no script of ours"));
            }
            Err(_) => {}
        }
    }
    odd
}

/// Asserts that the whole limit of each key can be held for longer than a lease.
async fn assert_serves_in_full(store: &RedisSemaphore) {
    let keys = (0..3_u64).map(async |key| {
        let all = Claim::new(key).with_limit(LIMIT).with_weight(LIMIT);
        eventually("the whole limit is granted", BOUND, async || {
            let permit = store.acquire(all.clone()).await;
            let Ok(permit) = permit else { return false };
            // Hold it for longer than a lease, so that only refreshes keep it.
            sleep(LEASE * 3 / 2).await;
            permit.release().await
        })
        .await;
    });
    join_all(keys).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_wrong_shape_is_an_error_and_no_panic_and_has_no_lasting_effect() {
    let panics = panics();
    let server = RedisServer::start();
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let odd = Odd {
        is_on: Arc::default(),
        rng: Arc::new(Mutex::new(Rng::new(seed))),
    };
    let builder = RedisSemaphore::builder().lease(LEASE);
    let own = odd.clone();
    let builder = builder.connector(move |info, config| own.clone().connect(info, config));
    let store = connected(async || builder.clone().connect(server.url()).await).await;
    odd.is_on.store(true, SeqCst);
    let (mut tasks, start, mut rng) = (JoinSet::new(), Instant::now(), Rng::new(seed));
    for _ in 0..16 {
        tasks.spawn(work(store.clone(), rng.another(), start));
    }
    let failed: usize = tasks.join_all().await.into_iter().sum();
    assert!(failed > 20, "only {failed} claims found their answer odd");
    odd.is_on.store(false, SeqCst);
    assert_serves_in_full(&store).await;
    assert_eq!(panics.load(SeqCst), 0);
}
