//! The order of a fair queue: start-time fair queueing (Goyal, Vin and Cheng, 1996), as in Redis.
//!
//! A waiter's rank is its start tag. A flow starts when its last claim finishes, or at the virtual time, which is that
//! of the head: so it saves nothing up while it is idle, and no new one comes before a head that does not fit.

use crate::semaphore::{Claim, Key};
use std::collections::HashMap;

/// What a unit adds to the tags of a flow of share 1. Any share is exact to one percent, and tags are free for newcomers
/// while the shares of all flows that wait add up to less.
const UNIT: i64 = 100_000;

/// Of fewer flows none is forgotten.
const FEW: usize = 64;

/// What a claim adds to the tags of its flow. Claims without one are a flow too.
fn cost(claim: &Claim) -> i64 {
    // A share is that of a flow.
    let share = claim.flow().map_or(1, |_| i64::from(claim.share()));
    (i64::from(claim.weight()) * UNIT + share - 1) / share
}

/// The tags of a fair queue.
pub(super) struct Tags {
    time: i64,
    /// Where the last claim of each flow finishes, if that is ahead, or not forgotten yet.
    finishes: HashMap<Option<Key>, i64>,
    /// With so many, those that have finished are forgotten: seldom, because each is looked at.
    most: usize,
}

impl Tags {
    /// Those of a queue that becomes fair: who has come until then stays before all that come later.
    pub(super) fn after(last: i64) -> Self {
        Self {
            time: last,
            finishes: HashMap::new(),
            most: FEW,
        }
    }

    /// The first start of a claim that joins behind this head.
    pub(super) fn start(&self, claim: &Claim, head: i64) -> i64 {
        let finish = self
            .finishes
            .get(&claim.flow().cloned())
            .copied()
            .unwrap_or(i64::MIN);
        finish.max(self.time.max(head) + 1)
    }

    /// It has joined there.
    pub(super) fn joined(&mut self, claim: &Claim, head: i64, start: i64) {
        self.time = self.time.max(head);
        if self.finishes.len() >= self.most {
            let time = self.time;
            self.finishes.retain(|_, finish| *finish > time);
            self.most = FEW.max(self.finishes.len() * 2);
        }
        self.finishes
            .insert(claim.flow().cloned(), start + cost(claim));
    }

    /// A waiter has left without a grant. The later ones of its flow, given with their starts, move up, each to where the
    /// one before it finishes now, and so does the finish of the flow. Returns their starts. None moves before the virtual
    /// time, as behind claims that came before the first flow.
    pub(super) fn left<'a>(
        &mut self,
        (claim, start): (&Claim, i64),
        later: impl Iterator<Item = (&'a Claim, i64)>,
        is_taken: impl Fn(i64) -> bool,
    ) -> Vec<i64> {
        let mut slot = start.max(self.time);
        let moved = later.map(|(later, own)| {
            if own < slot {
                return own;
            }
            let free = (slot..own).find(|tag| !is_taken(*tag)).unwrap_or(own);
            slot = free + cost(later);
            free
        });
        let moved = moved.collect();
        if let Some(finish) = self.finishes.get_mut(&claim.flow().cloned()) {
            *finish = slot;
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(flow: &str, weight: u32, share: u32) -> Claim {
        let claim = Claim::new("a").with_weight(weight).with_share(share);
        claim.with_flow(flow)
    }

    #[test]
    fn a_share_divides_what_a_claim_costs() {
        let costs = [(1, 1), (3, 1), (1, 4), (1, 3), (1, 100), (1_000, 7)];
        let costs = costs.map(|(weight, share)| cost(&claim("ann", weight, share)));
        assert_eq!(costs, [100_000, 300_000, 25_000, 33_334, 1_000, 14_285_715]);
    }

    #[test]
    fn a_flow_starts_where_it_has_finished_or_behind_the_head() {
        let (mut tags, ann, bob) = (Tags::after(0), claim("ann", 1, 1), claim("bob", 1, 1));
        tags.joined(&ann, 0, 1);
        assert_eq!(tags.start(&ann, 1), 100_001);
        assert_eq!(tags.start(&bob, 1), 2);
        tags.joined(&ann, 1, 100_001);
        assert_eq!(
            tags.start(&bob, 100_001),
            100_002,
            "it has saved nothing up"
        );
        let moved = tags.left((&ann, 1), [(&ann, 100_001)].into_iter(), |_| false);
        assert_eq!(moved, [1], "a later one moves up");
        assert_eq!(tags.start(&ann, 1), 100_001);
        assert!(tags.left((&ann, 1), [].into_iter(), |_| false).is_empty());
        assert_eq!(tags.start(&ann, 1), 2, "nothing waits");
    }

    #[test]
    fn a_waiter_that_moves_up_takes_the_tag_of_no_other_flow_and_costs_what_it_did() {
        let (mut tags, light, heavy) = (Tags::after(0), claim("ann", 1, 1), claim("ann", 3, 1));
        for start in [1, 300_001, 400_001] {
            tags.joined(if start == 1 { &heavy } else { &light }, 0, start);
        }
        let later = [(&light, 300_001), (&light, 400_001)];
        let moved = tags.left((&heavy, 1), later.into_iter(), |tag| tag == 1 || tag == 2);
        assert_eq!(moved, [3, 100_003]);
        assert_eq!(tags.start(&light, 1), 200_003);
    }

    #[test]
    fn what_has_finished_is_forgotten() {
        let mut tags = Tags::after(0);
        for flow in 0..1_000 {
            let start = 2 * UNIT * flow;
            tags.joined(&claim(&flow.to_string(), 1, 1), start, start + 1);
            assert!(tags.finishes.len() <= FEW);
        }
    }
}
