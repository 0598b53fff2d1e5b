//! Fair queues, in every store: waiting flows are served in turns. A flow is the tenant of a claim, and its share is
//! the number of its turns in a round.
//!
//! Promises: P16.

use super::{
    BOUND, Store, claim,
    queue::{Waiter, granted},
};
use futures_util::future::join_all;
use std::time::Duration;
use testing::{stores::facts, wait::within};
use tower_semaphore::{AcquireError, Claim, Permit, Semaphore};

facts! {
    beside_several_flows_a_newcomer_is_served_after_one_claim_of_each
    a_crowd_that_has_filled_the_queue_keeps_no_newcomer_out
    flows_are_served_in_the_ratio_of_their_shares
    a_claim_costs_its_flow_one_turn_for_each_unit
    claims_of_one_flow_are_served_in_the_order_of_their_arrival
    a_flow_that_was_idle_has_saved_nothing_up
    a_claim_that_leaves_last_gives_its_turn_back
    a_claim_that_leaves_gives_its_turn_to_the_next_one_of_its_flow
    a_flow_whose_claims_have_given_up_owes_nothing
    claims_without_a_flow_are_one_flow_once_another_has_come
    claims_that_wait_before_the_first_flow_stay_before_it
    new_flows_do_not_pass_a_heavy_head_that_does_not_fit
    an_empty_queue_starts_without_old_turns
    flows_of_any_bytes_are_distinct
    a_newcomer_beside_a_hundred_flows_of_the_largest_share_is_served_after_one_claim_of_each
    a_flow_that_was_refused_leaves_head_starts_in_force
}

/// A claim of a flow for the key that all tests here use.
fn claim_of(flow: &'static str) -> Claim {
    claim("a", 1).with_flow(flow)
}

/// The first of a crowd waits until the last has joined, so its wait outlasts any test.
const LONG: Duration = Duration::from_secs(3_600);

/// A crowd of waiters, and the order in which they are granted.
struct Crowd {
    store: Store,
    /// The permit that keeps the crowd waiting.
    held: Option<Permit>,
    /// Each waiter with its name.
    waiters: Vec<(&'static str, Waiter)>,
}

impl Crowd {
    async fn new(store: Store) -> Self {
        let held = store.acquire(claim("a", 1)).await.expect("there is room");
        let (held, waiters) = (Some(held), Vec::new());
        Self {
            store,
            held,
            waiters,
        }
    }

    /// Adds a claim to the queue. It is polled here and not when its task first runs, so that claims keep their order.
    async fn join(&mut self, name: &'static str, claim: Claim) {
        let mut acquire = self.store.acquire(claim.with_wait(LONG));
        assert!(
            futures_util::poll!(&mut acquire).is_pending(),
            "{name} waits"
        );
        self.waiters.push((name, tokio::spawn(acquire)));
        self.wait_until_joined().await;
    }

    async fn join_all(&mut self, flow: &'static str, count: usize) {
        for _ in 0..count {
            self.join(flow, claim_of(flow)).await;
        }
    }

    /// Frees the key. Returns the names of the claims in the order in which they are granted.
    async fn order(mut self) -> Vec<&'static str> {
        self.free().await;
        let granted = self.waiters.into_iter().map(async |(name, waiter)| {
            let permit = within("it is granted", BOUND * 4, granted(waiter)).await;
            let token = permit.token().expect("it is granted");
            assert!(permit.release().await);
            (token, name)
        });
        let mut granted = join_all(granted).await;
        granted.sort_unstable();
        granted.into_iter().map(|(_, name)| name).collect()
    }

    /// Waits until all claims have joined: the store answers a later claim after them.
    async fn wait_until_joined(&self) {
        let refused = self.store.acquire(claim("a", 1)).await;
        assert!(
            matches!(refused, Err(AcquireError::Full { .. })),
            "{refused:?}"
        );
    }

    async fn free(&mut self) {
        let held = self.held.take().expect("it is held until now");
        assert!(held.release().await);
    }

    /// Cancels the waiter with this index.
    async fn leave(&mut self, index: usize) {
        let (_, waiter) = self.waiters.remove(index);
        waiter.abort();
        assert!(waiter.await.is_err(), "it was aborted");
    }
}

async fn beside_several_flows_a_newcomer_is_served_after_one_claim_of_each(store: Store) {
    let mut crowd = Crowd::new(store).await;
    for flow in ["ann", "bob", "cid"] {
        crowd.join_all(flow, 10).await;
    }
    crowd.join_all("dot", 2).await;
    let order = crowd.order().await;
    assert_eq!(
        order[..8],
        ["ann", "bob", "cid", "dot", "ann", "bob", "cid", "dot"]
    );
}

