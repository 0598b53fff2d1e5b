//! Orders of events that were once wrong. The simulation makes them too rarely.

use super::*;
use crate::verbs::{Acquired, Command, CommandFault, OperatorLimits, Queued, Standing, Wanted};
use std::time::Duration;

const NOW: Time = Time::from_secs(100);
const RUNTIME: RuntimeId = RuntimeId(1);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A lease of ten seconds, and a timeout of a quarter.
pub(super) fn settings() -> CoreSettings {
    CoreSettings {
        lease: ms(10_000),
        timeout: ms(250),
        claims: true,
        ..CoreSettings::default()
    }
}

/// One unit of a limit of one, without a wait.
pub(super) fn level(name: &str, slot: u16) -> LevelClaim {
    LevelClaim {
        name: name.into(),
        slot,
        limit: 1,
        weight: 1,
        wait: None,
        is_strict: false,
        label: None,
        flow: None,
    }
}

fn waiting_level(name: &str, slot: u16) -> LevelClaim {
    let wait = LevelWait {
        time: ms(5_000),
        max_waiting: 9,
        head_start: Duration::ZERO,
    };
    LevelClaim {
        wait: Some(wait),
        ..level(name, slot)
    }
}

/// A core with connections to servers. Each server has the slot of its number.
fn connected(servers: usize) -> Core {
    let mut core = Core::new(settings());
    let slots = (0..servers).map(|server| (server..server + 1, server));
    core.handle_servers(NOW, Change::Slots(slots.collect()));
    for server in 0..servers {
        for runtime in [THREAD, RUNTIME] {
            core.handle_servers(NOW, Change::Connected(runtime, server));
        }
    }
    core
}

fn presence(now: Time, version: u64) -> Answer {
    let limits = match version {
        0 => Vec::new(),
        _ => vec![("wide".into(), 2)],
    };
    let limits = OperatorLimits {
        version,
        first: version,
        limits,
    };
    let server_ms = 1_000_000 + now.as_millis() as u64;
    Answer::Presence(server_ms, None, Some(1), Some(limits))
}

fn granted() -> Acquired {
    Acquired::Granted(vec![(7, 1)])
}

fn queued(pause: Option<Duration>) -> Acquired {
    Acquired::Queued(Queued {
        level: 0,
        arrival: 1,
        recheck: None,
        last_token: 1,
        pause,
    })
}

/// Sends what a core has to send at a time, and answers it, until it sends nothing more. No answer: the call has none.
fn run(core: &mut Core, now: Time, mut answer: impl FnMut(&Call, &Command) -> Option<Answer>) {
    core.handle_timeout(now);
    while let Some(call) = [THREAD, RUNTIME]
        .into_iter()
        .find_map(|runtime| core.poll_call(now, runtime))
    {
        reply(core, now, &call, &mut answer);
    }
}

fn reply(
    core: &mut Core,
    now: Time,
    call: &Call,
    mut answer: impl FnMut(&Call, &Command) -> Option<Answer>,
) {
    let answers: Vec<_> = call.commands.iter().map(|own| answer(call, own)).collect();
    if let Some(answers) = answers.into_iter().collect() {
        core.handle_reply(now, call.id, Ok(answers));
    }
}

/// A server that grants and finds everything.
fn works(now: Time, command: &Command) -> Option<Answer> {
    Some(match command {
        Command::Presence(_) => presence(now, 0),
        Command::Acquire { claims, .. } => {
            Answer::Acquired(1, claims.iter().map(|_| granted()).collect())
        }
        Command::Refresh { groups, .. } => Answer::Held(vec![true; groups.len()]),
        Command::Release { groups, .. } => Answer::Held(vec![true; groups.len()]),
        _ => Answer::Done,
    })
}

fn events(core: &mut Core) -> Vec<Event> {
    std::iter::from_fn(|| core.poll_event())
        .map(|(_, event)| event)
        .collect()
}

