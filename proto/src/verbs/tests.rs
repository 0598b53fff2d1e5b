//! Commands are encoded as the headers of the scripts describe, and every reply is decoded or refused.

use super::{
    Acquired, Answer, Charge, Command, CommandSink, Flow, Group, LeaseId, LeaseName, LeaseUnits,
    Message, OperatorLimits, Owner, Part, PauseEntry, Position, Query, Queued, Reply, RevokeQuery,
    Sink, Standing, UsageListing, Verb, Wanted, is_done,
};
use std::{fmt::Display, time::Duration};

/// An encoded command: its script and its number of keys; then the keys and the arguments.
#[derive(Debug, Default)]
struct RecordedRun(Option<(Verb, usize)>, Vec<String>);

impl Sink for RecordedRun {
    fn begin(&mut self, verb: Verb, keys: usize, _: usize) {
        self.0 = Some((verb, keys));
    }

    fn add(&mut self, item: impl Display) {
        self.1.push(item.to_string());
    }
}

impl CommandSink for RecordedRun {
    fn plain(&mut self, words: &[&dyn Display]) {
        panic!("a command of {} words runs no script", words.len());
    }
}

fn owner() -> Owner {
    Owner {
        process: "p1".into(),
        lease_ms: 3_000,
        prefix: "s:".to_owned(),
        about: String::new(),
    }
}

impl RecordedRun {
    /// The script, its keys and its arguments.
    fn parts(mut self) -> (Verb, Vec<String>, Vec<String>) {
        let (verb, keys) = self.0.expect("it begins");
        let args = self.1.split_off(keys);
        (verb, self.1, args)
    }
}

fn written(command: &Command) -> (Verb, Vec<String>, Vec<String>) {
    let mut written = RecordedRun::default();
    command.encode(&owner(), &mut written);
    written.parts()
}

fn written_query(query: &Query<'_>) -> (Verb, Vec<String>, Vec<String>) {
    let mut written = RecordedRun::default();
    query.encode(&owner(), &mut written);
    written.parts()
}

fn wanted(name: &str, units: LeaseUnits, position: Option<Position>, standing: Standing) -> Wanted {
    Wanted {
        name: name.into(),
        units,
        position,
        standing,
    }
}

fn acquire(claims: Vec<Vec<Wanted>>) -> Command {
    Command::Acquire {
        lasts: Duration::from_millis(750),
        runs_until: 5,
        floor: 6,
        claims,
    }
}

fn group(name: &str, permits: Vec<LeaseUnits>) -> Group {
    Group {
        name: name.into(),
        permits,
    }
}

fn release(with_answer: bool, groups: Vec<Group>) -> Command {
    Command::Release {
        with_answer,
        floor: 6,
        groups,
    }
}

fn refresh(groups: Vec<Group>) -> Command {
    Command::Refresh {
        lasts: Duration::from_millis(750),
        groups,
    }
}

/// All units of a permit, under the id of its first lease.
fn units(permit: u64, limit: u32, weight: u32) -> LeaseUnits {
    LeaseUnits::new(LeaseId {
        name: LeaseName::new(permit, 0),
        limit,
        weight,
        since: 71,
        flow: None,
        label: None,
    })
}

