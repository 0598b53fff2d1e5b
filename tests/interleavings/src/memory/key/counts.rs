//! Claims that do not wait.
//!
//! Promises: P1, P5.

use super::Key;
use crate::explore::{explore, join};

#[test]
fn one_unit_has_one_holder() {
    explore(|| {
        let key = Key::new(1);
        let others = [0, 1].map(|_| key.spawn(|key| key.use_briefly(1)));
        key.use_briefly(1);
        join(others);
        key.assert_free();
    });
}

#[test]
fn two_units_have_two_holders() {
    explore(|| {
        let key = Key::with_held(2, 1);
        let others = [0, 1].map(|_| key.spawn(|key| key.use_briefly(1)));
        key.release(1);
        join(others);
        key.assert_free();
    });
}

#[test]
fn a_permit_of_the_whole_limit_fits_beside_no_other() {
    explore(|| {
        let key = Key::with_held(2, 1);
        let others = [1, 2].map(|weight| key.spawn(move |key| key.use_briefly(weight)));
        key.release(1);
        join(others);
        key.assert_free();
    });
}

/// An operator lowers the limit while two claims are made. Only one of them may be granted.
#[test]
fn no_claim_is_granted_under_the_old_limit_after_one_under_a_lower_limit() {
    explore(|| {
        let key = Key::new(2);
        key.use_briefly(1);
        let other = key.spawn(|key| key.take(1));
        key.set_limit(Some(1));
        let own = key.take(1);
        let [other] = join([other]);
        assert!(own.is_err() || other.is_err(), "2 units under a limit of 1");
        assert!(
            own.is_ok() || other.is_ok(),
            "refused although a unit is free"
        );
        key.set_limit(None);
        key.release(1);
        key.assert_free();
    });
}

/// The other thread never holds more than one of the two units.
#[test]
fn a_unit_that_is_free_all_the_time_is_never_refused() {
    explore(|| {
        let key = Key::new(2);
        let other = key.spawn(|key| {
            key.use_briefly(1);
            key.use_briefly(1);
        });
        assert!(key.take(1).is_ok(), "refused although a unit is free");
        join([other]);
        key.release(1);
        key.assert_free();
    });
}
