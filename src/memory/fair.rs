//! The order of a fair queue: start-time fair queueing (Goyal, Vin and Cheng, 1996), as in Redis.
//!
//! A claim gets two numbers when it joins: a start tag, which is its rank in the queue, and a finish, which is the
//! start tag plus the claim's cost. It starts at the finish of its flow's last claim, or behind the virtual time if
//! that is later. The virtual time is the start tag of the head. So an idle flow saves up no turns, and no new claim
//! is placed before the head, even while the head waits for more room than the new claim needs.

use crate::semaphore::{Claim, CompactKey, Units};
use foldhash::fast::RandomState;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
};

/// The distance that one unit moves the tags of a flow with share 1. At the largest share the distance is still 1,000,
/// so rounding changes no share by more than one percent. A flow takes about one in `UNIT / share` tags, so newcomers
/// find a free tag nearby while the shares of all waiting flows add up to less than `UNIT`.
const UNIT: i64 = 100_000;

/// With fewer flows than this, none is forgotten.
const MIN_FLOWS: usize = 64;

/// The flow and the cost of a claim, which decide its turn in a fair queue.
pub(super) struct FairTurn {
    /// All claims without a flow form one flow together.
    flow: Option<CompactKey>,
    /// How far the claim moves the tags of its flow.
    cost: i64,
}

impl FairTurn {
    pub(super) fn new(claim: &Claim) -> Self {
        // A claim without a flow has no share.
        let share = claim.flow().map_or(1, |_| i64::from(claim.share()));
        Self {
            flow: claim.flow().map(CompactKey::new),
            cost: cost_of(claim.checked_units(), share),
        }
    }

    pub(super) fn flow(&self) -> Option<&CompactKey> {
        self.flow.as_ref()
    }
}

/// How far a claim moves the tags of its flow. Claims of a budget's whole limit together move them by about a billion
/// per second of its window at most, whatever the limit is, so tags stay within range.
fn cost_of(units: Units, share: i64) -> i64 {
    const PER_MILLI: i64 = 1_000_000;
    let (weight, limit) = (i64::from(units.weight), i64::from(units.limit.max(1)));
    let cost = match units.budget {
        None => weight * UNIT,
        Some(budget) => {
            let window = budget.window.time().as_millis() as i64;
            let spread = i128::from(weight) * i128::from(PER_MILLI * window) / i128::from(limit);
            (spread as i64 + 1).min(weight * UNIT)
        }
    };
    (cost + share - 1) / share
}

/// A waiter's position in a fair queue.
#[derive(Clone, Copy)]
pub(super) struct FairPosition<'a> {
    pub(super) turn: &'a FairTurn,
    pub(super) start: i64,
    pub(super) has_left: bool,
}

/// The tags of a fair queue.
pub(super) struct Tags {
    /// The virtual time.
    time: i64,
    /// The finish of each flow's last claim. A finish behind the virtual time has no effect, and is removed later: see
    /// `forget_at`.
    finishes: HashMap<Option<CompactKey>, Finish, RandomState>,
    /// At this number of flows, those that have finished are forgotten. Then the number is set to twice the flows that
    /// remain, because forgetting looks at all flows.
    forget_at: usize,
}

#[derive(Clone, Copy)]
struct Finish {
    /// The tag at which the flow's last claim finishes.
    at: i64,
    /// True if a waiter of the flow has left and the waiters behind it have not moved up yet.
    has_gap: bool,
}

/// The first gap of a flow, and the waiters of the flow behind it, which move up.
struct Gap {
    /// The tag from which the next of these waiters may start.
    slot: i64,
    /// The positions of these waiters in the queue.
    later: VecDeque<usize>,
}

impl Tags {
    /// Returns the tags of a queue that becomes fair. Waiters that are already in the queue, up to the rank `last`,
    /// stay before all later ones.
    pub(super) fn after(last: i64) -> Self {
        Self {
            time: last,
            finishes: HashMap::default(),
            forget_at: MIN_FLOWS,
        }
    }