/// Rule 21. The narrower key is paused while the claim waits for the wider one, whose limit then changes. So the next try
/// for the wider one has another id.
#[test]
fn a_claim_acquires_its_narrower_lease_again_although_the_wider_one_has_a_new_limit() {
    let mut core = connected(2);
    let (mut narrow, mut wide, mut version) = (0, 0, 0);
    let mut claim = None;
    for step in 0..700 {
        let now = NOW + ms(step);
        if step == 20 {
            let levels = [waiting_level("narrow", 0), waiting_level("s{wide}", 1)];
            claim = core.acquire(now, RUNTIME, &levels).1;
        }
        if step == 300 {
            version = 1;
            core.look_at_limits(now);
        }
        let mut answer = |call: &Call, command: &Command| match command {
            Command::Presence(_) => Some(presence(now, version)),
            Command::Acquire { .. } if call.server == 0 => {
                narrow += 1;
                let acquired = match step < 100 {
                    true => granted(),
                    false => queued(Some(ms(1_000))),
                };
                Some(Answer::Acquired(1, vec![acquired]))
            }
            Command::Acquire { .. } => {
                wide += 1;
                let acquired = if wide == 1 { queued(None) } else { granted() };
                Some(Answer::Acquired(1, vec![acquired]))
            }
            _ => works(now, command),
        };
        if let Some(call) = claim.take() {
            reply(&mut core, now, &call, &mut answer);
        }
        run(&mut core, now, answer);
    }
    assert!(narrow >= 2 && wide >= 2);
    let is_grant = |event: &Event| matches!(event, Event::Granted(_));
    assert!(!events(&mut core).iter().any(is_grant));
}

/// Rule 21. While the claim acquires its narrower leases again, one of them is lost that has several units, and so gets a
/// new id. The claim has passed the narrowest lease already, whose key may be paused before the lost one is back.
#[test]
fn a_claim_acquires_its_narrowest_lease_again_after_the_loss_of_a_heavy_one() {
    let mut core = connected(4);
    let (mut wide, mut is_silent, mut is_lost, mut narrow_after_loss) = (0, false, false, 0);
    let heavy = LevelClaim {
        weight: 2,
        limit: 2,
        ..waiting_level("heavy", 1)
    };
    let (narrow, third, widest) = (
        waiting_level("narrow", 0),
        waiting_level("third", 2),
        waiting_level("widest", 3),
    );
    let mut claim = None;
    for step in 0..3_000 {
        let now = NOW + ms(step);
        if step == 20 {
            let levels = [narrow.clone(), heavy.clone(), third.clone(), widest.clone()];
            claim = core.acquire(now, RUNTIME, &levels).1;
        }
        let was_silent = is_silent;
        let mut answer = |call: &Call, command: &Command| match (command, call.server) {
            (Command::Acquire { .. }, 0) => {
                narrow_after_loss += u32::from(is_lost);
                works(now, command)
            }
            (Command::Acquire { .. }, 2) if wide > 1 && !is_silent => {
                is_silent = true;
                None
            }
            (Command::Acquire { .. }, 3) => {
                wide += 1;
                let acquired = if wide == 1 { queued(None) } else { granted() };
                Some(Answer::Acquired(1, vec![acquired]))
            }
            (Command::Refresh { groups, .. }, 1) if is_silent && !is_lost => {
                is_lost = true;
                Some(Answer::Held(vec![false; groups.len()]))
            }
            _ => works(now, command),
        };
        if let Some(call) = claim.take() {
            reply(&mut core, now, &call, &mut answer);
        }
        run(&mut core, now, answer);
        if is_silent && !was_silent {
            // Makes all refreshes due.
            core.handle_message(now, Message::Subscribed);
        }
    }
    let is_grant = |event: &Event| matches!(event, Event::Granted(_));
    assert!(is_lost && events(&mut core).iter().any(is_grant));
    assert!(narrow_after_loss > 0);
}

/// Rule 4. One release is slow on another connection, and one on this connection has not run.
#[test]
fn a_claim_follows_a_release_that_did_not_run() {
    for not_run in [Answer::NotRun, Answer::Failed(CommandFault::Again)] {
        let mut core = connected(1);
        run(&mut core, NOW, |_, own| works(NOW, own));
        let (first, call) = core.acquire(NOW, RUNTIME, &[waiting_level("a", 0)]);
        call.expect("nothing is in flight").progress.note_written();
        core.release(NOW, first, false);
        let (_, slow) = core.acquire(NOW, RUNTIME, &[waiting_level("b", 0)]);
        slow.expect("it carries the release")
            .progress
            .note_written();
        // A runtime without a connection. The thread sends its claim, behind a second release.
        core.acquire(NOW, RuntimeId(2), &[waiting_level("a", 0)]);
        let both = core.poll_call(NOW, THREAD).expect("it is sent");
        both.progress.note_written();
        let answers = vec![not_run; both.commands.len()];
        core.handle_reply(NOW, both.id, Ok(answers));
        let mut sent = Vec::new();
        for step in 0..100 {
            let now = NOW + ms(step);
            run(&mut core, now, |_, command| {
                sent.push(match command {
                    Command::Release { .. } => "release",
                    Command::Acquire { .. } => "acquire",
                    _ => return works(now, command),
                });
                None
            });
        }
        assert_eq!(sent[..2], ["release", "acquire"]);
    }
}

