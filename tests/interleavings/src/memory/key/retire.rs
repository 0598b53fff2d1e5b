//! An idle entry is retired, while claims come for it.

use super::{Key, Waiting};
use crate::explore::{explore, explore_most, join};

/// Retires the entry if it is idle.
fn retire(key: &Key) -> bool {
    let Some(token) = key.semaphore().retire() else {
        return false;
    };
    assert_eq!(key.witness.held(), 0, "an entry in use was retired");
    assert!(token >= key.witness.last_token(), "its tokens would repeat");
    true
}

/// Locks the entry, as for several limits, and acquires a unit if it is free.
fn lock_and_take(key: &Key) -> bool {
    let (units, before) = (key.units(1), key.witness.last_token());
    let Some(mut locked) = key.semaphore().lock() else {
        return false;
    };
    let Ok(grant) = locked.admits(units) else {
        return false;
    };
    let grant = locked.acquire(grant);
    key.witness.acquired(1, grant.token, before);
    true
}

/// When all have ended: the entry is retired and has granted nothing, or it is live.
fn assert_either(key: &Key, retired: bool, granted: usize) {
    if retired {
        assert_eq!(granted, 0, "acquired of a retired entry");
        assert!(key.semaphore().lock().is_none(), "it lives again");
        assert!(key.try_join_queue(1).is_none(), "it lives again");
        assert!(key.take(1).is_err(), "it lives again");
    } else {
        assert!(granted > 0, "an idle entry was not retired");
        key.release(1);
        key.assert_free();
    }
}

/// One thread retires, one acquires without a wait, and the last by locking.
#[test]
fn a_retired_entry_grants_nothing() {
    explore_most(|| {
        let key = Key::new(1);
        let retires = key.spawn(retire);
        let takes = key.spawn(|key| key.take(1).is_ok());
        let locks = lock_and_take(&key);
        let [retired, takes] = join([retires, takes]);
        assert_either(&key, retired, usize::from(takes) + usize::from(locks));
    });
}

/// One thread retires, one acquires without a wait, and the last joins the queue.
#[test]
fn nobody_waits_at_a_retired_entry() {
    explore_most(|| {
        let key = Key::new(1);
        let retires = key.spawn(retire);
        let takes = key.spawn(|key| key.take(1).is_ok());
        let waiting: Option<Waiting> = key.try_join_queue(1);
        let [retired, takes] = join([retires, takes]);
        let granted = usize::from(takes) + usize::from(waiting.is_some());
        if let Some(waiting) = waiting {
            if takes {
                key.release(1);
            }
            key.wait(waiting);
        }
        assert_either(&key, retired, granted);
    });
}

/// The last permit is released while its entry is retired, and a claim comes.
#[test]
fn an_entry_in_use_is_not_retired() {
    explore(|| {
        let key = Key::with_held(1, 1);
        let retires = key.spawn(retire);
        let takes = key.spawn(|key| key.take(1).is_ok());
        key.release(1);
        let [retired, takes] = join([retires, takes]);
        let retired = retired || (!takes && retire(&key));
        assert_either(&key, retired, usize::from(takes));
    });
}
