//! The stand-in against a real server, and what the crate really sends.

use std::time::Duration;
use testing::{
    redis::RedisServer,
    resp::{Raw, Reply},
    rng::Rng,
    wait::eventually,
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};
use tower_semaphore_model::{
    lua::Runner,
    scripts::{Scripts, Verb},
    semaphore,
    stand_in::{Reply as Expected, StandIn, Value},
};

async fn eval(raw: &mut Raw, verb: Verb, keys: &[&str], args: &[&str]) -> Reply {
    let scripts: Vec<_> = Scripts::shipped().all().collect();
    let count = keys.len().to_string();
    let mut command = vec!["EVAL", &scripts[verb as usize], &count];
    command.extend(keys.iter().chain(args));
    raw.cmd(&command).await
}

/// Two claims travel in one call: a try, and the heartbeat of a waiter that comes too late.
#[tokio::test]
async fn a_late_heartbeat_keeps_its_position_before_an_earlier_claim_of_the_same_call() {
    const KEYS: [&str; 4] = ["s{0}:held", "s{0}:queue", "s{0}:alive", "s{0}:token"];
    const END: &str = "9999999999999";
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    for verb in [Verb::Acquire, Verb::AcquireAll] {
        raw.cmd(&["FLUSHALL"]).await;
        let held = ["60000", END, "0", "3", "a.1.1.1.60000", "1", ""];
        eval(&mut raw, Verb::Acquire, &KEYS, &held).await;
        let waits = ["60000", END, "0", "3", "b.1.1.1.60000", "1", "1 9 0 0"];
        eval(&mut raw, Verb::Acquire, &KEYS, &waits).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        raw.cmd(&["ZREM", KEYS[0], "a.1.1.1.60000"]).await;

        let tries = ["c.1.1.1.60000", "1", ""];
        let [tries, heartbeat] = [&tries[..], &waits[4..]];
        let both = match verb {
            Verb::Acquire => [&waits[..3], &["6"], tries, heartbeat].concat(),
            _ => [&waits[..3], &["4", "1"], tries, &["4", "1"], heartbeat].concat(),
        };
        eval(&mut raw, verb, &KEYS, &both).await;
        let held: Vec<_> = raw
            .zmembers(KEYS[0])
            .await
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        assert_eq!(held, [b"b.1.1.1.60000"], "{verb:?}");
    }
}

/// A reply of the real server, as the stand-in gives it.
fn as_in_model(reply: &Reply) -> Result<Expected, String> {
    Ok(match reply {
        Reply::Nil => Expected::Nil,
        Reply::Int(number) => Expected::Int(*number),
        Reply::Bulk(text) => Expected::Text(String::from_utf8_lossy(text).into_owned()),
        Reply::Simple(_) => Expected::Status("OK"),
        Reply::Error(error) => return Err(error.clone()),
        Reply::Array(items) => {
            Expected::List(items.iter().map(as_in_model).collect::<Result<_, _>>()?)
        }
    })
}