/// Rule 3. The first acquire of the widest lease lasts for a lease and has no answer, later calls are shorter.
#[test]
fn a_debt_is_remembered_as_long_as_a_call_without_an_answer_may_last() {
    let mut core = connected(2);
    let (mut narrow, mut wide, mut until) = (0, 0, Time::ZERO);
    let (mut claim, mut released) = (None, None);
    for step in 0..15_000 {
        let now = NOW + ms(step);
        if step == 20 {
            let levels = [waiting_level("narrow", 0), waiting_level("s{wide}", 1)];
            claim = Some(core.acquire(now, RUNTIME, &levels));
        }
        let mut is_refreshed = false;
        let mut answer = |call: &Call, command: &Command| match command {
            _ if released.is_some() && call.server == 1 => None,
            Command::Acquire { .. } if call.server == 0 => {
                narrow += 1;
                (narrow == 1).then(|| Answer::Acquired(1, vec![granted()]))
            }
            Command::Acquire { lasts, .. } => {
                wide += 1;
                until = until.max(now + *lasts);
                (wide > 1).then(|| Answer::Acquired(1, vec![granted()]))
            }
            Command::Refresh { lasts, .. } if call.server == 1 => {
                until = until.max(now + *lasts);
                is_refreshed = true;
                works(now, command)
            }
            _ => works(now, command),
        };
        if let Some(call) = claim.as_mut().and_then(|(_, call)| call.take()) {
            reply(&mut core, now, &call, &mut answer);
        }
        run(&mut core, now, answer);
        if is_refreshed && released.is_none() {
            released = Some(now);
            core.release(now, claim.as_ref().expect("it claims").0, true);
        }
        assert!(released.is_none() || now >= until || !core.is_forgotten());
    }
    assert!(released.is_some() && core.is_forgotten());
}

/// Two growths of a permit are in one call, and the answer to the first reports a revocation.
#[test]
fn an_answer_that_ends_a_permit_leaves_nothing_of_its_call() {
    let mut core = connected(1);
    run(&mut core, NOW, |_, own| works(NOW, own));
    let (root, call) = core.acquire(
        NOW,
        RUNTIME,
        &[waiting_level("a", 0), waiting_level("b", 0)],
    );
    let both = Acquired::Granted(vec![(1, 1), (1, 1)]);
    let call = call.expect("nothing is in flight");
    core.handle_reply(NOW, call.id, Ok(vec![Answer::Acquired(1, vec![both])]));
    // The growths wait for these calls, and then leave together.
    let busy = ["c", "d"].map(|name| core.acquire(NOW, RUNTIME, &[waiting_level(name, 0)]).1);
    for number in 0..2 {
        core.grow(NOW, RUNTIME, (root, number), (1, 9), Merge::Smallest);
    }
    let growths = core.poll_call(NOW, RUNTIME).expect("both are sent");
    for call in busy {
        let call = call.expect("few are in flight");
        reply(&mut core, NOW, &call, |_, own| works(NOW, own));
    }
    let revoked = Answer::Acquired(1, vec![Acquired::Revoked; 2]);
    core.handle_reply(NOW, growths.id, Ok(vec![revoked]));
    assert!(core.owed_in.is_empty());
}

/// For example, its user may run no script.
#[test]
fn claims_fail_at_a_server_that_does_not_report_its_time_and_leave_little() {
    let mut core = connected(1);
    for step in 0..2_000 {
        let now = NOW + ms(step * 10);
        core.acquire(now, RUNTIME, &[level("a", 0)]);
        run(&mut core, now, |_, _| {
            Some(Answer::Failed(CommandFault::Mistake))
        });
    }
    let failed = events(&mut core);
    let is_failure = |event: &Event| matches!(event, Event::Refused(Refusal::Failed(0)));
    assert!(failed.len() > 1_900 && failed.iter().all(is_failure));
    let waiting: usize = core
        .connections
        .values()
        .map(|connection| connection.queues.len(SendQueue::Claims))
        .sum();
    assert!(waiting < 200, "{waiting} entries");
}

