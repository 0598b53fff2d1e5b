//! What a server may answer, and what is made of it.

use super::*;

/// A permit of one unit, of a claim that does not wait.
fn single(name: &str, serial: u64) -> Wanted {
    Wanted {
        name: name.into(),
        units: PermitId::new(serial, 5, 1),
        position: None,
        is_known: false,
    }
}

#[test]
fn an_answer_is_the_time_alone_or_with_an_item_for_each_unit() {
    let groups = [group("a", 2), group("b", 1)];
    let released = |answer| {
        let (protocol, _script) = protocol(true, [vec![Ok(answer)]]);
        let held = release(&protocol, &groups).into_iter().map(Result::ok);
        (held.collect::<Vec<_>>(), protocol.clock.is_known())
    };
    let [yes, no, wrong] = [Some(true), Some(false), None];
    assert_eq!(released(int(5)), (vec![yes, yes], true));
    assert_eq!(released(int(0)), (vec![yes, yes], false));
    assert_eq!(released(int(-1)), (vec![wrong, wrong], false));
    assert_eq!(released(list([5, 1, 1, 0])), (vec![yes, no], true));
    assert_eq!(released(list([5, 1, 0, 1])), (vec![no, yes], true));
    assert_eq!(released(list([5, 1, 1])), (vec![wrong, wrong], true));
    assert_eq!(released(list([5, 1, 1, 1, 1])), (vec![wrong, wrong], true));
    assert_eq!(released(list([])), (vec![wrong, wrong], false));
    assert_eq!(released(Value::Nil), (vec![wrong, wrong], false));
    let nested = Value::Array(vec![list([5])]);
    assert_eq!(released(nested), (vec![wrong, wrong], false));
}

#[test]
fn an_answer_of_the_time_in_a_list_means_that_the_call_came_too_late() {
    let (protocol, _script) = protocol(true, [vec![Ok(list([5]))]]);
    let answer = release(&protocol, &[group("a", 1)]).remove(0);
    assert!(matches!(answer, Err(Error::Late(5))));
}

#[test]
fn the_highest_time_of_all_processes_is_learned_with_the_clock() {
    let wrong = [int(5), list([5, -1]), list([5, 6, 7]), Value::Nil];
    for answer in wrong {
        let (protocol, _script) = protocol(true, [vec![Ok(answer)]]);
        assert!(now(protocol.clock(Instant::now())).is_err());
    }
    let (protocol, script) = protocol(true, [vec![Ok(list([5, 9_000_000_000]))]]);
    assert!(now(protocol.clock(Instant::now())).is_ok());
    assert!(protocol.clock.is_known() && protocol.clock.floor() >= 9_000_000_000);
    assert_eq!(script.sent.lock()[0][0][2..4], ["1", "s:clock"]);
}

#[test]
fn a_process_says_that_it_lives_for_a_lease_or_leaves_and_learns_how_many_live() {
    let answers = [list([5, 3]), list([5, 2])].map(|answer| vec![Ok(answer)]);
    let (protocol, script) = protocol(true, answers);
    assert!(matches!(now(protocol.live(Instant::now())), Ok(3)));
    assert!(matches!(now(protocol.leave(Instant::now())), Ok(2)));
    let sent = script.sent.lock();
    let sent = [&sent[0][0][2..], &sent[1][0][2..]];
    assert_eq!(
        sent[0],
        ["1", "s:processes", "3000", "2", "processes", "p1:3000"]
    );
    assert_eq!(
        sent[1],
        ["1", "s:processes", "0", "2", "processes", "p1:3000"]
    );
    for answer in [int(5), list([5, -3]), list([5, 3, 3])] {
        let (protocol, _script) = self::protocol(true, [vec![Ok(answer)]]);
        assert!(now(protocol.live(Instant::now())).is_err());
    }
}

/// The answers to claims of so many levels each.
fn acquired(levels: &[usize], items: Vec<Value>) -> Vec<Option<Acquired>> {
    let items = [vec![int(5)], items].concat();
    let (protocol, _script) = protocol(true, [vec![Ok(Value::Array(items))]]);
    let claim = |count: &usize| Acquire {
        levels: ["a", "b"][..*count]
            .iter()
            .map(|name| single(name, 1))
            .collect(),
    };
    let claims: Vec<_> = levels.iter().map(claim).collect();
    let answers = now(protocol.acquire(&claims, 1, Instant::now()));
    answers.into_iter().map(Result::ok).collect()
}

#[test]
fn a_claim_is_granted_refused_or_queued() {
    let items = vec![
        int(8),
        int(1),
        int(9),
        int(2),
        list([0, 2, 5]),
        list([-1, 1, 5]),
        int(7),
        int(1),
        list([-3, 1, 5]),
    ];
    let [full, queue_full] = [
        Acquired::Full { level: 1, held: 5 },
        Acquired::QueueFull { level: 0, held: 5 },
    ];
    let expected = [
        Acquired::Granted(vec![(8, 1), (9, 2)]),
        full,
        queue_full,
        Acquired::Granted(vec![(7, 1)]),
        Acquired::Revoked,
    ];
    assert_eq!(acquired(&[2, 2, 1, 1, 1], items), expected.map(Some));
    let queued = |recheck| Acquired::Queued {
        level: 1,
        arrival: 8,
        recheck,
        last_token: 7,
    };
    let items = vec![list([-2, 2, 0, 8, 40, 7]), list([-2, 2, 0, 8, -1, 7])];
    let expected = [queued(Some(Duration::from_millis(40))), queued(None)];
    assert_eq!(acquired(&[2, 2], items), expected.map(Some));
}

#[test]
fn an_answer_of_another_shape_is_an_error() {
    let wrong = [
        vec![int(8), int(1)],
        vec![int(8), int(1), int(9)],
        vec![int(8), int(1), int(9), int(2), int(3)],
        vec![int(8), int(1), int(0), int(2)],
        vec![int(8), int(1), int(9), int(-1)],
        vec![int(8), int(1), int(9), Value::Nil],
        vec![list([0, 3, 5])],
        vec![list([0, 0, 5])],
        vec![list([-1, 3, 0])],
        vec![list([-4, 1, 0])],
        vec![list([-2, 2, 0, -1, 40, 7])],
        vec![list([-2, 2, 0])],
        vec![list([])],
        vec![],
    ];
    for answer in wrong {
        assert_eq!(acquired(&[2], answer.clone()), [None], "{answer:?}");
    }
}

#[test]
fn a_send_that_fails_fails_all() {
    let groups = [group("a", 1), group("b", 1)];
    let (protocol, script) = protocol(true, []);
    let failures = [Error::Congested, error("WRONGTYPE"), Error::Congested];
    let [first, aborted, second] = failures;
    let answers = [Err(first), Ok(vec![Err(aborted)]), Err(second)];
    *script.answers.lock() = answers.into_iter().collect();
    let errors = |answers: Vec<Result<bool, Error>>| {
        let errors = answers
            .into_iter()
            .map(|answer| answer.expect_err("it failed"));
        errors
            .map(|error| error.had_no_effect())
            .collect::<Vec<_>>()
    };
    assert_eq!(errors(release(&protocol, &groups)), [true, true]);
    // The aborted call may have had an effect.
    assert_eq!(errors(release(&protocol, &groups)), [false, false]);
}