/// A random command: any of those that the scripts use, on a few keys and members.
fn command(rng: &mut Rng) -> Vec<String> {
    let key = rng.one_of(&["a", "b", "c"]);
    let other = rng.one_of(&["a", "b", "c"]);
    let member = rng.one_of(&["x", "y", "z", "x:2"]);
    let more = rng.one_of(&["x", "y", "z"]);
    let score = rng.one_of(&["0", "1", "-5", "7", "1700000000000001"]);
    let high = rng.one_of(&["+inf", "1", "7", "1700000000000000"]);
    let low = rng.one_of(&["-inf", "0", "-5"]);
    let at = rng.one_of(&["0", "1", "-1", "-2"]);
    let ttl = rng.one_of(&["100000000", "200000000", "0", "-1"]);
    let forms: [&[&str]; 25] = [
        &["ZADD", key, score, member],
        &["ZADD", key, score, member, "3", more],
        &["ZADD", key, "XX", score, member],
        &["ZADD", key, "CH", score, member],
        &["ZADD", key, "XX", "CH", score, member, "3", more],
        &["ZREM", key, member, more],
        &["ZCARD", key],
        &["ZSCORE", key, member],
        &["ZREMRANGEBYSCORE", key, low, high],
        &["ZRANGEBYSCORE", key, low, high, "WITHSCORES"],
        &["ZRANGEBYSCORE", key, low, high, "LIMIT", "0", "1"],
        &["ZRANGE", key, at, "0"],
        &["ZRANGE", key, "0", at, "WITHSCORES"],
        &["ZRANGE", key, "0", "0", "REV", "WITHSCORES"],
        &["ZRANGE", key, at, "-1", "REV"],
        &["SET", key, score, "PX", ttl],
        &["GET", key],
        &["INCR", key],
        &["INCR", key],
        &["DEL", key, other],
        &["EXISTS", key, other],
        &["PEXPIRE", key, ttl],
        &["PEXPIRE", key, ttl],
        &["PTTL", key],
        &["PUBLISH", key, member],
    ];
    forms[rng.below(forms.len())]
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// The time to live of a key in the real server has become a little shorter.
fn is_same(real: &Result<Expected, String>, model: &Result<Expected, String>) -> bool {
    match (real, model) {
        (Ok(Expected::Int(real)), Ok(Expected::Int(model))) if *model > 1_000_000 => {
            (0..600_000).contains(&(model - real))
        }
        // A message differs in its words, an error does not in being one.
        (Err(real), Err(model)) => real.split(' ').next() == model.split(' ').next(),
        _ => real == model,
    }
}

#[tokio::test]
async fn the_stand_in_answers_random_commands_as_the_server_does() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let mut rng = Rng::new(11);
    for _ in 0..60 {
        raw.cmd(&["FLUSHALL"]).await;
        let mut model = StandIn::at(1_700_000_000_000_000);
        let mut so_far = Vec::new();
        for _ in 0..60 {
            let command = command(&mut rng);
            let words: Vec<_> = command.iter().map(String::as_str).collect();
            let real = as_in_model(&raw.cmd(&words).await);
            let model = model.command(&words);
            so_far.push(command.join(" "));
            assert!(
                is_same(&real, &model),
                "{real:?} {model:?} after {so_far:#?}"
            );
        }
    }
}

/// Before a script: the clock of the stand-in instead of the server's.
const SHIM: &str = "local real = redis
local redis = {call = function(name, ...)
  if name == 'TIME' then return {'SECONDS', 'MICROS'} end
  return real.call(name, ...)
end}\n";

/// A random call of a script on one or two semaphores, its keys and its arguments.
fn script_call(rng: &mut Rng, now: i64) -> (Verb, Vec<String>, Vec<String>) {
    let verb = rng.one_of(&[
        Verb::Acquire,
        Verb::AcquireAll,
        Verb::Refresh,
        Verb::Release,
    ]);
    let deadline = now / 1_000 + rng.one_of(&[-1, 0, 1_000]);
    let mut args: Vec<_> = match verb {
        Verb::Refresh => vec!["300".to_owned()],
        Verb::Release => vec![rng.one_of(&["0", "1"]).to_owned(), now.to_string()],
        _ => vec!["300".to_owned(), deadline.to_string(), now.to_string()],
    };
    let semaphores = 1 + rng.below(2) as u8;
    let keys = (0..semaphores).flat_map(|at| match (verb, semaphore::keys(at)) {
        (Verb::Refresh, [held, _, _, token]) => vec![held, token],
        (_, keys) => keys.into(),
    });
    let shares: Vec<Vec<u8>> = match verb {
        // Claims of one level or of all.
        Verb::AcquireAll => vec![
            (0..semaphores).collect(),
            vec![rng.below(semaphores.into()) as u8],
        ],
        _ => (0..semaphores)
            .map(|at| vec![at; 1 + rng.below(2)])
            .collect(),
    };
    for share in shares {
        let items = share.iter().flat_map(|at| item(rng, verb, *at));
        let items: Vec<_> = items.collect();
        args.push(items.len().to_string());
        args.extend(items);
    }
    (verb, keys.collect(), args)
}

fn item(rng: &mut Rng, verb: Verb, at: u8) -> Vec<String> {
    let (client, limit) = (rng.below(4), 1 + rng.below(3));
    let weight = 1 + rng.below(limit.min(2));
    let id = format!("p{client}.{client}.{limit}.{weight}.300");
    if matches!(verb, Verb::Refresh | Verb::Release) {
        return vec![
            rng.one_of(&[id.clone(), format!("{id}:2")].each_ref())
                .clone(),
        ];
    }
    let fast = if weight == 1 { limit } else { 0 };
    let wait = rng.one_of(&["", "200 9 0 0", "200 1 0 0", "200 9 0 50000"]);
    let claim = [id, fast.to_string(), wait.to_owned()];
    let number = (verb == Verb::AcquireAll).then(|| (at + 1).to_string());
    number.into_iter().chain(claim).collect()
}