async fn a_crowd_that_has_filled_the_queue_keeps_no_newcomer_out(store: Store) {
    let mut crowd = Crowd::new(store).await;
    let few = |flow| claim_of(flow).with_max_waiting(5);
    for _ in 0..5 {
        crowd.join("ann", few("ann")).await;
    }
    let one_more = crowd.store.acquire(few("ann").with_wait(BOUND)).await;
    assert!(
        matches!(one_more, Err(AcquireError::QueueFull { .. })),
        "{one_more:?}"
    );
    for _ in 0..2 {
        crowd.join("bob", few("bob")).await;
    }
    let order = crowd.order().await;
    assert_eq!(order, ["ann", "bob", "ann", "bob", "ann", "ann", "ann"]);
}

async fn flows_are_served_in_the_ratio_of_their_shares(store: Store) {
    let mut crowd = Crowd::new(store).await;
    for (flow, share) in [("one", 1), ("two", 2), ("four", 4)] {
        for _ in 0..8 * share {
            crowd.join(flow, claim_of(flow).with_share(share)).await;
        }
    }
    let order = crowd.order().await;
    for (flow, share) in [("one", 1), ("two", 2), ("four", 4)] {
        // Seven rounds, in which all three flows still wait.
        let count = order[..49].iter().filter(|name| **name == flow).count();
        assert!(
            count.abs_diff(7 * share) <= 1,
            "{count} of {flow}: {order:?}"
        );
    }
}

async fn a_claim_costs_its_flow_one_turn_for_each_unit(store: Store) {
    let limit = |flow| claim("a", 3).with_flow(flow);
    let mut crowd = Crowd::new(store).await;
    // The crowd's own permit leaves two units of a limit of 3.
    let others = crowd.store.acquire(claim("a", 3).with_weight(2)).await;
    let others = others.expect("there is room for two more");
    for _ in 0..4 {
        crowd.join("heavy", limit("heavy").with_weight(3)).await;
    }
    for _ in 0..8 {
        crowd.join("light", limit("light").with_weight(1)).await;
    }
    assert!(others.release().await);
    let order = crowd.order().await;
    // Two heavy claims have as many units as six light ones.
    let heavy = order[..8].iter().filter(|name| **name == "heavy");
    assert_eq!(heavy.count(), 2, "{order:?}");
}

async fn claims_of_one_flow_are_served_in_the_order_of_their_arrival(store: Store) {
    let mut crowd = Crowd::new(store).await;
    for name in ["first", "second", "third", "fourth"] {
        crowd.join(name, claim_of("ann")).await;
        crowd.join("other", claim_of("bob")).await;
    }
    let mut order = crowd.order().await;
    order.retain(|name| *name != "other");
    assert_eq!(order, ["first", "second", "third", "fourth"]);
}

async fn a_flow_that_was_idle_has_saved_nothing_up(store: Store) {
    let mut crowd = Crowd::new(store).await;
    crowd.join("bob", claim_of("bob")).await;
    crowd.join_all("ann", 20).await;
    crowd.free().await;
    let mut waiters = crowd.waiters.into_iter();
    // These are bob's only claim and eight of ann. Bob is idle while ann is served.
    for (_, waiter) in waiters.by_ref().take(9) {
        assert!(granted(waiter).await.release().await);
    }
    let (_, next) = waiters.next().expect("there are more");
    crowd.held = Some(granted(next).await);
    crowd.waiters = waiters.collect();
    crowd.join_all("bob", 5).await;
    let order = crowd.order().await;
    assert_eq!(order[..6], ["ann", "bob", "ann", "bob", "ann", "bob"]);
}

async fn a_claim_that_leaves_last_gives_its_turn_back(store: Store) {
    let mut crowd = Crowd::new(store).await;
    crowd.join_all("bob", 3).await;
    crowd.join_all("ann", 2).await;
    for _ in 0..5 {
        crowd.join("ann", claim_of("ann")).await;
        // The claim that has just joined.
        crowd.leave(5).await;
    }
    crowd.join_all("ann", 1).await;
    let order = crowd.order().await;
    assert_eq!(order, ["bob", "ann", "bob", "ann", "bob", "ann"]);
}

async fn a_claim_that_leaves_gives_its_turn_to_the_next_one_of_its_flow(store: Store) {
    let mut crowd = Crowd::new(store).await;
    crowd.join_all("bob", 3).await;
    for name in ["first", "second", "third"] {
        crowd.join(name, claim_of("ann")).await;
    }
    // The first of ann.
    crowd.leave(3).await;
    crowd.wait_until_joined().await;
    let order = crowd.order().await;
    assert_eq!(order, ["bob", "second", "bob", "third", "bob"]);
}

