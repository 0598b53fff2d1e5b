//! Cases of budgets that random calls rarely reach.
//!
//! Promises: P26.

use super::world::{LEASE, PROVISIONAL, World, claims, id, keys_of};
use testing::rng::Rng;
use tower_semaphore_model::{
    scripts::Verb,
    stand_in::{Entry, Reply, Value},
    unit::base36,
};

/// A process with many permits has died. One call counts all of them as used, each at its end.
#[test]
fn however_many_reservations_have_ended_each_is_spent_at_its_end() {
    // More than `CHUNK` in budget.lua.
    const COUNT: i64 = 520;
    const LIMIT: i64 = 2_000;
    let mut world = World::with_minute();
    for permit in 0..COUNT {
        let granted = world.acquire_with("2000", &id(permit as usize, LIMIT, 1), LEASE);
        assert_eq!(granted[1], Reply::Int(1));
    }
    // 6 s after the ends a tenth of the limit has come back: 200 units.
    world.server.now += (LEASE + 6_000) * 1_000;
    let whole_limit = id(COUNT as usize, LIMIT, LIMIT);
    let refused = world.acquire_with("2000", &whole_limit, LEASE);
    // Full at level 1 with 320 units, and the time until these have come back too.
    let ms = (COUNT * 60_000 - 6_000 * LIMIT) / LIMIT;
    let expected = [0, 1, 320, ms].map(Reply::Int).to_vec();
    assert_eq!(refused[1], Reply::List(expected));
    assert!(world.server.key(&world.keys[0]).is_none(), "none is left");
    assert_eq!(world.fields(), 1, "that of the state");
}

/// Claims of one call are decided one after the other.
#[test]
fn two_claims_in_one_call_do_not_share_the_same_units() {
    let mut world = World::with_minute();
    // Each claim needs three units of a limit of five.
    let ids = [id(1, 5, 3), id(2, 5, 3)];
    let args = claims(world.now(), "1", &[&ids[0], &ids[1]], LEASE);
    let answer = world.run(Verb::AcquireBudgets, &args);
    // The first is granted, and three units are held. The second finds level 1 full with these.
    assert_eq!(answer[1..3], [1, 3].map(Reply::Int));
    assert!(
        matches!(&answer[3], Reply::List(refusal) if refusal[..3] == [0, 1, 3].map(Reply::Int))
    );
}

/// The reservation of the claim with the head start has ended. The call in which this claim joins the queue, before the
/// head, removes the reservation. All limits are 100.
#[test]
fn a_head_start_reserves_nothing_beyond_the_limit() {
    let mut world = World::with_minute();
    // 40 and 60 units.
    let early = "x.1.0.0.2s.14.7ps.0...";
    let other = "l.3.0.0.2s.1o.7ps.0...";
    assert_eq!(
        world.acquire_with("100", early, PROVISIONAL)[1],
        Reply::Int(1)
    );
    assert_eq!(world.acquire_with("100", other, LEASE)[1], Reply::Int(1));
    world.server.now += 500_000;
    // 90 units, which wait.
    let head = world.acquire_with("100 8000 10 0 0", "h.2.0.0.2s.2i.7ps.0...", LEASE);
    assert!(matches!(&head[1], Reply::List(queued) if queued[0] == Reply::Int(-2)));
    // The holder of 60 units settles 360, so nothing of it is reserved any more.
    refresh(&mut world, other, 360);
    world.server.now += 600_000;
    // It was sent before, and has a head start of 5 s.
    let again = world.acquire_with("-1 2000 10 0 5000000", early, LEASE);
    assert!(matches!(&again[1], Reply::List(queued) if queued[0] == Reply::Int(-2)));
    assert_eq!(world.reserved(), 0);
}