/// Its widest lease was never sent.
#[test]
fn a_claim_that_is_given_up_was_not_held() {
    let mut core = connected(3);
    run(&mut core, NOW, |_, own| works(NOW, own));
    let levels = [
        waiting_level("a", 0),
        waiting_level("b", 1),
        waiting_level("c", 2),
    ];
    let (id, call) = core.acquire(NOW, RUNTIME, &levels);
    reply(
        &mut core,
        NOW,
        &call.expect("nothing is in flight"),
        |_, own| works(NOW, own),
    );
    let second = [RUNTIME, THREAD].into_iter();
    let mut second = second.filter_map(|runtime| core.poll_call(NOW, runtime));
    let second = second.next().expect("the next lease is acquired");
    core.release(NOW, id, true);
    reply(&mut core, NOW, &second, |_, own| works(NOW, own));
    for step in 0..100 {
        run(&mut core, NOW + ms(step), |_, own| {
            works(NOW + ms(step), own)
        });
    }
    assert_eq!(events(&mut core).last(), Some(&Event::Released(false)));
}

/// Rule 3. The first acquire of the claim has no answer and may still run.
#[test]
fn a_refused_claim_is_released_if_an_earlier_acquire_may_still_run() {
    let mut core = connected(1);
    run(&mut core, NOW, |_, own| works(NOW, own));
    let (_, call) = core.acquire(NOW, RUNTIME, &[level("a", 0)]);
    let call = call.expect("nothing is in flight");
    core.handle_reply(NOW, call.id, Err(CallFailure::Broken));
    let mut sent = Vec::new();
    for step in 0..600 {
        let now = NOW + ms(step);
        run(&mut core, now, |_, command| match command {
            Command::Acquire { .. } => {
                sent.push("acquire");
                let full = Acquired::Full { level: 0, held: 1 };
                Some(Answer::Acquired(1, vec![full]))
            }
            Command::Release { .. } => {
                sent.push("release");
                works(now, command)
            }
            _ => works(now, command),
        });
    }
    assert_eq!(sent[..2], ["acquire", "release"]);
    assert_eq!(events(&mut core), [Event::Refused(Refusal::Full(0, 1, 1))]);
}

/// A core with a granted permit of these levels, all on one server.
fn with_permit(levels: &[LevelClaim]) -> (Core, PermitId) {
    let mut core = connected(1);
    run(&mut core, NOW, |_, own| works(NOW, own));
    let (id, call) = core.acquire(NOW, RUNTIME, levels);
    let call = call.expect("nothing is in flight");
    reply(&mut core, NOW, &call, |_, own| works(NOW, own));
    events(&mut core);
    (core, id)
}

/// Answers the first refresh: the server has none of the units. Returns the time.
fn lose(core: &mut Core) -> Time {
    for step in 0..10_000 {
        let now = NOW + ms(step);
        core.handle_timeout(now);
        while let Some(call) = core.poll_call(now, THREAD) {
            let is_refresh = |command: &Command| matches!(command, Command::Refresh { .. });
            let is_refreshed = call.commands.iter().any(is_refresh);
            reply(core, now, &call, |_, command| match command {
                Command::Refresh { groups, .. } => Some(Answer::Held(vec![false; groups.len()])),
                _ => works(now, command),
            });
            if is_refreshed {
                return now;
            }
        }
    }
    panic!("nothing is refreshed");
}

/// The units of the next acquire.
fn next_acquire(core: &mut Core, now: Time) -> Wanted {
    let call = core.poll_call(now, THREAD).expect("the lost lease is due");
    let claims = call.commands.into_iter().find_map(|command| match command {
        Command::Acquire { claims, .. } => Some(claims),
        _ => None,
    });
    claims.expect("an acquire").remove(0).remove(0)
}

/// Rule 6.
#[test]
fn the_holder_of_a_strict_permit_is_notified_before_its_lost_lease_is_acquired_again() {
    for is_strict in [true, false] {
        let level = LevelClaim {
            is_strict,
            ..level("a", 0)
        };
        let (mut core, _) = with_permit(&[level]);
        lose(&mut core);
        let lost = [Event::Lost];
        assert_eq!(events(&mut core), lost[..usize::from(is_strict)]);
    }
}

/// Otherwise a pause, or claims that wait, would keep it away.
#[test]
fn a_lost_lease_is_acquired_as_one_that_was_granted() {
    let (mut core, _) = with_permit(&[level("a", 0)]);
    let now = lose(&mut core);
    assert_eq!(next_acquire(&mut core, now).standing, Standing::Granted);
}

