//! Random calls of the scripts, in a real server and in the stand-in.
//!
//! Promises: none.

use crate::as_in_model;
use testing::{
    redis::RedisServer,
    resp::{Raw, Reply},
    rng::Rng,
};
use tower_semaphore_model::{
    lua::Runner,
    scripts::{Scripts, Verb},
    semaphore,
    stand_in::{Reply as Expected, StandIn, Value},
};

/// A prefix for scripts that replaces the server's clock by the stand-in's.
const SHIM: &str = "local real = redis
local redis = {call = function(name, ...)
  if name == 'TIME' then return {'SECONDS', 'MICROS'} end
  return real.call(name, ...)
end}\n";

/// A random call of a script for limits, which sets one or reads all.
fn limits_call(rng: &mut Rng) -> (Verb, Vec<String>, Vec<String>) {
    let known = rng.one_of(&["", "0", "1700000000000007"]);
    let (verb, args) = match rng.once_in(3) {
        true => (Verb::Presence, ["300", "2", "limits", known]),
        false => {
            let key = rng.one_of(&["a", "a:b", "b"]);
            let limit = rng.one_of(&["0", "3", "-1", "-1"]);
            (Verb::Limits, [key, limit, rng.one_of(&["", "note"]), "2"])
        }
    };
    (
        verb,
        vec!["limits".to_owned()],
        args.map(str::to_owned).into(),
    )
}

/// A random call of the pause script.
fn pause_call(rng: &mut Rng, now: i64) -> (Verb, Vec<String>, Vec<String>) {
    let (length, digits) = rng.one_of(&[("0", "0"), ("100", "2s"), ("300", "8c"), ("5000", "3uw")]);
    let before = format!("p0.0.0.0.0.1.{digits}.");
    let args = [&now.to_string(), length, "2", &before, ".1.!."].map(str::to_owned);
    (Verb::Pause, semaphore::keys(0).into(), args.into())
}

/// A random call of a script on one or two semaphores: the script, its keys and its arguments.
fn script_call(rng: &mut Rng, now: i64) -> (Verb, Vec<String>, Vec<String>) {
    if rng.once_in(6) {
        return limits_call(rng);
    }
    if rng.once_in(6) {
        return pause_call(rng, now);
    }
    let verb = rng.one_of(&[
        Verb::Acquire,
        Verb::Refresh,
        Verb::Release,
        Verb::Revoke,
        Verb::Usage,
    ]);
    let deadline = now / 1_000 + rng.one_of(&[-1, 0, 1_000]);
    let mut args: Vec<_> = match verb {
        Verb::Refresh => vec!["300".to_owned()],
        Verb::Release => vec![rng.one_of(&["0", "1"]).to_owned(), now.to_string()],
        Verb::Revoke => vec![now.to_string(), rng.one_of(&["5000", "3600000"]).to_owned()],
        Verb::Usage => ["1000", "3", "0", "0", "0"].map(str::to_owned).into(),
        _ => vec!["300".to_owned(), deadline.to_string(), now.to_string()],
    };
    let semaphores = match verb {
        Verb::Revoke | Verb::Usage => 1,
        _ => 1 + rng.below(2) as u8,
    };
    let keys = (0..semaphores).flat_map(|at| match (verb, semaphore::keys(at)) {
        (Verb::Refresh, [held, _, _, token]) => vec![held, token],
        (Verb::Usage, [held, queue, alive, _]) => vec![held, queue, alive],
        (_, keys) => keys.into(),
    });
    // The semaphores of each claim, or for each semaphore its number, once per unit.
    let groups: Vec<Vec<u8>> = match verb {
        // One claim for all levels, and one for a single level.
        Verb::Acquire => vec![
            (0..semaphores).collect(),
            vec![rng.below(semaphores.into()) as u8],
        ],
        Verb::Revoke => vec![vec![0]],
        Verb::Usage => Vec::new(),
        _ => (0..semaphores)
            .map(|at| vec![at; 1 + rng.below(2)])
            .collect(),
    };
    if verb == Verb::Acquire {
        args.extend([rng.one_of(&["300", "100"]), "0"].map(str::to_owned));
    }
    for group in groups {
        args.push(group.len().to_string());
        if verb == Verb::Acquire {
            args.push("1".to_owned());
            args.extend(group.iter().map(|_| terms(rng)));
        }
        for at in group {
            args.extend((verb == Verb::Acquire).then(|| (at + 1).to_string()));
            args.push(unit(rng, verb));
        }
    }
    (verb, keys.collect(), args)
}