/// Every key with its value and whether it expires.
async fn everything(raw: &mut Raw) -> Vec<String> {
    let mut all = Vec::new();
    for key in raw.keys("*").await {
        let key = String::from_utf8_lossy(&key).into_owned();
        let value = match raw.cmd(&["TYPE", &key]).await {
            Reply::Simple(kind) if kind == "zset" => format!("{:?}", raw.zmembers(&key).await),
            _ => format!("{:?}", raw.cmd(&["GET", &key]).await),
        };
        let expires = raw.cmd(&["PTTL", &key]).await.int() > 0;
        all.push(format!("{key} {value} {expires}"));
    }
    all
}

fn everything_of(model: &StandIn) -> Vec<String> {
    let entries = model.entries().map(|(key, entry)| {
        let value = match &entry.value {
            Value::Text(text) => format!("{:?}", Reply::Bulk(text.clone().into_bytes())),
            Value::Sorted(set) => {
                let items = set.items().iter();
                let items = items.map(|(score, name)| (name.as_bytes().to_vec(), *score));
                format!("{:?}", items.collect::<Vec<_>>())
            }
        };
        format!("{key} {value} {}", entry.expires_at.is_some())
    });
    entries.collect()
}

#[tokio::test]
async fn the_scripts_leave_the_stand_in_as_they_leave_the_server() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    // Keys expire by the real clock there, so none may expire soon.
    let patched = Scripts::shipped().patched("common", "LEASES = 8", "LEASES = 100000");
    let scripts: Vec<_> = patched.all().collect();
    let runner = Runner::new(&patched).expect("the scripts are Lua");
    let mut rng = Rng::new(23);
    for _ in 0..60 {
        raw.cmd(&["FLUSHALL"]).await;
        let mut model = StandIn::at(1_700_000_000_000_000);
        for _ in 0..25 {
            model.now += rng.one_of(&[7, 1_000, 100_000]);
            let (verb, keys, args) = script_call(&mut rng, model.now);
            let (seconds, micros) = (model.now / 1_000_000, model.now % 1_000_000);
            let shim = SHIM.replace("SECONDS", &seconds.to_string());
            let source = shim.replace("MICROS", &micros.to_string()) + &scripts[verb as usize];
            let count = keys.len().to_string();
            let mut words = vec!["EVAL", &source, &count];
            words.extend(keys.iter().chain(&args).map(String::as_str));
            let real = as_in_model(&raw.cmd(&words).await);
            let ours = runner.run(verb, &mut model, &keys, &args);
            let ours = ours.map_err(|error| error.to_string());
            assert_eq!(real, ours, "{verb:?} {keys:?} {args:?}");
            assert_eq!(
                everything(&mut raw).await,
                everything_of(&model),
                "{verb:?} {args:?}"
            );
        }
    }
}

/// The crate has sent each script, and no other but the check, once it has done everything. So the
/// server knows six, and still six when those of the model are loaded.
#[tokio::test(flavor = "multi_thread")]
async fn the_model_has_the_scripts_that_the_crate_sends() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let lease = Duration::from_secs(1);
    let store = RedisSemaphore::builder()
        .lease(lease)
        .connect(server.url())
        .await;
    let store = store.expect("the server is there");
    let one = store.acquire(Claim::new("one").with_limit(1)).await;
    let both = [Claim::new("narrow"), Claim::new("wide")].map(|claim| claim.with_limit(1));
    let both = store.acquire_all(both.into()).await.expect("there is room");
    let refreshed = async || known_scripts(&mut Raw::connect(server.port()).await).await >= 5;
    eventually("it is refreshed", Duration::from_secs(20), refreshed).await;
    both.release().await;
    one.expect("there is room").release().await;
    assert_eq!(known_scripts(&mut raw).await, 6);
    for script in Scripts::shipped().all() {
        raw.cmd(&["SCRIPT", "LOAD", &script]).await;
    }
    assert_eq!(known_scripts(&mut raw).await, 6);
}

async fn known_scripts(raw: &mut Raw) -> i64 {
    let info = raw.cmd(&["INFO", "memory"]).await;
    let line = |line: &str| line.strip_prefix("number_of_cached_scripts:")?.parse().ok();
    info.text()
        .lines()
        .find_map(line)
        .expect("the server tells it")
}
