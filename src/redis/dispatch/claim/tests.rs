use super::*;
use crate::redis::protocol::PermitId;
use std::time::Duration;

fn level(serial: u64) -> Level {
    let permit = PermitId::new(serial, 20, 3);
    Level {
        lease: Arc::new(Lease::new("p{c:a}".into(), permit)),
        position: None,
    }
}

fn claim(levels: u64) -> Claim {
    Claim {
        levels: (0..levels).map(level).collect(),
        deadline: Instant::now(),
    }
}

/// A claim of three levels that was sent.
fn sent() -> Claim {
    let claim = claim(3);
    assert!(claim.sent(10));
    claim
}

fn are(claim: &Claim, is_it: impl Fn(&Lease) -> bool) -> [bool; 3] {
    std::array::from_fn(|at| is_it(&claim.levels[at].lease))
}

#[test]
fn a_claim_is_as_heavy_as_what_the_server_may_have_to_grant_at_once() {
    let mut claim = claim(2);
    assert_eq!(claim.weight(), 6);
    claim.levels[0].position = Some(Position {
        alive: Duration::ZERO,
        max_waiting: 1,
        arrival: 0,
        head_start: Duration::ZERO,
    });
    assert_eq!(claim.weight(), 4);
}

#[test]
fn a_released_claim_is_not_sent() {
    let claim = claim(3);
    assert!(!claim.is_released());
    claim.levels[0].lease.release();
    assert!(claim.is_released() && !claim.sent(10));
    assert_eq!(
        are(&claim, |lease| lease.runs_until().is_some()),
        [false; 3]
    );
}

#[test]
fn a_claim_that_certainly_had_no_effect_needs_no_release() {
    for (error, needs) in [
        (Error::Late(1), false),
        (Error::Congested, false),
        (Error::Timeout(Duration::ZERO), true),
        (Error::Reply, true),
    ] {
        let claim = sent();
        claim.answered(&Err(error), 100);
        assert_eq!(are(&claim, Lease::release), [needs; 3]);
    }
}

#[test]
fn a_claim_is_granted_at_all_levels() {
    let claim = sent();
    let granted = Acquired::Granted(vec![(7, 3), (8, 3), (9, 3)]);
    claim.answered(&Ok(granted), 100);
    assert_eq!(are(&claim, Lease::is_granted), [true; 3]);
    let tokens = claim.levels.iter().map(|level| level.lease.token());
    assert_eq!(tokens.collect::<Vec<_>>(), [7, 8, 9]);
    assert_eq!(are(&claim, |lease| lease.deadline() == 100), [true; 3]);
}

#[test]
fn a_claim_waits_up_to_the_level_that_is_full_and_has_nothing_of_the_wider_ones() {
    let claim = sent();
    let queued = Acquired::Queued {
        level: 1,
        arrival: 5,
        recheck: None,
        last_token: 0,
    };
    claim.answered(&Ok(queued), 100);
    assert!(claim.was_answered());
    assert_eq!(are(&claim, Lease::release), [true, true, false]);
}
