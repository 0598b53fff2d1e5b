use super::*;
use crate::redis::{dispatch::Level, lease::Lease, protocol::PermitId};
use std::sync::Arc;

/// As where one server has all keys.
const LEAST: usize = MIN_IN_FLIGHT;
const SECOND: Duration = Duration::from_secs(1);

type Answered = oneshot::Receiver<Answer>;

fn lease(weight: u32) -> Arc<Lease> {
    let permit = PermitId::new(1, 2_000, weight);
    Arc::new(Lease::new("p{c:a}".into(), permit))
}

/// A claim that is answered in time within so long.
fn within(time: Duration, lease: Arc<Lease>) -> (Queued, Answered) {
    let (answer, answered) = oneshot::channel();
    let position = None;
    let claim = Claim::one(Level { lease, position }, Instant::now() + time);
    (Queued::new(claim, answer), answered)
}

/// Batches that wait to be sent, of claims with these weights. The callers wait as long as the second
/// value lives.
fn waiting(weights: impl IntoIterator<Item = u32>) -> (Batches, Vec<Answered>) {
    let mut batches = Batches::new(LEAST);
    let claims = weights.into_iter().map(|it| within(60 * SECOND, lease(it)));
    let (queued, answered): (Vec<_>, _) = claims.unzip();
    batches.queued = queued.into();
    (batches, answered)
}

fn is_refused(answered: &mut Answered) -> bool {
    matches!(answered.try_recv(), Ok(Err(Error::Congested)))
}

/// How long after the last batch the next may be sent.
fn pause(batches: &Batches, most: usize) -> Option<Duration> {
    batches.due(most).map(|due| due - batches.sent)
}

#[test]
fn nothing_is_due_while_no_claim_waits() {
    assert_eq!(pause(&Batches::new(LEAST), MAX_IN_FLIGHT), None);
}

#[test]
fn a_few_batches_are_sent_at_once_and_more_at_a_pace() {
    let (mut batches, _waiters) = waiting([1]);
    let mut pause_beside = |in_flight, most| {
        batches.in_flight = in_flight;
        pause(&batches, most)
    };
    assert_eq!(pause_beside(3, MIN_IN_FLIGHT), Some(Duration::ZERO));
    assert_eq!(pause_beside(4, MAX_IN_FLIGHT), Some(PACE));
    assert_eq!(pause_beside(15, MAX_IN_FLIGHT), Some(PACE));
    assert_eq!(pause_beside(16, MAX_IN_FLIGHT), None);
    // Small batches, whatever the round trip.
    assert_eq!(pause_beside(7, MIN_IN_FLIGHT), Some(PACE));
    assert_eq!(pause_beside(8, MIN_IN_FLIGHT), None);
}

#[test]
fn batches_of_many_claims_are_as_few_as_the_round_trip_needs() {
    let (mut batches, _waiters) = waiting([1]);
    (batches.in_flight, batches.claims) = (4, 255);
    assert_eq!(pause(&batches, MIN_IN_FLIGHT), Some(PACE));
    batches.claims = 256;
    assert_eq!(pause(&batches, MIN_IN_FLIGHT), None);
    assert_eq!(pause(&batches, 5), Some(PACE));
}

#[test]
fn a_full_batch_is_sent_at_once_if_the_round_trip_needs_it() {
    let (mut batches, _waiters) = waiting([1; MAX_CLAIMS]);
    batches.in_flight = 5;
    assert_eq!(pause(&batches, 6), Some(Duration::ZERO));
    assert_eq!(pause(&batches, 5), Some(PACE));
}

#[test]
fn a_batch_is_full_of_claims_and_not_of_units() {
    let is_full = |weights: Vec<u32>| waiting(weights).0.is_full_batch_queued();
    let some = |count, last| [vec![1; count], vec![last]].concat();
    assert!(!is_full(vec![1; 63]));
    assert!(is_full(vec![1; 64]));
    assert!(is_full(some(63, 937)) && !is_full(some(63, 938)));
    assert!(is_full(some(64, 1_000)), "the last is in the batch behind");
}

#[test]
fn a_batch_has_so_many_claims_and_counts_until_it_is_completed() {
    let (mut batches, _waiters) = waiting([1; 65]);
    let before = batches.sent;
    assert_eq!(batches.take(4, Duration::ZERO).len(), 64);
    assert_eq!((batches.in_flight, batches.claims), (1, 64));
    assert!(batches.sent > before && !batches.is_idle());
    assert_eq!(batches.take(4, Duration::ZERO).len(), 1);
    assert_eq!((batches.in_flight, batches.claims), (2, 65));
    batches.completed(64);
    assert_eq!((batches.in_flight, batches.claims), (1, 1));
    assert!(!batches.is_idle());
    batches.completed(1);
    assert!(batches.is_idle());
    assert!(batches.take(4, Duration::ZERO).is_empty());
    assert_eq!(batches.in_flight, 0);
}

#[test]
fn a_batch_has_so_many_units_or_one_claim() {
    let (mut batches, _waiters) = waiting([600, 400, 1, 1_500, 1]);
    let mut next = || {
        let batch = batches.take(16, Duration::ZERO);
        batch.iter().map(Queued::weight).collect::<Vec<_>>()
    };
    assert_eq!(next(), [600, 400]);
    assert_eq!(next(), [1]);
    assert_eq!(next(), [1_500]);
    assert_eq!(next(), [1]);
}

#[test]
fn a_batch_is_taken_when_it_is_due() {
    let (mut batches, _waiters) = waiting([1]);
    (batches.in_flight, batches.sent) = (4, Instant::now() + 60 * SECOND);
    assert!(batches.take(4, Duration::ZERO).is_empty());
    batches.sent = Instant::now() - SECOND;
    assert_eq!(batches.take(4, Duration::ZERO).len(), 1);
}

#[test]
fn a_claim_that_cannot_be_answered_in_time_is_refused_and_not_sent() {
    let round_trip = 60 * SECOND;
    let answered_before = lease(1);
    assert!(answered_before.sent(1));
    answered_before.queued();
    let claims = [
        within(100 * SECOND, lease(1)),
        within(140 * SECOND, lease(1)),
        within(100 * SECOND, answered_before),
    ];
    let worth = claims
        .each_ref()
        .map(|(it, _)| it.is_worth_sending(round_trip));
    assert_eq!(worth, [false, true, true]);
    let (queued, mut answered): (Vec<_>, Vec<_>) = claims.into_iter().unzip();
    let mut batches = Batches::new(LEAST);
    batches.queued = queued.into();
    assert_eq!(batches.take(4, round_trip).len(), 2);
    assert!(is_refused(&mut answered[0]));
}

#[test]
fn a_claim_for_whose_answer_nobody_waits_is_not_sent() {
    let (queued, answered) = within(60 * SECOND, lease(1));
    drop(answered);
    assert!(!queued.is_worth_sending(Duration::ZERO));
}

#[test]
fn late_claims_are_refused_up_to_the_first_that_is_not() {
    let times = [0, 60, 0].map(|seconds| within(seconds * SECOND, lease(1)));
    let (queued, mut answered): (Vec<_>, Vec<_>) = times.into_iter().unzip();
    let mut batches = Batches::new(LEAST);
    batches.queued = queued.into();
    batches.refuse_late(Duration::ZERO);
    assert_eq!(batches.queued.len(), 2);
    assert!(is_refused(&mut answered[0]) && !is_refused(&mut answered[2]));
}
