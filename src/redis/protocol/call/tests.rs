//! Over a transport that answers as the test says.

mod answers;

use super::*;
use crate::{
    redis::{
        clock::Times,
        outage::WhenUnavailable,
        protocol::{Acquire, Acquired, Group, PermitId, Position, Wanted},
    },
    semaphore::BoxFuture,
};
use futures_util::FutureExt;
use parking_lot::Mutex;
use redis::{Cmd, parse_redis_value};
use std::{collections::VecDeque, future::ready, iter, time::Duration};

type Answer = Result<Value, Error>;

/// What a send is answered with, and the arguments of each command that was sent.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Result<Vec<Answer>, Error>>>,
    sent: Mutex<Vec<Vec<Vec<String>>>>,
}

struct Scripted(Arc<Script>, bool);

impl Transport for Scripted {
    fn ready(&self, _: &str, _: Instant) -> Option<BoxFuture<Result<(), Error>>> {
        None
    }

    fn send(&self, commands: Vec<Cmd>, _: Terms) -> BoxFuture<Result<Vec<Answer>, Error>> {
        let text = |arg: redis::Arg<&[u8]>| match arg {
            redis::Arg::Simple(arg) => String::from_utf8_lossy(arg).into_owned(),
            _ => String::new(),
        };
        let args = |command: &Cmd| command.args_iter().map(text).collect();
        self.0.sent.lock().push(commands.iter().map(args).collect());
        let answer = self.0.answers.lock().pop_front();
        Box::pin(ready(answer.expect("the script has an answer")))
    }

    fn is_one_server(&self) -> bool {
        self.1
    }
}

/// A protocol, and what it sends. Each element of `answers` answers one send.
fn protocol(
    one_server: bool,
    answers: impl IntoIterator<Item = Vec<Answer>>,
) -> (Protocol, Arc<Script>) {
    let script = Arc::new(Script::default());
    *script.answers.lock() = answers.into_iter().map(Ok).collect();
    let times = Times::new(Duration::from_secs(3), Duration::from_millis(250));
    let transport = Arc::new(Scripted(Arc::clone(&script), one_server));
    let protocol = Protocol::new(
        Arc::<Scripted>::clone(&transport),
        Arc::new(ServerClock::new(times)),
        "s:".to_owned(),
        "p1".into(),
        3_000,
        Breakers::new(transport, times, WhenUnavailable::Refuse),
        0,
    );
    (protocol, script)
}

fn int(number: i64) -> Value {
    Value::Int(number)
}

fn list(numbers: impl IntoIterator<Item = i64>) -> Value {
    Value::Array(numbers.into_iter().map(int).collect())
}

fn error(code: &str) -> Error {
    let value = parse_redis_value(format!("-{code} why\r\n").as_bytes());
    let error = value.expect("an answer").extract_error();
    Error::Redis(error.expect_err("an error"))
}