/// Another program has overwritten a key that the script names late. Two claims have 50 units each, and a third waits.
#[test]
fn a_release_that_fails_midway_frees_its_units_once() {
    let mut world = World::with_minute();
    let (released, stays) = ("a.1.0.0.2s.1e.go.0...", "b.2.0.0.2s.1e.7ps.0...");
    for id in [released, stays] {
        assert_eq!(world.acquire_with("100", id, LEASE)[1], Reply::Int(1));
    }
    world.acquire_with("100 8000 10 0 0", "w.9.0.0.2s.2i.7ps.0...", LEASE);
    let strange = Value::Text("strange".to_owned());
    let strange = Entry {
        value: strange,
        expires_at: None,
    };
    world.server.insert(world.keys[2].clone(), strange);
    let args = ["1", "5", "1", &format!("{released} 0")].map(str::to_owned);
    for _ in 0..3 {
        let keys = world.keys.clone();
        let failed = world.try_to_run(Verb::ReleaseBudgets, &keys, &args);
        assert!(failed.is_err(), "{failed:?}");
        assert_eq!(world.reserved(), 50);
    }
}

/// Pauses the budgets for this many ms, or ends their pause for 0. Returns the script's answer.
fn pause(world: &mut World, window: i64, ms: i64) -> Reply {
    let before = format!("o.0.0.0.0.1.{}.", base36(ms as u32));
    let args = ["5", &ms.to_string(), "2", &before, ".1.!."].map(str::to_owned);
    let answer = world.try_to_run(Verb::Pause, &keys_of(window), &args);
    answer.expect("it runs").remove(1)
}

/// The answer to a claim while the key is paused for this many ms: full at level 1, with no units in use.
fn paused_for(ms: i64) -> Reply {
    Reply::List([-4, 1, 0, ms].map(Reply::Int).to_vec())
}

/// Operators pause the budgets that are not in use yet under window 0.
#[test]
fn a_shorter_pause_holds_if_the_hash_with_the_longer_one_was_lost() {
    let mut world = World::with_minute();
    pause(&mut world, 0, 60_000);
    world.server.take(&keys_of(0)[3]);
    pause(&mut world, 0, 50_000);
    let refused = world.acquire_with("100", &id(1, 100, 1), LEASE);
    assert_eq!(refused[1], paused_for(50_000));
}

/// An operator has ended the first pause, but only for window 0 when the key was paused again.
#[test]
fn a_window_follows_a_shorter_pause_of_the_hash() {
    let mut world = World::with_minute();
    world.acquire_with("100 rate", &id(1, 100, 1), LEASE);
    for window in [0, 60_000] {
        pause(&mut world, window, 600_000);
    }
    assert_eq!(pause(&mut world, 0, 0), Reply::Int(1));
    pause(&mut world, 0, 50_000);
    let refused = world.acquire_with("100", &id(2, 100, 1), LEASE);
    let expected = [-4, 1, 1, 50_000].map(Reply::Int).to_vec();
    assert_eq!(refused[1], Reply::List(expected));
}

/// The other operator has paused the key between the two calls of this one, who ends the first pause.
#[test]
fn the_end_of_a_pause_ends_no_later_pause_of_another_operator() {
    let mut world = World::with_minute();
    let claim = id(1, 100, 1);
    pause(&mut world, 0, 600_000);
    assert_eq!(
        world.acquire_with("100", &claim, LEASE)[1],
        paused_for(600_000)
    );
    pause(&mut world, 0, 0);
    for window in [0, 60_000] {
        assert_eq!(pause(&mut world, window, 50_000), Reply::Int(1));
    }
    assert_eq!(pause(&mut world, 60_000, 0), Reply::Int(0));
    assert_eq!(
        world.acquire_with("100", &claim, LEASE)[1],
        paused_for(50_000)
    );
}