#[test]
fn a_call_has_each_semaphore_once_and_all_levels_of_each_claim() {
    let position = Position {
        alive: Duration::from_secs(1),
        max_waiting: 4,
        arrival: 9,
        head_start: Duration::from_millis(2),
    };
    let (mut labelled, mut renewed) = (units(26, 5, 1), units(26, 5, 1).renewed());
    labelled.id.label = Some("a b".into());
    labelled.id.flow = Some(Flow::new(4, "ann"));
    renewed.id.name.lease = 43;
    let narrow = wanted("n", labelled, Some(position), Standing::New);
    let wide = wanted("w", units(26, 9, 3), None, Standing::New);
    let other = wanted("w", renewed, None, Standing::Sent);
    let (verb, keys, args) = written(&acquire(vec![vec![narrow, wide.clone()], vec![other]]));
    assert_eq!(verb, Verb::Acquire);
    let all = [
        "n:held", "n:queue", "n:alive", "n:token", "w:held", "w:queue", "w:alive", "w:token",
    ];
    assert_eq!(keys, all);
    // The lease, the deadline, the floor and how long a grant lasts. Then the number of levels of each claim, 0 if the
    // claims differ.
    let call = ["3000", "5", "6", "750"];
    // For each run of claims their number of levels, if the claims differ; the number of claims; and the terms of each
    // level. Then for each level of each claim the number of the semaphore and the id.
    let first_run = ["2", "1", "5 1000 4 9 2000", "0"];
    let first_claim = [
        "1",
        "p1.q.0.0.5.1.2bc.1z.4.ann.a~20b",
        "2",
        "p1.q.0.0.9.3.2bc.1z...",
    ];
    let second_run = ["1", "1", "-1"];
    let second_claim = ["2", "p1.q.17.1.5.1.2bc.1z..."];
    let runs = [&first_run[..], &first_claim, &second_run, &second_claim].concat();
    assert_eq!(args, [&call[..], &["0"], &runs].concat());
    let (.., args) = written(&acquire(vec![vec![wide.clone()], vec![wide]]));
    let claim = ["1", "p1.q.0.0.9.3.2bc.1z..."];
    let run = ["2", "0"];
    assert_eq!(args, [&call[..], &["1"], &run, &claim, &claim].concat());
}

#[test]
fn each_unit_that_a_permit_still_has_is_written() {
    let (kept, others) = units(1, 9, 4).split(2);
    let groups = vec![
        group("a", vec![others, units(2, 9, 1)]),
        group("b", vec![kept]),
    ];
    let id = |permit, weight, unit| format!("p1.{permit}.0.0.9.{weight}.2bc.1z...{unit}");
    let units = [id(1, 4, ":3"), id(1, 4, ":4"), id(2, 1, "")].join(" ");
    let more = [id(1, 4, ""), id(1, 4, ":2")].join(" ");
    let all = format!("3 {units} 2 {more}");
    let (verb, keys, args) = written(&release(true, groups.clone()));
    assert_eq!((verb, keys.len()), (Verb::Release, 8));
    assert_eq!(args.join(" "), format!("1 6 {all}"));
    let (verb, keys, args) = written(&refresh(groups));
    assert_eq!(verb, Verb::Refresh);
    assert_eq!(keys, ["a:held", "a:token", "b:held", "b:token"]);
    assert_eq!(args.join(" "), format!("750 {all}"));
}

#[test]
fn presence_has_the_key_and_the_arguments_of_each_part() {
    let [clock, processes] = ["s:clock", "s:processes"].map(str::to_owned);
    let all = vec![Part::Clock(8), Part::Processes, Part::Limits(Some(7))];
    let (verb, keys, args) = written(&Command::Presence(all));
    assert_eq!(
        (verb, keys),
        (
            Verb::Presence,
            vec![clock.clone(), processes, "s:limits{s:processes}".to_owned()]
        )
    );
    let processes_part = ["2", "processes", "p1:3000"];
    let first = ["3000", "2", "clock", "8"];
    let limits_part = ["2", "limits", "7"];
    assert_eq!(args, [&first[..], &processes_part, &limits_part].concat());
    let (_, keys, args) = written(&Command::Presence(vec![Part::Clock(8)]));
    assert_eq!((keys, args.len()), (vec![clock], 4));
    let (_, keys, args) = written(&Command::Presence(Vec::new()));
    assert_eq!((keys, args), (vec![], vec!["3000".to_owned()]));
    let (verb, keys, args) = written(&Command::Leave);
    assert_eq!(
        (verb, keys),
        (Verb::Presence, vec!["s:processes".to_owned()])
    );
    assert_eq!(args, [&["0"][..], &processes_part].concat());
}

