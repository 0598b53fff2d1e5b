//! Claims that do not wait.

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
fn a_heavy_permit_fits_beside_none() {
    explore(|| {
        let key = Key::with_held(2, 1);
        let others = [1, 2].map(|weight| key.spawn(move |key| key.use_briefly(weight)));
        key.release(1);
        join(others);
        key.assert_free();
    });
}

/// No unit is free at any time, but a thread that sees an old count must not think so.
#[test]
fn no_unit_is_counted_twice() {
    explore(|| {
        let key = Key::with_held(2, 2);
        let other = key.spawn(|key| {
            key.release(1);
            key.use_briefly(1);
        });
        key.use_briefly(1);
        key.release(1);
        join([other]);
        key.assert_free();
    });
}