/// Rule 13. An acquire takes all units that its id was made with.
#[test]
fn a_lost_lease_that_shrinks_before_it_is_sent_again_has_an_id_of_fewer_units() {
    let heavy = LevelClaim {
        weight: 3,
        limit: 9,
        ..level("a", 0)
    };
    let (mut core, id) = with_permit(&[heavy]);
    let now = lose(&mut core);
    core.shrink(now, id, (0, 1));
    let units = next_acquire(&mut core, now).units;
    assert_eq!((units.count(), units.id.weight), (2, 2));
}

/// Rule 13.
#[test]
fn a_permit_was_held_only_if_its_growth_was() {
    let roomy = LevelClaim {
        limit: 9,
        ..level("a", 0)
    };
    for growth_was_held in [true, false] {
        let (mut core, root) = with_permit(std::slice::from_ref(&roomy));
        let growth = core.grow(NOW, RUNTIME, (root, 0), (1, 9), Merge::Smallest);
        let call = growth.and_then(|growth| growth.call);
        let call = call.expect("nothing is in flight");
        reply(&mut core, NOW, &call, |_, own| works(NOW, own));
        core.release(NOW, root, true);
        for step in 0..100 {
            let now = NOW + ms(step);
            run(&mut core, now, |_, command| match command {
                Command::Release { groups, .. } => {
                    let units = groups.iter().flat_map(|group| &group.permits);
                    let is_root = units.map(|units| units.id.name.lease == 0);
                    Some(Answer::Held(
                        is_root.map(|is_root| is_root || growth_was_held).collect(),
                    ))
                }
                _ => works(now, command),
            });
        }
        let released = Event::Released(growth_was_held);
        assert_eq!(events(&mut core).last(), Some(&released));
    }
}

/// Rule 8.
#[test]
fn a_message_does_not_grant_what_replicas_may_lack() {
    for replicas in [0, 1] {
        let mut core = connected(1);
        core.settings.replicas = replicas;
        let with_replicas = |own: &Command| match own {
            Command::Confirm { .. } => Some(Answer::Replicas(1)),
            _ => works(NOW, own),
        };
        run(&mut core, NOW, |_, own| with_replicas(own));
        let (id, call) = core.acquire(NOW, RUNTIME, &[waiting_level("a", 0)]);
        let call = call.expect("nothing is in flight");
        reply(&mut core, NOW, &call, |_, own| match own {
            Command::Acquire { .. } => Some(Answer::Acquired(1, vec![queued(None)])),
            _ => with_replicas(own),
        });
        let message = Message::Granted(LeaseName::new(id.serial, 0), 9, 1);
        core.handle_message(NOW, message);
        let is_grant = |event: &Event| matches!(event, Event::Granted(_));
        assert_eq!(events(&mut core).iter().any(is_grant), replicas == 0);
    }
}

/// Rule 14.
#[test]
fn a_claim_that_waits_for_a_lost_server_is_sent_to_the_one_that_its_slot_moves_to() {
    let mut core = connected(2);
    run(&mut core, NOW, |_, own| works(NOW, own));
    for runtime in [THREAD, RUNTIME] {
        core.handle_servers(NOW, Change::Gone(runtime, 0));
    }
    let (_, call) = core.acquire(NOW, RUNTIME, &[level("a", 0)]);
    assert!(call.is_none());
    core.handle_servers(NOW, Change::Slots(vec![(0..1, 1)]));
    let mut acquired_at = Vec::new();
    run(&mut core, NOW, |call, command| {
        let is_acquire = matches!(command, Command::Acquire { .. });
        acquired_at.extend(is_acquire.then_some(call.server));
        works(NOW, command)
    });
    assert_eq!(acquired_at, [1]);
}

/// Rule 3. A server that has refused to run the acquires has nothing of the claim.
#[test]
fn a_claim_whose_acquires_did_not_run_leaves_nothing() {
    let faults = [
        CommandFault::Again,
        CommandFault::Unserved,
        CommandFault::Moved(0),
        CommandFault::Ask(0),
    ];
    let answers = faults.map(Answer::Failed).into_iter();
    let answers = answers.chain([Answer::NotRun, Answer::Late(1)]);
    for (answer, is_answered_first) in
        answers.flat_map(|answer| [(answer.clone(), true), (answer, false)])
    {
        let mut core = connected(1);
        run(&mut core, NOW, |_, own| works(NOW, own));
        let (id, call) = core.acquire(NOW, RUNTIME, &[level("a", 0)]);
        let call = call.expect("nothing is in flight");
        if !is_answered_first {
            core.release(NOW, id, true);
        }
        core.handle_reply(NOW, call.id, Ok(vec![answer.clone()]));
        if is_answered_first {
            core.release(NOW, id, true);
        }
        assert!(core.is_forgotten(), "{answer:?}, {is_answered_first}");
        assert_eq!(events(&mut core).last(), Some(&Event::Released(false)));
    }
}

