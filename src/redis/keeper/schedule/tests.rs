use super::*;
use crate::redis::protocol::PermitId;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A schedule with one lease that was granted just now for a minute.
fn schedule() -> (Schedule, Arc<Lease>) {
    let mut schedule = Schedule::new(Times::new(60 * SECOND, SECOND));
    let (serial, limit, weight) = (1, 1, 1);
    let permit = PermitId::new(serial, limit, weight);
    let lease = Arc::new(Lease::new("p{c:a}".into(), permit));
    lease.granted(1, schedule.times.held_until(Instant::now()));
    schedule.adopt(vec![Arc::clone(&lease)]);
    (schedule, lease)
}

const MINUTE: Duration = Duration::from_secs(60);

/// Ticks of which the first follows later.
fn later() -> Range<Instant> {
    let start = Instant::now() + SECOND;
    start..start + SECOND
}

/// Ticks around now.
fn around() -> Range<Instant> {
    let start = Instant::now();
    start - SECOND..start + SECOND
}

#[test]
fn a_suspended_machine_ends_leases_sooner() {
    let (mut schedule, lease) = schedule();
    assert!(schedule.note(Gap::Suspended(MINUTE), later()));
    assert!(lease.is_past(schedule.times.now(), 0));
}

#[test]
fn a_lease_that_may_have_been_granted_since_a_suspension_ends_no_sooner() {
    let (mut schedule, lease) = schedule();
    assert!(schedule.note(Gap::Suspended(MINUTE), around()));
    assert!(!lease.is_past(schedule.times.now(), 0));
}

#[test]
fn a_lease_that_is_answered_after_a_suspension_ends_sooner_if_it_was_claimed_before() {
    let (mut schedule, lease) = schedule();
    schedule.slots.iter_mut().for_each(Leases::clear);
    assert!(schedule.note(Gap::Suspended(MINUTE), later()));
    assert_eq!(schedule.adopt(vec![Arc::clone(&lease)]).len(), 1);
    assert!(lease.is_past(schedule.times.now(), 0));
}

#[test]
fn a_doubt_counts_only_for_a_lease_that_the_server_could_be_asked_neither_time() {
    for gap in [Gap::Suspended(MINUTE), Gap::Doubtful(MINUTE)] {
        let (mut schedule, lease) = schedule();
        assert!(schedule.note(gap, around()));
        schedule.refreshed(vec![Arc::clone(&lease)]);
        assert!(!lease.is_lost());
        schedule.refreshed_again(vec![Arc::clone(&lease)], |_| 0);
        assert!(lease.is_lost());
    }
}

#[test]
fn a_doubt_counts_for_no_lease_whose_end_is_known() {
    let (mut schedule, lease) = schedule();
    assert!(schedule.note(Gap::Suspended(MINUTE / 2), later()));
    for _ in 0..2 {
        schedule.refreshed_again(vec![Arc::clone(&lease)], |_| 0);
    }
    assert!(!lease.is_lost());
}

#[test]
fn a_lease_is_watched_once_however_often_its_refresh_fails() {
    let (mut schedule, lease) = schedule();
    for _ in 0..1_000 {
        schedule.watch(&[Arc::clone(&lease)]);
        schedule.refreshed_again(vec![Arc::clone(&lease)], |_| 0);
        schedule.expire(Instant::now(), |_| 0);
        let now = schedule.retry_at;
        schedule.retries(now);
    }
    assert_eq!(schedule.watched.len(), 1);
}

/// Each tick another slot is due, and fails: a node is dead.
#[test]
fn a_failed_refresh_is_sent_again_although_those_of_other_slots_fail_too() {
    let (mut schedule, lease) = schedule();
    let tick = schedule.times.tick();
    let mut retries = 0;
    for number in 0..40 {
        let (elapsed, before) = (tick * number, schedule.retry_at);
        schedule.refreshed(vec![Arc::clone(&lease)]);
        if schedule.retry_at != before {
            // The ticks are simulated, and `refreshed` counts from the real clock.
            schedule.retry_at += elapsed;
        }
        let now = Instant::now() + elapsed + tick;
        retries += usize::from(!schedule.retries(now).is_empty());
    }
    // With a pause of four slots at most there are ten.
    assert!(retries >= 5, "{retries}");
}