fn group(name: &str, units: u32) -> Group {
    Group {
        name: name.into(),
        permits: vec![PermitId::new(7, 1_000, units)],
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the script answers at once")
}

/// Releases the groups, and says of each whether its first permit was held.
fn release(protocol: &Protocol, groups: &[Group]) -> Vec<Result<bool, Error>> {
    let answers = now(protocol.release(true, groups, Instant::now()));
    let held = |(answer, group): (Result<_, _>, &Group)| {
        let answer: crate::redis::protocol::release::Answers = answer?;
        Ok(answer.of(&group.permits).next().expect("it has a permit"))
    };
    answers.into_iter().zip(groups).map(held).collect()
}

/// How many semaphores each command of a send names, with the four keys of a release.
fn semaphores(sent: &[Vec<String>]) -> Vec<usize> {
    let keys = sent.iter().map(|args| args[2].parse::<usize>());
    keys.map(|keys| keys.expect("a number") / 4).collect()
}

#[test]
fn semaphores_of_one_server_share_calls_of_so_many_names_and_units() {
    let calls_of = |units: Vec<u32>| {
        let (protocol, script) = protocol(true, [vec![Ok(int(1)); units.len()]]);
        let groups = units.iter().map(|units| group("a", *units));
        release(&protocol, &groups.collect::<Vec<_>>());
        semaphores(&script.sent.lock()[0])
    };
    assert_eq!(calls_of(vec![1; 64]), [64]);
    assert_eq!(calls_of(vec![1; 130]), [64, 64, 2]);
    assert_eq!(calls_of(vec![300, 190, 1]), [2, 1]);
    assert_eq!(calls_of(vec![400, 190, 300, 1, 1]), [1, 2, 2]);
    assert_eq!(calls_of(vec![900, 1]), [1, 1]);
}

#[test]
fn each_semaphore_has_a_call_of_its_own_on_several_nodes_or_once_a_server_has_said_so() {
    let groups = [group("a", 1), group("b", 1)];
    let (several, script) = protocol(false, [vec![Ok(int(1)); 2]]);
    assert!(!several.is_one_server() && !several.takes_several());
    release(&several, &groups);
    assert_eq!(semaphores(&script.sent.lock()[0]), [1, 1]);
    let refused = vec![Err(error("CROSSSLOT"))];
    let (one, script) = protocol(true, [refused, vec![Ok(int(1)); 2], vec![Ok(int(1)); 2]]);
    assert!(one.is_one_server() && one.takes_several());
    assert_eq!(release(&one, &groups).len(), 2);
    assert!(one.is_one_server() && !one.takes_several());
    release(&one, &groups);
    let sent = script.sent.lock();
    let calls: Vec<_> = sent.iter().map(|sent| semaphores(sent)).collect();
    assert_eq!(calls, [vec![2], vec![1, 1], vec![1, 1]]);
}

#[test]
fn a_refused_call_for_one_semaphore_shows_that_keys_live_on_several_nodes_too() {
    let (protocol, _script) = protocol(true, [vec![Err(error("CROSSSLOT"))]]);
    assert!(release(&protocol, &[group("a", 1)])[0].is_err());
    assert!(!protocol.takes_several());
}

#[test]
fn an_error_of_one_key_costs_no_other_its_answer() {
    let groups = [group("a", 1), group("b", 1), group("c", 1)];
    let aborted = vec![Err(error("WRONGTYPE"))];
    let alone = vec![
        Ok(list([5, 1])),
        Err(error("WRONGTYPE")),
        Err(error("READONLY")),
    ];
    let (protocol, script) = protocol(true, [aborted, alone]);
    let answers = now(protocol.release(true, &groups, Instant::now()));
    assert!(protocol.takes_several());
    assert_eq!(semaphores(&script.sent.lock()[1]), [1, 1, 1]);
    assert!(
        answers[0]
            .as_ref()
            .is_ok_and(|answer| answer.is_repeated() && answer.now() == 5)
    );
    // The aborted call may have had an effect, which the last error denies.
    for answer in &answers[1..] {
        let error = answer.as_ref().err().expect("an error");
        assert!(error.is_of_a_key() && !error.had_no_effect());
    }
}

#[test]
fn a_call_that_is_refused_as_a_whole_or_has_no_answer_is_not_divided() {
    let groups = [group("a", 1), group("b", 1)];
    for failed in [error("LOADING"), Error::Timeout(Duration::ZERO)] {
        let (protocol, script) = protocol(true, [vec![Err(failed)]]);
        assert!(release(&protocol, &groups).iter().all(Result::is_err));
        assert_eq!(script.sent.lock().len(), 1);
    }
    let (protocol, script) = protocol(true, [vec![Err(error("WRONGTYPE"))]]);
    assert!(release(&protocol, &groups[..1])[0].is_err());
    assert_eq!(script.sent.lock().len(), 1);
}

#[test]
fn a_script_that_the_server_does_not_know_is_sent_as_its_source() {
    let groups = [group("a", 490), group("b", 1)];
    let first = vec![Err(error("NOSCRIPT")), Ok(list([5, 0]))];
    let held = iter::once(5).chain([1; 490]);
    let (protocol, script) = protocol(true, [first, vec![Ok(list(held))]]);
    let held: Vec<_> = release(&protocol, &groups)
        .into_iter()
        .map(Result::ok)
        .collect();
    assert_eq!(held, [Some(true), Some(false)]);
    let sent = script.sent.lock();
    assert_eq!((sent[0].len(), sent[1].len()), (2, 1));
    assert_eq!((&*sent[0][0][0], &*sent[1][0][0]), ("EVALSHA", "EVAL"));
}

/// A new permit of 400 units.
fn wanted(name: &str, position: Option<Position>) -> Wanted {
    Wanted {
        name: name.into(),
        units: PermitId::new(1, 1_000, 400),
        position,
        is_known: false,
    }
}

#[test]
fn waiters_count_as_one_unit_of_a_call() {
    let position = Position {
        alive: Duration::from_secs(1),
        max_waiting: 1,
        arrival: 0,
        head_start: Duration::ZERO,
    };
    let calls_of = |positions: [Option<Position>; 2]| {
        let (protocol, script) = protocol(true, [vec![Ok(Value::Nil); 2]]);
        let claim = |position| Acquire {
            levels: vec![wanted("a", position)],
        };
        now(protocol.acquire(&positions.map(claim), 1, Instant::now()));
        script.sent.lock()[0].len()
    };
    assert_eq!(calls_of([None, None]), 2);
    assert_eq!(calls_of([None, Some(position)]), 1);
    assert_eq!(calls_of([Some(position); 2]), 1);
}

/// The arguments behind the keys and the head of the calls for claims of these semaphores.
fn sent(one_server: bool, claims: &[&[&str]]) -> Vec<Vec<String>> {
    let (protocol, script) = protocol(one_server, [vec![Ok(Value::Nil); claims.len()]]);
    let claim = |names: &&[&str]| Acquire {
        levels: names.iter().map(|name| wanted(name, None)).collect(),
    };
    let claims: Vec<_> = claims.iter().map(claim).collect();
    now(protocol.acquire(&claims, 1, Instant::now()));
    let sent = script.sent.lock()[0].clone();
    let behind = |args: Vec<String>| {
        let keys: usize = args[2].parse().expect("a number");
        args[keys + 7..].to_vec()
    };
    sent.into_iter().map(behind).collect()
}

#[test]
fn a_call_names_each_semaphore_once_and_says_how_many_levels_a_claim_has() {
    const ID: &str = "p1.1.1000.400.3000";
    assert_eq!(sent(true, &[&["a"]]), [["1", "1", ID, "0", ""]]);
    let both = sent(true, &[&["a", "b"]]);
    assert_eq!(both, [["2", "1", ID, "0", "", "2", ID, "0", ""]]);
    let of_one = sent(false, &[&["a"], &["a"]]);
    assert_eq!(of_one, [["1", "1", ID, "0", "", "1", ID, "0", ""]]);
    assert_eq!(sent(false, &[&["a"], &["b"]]).len(), 2);
}
