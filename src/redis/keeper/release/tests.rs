use super::*;
use crate::redis::protocol::PermitId;

const MS: Duration = Duration::from_millis(1);

fn lease() -> Arc<Lease> {
    let permit = PermitId::new(1, 1, 1);
    Arc::new(Lease::new("p{c:a}".into(), permit))
}

/// A release whose answer somebody wants.
fn pending(lease: Arc<Lease>) -> (Pending, oneshot::Receiver<bool>) {
    let (answer, answered) = oneshot::channel();
    let now = Instant::now();
    let pending = Pending {
        lease,
        number: 1,
        answer: Some(answer),
        gives_up: now + 60_000 * MS,
        tries: 0,
        due: now,
        hurried: 0,
    };
    (pending, answered)
}

#[test]
fn a_release_without_an_answer_is_sent_again_after_pauses_that_double() {
    let (mut pending, _answered) = pending(lease());
    assert!(!pending.has_failed());
    for expected in [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000] {
        let before = Instant::now();
        pending = pending.retry();
        assert!(pending.due >= before + expected * MS);
        assert!(pending.due <= Instant::now() + expected * MS);
        assert!(pending.has_failed());
    }
    assert_eq!(pending.tries, 9);
}

#[test]
fn claims_hurry_an_answered_release_twice_at_most() {
    let (mut pending, _answered) = pending(lease());
    pending = pending.retry().retry();
    for _ in 0..2 {
        assert!(pending.may_hurry());
        pending = pending.hurried();
        assert!(pending.due <= Instant::now() && !pending.has_failed());
    }
    assert!(!pending.may_hurry());
}

#[test]
fn a_release_is_over_when_all_acquires_of_its_lease_were_answered() {
    for was_held in [true, false] {
        let (pending, mut answered) = pending(lease());
        assert!(pending.answered(1, 1, was_held).is_none());
        assert_eq!(answered.try_recv(), Ok(was_held));
    }
}

#[test]
fn a_release_is_sent_again_once_no_acquire_of_its_lease_can_run_any_more() {
    let lease = lease();
    assert!(lease.sent(5_000));
    let (pending, mut answered) = pending(Arc::clone(&lease));
    let before = Instant::now();
    let pending = pending.retry().answered(1, 3_000, false);
    let pending = pending.expect("an acquire may run for 2 s");
    assert!(!pending.has_failed() && answered.try_recv().is_err());
    assert!(pending.due >= before + 2_001 * MS);
    assert!(pending.due <= Instant::now() + 2_001 * MS);
    let pending = pending.answered(1, 5_000, false);
    let pending = pending.expect("it may run in this millisecond");
    assert!(pending.answered(1, 5_001, false).is_none());
    assert_eq!(answered.try_recv(), Ok(false));
}

#[test]
fn a_release_that_found_its_permit_says_so_although_it_is_sent_again() {
    let lease = lease();
    assert!(lease.sent(5_000));
    let (mut pending, mut answered) = pending(lease);
    pending.gives_up = Instant::now();
    let pending = pending.answered(1, 1_000, true);
    assert_eq!(answered.try_recv(), Ok(true));
    let pending = pending.expect("an acquire may run for 4 s");
    assert!(
        pending.due == pending.gives_up,
        "the lease has ended by then"
    );
}

#[test]
fn an_answer_is_wanted_by_somebody_or_because_of_an_unanswered_acquire() {
    let lease = lease();
    let (mut pending, _answered) = pending(Arc::clone(&lease));
    assert!(pending.wants_answer());
    pending.answer = None;
    assert!(!pending.wants_answer());
    assert!(lease.sent(5_000));
    assert!(pending.wants_answer());
}

#[test]
fn a_release_that_may_have_run_frees_a_lease_and_one_that_was_refused_does_not() {
    for (error, frees) in [(Error::Timeout(MS), true), (Error::Congested, false)] {
        let lease = lease();
        assert!(lease.sent(5_000));
        lease.granted(1, 1_000_000);
        assert!(lease.release());
        let (pending, _answered) = pending(Arc::clone(&lease));
        assert!(pending.failed(1_000, &error).has_failed());
        assert_eq!(lease.is_freed(1_000), frees);
    }
}
