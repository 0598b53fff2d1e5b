//! Orders of events that the core once handled wrongly, and that the simulation makes too rarely.

use super::*;
use crate::verbs::{Acquired, Command, CommandFault, OperatorLimits, Queued, Standing, Wanted};
use std::time::Duration;

const NOW: Time = Time::from_secs(100);
const RUNTIME: RuntimeId = RuntimeId(1);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A lease of ten seconds, and a timeout of a quarter of a second.
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
        charge: None,
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

/// The answer to an announcement, with limits of this version: none for version 0, else 2 for the key `wide`.
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

/// Token 7, and one unit is held.
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
        earliest: None,
    })
}

/// Sends and answers calls at one time, until the core has none left. A call gets no answer if `answer` returns `None`
/// for one of its commands.
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
    let commands = call.commands.iter();
    let answers: Vec<_> = commands.map(|command| answer(call, command)).collect();
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

/// Rule 21. The narrower key is paused while the claim waits for the wider one, whose limit then changes. So the next
/// try for the wider one has another id.
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

/// Rule 21. While the claim acquires its narrower leases again, a lease of several units is lost, and so gets a new id.
/// The claim has acquired the narrowest lease again already, but its key may be paused before the lost lease is back.
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
        let mut core = ready();
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

/// Rule 3. The first acquire of the widest lease is for a whole lease and has no answer. Later calls are for a shorter
/// time.
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
    let mut core = ready();
    let (root, call) = core.acquire(
        NOW,
        RUNTIME,
        &[waiting_level("a", 0), waiting_level("b", 0)],
    );
    let both = Acquired::Granted(vec![(1, 1), (1, 1)]);
    let call = call.expect("nothing is in flight");
    core.handle_reply(NOW, call.id, Ok(vec![Answer::Acquired(1, vec![both])]));
    // The growths wait while these calls are in flight, and then leave together.
    let busy = ["c", "d"].map(|name| core.acquire(NOW, RUNTIME, &[waiting_level(name, 0)]).1);
    for number in 0..2 {
        core.grow(NOW, RUNTIME, (root, number), (1, 9), Merge::Smallest);
    }
    let growths = core.poll_call(NOW, RUNTIME).expect("both are sent");
    for call in busy {
        let call = call.expect("few are in flight");
        reply(&mut core, NOW, &call, |_, command| works(NOW, command));
    }
    let revoked = Answer::Acquired(1, vec![Acquired::Revoked; 2]);
    core.handle_reply(NOW, growths.id, Ok(vec![revoked]));
    assert!(core.owed_in.is_empty());
}

/// For example, the user of the store may run no script.
#[test]
fn claims_fail_at_a_server_that_does_not_report_its_time_and_do_not_pile_up() {
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
    // The last claims have not reached their deadline, two timeouts after the claim.
    assert!(failed.len() > 1_900 && failed.iter().all(is_failure));
    let waiting: usize = core
        .connections
        .values()
        .map(|connection| connection.queues.len(SendQueue::Claims))
        .sum();
    // A queue of more than 128 entries is cleaned up.
    assert!(waiting < 200, "{waiting} entries");
}

/// Its widest lease was never sent.
#[test]
fn a_claim_that_is_given_up_was_not_held() {
    let mut core = connected(3);
    run(&mut core, NOW, |_, command| works(NOW, command));
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
        |_, command| works(NOW, command),
    );
    let second = [RUNTIME, THREAD].into_iter();
    let mut second = second.filter_map(|runtime| core.poll_call(NOW, runtime));
    let second = second.next().expect("the next lease is acquired");
    core.release(NOW, id, true);
    reply(&mut core, NOW, &second, |_, command| works(NOW, command));
    for step in 0..100 {
        let now = NOW + ms(step);
        run(&mut core, now, |_, command| works(now, command));
    }
    assert_eq!(events(&mut core).last(), Some(&Event::Released(false)));
}