/// A server counts the levels of a lease, and callers those of the permit. Here the second lease has one level.
#[test]
fn a_refusal_names_the_level_of_the_permit_and_its_limit() {
    let wide = LevelClaim {
        limit: 7,
        ..level("wide", 1)
    };
    let (held, left) = (5, ms(40));
    let refusals = [
        (Acquired::Full { level: 0, held }, Refusal::Full(1, 5, 7)),
        (
            Acquired::QueueFull { level: 0, held },
            Refusal::QueueFull(1, 7),
        ),
        (
            Acquired::Paused { level: 0, left },
            Refusal::Paused(1, 7, left),
        ),
    ];
    for (answer, refusal) in refusals {
        let mut core = connected(2);
        run(&mut core, NOW, |_, command| works(NOW, command));
        let (_, call) = core.acquire(NOW, RUNTIME, &[level("narrow", 0), wide.clone()]);
        let call = call.expect("the first lease is sent");
        reply(&mut core, NOW, &call, |_, command| works(NOW, command));
        run(&mut core, NOW, |call, command| match command {
            Command::Acquire { .. } if call.server == 1 => {
                Some(Answer::Acquired(1, vec![answer.clone()]))
            }
            _ => works(NOW, command),
        });
        assert_eq!(events(&mut core), [Event::Refused(refusal)]);
    }
}

#[test]
fn a_claim_that_a_server_cannot_decide_is_refused_at_once_unless_it_waits() {
    for (own, is_refused) in [(level("a", 0), true), (waiting_level("a", 0), false)] {
        let mut core = connected(1);
        run(&mut core, NOW, |_, command| works(NOW, command));
        let (_, call) = core.acquire(NOW, RUNTIME, &[own]);
        let failed = Answer::Failed(CommandFault::Unserved);
        reply(&mut core, NOW, &call.expect("it is sent"), |_, _| {
            Some(failed.clone())
        });
        let refused = [Event::Refused(Refusal::Unavailable(0))];
        assert_eq!(events(&mut core), refused[..usize::from(is_refused)]);
    }
}

#[test]
fn an_outage_and_its_late_server_are_reported_once_and_so_is_its_end() {
    let mut core = connected(1);
    run(&mut core, NOW, |_, command| works(NOW, command));
    let mut now = NOW;
    while core.poll_outage() != Some((0, Outage::Begins)) {
        now = core.poll_timeout().expect("it announces itself").max(now);
        assert!(now < NOW + ms(60_000));
        run(&mut core, now, |_, _| None);
    }
    assert!(core.is_in_outage(0));
    assert_eq!(
        [core.poll_late_server(), core.poll_late_server()],
        [Some(0), None]
    );
    while core.is_in_outage(0) {
        now = core.poll_timeout().expect("it probes").max(now);
        assert!(now < NOW + ms(120_000));
        run(&mut core, now, |_, command| works(now, command));
    }
    let ended = Some((0, Outage::Ends { works: true }));
    assert_eq!([core.poll_outage(), core.poll_outage()], [ended, None]);
}

/// Rule 17.
#[test]
fn a_task_sends_the_release_that_it_waits_for_unless_another_task_waits_for_one() {
    let (mut core, first) = with_permit(&[level("a", 0)]);
    let (second, call) = core.acquire(NOW, RUNTIME, &[level("b", 0)]);
    let call = call.expect("it is sent");
    reply(&mut core, NOW, &call, |_, command| works(NOW, command));
    core.release(NOW, first, true);
    core.release(NOW, second, true);
    assert!(core.release_alone(NOW, RUNTIME, second).is_none());
    let (mut core, only) = with_permit(&[level("a", 0)]);
    core.release(NOW, only, true);
    let call = core.release_alone(NOW, RUNTIME, only);
    let commands = call.expect("nothing else waits").commands;
    assert!(matches!(commands[..], [Command::Release { .. }]));
}