    /// Returns the earliest start tag of a claim that joins behind this head.
    pub(super) fn start(&self, turn: &FairTurn, head: i64) -> i64 {
        let finish = self.finishes.get(&turn.flow);
        let finish = finish.map_or(i64::MIN, |finish| finish.at);
        finish.max(self.time.max(head) + 1)
    }

    /// Records a claim that has joined behind this head with this start tag.
    pub(super) fn joined(&mut self, turn: &FairTurn, head: i64, start: i64) {
        self.time = self.time.max(head);
        if self.finishes.len() >= self.forget_at {
            let time = self.time;
            self.finishes.retain(|_, finish| finish.at > time);
            self.forget_at = MIN_FLOWS.max(self.finishes.len() * 2);
        }
        let finish = Finish {
            at: start + turn.cost,
            has_gap: false,
        };
        self.finishes.insert(turn.flow.clone(), finish);
    }

    /// Notes that a waiter has left without a grant.
    pub(super) fn note_gap(&mut self, turn: &FairTurn) {
        if let Some(finish) = self.finishes.get_mut(&turn.flow) {
            finish.has_gap = true;
        }
    }

    /// True if waiters of this flow still have to [move up](Self::close_gaps).
    pub(super) fn has_gap(&self, turn: &FairTurn) -> bool {
        let finish = self.finishes.get(&turn.flow);
        finish.is_some_and(|finish| finish.has_gap)
    }

