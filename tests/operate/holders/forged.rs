//! Texts that are not ids of permits.
//!
//! Promises: P6, P24.

use super::{
    Store, claim, facts_of_operators, first, granted, ids, queued, revoke, usage, waiting,
};
use testing::stores::listed;
use tower_semaphore::Policy;

facts_of_operators! {
    a_forged_id_changes_nothing
    the_id_of_another_key_or_policy_changes_nothing
}

/// Variations of an id, and texts that are not ids at all. None is the id itself.
pub(crate) fn forgeries(id: &str) -> Vec<String> {
    let texts = "| |0|1|x|*|?|[a-z]*|..|.*|%w+|%|%%|^|$|-|+|\0|\r\n|arrival|held|a:held|{concurrency:a}:held|\
        }:held|inf|-inf|'; redis.call('FLUSHALL') --|\n*1\r\n$8\r\nFLUSHALL\r\n|1.1.1.1.1|a.1.0.0.5.1.7ps.0...";
    let mut all: Vec<String> = texts.split('|').map(str::to_owned).collect();
    let before = "0|+| |\t".split('|').map(|before| format!("{before}{id}"));
    let after = "0| |\n|:|:1|:2|:3|.|.x|*|\0|%".split('|');
    all.extend(before.chain(after.map(|after| format!("{id}{after}"))));
    all.push(id.to_uppercase() + "X");
    for at in 0..id.len() {
        all.push(format!("{}{}", &id[..at], &id[at + 1..]));
        for other in ["*", "?", ".", ":", "%", "0", "f"] {
            all.push(format!("{}{other}{}", &id[..at], &id[at + 1..]));
        }
    }
    all.push("x".repeat(1_000_000));
    all.retain(|forged| forged != id);
    all
}

async fn a_forged_id_changes_nothing(store: Store) {
    let heavy = claim("a", 5).with_weight(3).with_label("a:2.b");
    let permits = [
        granted(&store, &heavy).await,
        granted(&store, &claim("a", 4)).await,
    ];
    let (waiter, _) = queued(&store, waiting("a", 4), 0).await;
    let before = usage(&store, "a").await;
    let there = [ids(&before.held), ids(&before.waiting)].concat();
    let forgeries = there.iter().flat_map(|id| forgeries(id));
    for forged in forgeries.filter(|forged| !there.contains(&&**forged)) {
        assert!(!revoke(&store, "a", &forged).await, "{forged:?}");
    }
    let after = usage(&store, "a").await;
    assert_eq!((ids(&after.held), after.units), (ids(&before.held), 4));
    assert_eq!(ids(&after.waiting), ids(&before.waiting));
    assert!(permits.iter().all(|permit| !permit.is_lost()));
    waiter.abort();
}

/// An operator may have the id from another process, or from before a restart.
#[tokio::test]
async fn the_id_of_another_store_in_memory_changes_nothing() {
    let [one, other] = [listed(), listed()];
    for _ in 0..100 {
        let permits = [
            granted(&one, &claim("a", 1)).await,
            granted(&other, &claim("a", 1)).await,
        ];
        let id = first(&one).await.id;
        assert!(!revoke(&other, "a", &id).await, "{id}");
        assert!(!permits[1].is_lost());
    }
}

async fn the_id_of_another_key_or_policy_changes_nothing(store: Store) {
    let permit = granted(&store, &claim("a", 1)).await;
    let id = &first(&store).await.id;
    for key in ["b", "A", "a ", "", "}", "a}:held{"] {
        assert!(!revoke(&store, key, id).await, "{key:?}");
    }
    for policy in ["fleet", "", "concurrency:a", "*"] {
        let revoked = store.revoke(&Policy::from(policy), &"a".into(), id).await;
        assert!(!revoked.expect("the store answers"), "{policy:?}");
    }
    assert!(!permit.is_lost());
    assert_eq!(first(&store).await.id, *id);
}