#[test]
fn messages_name_a_lease_or_a_permit() {
    let name = units(26, 1, 1).renewed().id.name;
    let granted = Some(Message::Granted(name, 9, 2));
    assert_eq!(Message::read("q.0.1 9 2"), granted);
    assert_eq!(Message::read("q revoked"), Some(Message::Revoked(26)));
    for text in [
        "",
        "q",
        "q 9 2",
        "q.0 9 2",
        "q.0.1.1 9 2",
        "q.0.1 9",
        "q.0.1 revoked",
        "- revoked",
    ] {
        assert_eq!(Message::read(text), None, "{text}");
    }
}

fn int(number: i64) -> Reply {
    Reply::Integer(number)
}

fn list(items: impl IntoIterator<Item = i64>) -> Reply {
    Reply::List(items.into_iter().map(int).collect())
}

#[test]
fn an_answer_reports_for_each_permit_if_all_of_it_is_held() {
    let groups = || {
        vec![
            group("a", vec![units(1, 9, 2)]),
            group("b", vec![units(2, 9, 1)]),
        ]
    };
    let refresh = refresh(groups());
    let held = |each: [bool; 2]| Some(Answer::Held(each.to_vec()));
    assert_eq!(refresh.decode(&int(5)), held([true, true]));
    assert_eq!(refresh.decode(&list([5, 1, 0, 1])), held([false, true]));
    let release_with_answer = release(true, groups());
    let answer = release_with_answer.decode(&list([5, 1, 1, 0]));
    assert_eq!(answer, held([true, false]));
    assert_eq!(release_with_answer.decode(&int(0)), None);
    assert_eq!(release(false, groups()).decode(&int(0)), Some(Answer::Done));
    for wrong in [
        list([5, 1, 1]),
        list([5, 1, 1, 1, 1]),
        list([5, 1, 1, 2]),
        list([-1, 1, 1, 1]),
    ] {
        assert_eq!(
            (refresh.decode(&wrong), release_with_answer.decode(&wrong)),
            (None, None),
            "{wrong:?}"
        );
    }
}

#[test]
fn an_acquire_is_answered_with_the_time_and_then_each_claim() {
    let claim = |levels: usize| {
        let level = wanted("a", units(1, 9, 1), None, Standing::New);
        vec![level; levels]
    };
    let command = acquire(vec![claim(2), claim(1)]);
    let granted = [int(5), int(8), int(1), int(9), int(2), list([0, 1, 3])];
    let expected = vec![
        Acquired::Granted(vec![(8, 1), (9, 2)]),
        Acquired::Full {
            level: 0,
            held: 3,
            retry_after: None,
        },
    ];
    let answer = command.decode(&Reply::List(granted.to_vec()));
    assert_eq!(answer, Some(Answer::Acquired(5, expected)));
    assert_eq!(command.decode(&list([5])), Some(Answer::Late(5)));
    assert_eq!(command.decode(&int(5)), None);
    assert_eq!(command.decode(&Reply::List(granted[..5].to_vec())), None);
}