/// Its holders have died, and a longer window keeps the hash.
#[test]
fn a_budget_whose_reservations_have_expired_leaves_no_field_behind() {
    let (mut world, hour) = (World::with_minute(), keys_of(3_600_000));
    let long = claims(world.now(), "100", &[&id(1, 100, 1)], LEASE);
    let granted = world.try_to_run(Verb::AcquireBudgets, &hour, &long);
    granted.expect("it runs");
    for permit in 2..5 {
        world.acquire_with("100 rate", &id(permit, 100, 1), LEASE);
    }
    assert_eq!(world.fields(), 2 + 4, "two states, and four reservations");
    // Longer than the key of the minute lasts, but not that of the hour.
    world.server.now += 600_000_000;
    world.acquire_with("100", &id(5, 100, 1), LEASE);
    assert_eq!(
        world.fields(),
        2 + 2,
        "the hour's reservation and the next one"
    );
}

/// Revokes a reservation, and keeps the revocation for an hour. Returns the script's answer.
fn revoke(world: &mut World, id: &str) -> Result<Vec<Reply>, String> {
    let (keys, args) = (world.keys.clone(), ["5", "3600000", "1", id]);
    world.try_to_run(Verb::Revoke, &keys, &args.map(str::to_owned))
}

/// The answer to a refresh of a reservation that has settled this total: 1 if it is held.
fn refresh(world: &mut World, id: &str, total: i64) -> Reply {
    let args = [LEASE.to_string(), "1".to_owned(), format!("{id} {total}")];
    world.run(Verb::RefreshBudgets, &args).remove(1)
}

#[test]
fn a_refresh_of_a_revoked_reservation_reports_its_loss() {
    let mut world = World::with_minute();
    let [revoked, ended] = [id(1, 100, 1), id(2, 100, 1)];
    for id in [&revoked, &ended] {
        world.acquire_with("100", id, LEASE);
    }
    let answer = revoke(&mut world, &revoked).expect("it runs");
    assert_eq!(answer[1], Reply::Int(1));
    world.server.now += LEASE * 1_000;
    assert_eq!(refresh(&mut world, &revoked, 1), Reply::Int(0));
    assert_eq!(refresh(&mut world, &ended, 1), Reply::Int(1));
}

/// It fails after any number of writes, as long as it fails.
#[test]
fn a_revocation_that_fails_midway_can_be_sent_again() {
    for writes in 0.. {
        let mut world = World::with_minute();
        let id = id(1, 100, 60);
        world.acquire_with("100", &id, LEASE);
        world.server.writes_left = Some(writes);
        let has_failed = revoke(&mut world, &id).is_err();
        world.server.writes_left = None;
        revoke(&mut world, &id).expect("it runs");
        assert_eq!(
            refresh(&mut world, &id, 1),
            Reply::Int(0),
            "after {writes} writes"
        );
        assert_eq!(world.reserved(), 0, "after {writes} writes");
        if !has_failed {
            break;
        }
    }
}

/// The crowd has the largest share, so its claims are close to each other in the queue. The limit is 100,000 a second.
#[test]
fn a_newcomer_waits_behind_the_head_of_a_crowd_only() {
    const LIMIT: i64 = 100_000;
    let mut world = World::new(Rng::new(1), 1_000, LIMIT);
    world.acquire_with("100000 rate", &id(0, LIMIT, LIMIT), LEASE);
    // The share and the flow follow the time of the claim, which is 0. A share of 100 is 2s.
    let of_flow = |permit, flow| id(permit, LIMIT, 1).replace(".0...", flow);
    let crowd = (1..=300).map(|permit| of_flow(permit, ".0.2s.crowd."));
    for id in crowd.chain([of_flow(301, ".0.1.newcomer.")]) {
        world.acquire_with("100000 rate 8000 1000 0 0", &id, LEASE);
    }
    let queue = world.server.key(&world.keys[1]).map(|entry| &entry.value);
    let Some(Value::Sorted(queue)) = queue else {
        panic!("{queue:?}")
    };
    let place = queue
        .items()
        .iter()
        .position(|(_, id)| id.contains("newcomer"));
    assert_eq!((queue.items().len(), place), (301, Some(1)));
}
