//! Random single commands, in a real server and in the stand-in.
//!
//! Promises: none.

use crate::as_in_model;
use testing::{redis::RedisServer, resp::Raw, rng::Rng};
use tower_semaphore_model::stand_in::{Reply, StandIn};

/// A random command that the scripts use, on a few keys and members.
fn command(rng: &mut Rng) -> Vec<String> {
    let key = rng.one_of(&["a", "b", "c"]);
    let other = rng.one_of(&["a", "b", "c"]);
    let member = rng.one_of(&["x", "y", "z", "x:2"]);
    let more = rng.one_of(&["x", "y", "z"]);
    let score = rng.one_of(&["0", "1", "-5", "7", "1700000000000001"]);
    let high = rng.one_of(&["+inf", "1", "7", "(7", "1700000000000000"]);
    let low = rng.one_of(&["-inf", "0", "-5", "(0"]);
    let at = rng.one_of(&["0", "1", "-1", "-2"]);
    let ttl = rng.one_of(&["100000000", "200000000", "0", "-1"]);
    // Some occur twice, so that they are picked more often.
    let forms: [&[&str]; 35] = [
        &["ZADD", key, score, member],
        &["ZADD", key, score, member, "3", more],
        &["ZADD", key, "XX", score, member],
        &["ZADD", key, "CH", score, member],
        &["ZADD", key, "XX", "CH", score, member, "3", more],
        &["ZADD", key, "GT", score, member, "3", more],
        &["ZADD", key, "XX", "GT", "CH", score, member, "3", more],
        &["ZREM", key, member, more],
        &["ZCARD", key],
        &["ZSCORE", key, member],
        &["ZREMRANGEBYSCORE", key, low, high],
        &["ZRANGEBYSCORE", key, low, high, "WITHSCORES"],
        &["ZRANGEBYSCORE", key, low, high, "LIMIT", "0", "1"],
        &["ZRANGE", key, at, "0"],
        &["ZSCAN", key, "0", "COUNT", "1000"],
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
        &["HSET", key, member, score],
        &["HSET", key, member, score],
        &["HGET", key, member],
        &["HDEL", key, more],
        &["HEXISTS", key, member],
        &["HLEN", key],
        &["HGETALL", key],
    ];
    forms[rng.below(forms.len())]
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// Compares two replies. A time to live, which is a large number, may be up to ten minutes shorter in the real server.
/// `is_hash` is true if the reply has the fields of a hash.
fn is_same(real: &Result<Reply, String>, model: &Result<Reply, String>, is_hash: bool) -> bool {
    match (real, model) {
        (Ok(Reply::Int(real)), Ok(Reply::Int(model))) if *model > 1_000_000 => {
            (0..600_000).contains(&(model - real))
        }
        // The fields of a hash come in any order.
        (Ok(Reply::List(real)), Ok(Reply::List(model))) if is_hash => {
            let pairs = |items: &[Reply]| {
                let mut pairs: Vec<_> = items.chunks(2).map(|pair| format!("{pair:?}")).collect();
                pairs.sort();
                pairs
            };
            pairs(real) == pairs(model)
        }
        // Error messages may differ after their first word.
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
                is_same(&real, &model, words[0] == "HGETALL"),
                "{real:?} {model:?} after {so_far:#?}"
            );
        }
    }
}