    /// Moves the waiters behind a gap up. Takes all positions in order, and returns their new starts.
    ///
    /// Each waiter starts where the waiter before it in its flow now finishes, and the flow's finish moves too. No
    /// waiter moves before the virtual time, so waiters that joined before the queue became fair stay ahead. No waiter
    /// takes the tag of a waiter that does not move.
    pub(super) fn close_gaps<'a>(
        &mut self,
        places: impl Iterator<Item = FairPosition<'a>>,
    ) -> Vec<i64> {
        let places: Vec<_> = places.collect();
        let mut starts: Vec<_> = places.iter().map(|place| place.start).collect();
        // `fixed` are the tags of the waiters that do not move.
        let (mut gaps, mut fixed) = (HashMap::<_, Gap, RandomState>::default(), Vec::new());
        for (at, place) in places.iter().enumerate() {
            match gaps.get_mut(&place.turn.flow) {
                // Behind a gap of its flow.
                Some(gap) if !place.has_left && place.start >= gap.slot => gap.later.push_back(at),
                // The first gap of its flow.
                None if place.has_left => {
                    let (slot, later) = (place.start.max(self.time), VecDeque::new());
                    gaps.insert(&place.turn.flow, Gap { slot, later });
                }
                // A further gap of its flow.
                _ if place.has_left => {}
                // Not behind a gap of its flow, so it does not move.
                _ => fixed.push(place.start),
            }
        }
        let firsts = gaps.values().map(|gap| (gap.slot, gap.later.front()));
        let firsts = firsts.filter_map(|(slot, at)| Some(Reverse((slot, *at?))));
        // The next waiter of each of these flows, the earliest slot on top.
        let mut movable: BinaryHeap<_> = firsts.collect();
        let mut fixed = fixed.into_iter().peekable();
        let mut next = i64::MIN;
        while let Some(Reverse((slot, at))) = movable.pop() {
            next = next.max(slot);
            // Skips tags that are taken.
            while let Some(taken) = fixed.next_if(|taken| *taken <= next) {
                next += i64::from(taken == next);
            }
            starts[at] = next;
            let FairTurn { flow, cost } = places[at].turn;
            if let Some(gap) = gaps.get_mut(flow) {
                gap.slot = next + cost;
                gap.later.pop_front();
                let later = gap.later.front();
                movable.extend(later.map(|at| Reverse((gap.slot, *at))));
            }
            next += 1;
        }
        for (flow, gap) in gaps {
            if let Some(finish) = self.finishes.get_mut(flow) {
                (finish.at, finish.has_gap) = (gap.slot, false);
            }
        }
        starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(flow: &str, weight: u32, share: u32) -> FairTurn {
        let claim = Claim::new("a").with_weight(weight).with_share(share);
        FairTurn::new(&claim.with_flow(flow))
    }

    fn at(turn: &FairTurn, start: i64) -> FairPosition<'_> {
        let has_left = false;
        FairPosition {
            turn,
            start,
            has_left,
        }
    }

    /// The position of a waiter that has left.
    fn gone(turn: &FairTurn, start: i64) -> FairPosition<'_> {
        let has_left = true;
        FairPosition {
            turn,
            start,
            has_left,
        }
    }

    #[test]
    fn a_share_divides_the_cost_of_a_claim() {
        let costs = [(1, 1), (3, 1), (1, 4), (1, 3), (1, 100), (1_000, 7)];
        let costs = costs.map(|(weight, share)| turn("ann", weight, share).cost);
        assert_eq!(costs, [100_000, 300_000, 25_000, 33_334, 1_000, 14_285_715]);
    }

    #[test]
    fn a_flow_starts_where_it_has_finished_or_behind_the_head() {
        let (mut tags, ann, bob) = (Tags::after(0), turn("ann", 1, 1), turn("bob", 1, 1));
        tags.joined(&ann, 0, 1);
        assert_eq!(tags.start(&ann, 1), 100_001);
        assert_eq!(tags.start(&bob, 1), 2);
        tags.joined(&ann, 1, 100_001);
        assert_eq!(
            tags.start(&bob, 100_001),
            100_002,
            "it has saved nothing up"
        );
        tags.note_gap(&ann);
        assert!(tags.has_gap(&ann) && !tags.has_gap(&bob));
        let moved = tags.close_gaps([gone(&ann, 1), at(&ann, 100_001)].into_iter());
        assert_eq!(moved, [1, 1], "a later one moves up");
        assert!(!tags.has_gap(&ann));
        assert_eq!(tags.start(&ann, 1), 100_001);
        tags.close_gaps([gone(&ann, 1)].into_iter());
        assert_eq!(tags.start(&ann, 1), 2, "nothing waits");
    }

    #[test]
    fn a_waiter_that_moves_up_skips_tags_of_other_flows_and_keeps_its_cost() {
        let (mut tags, light, heavy) = (Tags::after(0), turn("ann", 1, 1), turn("ann", 3, 1));
        let (bob, eve) = (turn("bob", 1, 1), turn("eve", 1, 1));
        for start in [1, 300_001, 400_001] {
            tags.joined(if start == 1 { &heavy } else { &light }, 0, start);
        }
        let places = [
            gone(&heavy, 1),
            at(&bob, 1),
            at(&eve, 2),
            at(&light, 300_001),
            at(&light, 400_001),
        ];
        let moved = tags.close_gaps(places.into_iter());
        assert_eq!(moved, [1, 1, 2, 3, 100_003]);
        assert_eq!(tags.start(&light, 1), 200_003);
    }

    #[test]
    fn flows_that_move_up_together_get_distinct_tags_in_the_order_of_their_turns() {
        let (mut tags, ann, bob) = (Tags::after(0), turn("ann", 1, 1), turn("bob", 1, 1));
        for start in [1, 100_001, 200_001] {
            tags.joined(&ann, 0, start);
            tags.joined(&bob, 0, start + 1);
        }
        let places = [
            gone(&ann, 1),
            gone(&bob, 2),
            gone(&ann, 100_001),
            at(&bob, 100_002),
            at(&ann, 200_001),
            at(&bob, 200_002),
        ];
        let moved = tags.close_gaps(places.into_iter());
        assert_eq!(moved[3..], [2, 1, 100_002]);
        assert_eq!(
            (tags.start(&ann, 0), tags.start(&bob, 0)),
            (100_001, 200_002)
        );
    }

    #[test]
    fn flows_that_have_finished_are_forgotten() {
        let mut tags = Tags::after(0);
        for flow in 0..1_000 {
            let start = 2 * UNIT * flow;
            tags.joined(&turn(&flow.to_string(), 1, 1), start, start + 1);
            assert!(tags.finishes.len() <= MIN_FLOWS);
        }
    }
}
