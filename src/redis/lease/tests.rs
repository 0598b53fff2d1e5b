use super::*;

fn lease() -> Lease {
    let permit = PermitId::new(1, 5, 1);
    Lease::new("p{c:a}".into(), permit)
}

#[test]
fn what_was_never_sent_needs_no_release() {
    assert!(!lease().release());
    let lease = lease();
    assert!(lease.sent(10));
    lease.not_sent();
    assert!(!lease.release());
}

#[test]
fn what_may_have_run_needs_a_release_until_its_own_end_has_passed() {
    let lease = lease();
    assert!(lease.sent(10) && lease.sent(20));
    lease.refused();
    assert_eq!(lease.runs_until(), Some(20));
    assert!(lease.release());
    assert_eq!(lease.runs_until(), Some(20));
}

#[test]
fn a_refusal_needs_no_release() {
    let lease = lease();
    assert!(lease.sent(10));
    lease.refused();
    assert!(!lease.release());
}

#[test]
fn a_waiter_that_fails_needs_a_release() {
    let lease = lease();
    assert!(lease.sent(10));
    lease.queued();
    assert!(lease.sent(20));
    lease.not_sent();
    assert!(lease.release());
}

#[test]
fn a_released_lease_stays_released() {
    let lease = lease();
    assert!(lease.sent(10));
    lease.granted(7, 100);
    lease.loss.set();
    assert!(lease.release() && !lease.release());
    lease.refreshed(1_000);
    lease.granted(8, 1_000);
    assert!(lease.is_released() && lease.loss.is_set());
    assert_eq!((lease.token(), lease.deadline()), (7, 100));
    assert!(!lease.sent(30));
}

#[test]
fn an_answer_that_arrives_after_the_release_leaves_the_doubt() {
    let lease = lease();
    assert!(lease.sent(10));
    assert!(lease.release());
    lease.granted(7, 100);
    assert_eq!(lease.runs_until(), Some(10));
}

#[test]
fn only_an_acquire_grants_a_lost_lease_again() {
    let lease = lease();
    assert!(lease.sent(10));
    lease.granted(7, 100);
    lease.expire(100, 0);
    assert!(lease.is_lost() && lease.loss.is_set());
    lease.refreshed(1_000);
    assert!(lease.is_lost());
    assert!(lease.sent(20));
    lease.granted(9, 1_000);
    assert!(!lease.is_lost() && !lease.loss.is_set());
    assert_eq!(lease.token(), 9);
}

#[test]
fn a_grant_from_the_queue_is_provisional_until_it_is_refreshed() {
    let lease = lease();
    assert!(lease.sent(10));
    lease.queued();
    assert!(lease.notified(7, 100) && lease.is_provisional());
    assert!(!lease.notified(8, 200));
    lease.refresh_failed();
    assert!(lease.is_provisional());
    lease.refreshed(1_000);
    assert!(!lease.is_provisional());
    assert_eq!((lease.token(), lease.deadline()), (7, 1_000));
}

#[test]
fn a_release_that_may_have_run_before_the_deadline_may_have_freed_the_lease() {
    for (sent, is_freed) in [(99, true), (100, false)] {
        let lease = lease();
        assert!(lease.sent(10));
        lease.granted(7, 100);
        assert!(lease.release());
        lease.release_failed(sent);
        assert_eq!((lease.is_freed(99), lease.is_released()), (is_freed, true));
        assert!(!lease.is_freed(100), "it may have ended by itself");
    }
}

#[test]
fn no_release_frees_a_lease_that_was_displaced_before() {
    let lease = lease();
    assert!(lease.sent(10));
    lease.granted(7, 100);
    lease.displaced(0);
    assert!(lease.release());
    lease.release_failed(50);
    assert!(!lease.is_freed(50));
}

/// A lease of five units that is granted, and whose first acquire has no answer.
fn sent_twice() -> Arc<Lease> {
    let lease = Lease::new("p{c:a}".into(), PermitId::new(1, 5, 5));
    assert!(lease.sent(10) && lease.sent(20));
    lease.granted(7, 100);
    Arc::new(lease)
}