#[test]
fn a_claim_is_refused_if_its_server_refuses_connections() {
    let mut core = Core::new(settings());
    let denial = Change::NotConnected {
        server: 0,
        is_denied: true,
    };
    core.handle_servers(NOW, denial);
    core.acquire(NOW, RUNTIME, &[waiting_level("a", 0)]);
    assert_eq!(events(&mut core), [Event::Refused(Refusal::Failed(0))]);
}

/// Events in a random order: claims, answers that fit nothing, faults, moves, and passing time.
struct Disorder {
    core: Core,
    random: fastrand::Rng,
    now: Time,
    permits: Vec<PermitId>,
    calls: Vec<Call>,
}

impl Disorder {
    const SERVERS: usize = 2;
    const RUNTIMES: [RuntimeId; 2] = [THREAD, RUNTIME];

    fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let mut core = connected(Self::SERVERS);
        core.settings.policy = [
            OutagePolicy::Refuse,
            OutagePolicy::Admit,
            OutagePolicy::Share,
        ][seed as usize % 3];
        core.settings.replicas = u32::from(seed.is_multiple_of(5));
        Self {
            core,
            random,
            now: NOW,
            permits: Vec::new(),
            calls: Vec::new(),
        }
    }

    fn level(&mut self) -> LevelClaim {
        let (slot, number) = (self.random.u16(0..2), self.random.u8(0..3));
        let name = format!("s{{{slot}-{number}}}");
        let new = [level, waiting_level][self.random.usize(0..2)];
        LevelClaim {
            weight: self.random.u32(1..4),
            limit: self.random.u32(3..6),
            is_strict: self.random.u8(0..4) == 0,
            ..new(&name, slot)
        }
    }

    /// One entry to the core.
    fn step(&mut self) {
        let now = self.now;
        let runtime = Self::RUNTIMES[self.random.usize(0..2)];
        let permit = self.random.choice(&self.permits).copied();
        match (self.random.u8(0..100), permit) {
            (0..15, _) => {
                let levels: Vec<_> = (0..self.random.usize(1..4)).map(|_| self.level()).collect();
                let (id, call) = self.core.acquire(now, runtime, &levels);
                self.permits.push(id);
                self.calls.extend(call);
            }
            (15..20, Some(id)) => self.core.release(now, id, self.random.bool()),
            (20..26, Some(id)) if self.is_granted_root(id) => {
                let growth = self
                    .core
                    .grow(now, runtime, (id, 0), (1, 9), Merge::Smallest);
                let growth = growth.expect("it is granted");
                self.permits.push(growth.id);
                self.calls.extend(growth.call);
            }
            (26..30, Some(id)) if self.is_divisible(id) => {
                let parts = self.core.shrink(now, id, (0, 1));
                self.permits.extend(parts.expect("it is granted"));
            }
            (30..34, Some(id)) => {
                let name = LeaseName::new(id.serial, 0);
                let token = self.random.u64(0..9);
                let message = Message::Granted(name, token, 1);
                self.core.handle_message(now, message);
            }
            (34..36, Some(id)) => {
                self.core.handle_message(now, Message::Revoked(id.serial));
            }
            (36..40, _) => self.change_servers(runtime),
            (40..65, _) => self.answer(),
            (65..66, _) if self.random.u8(0..9) == 0 => self.core.shutdown(),
            (66..80, _) => self.calls.extend(self.core.poll_call(now, runtime)),
            _ => {
                self.now += ms(self.random.u64(0..300));
                self.core.handle_timeout(self.now);
            }
        }
    }

    /// True if a permit is granted and no growth. Only such permits are grown and shrunk.
    fn is_granted_root(&self, id: PermitId) -> bool {
        let permit = self.core.permits.get(id);
        permit.is_some_and(|permit| permit.is_granted() && permit.adds_to.is_none())
    }

    /// True if such a permit has units to spare at its first level.
    fn is_divisible(&self, id: PermitId) -> bool {
        self.is_granted_root(id) && self.core.permits[id].levels[0].units.count() > 1
    }

    fn change_servers(&mut self, runtime: RuntimeId) {
        let server = self.random.usize(0..Self::SERVERS);
        let slot = self.random.usize(0..2);
        let change = match self.random.u8(0..5) {
            0 => Change::Gone(runtime, server),
            1 => Change::Slots(vec![(slot..slot + 1, server)]),
            2 => Change::NotConnected {
                server,
                is_denied: self.random.bool(),
            },
            3 => Change::Replaced(runtime, server),
            _ => Change::Connected(runtime, server),
        };
        self.core.handle_servers(self.now, change);
    }

    /// Answers a call, or reports its failure. Calls are answered in any order.
    fn answer(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let call = self
            .calls
            .swap_remove(self.random.usize(0..self.calls.len()));
        let failures = [
            CallFailure::TimedOut,
            CallFailure::Broken,
            CallFailure::NotConnected,
        ];
        let answers = match self.random.usize(0..12) {
            failure @ 0..3 => Err(failures[failure]),
            _ => Ok(call
                .commands
                .iter()
                .map(|command| self.answer_to(command))
                .collect()),
        };
        self.core.handle_reply(self.now, call.id, answers);
    }

    fn answer_to(&mut self, command: &Command) -> Answer {
        match self.random.u8(0..40) {
            0 => return Answer::NotRun,
            1 => return Answer::Failed(CommandFault::Mistake),
            2 => return Answer::Failed(CommandFault::Moved(self.random.usize(0..Self::SERVERS))),
            3 => return Answer::Failed(CommandFault::Ask(self.random.usize(0..Self::SERVERS))),
            4 => return Answer::Failed(CommandFault::Unserved),
            5 => return Answer::Failed(CommandFault::Unavailable),
            6 => return Answer::Failed(CommandFault::Interrupted),
            _ => {}
        }
        let time = 1_000_000 + self.now.as_millis() as u64;
        match command {
            Command::Acquire { claims, .. } => {
                let each = claims.iter().map(|claim| self.outcome(claim.len()));
                Answer::Acquired(time, each.collect())
            }
            Command::Refresh { groups, .. } | Command::Release { groups, .. } => {
                let units = groups.iter().flat_map(|group| &group.permits);
                Answer::Held(units.map(|_| self.random.u8(0..8) > 0).collect())
            }
            Command::Presence(_) => presence(self.now, self.random.u64(0..2)),
            Command::Confirm { .. } => Answer::Replicas(self.random.u32(0..2)),
            Command::Leave | Command::Asking => Answer::Done,
        }
    }

    fn outcome(&mut self, levels: usize) -> Acquired {
        let level = self.random.usize(0..levels);
        let (held, left) = (self.random.u32(0..9), ms(self.random.u64(0..900)));
        match self.random.u8(0..20) {
            0..11 => Acquired::Granted(vec![(self.random.u64(1..9), held); levels]),
            11..15 => Acquired::Queued(Queued {
                level,
                arrival: 1,
                recheck: self.random.bool().then_some(left),
                last_token: self.random.u64(0..9),
                pause: self.random.bool().then_some(left),
            }),
            15 => Acquired::Revoked,
            16 => Acquired::Paused { level, left },
            17 => Acquired::QueueFull { level, held },
            _ => Acquired::Full { level, held },
        }
    }

    /// Nothing is left of an entry, and the tables agree with each other.
    fn check(&self) {
        let core = &self.core;
        assert!(
            core.ended.is_empty(),
            "a permit has ended and was not given up"
        );
        let mut timers = 0;
        for permit in core.permits.iter() {
            let is_given_up = permit.leases.is_empty() && permit.levels.is_empty();
            assert_eq!(permit.has_ended(), is_given_up, "{permit:?}");
            timers += usize::from(permit.scheduled.is_some());
            let debts = permit.ended().into_iter().flat_map(|ended| &ended.debts);
            for debt in debts {
                assert_eq!(core.debts[*debt].permit, Some(permit.id));
            }
        }
        timers += core
            .debts
            .iter()
            .filter(|debt| debt.scheduled.is_some())
            .count();
        assert_eq!(core.timers.len(), timers, "each timer belongs to its owner");
        let mut leases = HashMap::<usize, u32>::new();
        let permits = core.permits.iter().map(|permit| &permit.levels);
        let debts = core.debts.iter().map(|debt| &debt.levels);
        for level in permits.chain(debts).flatten() {
            *leases.entry(level.key).or_default() += 1;
        }
        for (key, count) in leases {
            assert_eq!(core.keys[key].users, count, "the levels of a semaphore");
        }
    }
}

/// An entry may end many permits, also those that it visits. Each is given up by the end of the entry, and once.
#[test]
fn each_entry_gives_up_what_it_ends_and_leaves_tables_that_agree() {
    for seed in 0..400 {
        let mut disorder = Disorder::new(seed);
        for _ in 0..400 {
            disorder.step();
            disorder.check();
            while disorder.core.poll_event().is_some() {}
        }
    }
}
