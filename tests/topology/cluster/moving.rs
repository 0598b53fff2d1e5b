//! Slots move from node to node.
//!
//! Promises: P1, P6, P18.

use super::{BOUND, connect, load::Load, name, patient};
use std::{collections::BTreeSet, time::Duration};
use testing::{
    machine::{alone, beside_others},
    redis::Cluster,
    wait::eventually,
};
use tokio::time::{sleep, timeout};
use tower_semaphore::{
    AcquireError, Claim, Operate, Permit, Policy, Semaphore,
    redis::{Risk, WhenUnavailable},
    semaphore::{Key, StoredKey},
};

#[tokio::test(flavor = "multi_thread")]
async fn slots_move_under_load_and_no_claim_fails_and_none_is_granted_twice() {
    let _alone = alone().await;
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(patient(), &cluster).await;
    let keys = cluster.keys_of(0, 24, name).await;
    let load = Load::start(&store, &keys);
    let mut slots = BTreeSet::new();
    for key in &keys {
        slots.insert(cluster.slot(&name(key)).await);
    }
    for (number, slot) in slots.iter().enumerate() {
        cluster.move_slot(*slot, 0, 1 + number % 2).await;
    }
    // Move them back.
    for (number, slot) in slots.iter().enumerate() {
        cluster.move_slot(*slot, 1 + number % 2, 0).await;
    }
    sleep(Duration::from_millis(200)).await;
    let (seen, most) = load.stop().await;
    let errors: Vec<_> = seen.iter().filter_map(|seen| seen.error.as_ref()).collect();
    assert!(
        errors.is_empty(),
        "{} of {}: {}",
        errors.len(),
        seen.len(),
        errors[0]
    );
    assert_eq!(most, 1, "a key with a limit of one had more holders");
    assert!(seen.len() > keys.len() * 10, "{}", seen.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_on_a_slot_that_is_moving_is_answered_once_it_has_moved() {
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(patient(), &cluster).await;
    let key = cluster.keys_of(0, 1, name).await.remove(0);
    let slot = cluster.slot(&name(&key)).await;
    let claim = Claim::new(key.as_str()).with_limit(2);
    let first = store.acquire(claim.clone()).await.expect("there is room");
    cluster.begin_move(slot, 0, 1).await;
    // The semaphore has no queue. Because some of its keys are missing, both nodes refuse its scripts with TRYAGAIN.
    let waiting = tokio::spawn(store.acquire(claim.clone()));
    eventually("it is refused with TRYAGAIN", BOUND, async || {
        // Redis 6.2 first answers ASK, and then the other node answers TRYAGAIN.
        let old = cluster.raw(0).await.cmd(&["INFO", "errorstats"]).await;
        let new = cluster.raw(1).await.cmd(&["INFO", "errorstats"]).await;
        [old, new]
            .iter()
            .any(|errors| errors.text().contains("TRYAGAIN"))
    })
    .await;
    assert!(!waiting.is_finished());
    cluster.move_keys(slot, 0, 1).await;
    cluster.end_move(slot, 0, 1).await;
    let second = waiting.await.expect("no panic").expect("there is room");
    assert!(second.token() > first.token());
    let held = format!("{}:held", name(&key));
    assert_eq!(cluster.raw(1).await.zcard(&held).await, 2);
    assert!(first.release().await && second.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_whose_keys_have_moved_is_served_before_its_slot_has_moved() {
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(patient(), &cluster).await;
    let key = cluster.keys_of(0, 1, name).await.remove(0);
    let slot = cluster.slot(&name(&key)).await;
    let claim = Claim::new(key.as_str()).with_limit(1);
    let holder = store.acquire(claim.clone()).await.expect("there is room");
    // With a waiter, all four keys exist.
    let waiting = tokio::spawn(store.acquire(claim.clone().with_wait(BOUND)));
    let queue = format!("{}:queue", name(&key));
    eventually("it waits", BOUND, async || {
        cluster.raw(0).await.zcard(&queue).await == 1
    })
    .await;
    cluster.begin_move(slot, 0, 1).await;
    cluster.move_keys(slot, 0, 1).await;
    // The old node answers ASK, and the new one serves only calls that begin with ASKING.
    let (policy, key) = (Policy::DEFAULT, Key::from(key.as_str()));
    let usage = store.usage(&policy, &key).await.expect("it answers");
    assert_eq!((usage.units, usage.waiting.len()), (1, 1));
    // Some of these queries consist of several commands.
    let counts = store
        .counts(&policy, &[StoredKey::whole(key.clone())])
        .await;
    let counts = counts.expect("it answers");
    assert_eq!((counts[0].units, counts[0].waiting), (1, 1));
    drop(holder);
    let waiter = timeout(BOUND, waiting)
        .await
        .expect("it is granted before the slot has moved");
    let waiter = waiter.expect("no panic").expect("it is granted");
    let errors = cluster.raw(0).await.cmd(&["INFO", "errorstats"]).await;
    assert!(errors.text().contains("ASK"), "{}", errors.text());
    cluster.end_move(slot, 0, 1).await;
    assert!(waiter.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_move_does_not_end_fails_its_own_claims_only_and_in_time() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let _share = beside_others().await;
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(patient().timeout(TIMEOUT), &cluster).await;
    let keys = cluster.keys_of(0, 20, name).await;
    let slot = cluster.slot(&name(&keys[0])).await;
    let claim = Claim::new(keys[0].as_str()).with_limit(2);
    let _held = store.acquire(claim.clone()).await.expect("there is room");
    cluster.begin_move(slot, 0, 1).await;
    let load = Load::start(&store, &keys[1..]);
    let answer = timeout(TIMEOUT * 3, store.acquire(claim)).await;
    let error = answer.expect("it is in time").expect_err("the keys move");
    assert!(format!("{error:?}").contains("TryAgain"), "{error:?}");
    let (seen, _) = load.stop().await;
    let harmed = seen
        .iter()
        .filter(|seen| seen.error.is_some() || seen.took > TIMEOUT);
    assert_eq!(harmed.count(), 0, "of {}", seen.len());
}

/// Applies `fault` to a slot. Claims on it must fail with one of these errors, and a claim on another slot of the same
/// node must pass.
async fn assert_only_its_claims_fail(
    errors: &[&str],
    fault: impl AsyncFnOnce(&mut Cluster, usize),
) {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let _share = beside_others().await;
    let mut cluster = Cluster::of_primaries(3).await;
    let store = connect(patient().timeout(TIMEOUT), &cluster).await;
    let keys = cluster.keys_of(0, 2, name).await;
    let claims = [0, 1].map(|key| Claim::new(keys[key].as_str()).with_limit(1));
    let slot = cluster.slot(&name(&keys[0])).await;
    assert!(store.acquire(claims[1].clone()).await.is_ok());
    fault(&mut cluster, slot).await;
    // These failures would be enough to open the node's breaker, if they counted for the node.
    for _ in 0..4 {
        let answer = store.acquire(claims[0].clone()).await;
        let error = answer.expect_err("no node serves it");
        let error = format!("{error:?}");
        assert!(errors.iter().any(|text| error.contains(text)), "{error}");
        sleep(TIMEOUT / 10).await;
    }
    let answer = store.acquire(claims[1].clone()).await;
    assert!(answer.is_ok(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_new_node_is_dead_fails_its_own_claims_only() {
    assert_only_its_claims_fail(&["Ask", "Unavailable"], async |cluster, slot| {
        cluster.begin_move(slot, 0, 1).await;
        cluster.node_mut(1).kill();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_new_node_is_silent_fails_its_own_claims_only() {
    assert_only_its_claims_fail(
        &["no answer from Redis", "Ask", "timed out"],
        async |cluster, slot| {
            cluster.begin_move(slot, 0, 1).await;
            cluster.node(1).stop();
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_each_node_attributes_to_the_other_fails_its_own_claims_only() {
    assert_only_its_claims_fail(&["Moved", "Ask"], async |cluster, slot| {
        cluster.begin_move(slot, 0, 1).await;
        // Only the new node ends the move, so it redirects to the old node, which still redirects to the new one.
        let stable = ["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"];
        assert_eq!(cluster.raw(1).await.cmd(&stable).await.text(), "OK");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_follow_a_slot_although_redirects_name_no_host() {
    let _share = beside_others().await;
    let cluster = Cluster::of_primaries(3).await;
    for node in 0..3 {
        // No node has a host name, so they answer `MOVED 1234 ?:7000`. Redis 6.2 ignores this setting.
        let named = [
            "CONFIG",
            "SET",
            "cluster-preferred-endpoint-type",
            "hostname",
        ];
        cluster.raw(node).await.cmd(&named).await;
    }
    let store = connect(patient(), &cluster).await;
    for key in cluster.keys_of(0, 3, name).await {
        let claim = Claim::new(key.as_str()).with_limit(1);
        let permit = store.acquire(claim.clone()).await.expect("there is room");
        assert!(permit.release().await);
        let slot = cluster.slot(&name(&key)).await;
        cluster.move_slot(slot, 0, 1).await;
        let permit = store.acquire(claim.clone()).await;
        assert!(permit.is_ok(), "{permit:?}");
    }
}

/// Applies `stick` to the slot of the key `processes` (arguments: slot, owner, another node). A process that starts
/// afterwards can claim all other keys, and its check reports exactly `risks`.
async fn assert_claims_pass_while_stuck(
    risks: &[Risk],
    stick: impl AsyncFnOnce(&Cluster, [usize; 3]),
) {
    let _share = beside_others().await;
    let cluster = Cluster::of_primaries(3).await;
    let slot = cluster.slot("semaphore:2:processes").await;
    let owner = cluster.first_owner(slot);
    stick(&cluster, [slot, owner, (owner + 1) % 3]).await;
    let store = connect(patient().timeout(Duration::from_secs(1)), &cluster).await;
    for node in 0..3 {
        for key in cluster.keys_of(node, 10, name).await {
            let claim = Claim::new(key.as_str()).with_limit(1);
            let permit = store.acquire(claim).await;
            assert!(permit.is_ok(), "{key} of node {node}: {permit:?}");
        }
    }
    eventually("the check reports these risks", BOUND, async || {
        store.check().await.is_ok_and(|found| found == risks)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_pass_while_the_slot_of_the_processes_has_no_keys_and_its_move_does_not_end() {
    assert_claims_pass_while_stuck(&[], async |cluster, [slot, owner, other]| {
        cluster.begin_move(slot, owner, other).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_pass_while_each_node_attributes_the_processes_to_the_other_and_a_check_warns() {
    assert_claims_pass_while_stuck(&[Risk::NoLimits], async |cluster, [slot, owner, other]| {
        cluster.begin_move(slot, owner, other).await;
        let stable = ["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"];
        assert_eq!(cluster.raw(other).await.cmd(&stable).await.text(), "OK");
    })
    .await;
}

/// Removes a slot from all nodes.
async fn leave_unserved(cluster: &Cluster, slot: usize) {
    for node in 0..3 {
        let unserved = ["CLUSTER", "DELSLOTS", &slot.to_string()];
        assert_eq!(cluster.raw(node).await.cmd(&unserved).await.text(), "OK");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_pass_while_no_node_serves_the_slot_of_the_processes_and_a_check_warns() {
    assert_claims_pass_while_stuck(&[Risk::NoLimits], async |cluster, [slot, ..]| {
        leave_unserved(cluster, slot).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_no_node_serves_is_unavailable_and_harms_no_other_key_of_its_node() {
    let _share = beside_others().await;
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(patient().when_unavailable(WhenUnavailable::Admit), &cluster).await;
    let keys = cluster.keys_of(0, 4, name).await;
    let claims = keys
        .iter()
        .map(|key| Claim::new(key.as_str()).with_limit(1));
    let claims: Vec<_> = claims.collect();
    let held = store
        .acquire(claims[1].clone())
        .await
        .expect("there is room");
    let unserved = store.acquire(claims[0].clone()).await;
    let unserved = unserved.expect("there is room");
    leave_unserved(&cluster, cluster.slot(&name(&keys[0])).await).await;
    // Claim 0 is for the unserved slot, and claim 1 is held. Failed refreshes are enough to make the slot count as
    // unavailable.
    eventually("its lease ends", BOUND, async || unserved.is_degraded()).await;
    for _ in 0..10 {
        for (number, claim) in claims.iter().enumerate().filter(|(number, _)| *number != 1) {
            let permit = store.acquire(claim.clone()).await;
            let is_degraded = permit.as_ref().map(Permit::is_degraded);
            assert!(
                is_degraded.is_ok_and(|is_degraded| is_degraded == (number == 0)),
                "{number}: {permit:?}"
            );
        }
    }
    let waits = claims[0].clone().with_wait(Duration::from_millis(200));
    let permit = store.acquire(waits).await.expect("the policy admits it");
    assert!(permit.is_degraded() && !held.is_degraded());
    assert!(held.release().await);
}

/// The nodes refused to run the acquires, so nothing has to be released.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_claim_for_a_stuck_slot_leaves_nothing_for_a_shutdown() {
    let _share = beside_others().await;
    let cluster = Cluster::of_primaries(3).await;
    let keys = cluster.keys_of(0, 2, name).await;
    let [unserved, moving] = [&keys[0], &keys[1]];
    let store = connect(patient(), &cluster).await;
    leave_unserved(&cluster, cluster.slot(&name(unserved)).await).await;
    // No node runs a script for the moving slot while one of its keys is at the old node and the others are missing.
    let filler = ["SET", &format!("{}:token", name(moving)), "1"];
    assert_eq!(cluster.raw(0).await.cmd(&filler).await.text(), "OK");
    cluster
        .begin_move(cluster.slot(&name(moving)).await, 0, 1)
        .await;
    for key in [unserved, moving] {
        let permit = store.acquire(Claim::new(key.as_str()).with_limit(1)).await;
        assert!(permit.is_err(), "{permit:?}");
    }
    let unreleased = store.shutdown(Duration::from_secs(2)).await;
    assert!(unreleased.is_empty(), "{unreleased:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_obeys_a_limit_that_was_set_while_the_slot_of_limits_is_stuck() {
    let _share = beside_others().await;
    let cluster = Cluster::of_primaries(3).await;
    let slot = cluster.slot("semaphore:2:processes").await;
    let owner = cluster.first_owner(slot);
    cluster.begin_move(slot, owner, (owner + 1) % 3).await;
    let operator = connect(patient(), &cluster).await;
    let (policy, key) = (Policy::DEFAULT, cluster.keys_of(0, 1, name).await.remove(0));
    let key = Key::from(key);
    let set = operator.set_limit(&policy, Some(&key), Some(1), "").await;
    set.expect("the limits are stored at the new node");
    let store = connect(patient(), &cluster).await;
    let claim = Claim::new(key).with_limit(5);
    let _held = store.acquire(claim.clone()).await.expect("there is room");
    let second = store
        .acquire(claim)
        .await
        .expect_err("an operator has set 1");
    assert!(
        matches!(second, AcquireError::Full { limit: 1, .. }),
        "{second:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_unit_and_the_last_waiter_change_hands_while_their_slot_is_moving() {
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(patient(), &cluster).await;
    let key = cluster.keys_of(0, 1, name).await.remove(0);
    let slot = cluster.slot(&name(&key)).await;
    let claim = Claim::new(key.as_str()).with_limit(1).with_wait(BOUND);
    let mut holder = store.acquire(claim.clone()).await.expect("there is room");
    let queue = format!("{}:queue", name(&key));
    for _ in 0..3 {
        // With a waiter, all four keys exist, so the old node runs scripts.
        let waiting = tokio::spawn(store.acquire(claim.clone()));
        eventually("it waits", BOUND, async || {
            cluster.raw(0).await.zcard(&queue).await == 1
        })
        .await;
        cluster.begin_move(slot, 0, 1).await;
        drop(holder);
        let granted = timeout(BOUND / 3, waiting).await.expect("it is in time");
        holder = granted.expect("no panic").expect("it is granted");
        let stable = ["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"];
        for node in [0, 1] {
            assert_eq!(cluster.raw(node).await.cmd(&stable).await.text(), "OK");
        }
    }
    assert!(holder.release().await);
}
