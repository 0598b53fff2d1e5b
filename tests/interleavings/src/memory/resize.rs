//! Permits that change their weight.
//!
//! Promises: P1.

use super::fixture::Fixture;
use crate::explore::{block_on, explore, join};

#[test]
fn a_permit_that_shrinks_makes_room_for_a_waiter() {
    explore(|| {
        let fixture = Fixture::new(2);
        let held = fixture.acquire(2);
        let waiting = fixture.join_queue(1);
        let waiter = fixture.spawn(|_| drop(waiting.granted()));
        held.resize(1).expect("a permit may always shrink");
        join([waiter]);
        drop(held);
        fixture.assert_free();
    });
}

#[test]
fn a_permit_grows_only_into_free_units() {
    explore(|| {
        let fixture = Fixture::new(2);
        let held = fixture.acquire(1);
        let newcomer = fixture.spawn(|fixture| drop(fixture.try_acquire(1)));
        // This may be refused, because the other claim may have the second unit.
        let _ = held.resize(2);
        drop(held);
        join([newcomer]);
        fixture.assert_free();
    });
}

/// A permit grows on one thread and is released on another, while a third thread acquires.
#[test]
fn a_permit_that_is_released_while_it_grows_leaves_nothing() {
    explore(|| {
        let fixture = Fixture::new(2);
        let permit = fixture.acquire(1).into_permit();
        let (clone, kept) = (permit.clone(), permit.clone());
        let grows = fixture.spawn(move |_| {
            let _ = block_on(permit.resize(2));
        });
        let releases = fixture.spawn(move |_| {
            let _ = block_on(clone.release());
        });
        drop(fixture.try_acquire(1));
        join([grows, releases]);
        // All units are free, although a clone of the permit still exists.
        fixture.assert_free();
        drop(kept);
    });
}

/// Two clones of a permit change its weight at the same time. The last change counts.
#[test]
fn two_concurrent_resizes_leave_the_right_count() {
    explore(|| {
        let fixture = Fixture::new(3);
        let permit = fixture.acquire(2).into_permit();
        let clone = permit.clone();
        let other = fixture.spawn(move |_| {
            let _ = block_on(clone.resize(3));
        });
        let _ = block_on(permit.resize(1));
        join([other]);
        drop(permit);
        fixture.assert_free();
    });
}