fn added(first: &Arc<Lease>) -> Lease {
    let added = lease().adding_to(first);
    assert!(added.sent(10));
    added.granted(8, 100);
    added
}

#[test]
fn a_part_is_released_until_no_acquire_of_the_whole_can_run() {
    let lease = sent_twice();
    let part = lease.split(1).expect("it is held");
    assert_eq!((lease.permit().units(), part.permit().units()), (1, 4));
    assert!(part.release());
    assert_eq!(
        (part.runs_until(), lease.runs_until()),
        (Some(20), Some(20))
    );
}

#[test]
fn a_lost_lease_that_was_split_is_acquired_only_under_a_new_id() {
    let lease = sent_twice();
    assert!(lease.renew().is_none(), "it is held");
    drop(lease.split(2));
    lease.expire(100, 0);
    assert!(!lease.sent(30), "it would get five units");
    let (before, old) = (lease.permit(), lease.renew().expect("it was split"));
    assert_eq!((old.permit(), old.runs_until()), (before, Some(20)));
    assert!(old.release() && lease.renew().is_none());
    assert_eq!((lease.permit().units(), lease.permit().weight), (2, 2));
    assert!(lease.sent(30));
    assert_eq!(lease.runs_until(), Some(30));
}

#[test]
fn only_a_heavy_lease_that_was_displaced_needs_a_new_id() {
    let (heavy, light) = (sent_twice(), lease());
    assert!(light.sent(10));
    light.granted(7, 100);
    light.displaced(0);
    assert!(light.is_lost() && light.renew().is_none() && light.sent(20));
    heavy.expire(100, 0);
    assert!(heavy.renew().is_none(), "the server may have all of it");
    // A refresh that was sent before.
    heavy.displaced(0);
    let old = heavy.renew().expect("the server may have some of it");
    assert_eq!((old.permit().weight, heavy.permit().weight), (5, 5));
    assert!(heavy.permit() != old.permit() && heavy.is_lost());
}

#[test]
fn a_heavy_lease_that_is_kept_needs_a_new_id_if_it_was_displaced() {
    let (whole, displaced, late) = (sent_twice(), sent_twice(), sent_twice());
    whole.expire(100, u64::MAX);
    displaced.displaced(u64::MAX);
    late.expire(100, u64::MAX);
    // A refresh that was sent before.
    late.displaced(0);
    assert!(
        whole.renew().is_none() && whole.sent(30),
        "the server may have all of it"
    );
    for lease in [&whole, &displaced, &late] {
        assert!(lease.is_degraded() && !lease.is_lost());
    }
    for lease in [displaced, late] {
        assert!(!lease.sent(30), "the server may take it for held");
        let old = lease.renew().expect("the server may have some of it");
        assert!(old.release() && lease.sent(30));
        lease.granted(9, 200);
        assert!(!lease.is_degraded());
    }
}

#[test]
fn a_lease_that_is_kept_needs_a_release_and_one_that_is_admitted_needs_none() {
    let (kept, admitted) = (sent_twice(), lease());
    kept.expire(100, u64::MAX);
    admitted.admitted();
    assert!(kept.is_degraded() && admitted.is_degraded());
    kept.lock().unanswered = 0;
    assert!(kept.release() && !admitted.release());
}

#[test]
fn a_permit_is_lost_while_one_of_its_leases_is() {
    let first = sent_twice();
    let (one, two) = (added(&first), added(&first));
    one.expire(100, 0);
    one.expire(100, 0);
    first.expire(100, 0);
    two.displaced(0);
    for lease in [&first, &one] {
        assert!(lease.sent(30));
        lease.granted(9, 200);
        assert!(first.loss.is_set(), "another is lost");
    }
    assert!(two.release(), "it may be held");
    assert!(!first.loss.is_set(), "no other is lost");
    one.expire(200, 0);
    assert!(first.release() && one.release());
    assert!(first.loss.is_set(), "a released permit stays lost");
}
