//! The release of another key evicts idle entries, while claims are made for one of them.
//!
//! Promises: P1, P5, P11.

use super::Key;
use crate::explore::{explore, join};

/// The hash of the other key. The shard is full without it.
const OTHER: u64 = 99;

/// The release of another key evicts the idle entry before, between or after two claims. `use_briefly` asserts that
/// each token is greater than the earlier ones.
#[test]
fn tokens_grow_across_an_eviction() {
    explore(|| {
        let key = Key::in_full_shard(1);
        key.use_briefly(1);
        let evicts = key.spawn(|key| key.touch(OTHER));
        let takes = key.spawn(|key| key.use_briefly(1));
        key.use_briefly(1);
        join([evicts, takes]);
        key.assert_free();
    });
}

#[test]
fn a_claim_that_joins_a_queue_meets_an_eviction() {
    explore(|| {
        let key = Key::in_full_shard(1);
        let evicts = key.spawn(|key| key.touch(OTHER));
        let takes = key.spawn(|key| key.take(1).is_ok());
        let waiting = key.join_queue(1);
        let ([()], [taken]) = (join([evicts]), join([takes]));
        if taken {
            key.release(1);
        }
        key.wait(waiting);
        key.release(1);
        key.assert_free();
    });
}

/// The last permit is released and a claim comes, while entries are evicted.
#[test]
fn an_entry_in_use_is_not_evicted() {
    explore(|| {
        let key = Key::in_full_shard(2);
        assert!(key.take(1).is_ok());
        let evicts = key.spawn(|key| key.touch(OTHER));
        let takes = key.spawn(|key| key.take(1));
        join([evicts]);
        assert!(key.is_kept(), "an entry in use was evicted");
        key.release(1);
        let [taken] = join([takes]);
        assert!(taken.is_ok(), "refused although a unit is free");
        assert!(key.is_kept(), "an entry in use was evicted");
        key.release(1);
        key.assert_free();
    });
}