#[test]
fn after_as_many_releases_as_leases_all_slots_are_swept() {
    let mut schedule = Schedule::new(Times::new(60 * SECOND, SECOND));
    let leases = (0..2_000).map(|serial| {
        let lease = Lease::new("p{c:a}".into(), PermitId::new(serial, 1, 1));
        lease.granted(1, u64::MAX);
        Arc::new(lease)
    });
    let leases: Vec<_> = leases.collect();
    schedule.adopt(leases[..1_000].to_vec());
    schedule.adopt(leases[1_000..].to_vec());
    let held = |schedule: &Schedule| {
        let slots = schedule.slots.iter().flat_map(Leases::values);
        slots.map(Vec::len).sum::<usize>()
    };
    for lease in &leases[..1_999] {
        assert!(lease.release());
        schedule.released();
    }
    assert_eq!(held(&schedule), 2_000);
    assert!(leases[1_999].release());
    schedule.released();
    assert_eq!((held(&schedule), schedule.adopted), (0, 0));
    // Few are not worth a sweep.
    let lease = Arc::new(Lease::new("p{c:a}".into(), PermitId::new(1, 1, 1)));
    lease.granted(1, u64::MAX);
    schedule.adopt(vec![Arc::clone(&lease)]);
    assert!(lease.release());
    schedule.released();
    assert_eq!(held(&schedule), 1);
}

#[test]
fn only_leases_whose_refresh_has_no_answer_are_watched() {
    let (mut schedule, answered) = schedule();
    let leases = [2, 3].map(|serial| {
        let lease = Lease::new("p{c:a}".into(), PermitId::new(serial, 1, 1));
        lease.granted(1, 5_000_000);
        Arc::new(lease)
    });
    let [unanswered, released] = leases;
    answered.refreshed(4_000_000);
    schedule.watch(&[&answered, &unanswered, &released].map(Arc::clone));
    answered.refreshed(u64::MAX);
    assert!(released.release());
    let later = schedule.times.birth + Duration::from_secs(3_600);
    schedule.expire(schedule.times.birth, |_| 0);
    assert_eq!(schedule.watched.len(), 1);
    assert!(!unanswered.is_lost());
    schedule.expire(later, |_| 0);
    assert!(unanswered.is_lost() && !answered.is_lost() && schedule.watched.is_empty());
}

#[test]
fn each_slot_is_due_once_in_a_refresh_interval() {
    let (mut schedule, lease) = schedule();
    let (start, slot) = (schedule.next(), schedule.times.slot_interval());
    assert!(schedule.due(start - slot / 2).is_empty());
    assert_eq!(schedule.next(), start);
    for round in 0..2 {
        let mut found = 0;
        for at in round * SLOTS..(round + 1) * SLOTS {
            found += schedule.due(start + slot * at).len();
            assert_eq!(schedule.next(), start + slot * (at + 1));
        }
        assert_eq!(found, 1);
    }
    // After a pause of this process.
    let late = start + MINUTE * 60;
    assert_eq!(schedule.due(late).len(), 1);
    assert_eq!(schedule.next(), late);
    assert!(lease.release());
    assert!(schedule.all().is_empty() && schedule.slots.iter().all(Leases::is_empty));
}

#[test]
fn a_failed_refresh_is_sent_again_after_a_pause_that_doubles_up_to_a_third_of_the_interval() {
    let (mut schedule, lease) = schedule();
    let tick = schedule.times.tick();
    let mut pauses_are = |expected: &[u32]| {
        for pause in expected {
            let before = Instant::now();
            schedule.refreshed(vec![Arc::clone(&lease)]);
            assert!(schedule.retry_at >= before + tick * *pause);
            assert!(schedule.retry_at <= Instant::now() + tick * *pause);
            assert!(schedule.retries(schedule.retry_at - tick / 2).is_empty());
            assert_eq!(schedule.retries(schedule.retry_at).len(), 1);
        }
        schedule.refreshed(Vec::new());
    };
    pauses_are(&[1, 2, 4, 4]);
    pauses_are(&[1, 2]);
}

#[test]
fn a_gap_refreshes_all_so_nothing_is_left_to_be_sent_again() {
    for (gap, left) in [(Gap::None, 1), (Gap::Stopped, 0)] {
        let (mut schedule, lease) = schedule();
        schedule.refreshed(vec![lease]);
        assert_eq!(schedule.note(gap, around()), left == 0);
        assert_eq!(schedule.retries(schedule.retry_at).len(), left);
    }
}

#[test]
fn a_lease_from_the_queue_or_without_the_store_is_refreshed_at_once() {
    let new = || Arc::new(Lease::new("p{c:a}".into(), PermitId::new(1, 1, 1)));
    let [held, waited, degraded] = [new(), new(), new()];
    held.granted(1, u64::MAX);
    assert!(waited.sent(1) && waited.notified(1, u64::MAX));
    degraded.admitted();
    for (lease, urgent) in [(held, 0), (waited, 1), (degraded, 1)] {
        let mut schedule = schedule().0;
        assert_eq!(schedule.adopt(vec![lease]).len(), urgent);
    }
}