async fn a_flow_whose_claims_have_given_up_owes_nothing(store: Store) {
    let mut crowd = Crowd::new(store).await;
    crowd.join_all("bob", 5).await;
    crowd.join_all("ann", 5).await;
    // All claims of ann leave.
    for _ in 0..5 {
        crowd.leave(5).await;
        crowd.wait_until_joined().await;
    }
    crowd.join_all("ann", 1).await;
    let order = crowd.order().await;
    assert_eq!(order[1], "ann", "{order:?}");
}

async fn claims_without_a_flow_are_one_flow_once_another_has_come(store: Store) {
    let mut crowd = Crowd::new(store).await;
    crowd.join("ann", claim_of("ann")).await;
    for _ in 0..3 {
        crowd.join("none", claim("a", 1)).await;
    }
    crowd.join_all("ann", 2).await;
    let order = crowd.order().await;
    assert_eq!(order, ["ann", "none", "ann", "none", "ann", "none"]);
}

async fn claims_that_wait_before_the_first_flow_stay_before_it(store: Store) {
    let mut crowd = Crowd::new(store).await;
    for _ in 0..3 {
        crowd.join("none", claim("a", 1)).await;
    }
    for flow in ["ann", "ann", "bob"] {
        crowd.join(flow, claim_of(flow)).await;
    }
    let order = crowd.order().await;
    assert_eq!(order, ["none", "none", "none", "ann", "bob", "ann"]);
}

async fn new_flows_do_not_pass_a_heavy_head_that_does_not_fit(store: Store) {
    let limit = |flow| claim("a", 2).with_flow(flow);
    let mut crowd = Crowd::new(store).await;
    crowd.join("heavy", limit("heavy").with_weight(2)).await;
    for flow in ["ann", "bob", "cid", "dot"] {
        crowd.join(flow, limit(flow)).await;
    }
    let order = crowd.order().await;
    assert_eq!(order[0], "heavy", "{order:?}");
}

async fn an_empty_queue_starts_without_old_turns(store: Store) {
    let mut crowd = Crowd::new(store.clone()).await;
    crowd.join_all("ann", 5).await;
    assert_eq!(crowd.order().await.len(), 5);
    let mut crowd = Crowd::new(store).await;
    for flow in ["ann", "bob", "ann"] {
        crowd.join(flow, claim_of(flow)).await;
    }
    assert_eq!(crowd.order().await, ["ann", "bob", "ann"]);
}

async fn flows_of_any_bytes_are_distinct(store: Store) {
    let flows: [&'static [u8]; 16] = [
        b"a",
        b"a:2",
        b"A",
        b"~_1_a",
        b"1_a",
        b"~61",
        b"%61",
        b"a.b",
        b".",
        b"+1",
        b"\0",
        b"\xff",
        b" ",
        b"~-",
        &[b'a'; 65],
        &[b'a'; 66],
    ];
    let mut crowd = Crowd::new(store).await;
    let names: Vec<&'static str> = (0..16).map(|n| &*format!("{n}").leak()).collect();
    for (name, flow) in names.iter().zip(flows) {
        for _ in 0..2 {
            let claim = claim("a", 1).with_flow(flow).with_label("x~_9_a");
            crowd.join(name, claim).await;
        }
    }
    let order = crowd.order().await;
    assert_eq!(order, [&names[..], &names[..]].concat());
}

async fn a_newcomer_beside_a_hundred_flows_of_the_largest_share_is_served_after_one_claim_of_each(
    store: Store,
) {
    let mut crowd = Crowd::new(store).await;
    for number in 0..100 {
        for _ in 0..2 {
            let claim = claim("a", 1).with_flow(format!("flow-{number}"));
            let claim = claim.with_share(100).with_max_waiting(500);
            crowd.join("crowd", claim).await;
        }
    }
    let newcomer = claim_of("newcomer").with_share(100).with_max_waiting(500);
    crowd.join("newcomer", newcomer).await;
    let order = crowd.order().await;
    let at = order.iter().position(|name| *name == "newcomer");
    assert!(at.is_some_and(|at| at <= 100), "{at:?}");
}

async fn a_flow_that_was_refused_leaves_head_starts_in_force(store: Store) {
    let mut crowd = Crowd::new(store).await;
    crowd.join("batch", claim("a", 1)).await;
    let refused = claim_of("ann").with_wait(BOUND).with_max_waiting(1);
    let refused = crowd.store.acquire(refused).await;
    assert!(
        matches!(refused, Err(AcquireError::QueueFull { .. })),
        "{refused:?}"
    );
    crowd
        .join("interactive", claim("a", 1).with_head_start(BOUND))
        .await;
    assert_eq!(crowd.order().await, ["interactive", "batch"]);
}