/// A limit, or -1 if the claim was sent before, and the terms of its wait.
fn terms(rng: &mut Rng) -> String {
    let waits = ["", " 200 9 0 0", " 200 1 0 0", " 200 9 0 50000"];
    let limit = rng.one_of(&["-1", "0", "1", "2", "3"]);
    limit.to_owned() + rng.one_of(&waits)
}

/// An id of a permit, or of one of its units. `rest` is the end of the id: SHARE.FLOW.LABEL.
fn unit(rng: &mut Rng, verb: Verb) -> String {
    let (client, limit) = (rng.below(4), 1 + rng.below(3));
    let weight = 1 + rng.below(limit.min(2));
    let (lease, rest) = [(0, ".."), (0, "1.x."), (0, "..a-_~2E"), (1, "..")][client];
    let id = format!("p{client}.{client}.{lease}.0.{limit}.{weight}.8c.0.{rest}");
    match verb != Verb::Acquire && rng.once_in(2) {
        true => format!("{id}:2"),
        false => id,
    }
}

/// Every key of the server, with its value and `true` if it expires.
async fn everything(raw: &mut Raw) -> Vec<String> {
    let mut all = Vec::new();
    for key in raw.keys("*").await {
        let key = String::from_utf8_lossy(&key).into_owned();
        let value = match raw.cmd(&["TYPE", &key]).await {
            Reply::Simple(kind) if kind == "zset" => format!("{:?}", raw.zmembers(&key).await),
            Reply::Simple(kind) if kind == "hash" => {
                let all = as_in_model(&raw.cmd(&["HGETALL", &key]).await);
                format!("{:?}", pairs(&all))
            }
            _ => format!("{:?}", raw.cmd(&["GET", &key]).await),
        };
        let expires = raw.cmd(&["PTTL", &key]).await.int() > 0;
        all.push(format!("{key} {value} {expires}"));
    }
    all
}

/// The reply with the fields of the limits' hash in order, because a server returns them in any order.
fn sorted(verb: Verb, reply: Result<Expected, String>) -> Result<Expected, String> {
    match (verb, reply) {
        (Verb::Presence, Ok(Expected::List(mut items))) => {
            if let Some(Expected::List(all)) = items.get_mut(1) {
                let mut fields: Vec<_> = all.chunks(2).map(<[_]>::to_vec).collect();
                fields.sort_by_key(|pair| format!("{pair:?}"));
                *all = fields.concat();
            }
            Ok(Expected::List(items))
        }
        (_, reply) => reply,
    }
}

/// The fields of a hash in order.
fn pairs(all: &Result<Expected, String>) -> Vec<String> {
    let Ok(Expected::List(items)) = all else {
        panic!("{all:?} is not a hash");
    };
    let mut pairs: Vec<_> = items.chunks(2).map(|pair| format!("{pair:?}")).collect();
    pairs.sort();
    pairs
}

fn everything_in_model(model: &StandIn) -> Vec<String> {
    let entries = model.entries().map(|(key, entry)| {
        let value = match &entry.value {
            Value::Text(text) => format!("{:?}", Reply::Bulk(text.clone().into_bytes())),
            Value::Sorted(set) => {
                let items = set.items().iter();
                let items = items.map(|(score, name)| (name.as_bytes().to_vec(), *score));
                format!("{:?}", items.collect::<Vec<_>>())
            }
            Value::Hash(hash) => {
                let items = hash.iter().flat_map(|(field, value)| [field, value]);
                let items = items.map(|item| Expected::Text(item.clone()));
                format!("{:?}", pairs(&Ok(Expected::List(items.collect()))))
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
    // Keys expire by the real clock in the server, so no key may expire soon.
    let patched = Scripts::shipped().patched("common", "LEASES = 8", "LEASES = 100000");
    let patched = patched.patched("budget", "key, text(ms)", "key, text(ms * 100000)");
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
            assert_eq!(
                sorted(verb, real),
                sorted(verb, ours),
                "{verb:?} {keys:?} {args:?}"
            );
            assert_eq!(
                everything(&mut raw).await,
                everything_in_model(&model),
                "{verb:?} {args:?}"
            );
        }
    }
}
