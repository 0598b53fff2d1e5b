//! Scenarios of leases that end.

use proptest::{collection::vec, prelude::*};

/// Holders of one key, some of whose leases end, and claims for the units that this frees.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// Units left when all holders are granted.
    pub(crate) spare: u32,
    /// The weights of the holders, and what happens to their leases.
    pub(crate) holders: Vec<(u32, LeaseEvent)>,
    /// The weights of waiters of another process, and whether their wait is short.
    pub(crate) waiters: Vec<(u32, bool)>,
    /// The weights of claims of that process that do not wait, made after the events.
    pub(crate) late_claims: Vec<u32>,
}

/// What happens to a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseEvent {
    /// The lease is refreshed.
    Kept,
    /// The lease ends. `listed`: the server still lists it.
    Lost { listed: bool },
    /// The lease ends, and its holder drops the permit at about the same time.
    LostAndDropped,
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let lost = any::<bool>().prop_map(|listed| LeaseEvent::Lost { listed });
    let event =
        prop_oneof![2 => Just(LeaseEvent::Kept), 3 => lost, 1 => Just(LeaseEvent::LostAndDropped)];
    let holders = vec((1..=3_u32, event), 1..6);
    let waiters = prop_oneof![Just(Vec::new()), vec((1..=3_u32, any::<bool>()), 1..5)];
    let late_claims = vec(1..=3_u32, 0..4);
    let scenario = (0..=2_u32, holders, waiters, late_claims);
    scenario.prop_map(|(spare, holders, waiters, late_claims)| Scenario {
        spare,
        holders,
        waiters,
        late_claims,
    })
}

/// Scenarios of as many keys, run at the same time, because each takes a refresh interval.
pub(crate) fn scenarios() -> impl Strategy<Value = Vec<Scenario>> {
    vec(scenario(), 1..32)
}
