//! What happens to the leases of one key.

use proptest::{collection::vec, prelude::*};

/// Holders, those who lose their leases among them, and claims for what that frees.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    /// Units that are left when all holders are there.
    pub(crate) spare: u32,
    /// The weights of the holders, and what becomes of their leases.
    pub(crate) holders: Vec<(u32, Fate)>,
    /// The weights of claims by another process that wait, and whether their wait is short.
    pub(crate) waiters: Vec<(u32, bool)>,
    /// The weights of its claims that do not, after the holders have met their fates.
    pub(crate) rivals: Vec<u32>,
}

/// What becomes of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is refreshed.
    Kept,
    /// It ends: the server still lists it, or does not list it any more.
    Lost { listed: bool },
    /// It ends, and its holder is done at about the same time.
    Gone,
}

fn scene() -> impl Strategy<Value = Scene> {
    let lost = any::<bool>().prop_map(|listed| Fate::Lost { listed });
    let fate = prop_oneof![2 => Just(Fate::Kept), 3 => lost, 1 => Just(Fate::Gone)];
    let holders = vec((1..=3_u32, fate), 1..6);
    let waiters = prop_oneof![Just(Vec::new()), vec((1..=3_u32, any::<bool>()), 1..5)];
    let rivals = vec(1..=3_u32, 0..4);
    let scene = (0..=2_u32, holders, waiters, rivals);
    scene.prop_map(|(spare, holders, waiters, rivals)| Scene {
        spare,
        holders,
        waiters,
        rivals,
    })
}

/// Scenes of as many keys, which happen at the same time, because each takes a beat.
pub(crate) fn scenes() -> impl Strategy<Value = Vec<Scene>> {
    vec(scene(), 1..32)
}