#[test]
fn limits_are_reported_with_their_version_and_only_if_they_have_changed() {
    let command = Command::Presence(vec![Part::Processes, Part::Limits(Some(7))]);
    let text = |text: &str| Reply::Text(text.into());
    let decoded = |limits: Reply| {
        let answer = command.decode(&Reply::List(vec![int(5), int(1), limits]));
        answer.map(|answer| match answer {
            Answer::Presence(5, None, Some(1), limits) => limits,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(decoded(int(0)), Some(None));
    assert_eq!(decoded(list([])), Some(Some(OperatorLimits::default())));
    let pairs = [
        ["a:b", "3 1 note"],
        ["*version", "1795345200123456 1795345200000000"],
        ["a", "0 1 "],
        ["b", "-1 1 "],
        ["c", "4294967296 1 "],
        ["d", "x"],
    ];
    let all = pairs.iter().flatten().map(|item| text(item));
    let expected = OperatorLimits {
        version: 1_795_345_200_123_456,
        first: 1_795_345_200_000_000,
        limits: vec![("a:b".into(), 3), ("a".into(), 0)],
    };
    assert_eq!(decoded(Reply::List(all.collect())), Some(Some(expected)));
    assert_eq!(decoded(Reply::List(vec![text("a")])), None);
    assert_eq!(decoded(Reply::Other), None);
}

/// Tries lists of up to six of these items.
#[test]
fn no_reply_makes_decoding_panic() {
    let items = [
        int(-2),
        int(0),
        int(1),
        int(i64::MAX),
        int(i64::MIN),
        Reply::Other,
        list([0, 1, 5]),
        list([-2, 1, 0, 1, -1, 1]),
        list([]),
    ];
    let wanted = |name| wanted(name, units(1, 9, 2), None, Standing::New);
    let groups = || vec![group("a", vec![units(1, 9, 2)])];
    let commands = [
        acquire(vec![vec![wanted("a"), wanted("b")], vec![wanted("a")]]),
        refresh(groups()),
        release(true, groups()),
        Command::Presence(vec![Part::Clock(1), Part::Processes, Part::Limits(None)]),
    ];
    let mut answers = 0;
    for number in 0..items.len().pow(6) {
        let digits = (0..6).map(|place| number / items.len().pow(place) % items.len());
        let length = number % 7;
        let reply = Reply::List(digits.take(length).map(|at| items[at].clone()).collect());
        let decoded = commands.iter().filter_map(|command| command.decode(&reply));
        answers += decoded.count();
    }
    assert!(answers > 0);
}

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

/// The page of a server whose clock shows 100.
fn page(lists: [(&str, &[&str]); 3]) -> Reply {
    let lists = lists.map(|(next, members)| {
        let members = members.iter().map(|word| text(word)).collect();
        Reply::List(vec![text(next), Reply::List(members)])
    });
    Reply::List([Reply::Integer(100)].into_iter().chain(lists).collect())
}

#[test]
fn pages_of_usage_are_put_together() {
    let mut usage = UsageListing::default();
    let first = page([
        ("7", &["a", "200", "gone", "100"]),
        ("8", &["y", "2", "x", "2", "z", "1"]),
        ("-", &["x", "150", "z", "150", "revoked:p.1", "-5e15"]),
    ]);
    let next = usage.add(&first).expect("it is a page");
    let next = next.expect("it goes on");
    let query = Query::Usage {
        name: "s",
        from: &next,
    };
    let (verb, keys, args) = written_query(&query);
    assert_eq!(
        (verb, &keys[..]),
        (
            Verb::Usage,
            &["s:held", "s:queue", "s:alive"].map(String::from)[..]
        )
    );
    assert_eq!(args[2..], ["7", "8", "-"]);
    // One unit is listed twice, and a waiter has been granted in the meantime.
    let last = page([
        ("-", &["a", "300", "z", "400"]),
        ("-", &["w", "3", "dead", "4"]),
        ("-", &["w", "101", "dead", "99", "y", "150"]),
    ]);
    assert!(usage.add(&last).expect("it is a page").is_none());
    let held: Vec<_> = usage.held.iter().map(|(id, ends)| (&**id, *ends)).collect();
    assert_eq!(held, [("a", 300), ("z", 400)]);
    assert_eq!(usage.waiting(), [("x", 150), ("y", 150), ("w", 101)]);
}

#[test]
fn a_reply_that_is_no_page_is_refused() {
    for reply in [Reply::Other, Reply::Integer(1), list([100])] {
        assert!(UsageListing::default().add(&reply).is_none(), "{reply:?}");
    }
}

#[test]
fn a_revocation_is_stored_for_an_hour_or_eight_leases() {
    let id = |lease_ms: &str| format!("p.1.0.0.5.1.{lease_ms}.mwrq6ebf...");
    // Leases in base 36: ten seconds, 38 minutes, and more than the cap of a day.
    for (lease_ms, stored) in [
        ("7ps", "3600000"),
        ("1cm00", "18144000"),
        ("zzzzzzzz", "691200000"),
    ] {
        let id = id(lease_ms);
        let revocation = RevokeQuery::new("s", &id, 7, 1_000).expect("it is an id");
        let (verb, keys, args) = written_query(&Query::Revoke(revocation));
        assert_eq!((verb, keys.len()), (Verb::Revoke, 4));
        assert_eq!(args[..3], ["7", stored, "1"], "{lease_ms}");
        assert_eq!(args[3], id);
    }
    for other in [
        "",
        "p",
        "p.1.0.0.5.1.7ps.mwrq6ebf...:2",
        "p.1.0.0.5.zz.7ps.mwrq6ebf...",
    ] {
        assert!(RevokeQuery::new("s", other, 7, 1_000).is_none(), "{other}");
    }
}

#[test]
fn the_entry_of_a_pause_is_read_as_it_was_written() {
    for note in ["", "429: Retry-After 30.5", "a.b!c~\u{1f600}"] {
        let query = Query::Pause {
            name: "s",
            floor: 7,
            pause: Some((Duration::from_secs(30), note)),
        };
        let (verb, keys, args) = written_query(&query);
        assert_eq!((verb, keys.len(), &args[1][..]), (Verb::Pause, 4, "30000"));
        // The script writes the server's time between the two.
        let entry = PauseEntry::read(&format!("{}1795345200123{}", args[3], args[4]));
        let expected = PauseEntry {
            since: 1_795_345_200_123,
            length: 30_000,
            note: Some(note.to_owned()).filter(|note| !note.is_empty()),
        };
        assert_eq!(entry, Some(expected));
    }
    let end = Query::Pause {
        name: "s",
        floor: 7,
        pause: None,
    };
    assert_eq!(written_query(&end).2[..2], ["7", "0"]);
    for other in [
        "",
        "0a9ZKq.q.0.0.5.1.7ps.mwrq6ebf...",
        "a.0.0.0.0.1.1.x.1.!.",
    ] {
        assert_eq!(PauseEntry::read(other), None, "{other}");
    }
}

#[test]
fn queries_of_limits_and_processes_have_the_keys_of_the_store() {
    let set = |limit| Query::SetLimit {
        of: "p:k",
        limit,
        note: "a b",
    };
    let (verb, keys, args) = written_query(&set(Some(3)));
    assert_eq!(
        (verb, &keys[..]),
        (Verb::Limits, &[owner().limits_key()][..])
    );
    assert_eq!(args, ["p:k", "3", "a~20b", "5000"]);
    assert_eq!(written_query(&set(None)).2[1], "-1");
    let (verb, keys, args) = written_query(&Query::Process("q"));
    assert_eq!(
        (verb, &keys[..]),
        (Verb::Presence, &[owner().key("process:q")][..])
    );
    assert_eq!(args[1..], ["2", "process", ""]);
    assert_eq!(written_query(&Query::Limits).2[2], "limits");
}

#[test]
fn a_change_is_done_if_its_reply_is_the_time_and_1() {
    assert_eq!(is_done(&list([100, 1])), Some(true));
    assert_eq!(is_done(&list([100, 0])), Some(false));
    for reply in [list([100]), list([-1, 1]), Reply::Other] {
        assert_eq!(is_done(&reply), None, "{reply:?}");
    }
}

/// A reservation of a budget with a limit of 100.
fn reservation(permit: u64, weight: u32, charge: Charge) -> LeaseUnits {
    LeaseUnits::reserved(units(permit, 100, weight).id, charge)
}

#[test]
fn levels_that_include_budgets_have_their_own_scripts_and_keys() {
    let name = "s:{t:a}60000";
    let rate = reservation(1, 40, Charge::Grant);
    let level = wanted(name, rate, None, Standing::New);
    let flight = wanted("s:{f:a}", units(1, 5, 1), None, Standing::New);
    let (verb, keys, args) = written(&acquire(vec![vec![flight, level]]));
    assert_eq!(verb, Verb::AcquireBudgets);
    assert_eq!(
        keys[4..],
        ["held", "queue", "alive"]
            .map(|key| format!("{name}:{key}"))
            .into_iter()
            .chain(["s:{t:a}:budget".to_owned()])
            .collect::<Vec<_>>()
    );
    let terms = ["5", "100 rate", "1", "p1.1.0.0.5.1.2bc.1z..."];
    assert_eq!(args[6..10], terms);
    let (verb, ..) = written(&acquire(vec![vec![wanted(
        "s:{f:a}",
        units(1, 5, 1),
        None,
        Standing::New,
    )]]));
    assert_eq!(verb, Verb::Acquire);
}

#[test]
fn a_refresh_and_a_release_report_what_is_settled() {
    let name = "s:{t:a}60000";
    let id = "p1.1.0.0.2s.14.2bc.1z...";
    let mut reserved = reservation(1, 40, Charge::Settlement);
    let refreshed = |units: &LeaseUnits| {
        let (verb, keys, args) = written(&refresh(vec![group(name, vec![units.clone()])]));
        assert_eq!((verb, keys.len()), (Verb::RefreshBudgets, 4));
        args[2].clone()
    };
    assert_eq!(refreshed(&reserved), format!("{id} 0"));
    reserved.settle(30);
    reserved.settle(20);
    assert_eq!(refreshed(&reserved), format!("{id} 30"));
    let released = |units: &LeaseUnits| {
        let (verb, _, args) = written(&release(true, vec![group(name, vec![units.clone()])]));
        assert_eq!(verb, Verb::ReleaseBudgets);
        args[3].clone()
    };
    // A claim that was not granted has used nothing.
    let unsettled = reservation(1, 40, Charge::Settlement);
    assert_eq!(released(&unsettled), format!("{id} 0"));
    for (charge, settled, expected) in [
        (Charge::Settlement, None, "40"),
        (Charge::Settlement, Some(0), "0"),
        (Charge::Settlement, Some(50), "50"),
        (Charge::Grant, None, "40"),
    ] {
        let mut ended = reservation(1, 40, charge);
        settled.into_iter().for_each(|used| ended.settle(used));
        ended.settle_rest();
        assert_eq!(released(&ended), format!("{id} {expected}"));
        if let Some(reservation) = &mut ended.reservation {
            reservation.keeps_member = true;
        }
        assert_eq!(released(&ended), format!("{id} {expected} keep"));
    }
}

#[test]
fn a_reservation_is_one_unit_whatever_it_reserves_and_keeps_its_weight_under_a_new_id() {
    let mut units = reservation(1, 40, Charge::Settlement);
    units.settle(7);
    let renewed = units.under(50);
    assert_eq!((renewed.count(), renewed.members()), (1, 1));
    assert_eq!((renewed.id.weight, renewed.id.limit), (40, 50));
    assert_eq!(renewed.reservation, units.reservation);
    assert_eq!(renewed.id.name.generation, 1);
}

#[test]
fn a_refusal_by_a_budget_has_the_time_until_it_has_room() {
    let level = wanted("a", units(1, 9, 1), None, Standing::New);
    let command = acquire(vec![vec![level]]);
    let answered = |items: &[i64]| {
        let items = items.iter().map(|item| int(*item)).collect();
        match command.decode(&Reply::List(vec![int(5), Reply::List(items)])) {
            Some(Answer::Acquired(5, mut answers)) => answers.pop(),
            other => panic!("{other:?}"),
        }
    };
    let ms = Duration::from_millis;
    let full = Acquired::Full {
        level: 0,
        held: 3,
        retry_after: Some(ms(70)),
    };
    assert_eq!(answered(&[0, 1, 3, 70]), Some(full));
    let queued = |pause: Option<u64>, earliest: Option<u64>| {
        Some(Acquired::Queued(Queued {
            level: 0,
            arrival: 8,
            recheck: Some(ms(60)),
            last_token: 0,
            pause: pause.map(ms),
            earliest: earliest.map(ms),
        }))
    };
    assert_eq!(answered(&[-2, 1, 3, 8, 60, 0]), queued(None, None));
    assert_eq!(answered(&[-2, 1, 3, 8, 60, 0, 9]), queued(Some(9), None));
    assert_eq!(
        answered(&[-2, 1, 3, 8, 60, 0, -1, 40]),
        queued(None, Some(40))
    );
    assert_eq!(
        answered(&[-2, 1, 3, 8, 60, 0, 9, -1]),
        queued(Some(9), None)
    );
}