/// Rule 3. The first acquire of the claim has no answer and may still run.
#[test]
fn a_refused_claim_is_released_if_an_earlier_acquire_may_still_run() {
    let mut core = ready();
    let (_, call) = core.acquire(NOW, RUNTIME, &[level("a", 0)]);
    let call = call.expect("nothing is in flight");
    core.handle_reply(NOW, call.id, Err(CallFailure::Broken));
    let mut sent = Vec::new();
    for step in 0..600 {
        let now = NOW + ms(step);
        run(&mut core, now, |_, command| match command {
            Command::Acquire { .. } => {
                sent.push("acquire");
                let full = Acquired::Full {
                    level: 0,
                    held: 1,
                    retry_after: None,
                };
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
    assert_eq!(
        events(&mut core),
        [Event::Refused(Refusal::Full(0, 1, 1, None))]
    );
}

/// A core with one server and a granted permit of these levels.
fn with_permit(levels: &[LevelClaim]) -> (Core, PermitId) {
    let mut core = ready();
    let (id, call) = core.acquire(NOW, RUNTIME, levels);
    let call = call.expect("nothing is in flight");
    reply(&mut core, NOW, &call, |_, command| works(NOW, command));
    events(&mut core);
    (core, id)
}

/// Answers the first refresh with the loss of all units. Returns its time.
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

/// The first level of the first claim of the next acquire.
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
        reply(&mut core, NOW, &call, |_, command| works(NOW, command));
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
        let with_replicas = |command: &Command| match command {
            Command::Confirm { .. } => Some(Answer::Replicas(1)),
            _ => works(NOW, command),
        };
        run(&mut core, NOW, |_, command| with_replicas(command));
        let (id, call) = core.acquire(NOW, RUNTIME, &[waiting_level("a", 0)]);
        let call = call.expect("nothing is in flight");
        reply(&mut core, NOW, &call, |_, command| match command {
            Command::Acquire { .. } => Some(Answer::Acquired(1, vec![queued(None)])),
            _ => with_replicas(command),
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
    run(&mut core, NOW, |_, command| works(NOW, command));
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
        let mut core = ready();
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
        (
            Acquired::Full {
                level: 0,
                held,
                retry_after: None,
            },
            Refusal::Full(1, 5, 7, None),
        ),
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
    for (claimed, is_refused) in [(level("a", 0), true), (waiting_level("a", 0), false)] {
        let mut core = ready();
        let (_, call) = core.acquire(NOW, RUNTIME, &[claimed]);
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
    let mut core = ready();
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

/// A core with one server, which has reported its time and its limits.
fn ready() -> Core {
    let mut core = connected(1);
    run(&mut core, NOW, |_, command| works(NOW, command));
    core
}

/// A level with room for others, so that its release is not urgent.
fn roomy_level(name: &str) -> LevelClaim {
    LevelClaim {
        limit: 1_000,
        ..level(name, 0)
    }
}

/// The names of the semaphores of a call's acquires, in order.
fn acquired_names(call: &Call) -> Vec<String> {
    let claims = call.commands.iter().filter_map(|command| match command {
        Command::Acquire { claims, .. } => Some(claims),
        _ => None,
    });
    let levels = claims.flatten().flatten();
    levels.map(|level| level.name.to_string()).collect()
}

fn is_release(command: &Command) -> bool {
    matches!(command, Command::Release { .. })
}

fn is_refresh(command: &Command) -> bool {
    matches!(command, Command::Refresh { .. })
}

/// Runs a core, whose server answers nothing, until the outage begins. Returns the time.
fn begin_outage(core: &mut Core) -> Time {
    let mut now = NOW;
    while !core.is_in_outage(0) {
        now = core.poll_timeout().expect("it announces itself").max(now);
        assert!(now < NOW + ms(60_000));
        run(core, now, |_, _| None);
    }
    now
}

// The end of a process.

#[test]
fn a_shutdown_sends_a_failed_release_again_without_a_pause() {
    let (mut core, id) = with_permit(&[level("a", 0)]);
    core.release(NOW, id, false);
    let call = core.poll_call(NOW, THREAD).expect("the key is full");
    let again = Answer::Failed(CommandFault::Again);
    core.handle_reply(NOW, call.id, Ok(vec![again]));
    core.handle_timeout(NOW);
    assert!(core.poll_call(NOW, THREAD).is_none());
    core.shutdown();
    core.handle_timeout(NOW);
    let call = core.poll_call(NOW, THREAD).expect("it is due");
    assert!(call.commands.iter().all(is_release));
}

#[test]
fn a_shutdown_refuses_more_claims_than_one_step_visits() {
    let mut core = ready();
    for _ in 0..MOST_DUE * 2 {
        core.acquire(NOW, RUNTIME, &[level("a", 0)]);
    }
    core.shutdown();
    for _ in 0..3 {
        core.handle_timeout(NOW);
    }
    let closed = vec![Event::Refused(Refusal::Closed); MOST_DUE * 2];
    assert_eq!(events(&mut core), closed);
}

#[test]
fn a_process_announces_its_end_to_the_server_that_counts_processes() {
    let mut core = connected(2);
    core.settings.slots_of_store = [1, 1];
    run(&mut core, NOW, |_, command| works(NOW, command));
    core.shutdown();
    let mut left_at = Vec::new();
    run(&mut core, NOW, |call, command| {
        left_at.extend(matches!(command, Command::Leave).then_some(call.server));
        works(NOW, command)
    });
    assert_eq!(left_at, [1]);
    assert!(core.is_idle());
}

#[test]
fn a_process_that_loses_its_connection_before_it_announces_its_end_has_left() {
    let mut core = ready();
    core.shutdown();
    core.handle_timeout(NOW);
    assert!(!core.is_idle());
    core.handle_servers(NOW, Change::Gone(THREAD, 0));
    assert!(core.is_idle());
}

#[test]
fn a_permit_is_unreleased_until_its_release_is_answered() {
    let (mut core, id) = with_permit(&[level("a", 0), level("b", 0)]);
    let unreleased = [("a".into(), 7)];
    assert_eq!(core.unreleased(), unreleased);
    core.release(NOW, id, false);
    assert_eq!(core.unreleased(), unreleased);
    run(&mut core, NOW, |_, command| works(NOW, command));
    assert_eq!(core.unreleased(), []);
}

/// The caller waits for the release of a permit that an operator has revoked.
#[test]
fn the_release_of_an_ended_permit_is_reported() {
    let (mut core, id) = with_permit(&[level("a", 0)]);
    core.handle_message(NOW, Message::Revoked(id.serial));
    core.release(NOW, id, true);
    run(&mut core, NOW, |_, command| works(NOW, command));
    assert_eq!(events(&mut core), [Event::Revoked, Event::Released(true)]);
}

// Releases.

/// Rule 19.
#[test]
fn the_release_of_a_full_key_is_urgent_unless_a_runtime_is_busy() {
    for (is_full, is_busy) in [(true, false), (false, false), (true, true)] {
        let level = if is_full {
            level("a", 0)
        } else {
            roomy_level("a")
        };
        let (mut core, id) = with_permit(&[level]);
        // Makes the runtime busy: four calls, of one, one, two and four claims.
        for _ in 0..if is_busy { 8 } else { 0 } {
            core.acquire(NOW, RUNTIME, &[roomy_level("b")]);
            core.poll_call(NOW, RUNTIME);
        }
        core.release(NOW, id, true);
        assert_eq!(core.has_urgent_releases(), is_full && !is_busy);
    }
}

#[test]
fn a_release_is_urgent_if_a_caller_waits_for_it_and_the_thread_has_received_the_grant() {
    for (from, reports) in [(THREAD, true), (THREAD, false), (RUNTIME, true)] {
        let mut core = ready();
        let (id, call) = core.acquire(NOW, from, &[roomy_level("a")]);
        let call = call.expect("nothing is in flight");
        reply(&mut core, NOW, &call, |_, command| works(NOW, command));
        core.release(NOW, id, reports);
        assert_eq!(core.has_urgent_releases(), from == THREAD && reports);
    }
}

/// Rule 4.
#[test]
fn a_claim_does_not_repeat_a_release_that_was_written_to_its_connection() {
    for was_written in [true, false] {
        let (mut core, id) = with_permit(&[roomy_level("a")]);
        core.release(NOW, id, true);
        let release = core.release_alone(NOW, RUNTIME, id).expect("it is idle");
        if was_written {
            release.progress.note_written();
        }
        let (_, call) = core.acquire(NOW, RUNTIME, &[roomy_level("a")]);
        let call = call.expect("few are in flight");
        assert_eq!(call.commands.iter().any(is_release), !was_written);
    }
}

/// Rule 3. The release runs after the acquire, because both were written to one connection.
#[test]
fn a_release_behind_its_acquire_is_sent_once() {
    let mut core = ready();
    let (id, acquire) = core.acquire(NOW, RUNTIME, &[roomy_level("a")]);
    let acquire = acquire.expect("nothing is in flight");
    acquire.progress.note_written();
    core.release(NOW, id, false);
    let later = NOW + ms(1);
    core.handle_timeout(later);
    let release = core.poll_call(later, RUNTIME).expect("it waits no longer");
    assert!(release.commands.iter().all(is_release));
    reply(&mut core, later, &acquire, |_, command| {
        works(later, command)
    });
    core.handle_timeout(later + ms(1));
    assert!(!core.has_call(RUNTIME) && !core.has_call(THREAD));
}

// Connections and calls.

#[test]
fn an_idle_core_has_no_call() {
    let mut core = ready();
    assert!(!core.has_call(THREAD) && !core.has_call(RUNTIME));
    core.acquire(NOW, RUNTIME, &[level("a", 0)]);
    assert!(!core.has_call(THREAD) && !core.has_call(RUNTIME));
}

#[test]
fn nothing_is_sent_over_a_lost_connection() {
    let (mut core, _) = with_permit(&[level("a", 0)]);
    core.handle_servers(NOW, Change::Gone(THREAD, 0));
    for step in 0..5_000 {
        core.handle_timeout(NOW + ms(step));
        assert!(core.poll_call(NOW + ms(step), THREAD).is_none());
    }
}

#[test]
fn claims_are_stuck_while_they_wait_for_the_lost_connection_of_the_thread() {
    let mut core = ready();
    assert!(!core.is_stuck(0));
    for runtime in [THREAD, RUNTIME] {
        core.handle_servers(NOW, Change::Gone(runtime, 0));
    }
    assert!(!core.is_stuck(0), "no claim waits");
    core.acquire(NOW, RUNTIME, &[level("a", 0)]);
    assert!(core.is_stuck(0));
    core.handle_servers(NOW, Change::Connected(RuntimeId(2), 0));
    assert!(!core.is_stuck(0));
    let call = core.poll_call(NOW, RuntimeId(2)).expect("it takes over");
    assert_eq!(acquired_names(&call), ["a"]);
}

/// Their queue is cleaned up in between, which drops only claims that are over.
#[test]
fn many_claims_that_wait_for_a_connection_are_all_sent() {
    let mut core = ready();
    for runtime in [THREAD, RUNTIME] {
        core.handle_servers(NOW, Change::Gone(runtime, 0));
    }
    for _ in 0..500 {
        core.acquire(NOW, RUNTIME, &[waiting_level("a", 0)]);
    }
    core.handle_servers(NOW, Change::Connected(THREAD, 0));
    let mut sent = 0;
    run(&mut core, NOW, |_, command| {
        if let Command::Acquire { claims, .. } = command {
            sent += claims.len();
        }
        works(NOW, command)
    });
    assert_eq!(sent, 500);
}

/// A script grants them together.
#[test]
fn claims_for_one_semaphore_follow_each_other_in_a_call() {
    let mut core = ready();
    for name in ["x", "y"] {
        let (_, call) = core.acquire(NOW, RUNTIME, &[level(name, 0)]);
        assert!(call.is_some());
    }
    for name in ["a", "b", "a"] {
        core.acquire(NOW, RUNTIME, &[level(name, 0)]);
    }
    let call = core.poll_call(NOW, RUNTIME).expect("claims have gathered");
    assert_eq!(acquired_names(&call), ["a", "a", "b"]);
}

/// Each unit counts as one argument in the size of a call, which is bounded.
#[test]
fn a_call_ends_before_its_arguments_are_too_many_for_a_service() {
    let mut core = ready();
    let heavy = LevelClaim {
        weight: 100,
        ..roomy_level("a")
    };
    for _ in 0..42 {
        core.acquire(NOW, RUNTIME, std::slice::from_ref(&heavy));
    }
    let call = core.poll_call(NOW, RUNTIME).expect("claims have gathered");
    // The first two claims were sent at once. Each of the others counts as 109 of 3,983 arguments.
    assert_eq!(acquired_names(&call).len(), 36);
}

#[test]
fn no_call_leaves_while_the_calls_in_flight_have_many_units() {
    let mut core = ready();
    let heavy = LevelClaim {
        // The bound on the units in flight.
        weight: 12_000,
        limit: 20_000,
        ..level("a", 0)
    };
    let (_, first) = core.acquire(NOW, RUNTIME, &[heavy]);
    let first = first.expect("nothing is in flight");
    let (_, second) = core.acquire(NOW, RUNTIME, &[level("b", 0)]);
    assert!(second.is_none() && core.poll_call(NOW, RUNTIME).is_none());
    reply(&mut core, NOW, &first, |_, command| works(NOW, command));
    assert!(core.poll_call(NOW, RUNTIME).is_some());
}

// Announcements, limits and outages.

#[test]
fn a_separate_command_reads_the_time_until_the_clock_is_known() {
    let mut core = connected(1);
    for (now, reads_time) in [(NOW, true), (NOW + ms(4_000), false)] {
        let mut has_read_time = false;
        run(&mut core, now, |_, command| {
            has_read_time |= matches!(command, Command::Presence(parts) if parts.is_empty());
            works(now, command)
        });
        assert_eq!(has_read_time, reads_time);
    }
}

#[test]
fn the_floor_of_tokens_is_the_time_of_a_server_in_microseconds() {
    let core = ready();
    // The server showed 1,100,000 ms.
    assert_eq!(core.floor(NOW + ms(1_000)), 1_101_000_000);
}

#[test]
fn a_limit_that_is_set_here_is_read_at_once() {
    let mut core = ready();
    let set = NOW + ms(10);
    assert!(core.has_limits_since(NOW) && !core.has_limits_since(set));
    core.look_at_limits(set);
    run(&mut core, set, |_, command| match command {
        Command::Presence(_) => Some(presence(set, 1)),
        _ => works(set, command),
    });
    assert!(core.has_limits_since(set));
    let limits = ["s{wide}", "s{other}"].map(|name| core.limit_of_name(name));
    assert_eq!(limits, [Some(2), None]);
}

#[test]
fn a_changed_limit_causes_no_calls_for_other_semaphores() {
    let (mut core, _) = with_permit(&[level("s{held}", 0)]);
    let (_, call) = core.acquire(NOW, RUNTIME, &[waiting_level("s{waits}", 0)]);
    let queued = Some(Answer::Acquired(1, vec![queued(None)]));
    reply(&mut core, NOW, &call.expect("it is sent"), |_, _| {
        queued.clone()
    });
    let set = NOW + ms(10);
    core.look_at_limits(set);
    for _ in 0..2 {
        run(&mut core, set, |_, command| match command {
            Command::Presence(_) => Some(presence(set, 1)),
            _ => panic!("{command:?}"),
        });
    }
    assert!(core.has_limits_since(set));
}

#[test]
fn a_failed_announcement_is_repeated_after_a_pause_that_grows() {
    let mut core = ready();
    let (mut now, mut gaps, mut last) = (NOW, Vec::new(), None);
    while gaps.len() < 4 {
        now = core.poll_timeout().expect("it announces itself").max(now);
        assert!(now < NOW + ms(10_000));
        core.handle_timeout(now);
        if let Some(call) = core.poll_call(now, THREAD) {
            core.handle_reply(now, call.id, Err(CallFailure::Broken));
            gaps.extend(last.replace(now).map(|last| now - last));
        }
    }
    // Each pause is twice the one before, but at most a timeout.
    assert_eq!(gaps, [100, 200, 250, 250].map(ms));
}

/// The server is not to blame for that.
#[test]
fn an_announcement_whose_task_was_dropped_is_repeated_at_once() {
    let mut core = ready();
    let now = NOW + ms(4_000);
    core.handle_timeout(now);
    let call = core.poll_call(now, THREAD).expect("it announces itself");
    core.handle_reply(now, call.id, Err(CallFailure::Abandoned));
    assert!(core.poll_timeout() <= Some(now));
}

#[test]
fn a_server_that_cannot_work_is_in_an_outage() {
    let mut core = ready();
    let mut now = NOW;
    while !core.is_in_outage(0) {
        now = core.poll_timeout().expect("it announces itself").max(now);
        assert!(now < NOW + ms(10_000));
        run(&mut core, now, |_, _| {
            Some(Answer::Failed(CommandFault::Unavailable))
        });
    }
}

/// Rule 11.
#[test]
fn only_probes_carry_releases_in_an_outage() {
    let (mut core, id) = with_permit(&[level("a", 0)]);
    let mut now = begin_outage(&mut core);
    core.release(now, id, true);
    assert!(core.release_alone(now, RUNTIME, id).is_none());
    let probe = (0..100).find_map(|_| {
        now = core.poll_timeout().expect("it probes").max(now);
        core.handle_timeout(now);
        assert!(core.poll_call(now, RUNTIME).is_none());
        core.poll_call(now, THREAD)
    });
    let commands = probe.expect("it probes").commands;
    assert!(matches!(commands[0], Command::Release { .. }));
    assert!(matches!(commands[1], Command::Presence(_)));
}

#[test]
fn claims_wait_for_a_server_that_no_longer_refuses_connections() {
    let mut core = Core::new(settings());
    for is_denied in [true, false] {
        let change = Change::NotConnected {
            server: 0,
            is_denied,
        };
        core.handle_servers(NOW, change);
    }
    core.acquire(NOW, RUNTIME, &[waiting_level("a", 0)]);
    core.handle_timeout(NOW);
    assert_eq!(events(&mut core), []);
}

#[test]
fn a_permit_within_a_share_reports_the_units_that_the_share_lacks_as_held() {
    let mut core = ready();
    core.settings.policy = OutagePolicy::ShareOf { fraction: 0.5 };
    let now = begin_outage(&mut core);
    let mut claim = || {
        let level = LevelClaim {
            limit: 4,
            ..level("a", 0)
        };
        core.acquire(now, RUNTIME, &[level]);
        let is_decision = |event: &Event| matches!(event, Event::Granted(_) | Event::Refused(_));
        events(&mut core).into_iter().find(is_decision)
    };
    // The share is two of four units, and the first permit leaves one of them.
    assert_eq!(claim(), Some(Event::Granted(vec![(0, 3, 4)])));
    assert_eq!(claim(), Some(Event::Granted(vec![(0, 4, 4)])));
    let refused = Event::Refused(Refusal::Unavailable(0));
    assert_eq!(claim(), Some(refused));
}

/// Rule 12. Two others were sent before the server failed.
#[test]
fn a_claim_beyond_its_share_is_refused_when_it_should_be_sent() {
    let mut core = ready();
    core.settings.policy = OutagePolicy::ShareOf { fraction: 0.5 };
    let claimed = LevelClaim {
        limit: 2,
        ..level("a", 0)
    };
    let mut claim = || core.acquire(NOW, RUNTIME, std::slice::from_ref(&claimed));
    let (_, first) = claim();
    let (_, second) = claim();
    let (waits, unsent) = claim();
    assert!(second.is_some() && unsent.is_none());
    let first = first.expect("nothing was in flight");
    core.handle_reply(NOW, first.id, Err(CallFailure::Broken));
    assert!(core.poll_call(NOW, THREAD).is_none());
    core.handle_timeout(NOW);
    let refused = Event::Refused(Refusal::Unavailable(0));
    assert_eq!(core.poll_event(), Some((waits, refused)));
}

/// The server has just answered, so other processes may not treat it as unavailable.
#[test]
fn a_claim_that_may_fit_into_a_share_outlasts_an_unserved_slot() {
    for is_strict in [true, false] {
        let mut core = ready();
        core.settings.policy = OutagePolicy::ShareOf { fraction: 1.0 };
        let claimed = LevelClaim {
            is_strict,
            ..level("a", 0)
        };
        let (_, call) = core.acquire(NOW, RUNTIME, &[claimed]);
        let unserved = Answer::Failed(CommandFault::Unserved);
        let call = call.expect("nothing is in flight");
        core.handle_reply(NOW, call.id, Ok(vec![unserved]));
        let refused = [Event::Refused(Refusal::Unavailable(0))];
        assert_eq!(events(&mut core), refused[..usize::from(is_strict)]);
    }
}

/// The server works: it has answered the last announcement, and the claim of another caller. So a share is not used
/// yet.
#[test]
fn the_policy_decides_a_claim_whose_slot_is_unserved_at_its_deadline() {
    let admitted = Event::Granted(vec![(0, 1, 1)]);
    let refused = Event::Refused(Refusal::Unavailable(0));
    let share = OutagePolicy::ShareOf { fraction: 1.0 };
    for (policy, expected) in [(OutagePolicy::Admit, admitted), (share, refused)] {
        let mut core = ready();
        core.settings.policy = policy;
        let wait = LevelWait {
            time: ms(100),
            max_waiting: 9,
            head_start: Duration::ZERO,
        };
        let claimed = LevelClaim {
            wait: Some(wait),
            ..level("a", 0)
        };
        let (id, _) = core.acquire(NOW, RUNTIME, &[claimed]);
        let answer = |now, command: &Command| match command {
            Command::Presence(_) => works(now, command),
            _ => None,
        };
        for step in 0..590 {
            let now = NOW + ms(step);
            run(&mut core, now, |_, command| answer(now, command));
        }
        let now = NOW + ms(590);
        let (_, call) = core.acquire(now, RUNTIME, &[level("b", 0)]);
        let unserved = Answer::Failed(CommandFault::Unserved);
        let call = call.expect("nothing is in flight");
        core.handle_reply(now, call.id, Ok(vec![unserved]));
        while core.poll_event().is_some() {}
        // The wait of 100 ms and two timeouts.
        let deadline = NOW + ms(600);
        run(&mut core, deadline, |_, command| answer(deadline, command));
        let mut events = std::iter::from_fn(|| core.poll_event());
        assert!(events.any(|event| event == (id, expected.clone())));
    }
}

// Commands that are sent again.

/// Counts the commands of a kind that a core sends within a second, if each has this answer.
fn count_in_a_second(
    core: &mut Core,
    start: Time,
    is_counted: fn(&Command) -> bool,
    answer: &Answer,
) -> usize {
    let mut count = 0;
    for step in 0..1_000 {
        let now = start + ms(step);
        run(core, now, |_, command| {
            if !is_counted(command) {
                return works(now, command);
            }
            count += 1;
            assert!(count < 100, "{command:?} is sent without a pause");
            Some(answer.clone())
        });
    }
    count
}

fn is_acquire(command: &Command) -> bool {
    matches!(command, Command::Acquire { .. })
}

#[test]
fn a_waiting_claim_that_a_server_cannot_run_is_sent_again_every_20_ms() {
    for fault in [
        CommandFault::Again,
        CommandFault::Interrupted,
        CommandFault::Unserved,
    ] {
        let mut core = ready();
        core.acquire(NOW, RUNTIME, &[waiting_level("a", 0)]);
        let call = core.calls.keys().next().copied().expect("it is sent");
        core.handle_reply(NOW, call, Ok(vec![Answer::Failed(fault)]));
        let count = count_in_a_second(&mut core, NOW, is_acquire, &Answer::Failed(fault));
        // At 20, 40, … 980 ms.
        assert_eq!(count, 49, "{fault:?}");
    }
}

/// A heartbeat is 833 ms.
#[test]
fn all_other_commands_that_a_server_cannot_run_are_sent_again_after_a_heartbeat() {
    for fault in [CommandFault::Unserved, CommandFault::Mistake] {
        let answer = Answer::Failed(fault);
        let (mut core, _) = with_permit(&[level("a", 0)]);
        let now = lose(&mut core);
        let count = count_in_a_second(&mut core, now, is_acquire, &answer);
        assert_eq!(count, 2, "acquires of a lost lease: {fault:?}");

        let (mut core, id) = with_permit(&[level("a", 0)]);
        let now = NOW + ms(1);
        core.handle_message(now, Message::Subscribed);
        let count = count_in_a_second(&mut core, now, is_refresh, &answer);
        assert_eq!(count, 2, "refreshes: {fault:?}");

        core.release(now + ms(1_000), id, false);
        let count = count_in_a_second(&mut core, now + ms(1_000), is_release, &answer);
        assert_eq!(count, 2, "releases: {fault:?}");
    }
}

// Leases.

/// Rule 21 concerns claims with narrower leases.
#[test]
fn a_claim_of_one_lease_is_granted_by_its_first_grant() {
    let mut core = ready();
    let (_, call) = core.acquire(NOW, RUNTIME, &[waiting_level("a", 0)]);
    let mut all_last = Vec::new();
    let mut answer = |_: &Call, command: &Command| match command {
        Command::Acquire { lasts, .. } => {
            all_last.push(*lasts);
            let acquired = match all_last.len() {
                1 => queued(None),
                _ => granted(),
            };
            Some(Answer::Acquired(1, vec![acquired]))
        }
        _ => works(NOW, command),
    };
    reply(&mut core, NOW, &call.expect("it is sent"), &mut answer);
    run(&mut core, NOW + ms(900), answer);
    assert_eq!(all_last, [ms(10_000); 2]);
    let is_grant = |event: &Event| matches!(event, Event::Granted(_));
    assert!(events(&mut core).iter().any(is_grant));
}

/// A lease of ten seconds is refreshed every 3,333.3 ms, and a tick is 208.3 ms. The steps of the test are whole ms.
#[test]
fn refreshes_of_one_tick_are_one_call_a_third_of_a_lease_after_the_grant() {
    let (mut core, _) = with_permit(&[level("a", 0)]);
    let mut refreshed = Vec::new();
    for step in 50..4_000 {
        let now = NOW + ms(step);
        if step == 50 {
            let (_, call) = core.acquire(now, RUNTIME, &[level("b", 0)]);
            let call = call.expect("nothing is in flight");
            reply(&mut core, now, &call, |_, command| works(now, command));
        }
        run(&mut core, now, |_, command| {
            if let Command::Refresh { groups, .. } = command {
                refreshed.push((step, groups.len()));
            }
            works(now, command)
        });
    }
    // The step, and the number of semaphores.
    assert_eq!(refreshed, [(3_334, 2)]);
}

#[test]
fn a_semaphore_counts_as_full_if_it_has_no_room_for_another_such_claim() {
    let mut core = ready();
    let claim = |core: &mut Core, held| {
        let level = LevelClaim {
            limit: 2,
            ..level("a", 0)
        };
        let (id, call) = core.acquire(NOW, RUNTIME, &[level]);
        let granted = Acquired::Granted(vec![(7, held)]);
        let call = call.expect("nothing is in flight");
        core.handle_reply(NOW, call.id, Ok(vec![Answer::Acquired(1, vec![granted])]));
        id
    };
    let first = claim(&mut core, 1);
    assert!(!core.is_full(NOW, first));
    let second = claim(&mut core, 2);
    assert!(core.is_full(NOW, first) && core.is_full(NOW, second));
    assert!(!core.is_full(NOW + ms(10_000), first));
    core.release(NOW, second, false);
    run(&mut core, NOW, |_, command| works(NOW, command));
    assert!(!core.is_full(NOW, second), "it is not held");
}

/// Rule 5.
#[test]
fn a_waiting_claim_acquires_a_lost_lease_again_at_once() {
    let mut core = connected(2);
    run(&mut core, NOW, |_, command| works(NOW, command));
    let levels = [waiting_level("narrow", 0), waiting_level("wide", 1)];
    let (_, call) = core.acquire(NOW, RUNTIME, &levels);
    let mut sent = Vec::new();
    let mut answer = |call: &Call, command: &Command| {
        match command {
            Command::Acquire { .. } => sent.push(("acquire", call.server)),
            Command::Refresh { .. } => sent.push(("refresh", call.server)),
            _ => {}
        }
        match (command, call.server) {
            (Command::Acquire { .. }, 1) => Some(Answer::Acquired(1, vec![queued(None)])),
            (Command::Refresh { .. }, 0) => Some(Answer::Held(vec![false])),
            _ => works(NOW, command),
        }
    };
    reply(&mut core, NOW, &call.expect("it is sent"), &mut answer);
    run(&mut core, NOW, &mut answer);
    core.handle_message(NOW + ms(1), Message::Subscribed);
    run(&mut core, NOW + ms(1), &mut answer);
    let lost = sent.iter().position(|sent| *sent == ("refresh", 0));
    let lost = lost.expect("all refreshes are due");
    assert!(sent[lost..].contains(&("acquire", 0)));
}

/// Rule 8.
#[test]
fn a_lease_that_a_message_has_granted_is_refreshed_after_a_refused_poll() {
    let mut core = ready();
    let (id, call) = core.acquire(NOW, RUNTIME, &[waiting_level("a", 0)]);
    let call = call.expect("nothing is in flight");
    let acquired = Answer::Acquired(1, vec![queued(None)]);
    core.handle_reply(NOW, call.id, Ok(vec![acquired]));
    let now = NOW + ms(900);
    core.handle_timeout(now);
    let poll = core.poll_call(now, THREAD).expect("a heartbeat has passed");
    assert_eq!(acquired_names(&poll), ["a"]);
    let message = Message::Granted(LeaseName::new(id.serial, 0), 9, 1);
    core.handle_message(now, message);
    events(&mut core);
    let full = Acquired::QueueFull { level: 0, held: 1 };
    core.handle_reply(now, poll.id, Ok(vec![Answer::Acquired(1, vec![full])]));
    let call = core.poll_call(now, THREAD).expect("a refresh is due");
    assert!(call.commands.iter().all(is_refresh));
    assert_eq!(events(&mut core), []);
}

/// Rule 6.
#[test]
fn only_a_lost_lease_of_several_units_has_a_new_id() {
    for weight in [1, 2] {
        let claimed = LevelClaim {
            weight,
            ..roomy_level("a")
        };
        let (mut core, _) = with_permit(&[claimed]);
        let now = lose(&mut core);
        let name = next_acquire(&mut core, now).units.id.name;
        assert_eq!(name.is_first(), weight == 1);
    }
}

/// The refresh names units that are given up before the answer.
#[test]
fn a_permit_that_shrinks_during_a_refresh_is_not_lost() {
    let claimed = LevelClaim {
        weight: 3,
        is_strict: true,
        ..roomy_level("a")
    };
    let (mut core, id) = with_permit(&[claimed]);
    let now = NOW + ms(1);
    core.handle_message(now, Message::Subscribed);
    core.handle_timeout(now);
    let refresh = core.poll_call(now, THREAD).expect("a refresh is due");
    core.shrink(now, id, (0, 1));
    reply(&mut core, now, &refresh, |_, command| match command {
        Command::Refresh { .. } => Some(Answer::Held(vec![false])),
        _ => works(now, command),
    });
    let mut is_refreshed = false;
    run(&mut core, now, |_, command| {
        is_refreshed |= is_refresh(command);
        works(now, command)
    });
    assert!(is_refreshed);
    assert!(!events(&mut core).contains(&Event::Lost));
}

#[test]
fn a_claim_reports_once_that_it_waits_at_a_wider_level() {
    let mut core = ready();
    let levels = [waiting_level("narrow", 0), waiting_level("wide", 0)];
    let (_, call) = core.acquire(NOW, RUNTIME, &levels);
    let mut polls = 0;
    let mut answer = |_: &Call, command: &Command| match command {
        Command::Acquire { .. } => {
            polls += 1;
            let Acquired::Queued(queued) = queued(None) else {
                return None;
            };
            let queued = Acquired::Queued(Queued { level: 1, ..queued });
            Some(Answer::Acquired(1, vec![queued]))
        }
        _ => works(NOW, command),
    };
    reply(&mut core, NOW, &call.expect("it is sent"), &mut answer);
    run(&mut core, NOW + ms(900), answer);
    assert_eq!(polls, 2);
    assert_eq!(events(&mut core), [Event::Queued(1)]);
}

/// Rule 13.
#[test]
fn a_growth_merges_the_two_smallest_of_sixteen() {
    let (mut core, root) = with_permit(&[roomy_level("a")]);
    let mut grow = |units, merge| {
        let growth = core.grow(NOW, RUNTIME, (root, 0), (units, 1_000), merge);
        let growth = growth.expect("it is held");
        // The growth with `Merge::Nothing` is not answered, so sixteen are granted.
        if let Some(call) = growth.call.filter(|_| merge == Merge::Smallest) {
            reply(&mut core, NOW, &call, |_, command| works(NOW, command));
        }
        growth.merged
    };
    let merged: Vec<_> = (1..=16).map(|units| grow(units, Merge::Smallest)).collect();
    assert_eq!(merged, [0; 16]);
    assert_eq!(grow(1, Merge::Nothing), 0);
    // The units of the growths of one and of two.
    assert_eq!(grow(1, Merge::Smallest), 3);
}

/// Makes random events: claims, answers that need not fit together, faults, moves of slots, and passing time.
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

    /// Makes one random event.
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

    /// True if a permit is granted, is no growth, and has several units at its first level.
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
                earliest: None,
            }),
            15 => Acquired::Revoked,
            16 => Acquired::Paused { level, left },
            17 => Acquired::QueueFull { level, held },
            _ => Acquired::Full {
                level,
                held,
                retry_after: None,
            },
        }
    }

    /// Checks that no permit of the last step waits to be given up, and that the tables agree with each other.
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
        let mut users = HashMap::<usize, u32>::new();
        let permits = core.permits.iter().map(|permit| &permit.levels);
        let debts = core.debts.iter().map(|debt| &debt.levels);
        for level in permits.chain(debts).flatten() {
            *users.entry(level.key).or_default() += 1;
        }
        for (key, count) in users {
            assert_eq!(core.keys[key].users, count, "the levels of a semaphore");
        }
    }
}

/// A step may end many permits, also those that it visits. Each is given up once, at the end of the step.
#[test]
fn each_step_gives_up_the_permits_that_it_ends_and_leaves_tables_that_agree() {
    for seed in 0..400 {
        let mut disorder = Disorder::new(seed);
        for _ in 0..400 {
            disorder.step();
            disorder.check();
            while disorder.core.poll_event().is_some() {}
        }
    }
}
