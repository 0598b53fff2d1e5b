//! Claims that wait. Loom fails a scenario with a missing grant, because one of its threads never ends.
//!
//! Promises: P1, P12, P14, P15.

use super::Key;
use crate::{
    explore::{explore, join},
    semaphore::PermitEnd,
};

#[test]
fn a_release_reaches_a_claim_that_joins() {
    explore(|| {
        let key = Key::with_held(1, 1);
        let waiter = key.spawn(|key| key.wait(key.join_queue(1)));
        key.release(1);
        join([waiter]);
        key.release(1);
        key.assert_free();
    });
}

/// An operator raises the limit while the claim joins. Either the claim sees the new limit, or the change grants it.
#[test]
fn a_raised_limit_reaches_a_claim_that_joins() {
    explore(|| {
        let key = Key::with_held(2, 1);
        key.set_limit(Some(1));
        let waiter = key.spawn(|key| key.wait(key.join_queue(1)));
        key.set_limit(None);
        join([waiter]);
        key.release(1);
        key.release(1);
        key.assert_free();
    });
}

#[test]
fn the_end_of_a_pause_reaches_a_claim_that_joins() {
    explore(|| {
        let key = Key::with_held(1, 1);
        let waiter = key.spawn(|key| key.wait(key.join_queue(1)));
        key.pause();
        key.release(1);
        key.resume();
        join([waiter]);
        key.release(1);
        key.assert_free();
    });
}

/// Nothing is held during the pause. At its end one claim joins the queue, and another does not wait.
#[test]
fn the_end_of_a_pause_reaches_a_claim_beside_one_that_does_not_wait() {
    explore(|| {
        let key = Key::new(1);
        key.pause();
        let waiter = key.spawn(|key| key.wait(key.join_queue(1)));
        let newcomer = key.spawn(|key| key.take(1));
        key.resume();
        let [newcomer] = join([newcomer]);
        if newcomer.is_ok() {
            key.release(1);
        }
        join([waiter]);
        key.release(1);
        key.assert_free();
    });
}

/// The unit is released while one claim joins the queue, and another claim does not wait.
#[test]
fn a_claim_without_a_wait_takes_no_wake_up_from_a_waiter() {
    explore(|| {
        let key = Key::with_held(1, 1);
        let joins = key.spawn(|key| key.join_queue(1));
        let newcomer = key.spawn(|key| key.take(1));
        key.release(1);
        let ([waiting], [newcomer]) = (join([joins]), join([newcomer]));
        if newcomer.is_ok() {
            key.release(1);
        }
        key.wait(waiting);
        key.release(1);
        key.assert_free();
    });
}

#[test]
fn two_waiters_are_granted_one_after_the_other() {
    explore(|| {
        let key = Key::with_held(1, 1);
        let waiters = [key.join_queue(1), key.join_queue(1)].map(|waiting| {
            key.spawn(move |key| {
                key.wait(waiting);
                key.release(1);
            })
        });
        key.release(1);
        join(waiters);
        key.assert_free();
    });
}

#[test]
fn two_that_join_while_the_unit_is_released_are_granted() {
    explore(|| {
        let key = Key::with_held(1, 1);
        let joins = [0, 1].map(|_| key.spawn(|key| key.join_queue(1)));
        key.release(1);
        let mut waiting = join(joins);
        // One claim has been granted at this point. It goes first, because its release grants the other, which the
        // second list of `listed`, the waiters, still has.
        let queued = key.change(|entry, _| entry.queue.listed(None).1);
        let queued = queued.expect("a unit is held")[0].0.serial;
        waiting.sort_by_key(|waiting| queued == waiting.serial);
        for waiting in waiting {
            key.wait(waiting);
            key.release(1);
        }
        key.assert_free();
    });
}

#[test]
fn one_release_grants_two_waiters() {
    explore(|| {
        let key = Key::with_held(2, 2);
        let joined = key.join_queue(1);
        let joins = key.spawn(|key| key.join_queue(1));
        key.release(2);
        let [joining] = join([joins]);
        key.wait(joined);
        key.wait(joining);
        key.release(1);
        key.release(1);
        key.assert_free();
    });
}

#[test]
fn two_releases_wake_a_heavy_waiter_and_the_light_one_behind_it() {
    explore(|| {
        let key = Key::with_held(3, 1);
        assert!(key.take(2).is_ok());
        let [heavy, light] = [2, 1].map(|weight| key.join_queue(weight));
        let other = key.spawn(|key| key.release(2));
        let waiters = key.spawn(|key| {
            key.wait(light);
            key.wait(heavy);
        });
        key.release(1);
        join([other, waiters]);
        key.release(3);
        key.assert_free();
    });
}

/// The first waiter leaves while a unit is released: it leaves the queue, or is granted and releases the unit. With
/// limit 2 it is too heavy for the unit, and blocks the second waiter until it leaves.
#[test]
fn the_waiter_behind_one_that_leaves_is_granted() {
    for limit in [1, 2] {
        explore(move || {
            let key = Key::with_held(limit, limit);
            let [first, second] = [key.join_queue(limit), key.join_queue(1)];
            let leaves = key.spawn(move |key| key.leave(first));
            let stays = key.spawn(move |key| key.wait(second));
            key.release(1);
            join([leaves, stays]);
            key.release(limit);
            key.assert_free();
        });
    }
}

/// Once the queue is empty, claims without a wait are granted again.
#[test]
fn claims_are_granted_again_after_the_last_waiter_has_left() {
    explore(|| {
        let key = Key::with_held(1, 1);
        let waiting = key.join_queue(1);
        let leaves = key.spawn(move |key| key.leave(waiting));
        let newcomer = key.spawn(|key| key.take(1));
        key.release(1);
        let ([()], [newcomer]) = (join([leaves]), join([newcomer]));
        if newcomer.is_ok() {
            key.release(1);
        }
        key.assert_free();
    });
}

#[test]
fn a_claim_that_joins_when_the_last_waiter_leaves_is_granted() {
    explore(|| {
        let key = Key::with_held(1, 1);
        let waiting = key.join_queue(1);
        let leaves = key.spawn(move |key| key.leave(waiting));
        let joins = key.spawn(|key| key.join_queue(1));
        key.release(1);
        let ([()], [waiting]) = (join([leaves]), join([joins]));
        key.wait(waiting);
        key.release(1);
        key.assert_free();
    });
}

/// An operator revokes a listed claim, while the claim moves from the waiters to the permits.
#[test]
fn a_claim_that_is_granted_while_it_is_revoked_leaves_the_key_free() {
    explore(|| {
        let key = Key::with_held(1, 1);
        let waiting = key.join_listed(1, true);
        let serial = waiting.serial;
        let revokes = key.spawn(move |key| {
            let (waiting, permit) = key
                .change(|entry, _| {
                    (
                        entry.queue.remove_waiter(serial),
                        entry.queue.unlist_permit(serial),
                    )
                })
                .unwrap_or_default();
            let was_there = waiting.is_some() || permit.is_some();
            if let Some((details, taken)) = permit {
                details.notify_revoked();
                let freed = key.change(|entry, counts| entry.free(taken, PermitEnd::Lost, counts));
                assert!(freed.flatten().is_none());
            }
            was_there
        });
        key.release(1);
        assert_eq!(join([revokes]), [true], "the claim was nowhere");
        drop(waiting);
        key.assert_free();
    });
}
