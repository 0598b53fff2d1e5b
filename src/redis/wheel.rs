//! What this process holds, spread over the turns of a beat.

use super::{
    answer::Answer,
    core::Core,
    lease::{Lease, TURNS},
    script::{Claims, Group, chunks},
};
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Instant,
};

/// Permits by the name of their semaphore.
pub(super) type Leases = HashMap<Arc<str>, Vec<Arc<Lease>>>;

/// Live permits by semaphore. Each turn refreshes the semaphores of one slot, so that the work
/// is even and one command serves all permits of a semaphore.
pub(super) struct Wheel {
    slots: Vec<Leases>,
    hasher: RandomState,
    /// Those whose last refresh failed, until it succeeds or their deadline has passed.
    troubled: Vec<Arc<Lease>>,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..TURNS).map(|_| Leases::new()).collect(),
            hasher: RandomState::new(),
            troubled: Vec::new(),
        }
    }

    /// These were not refreshed, and nobody knows whether they are still held.
    pub(super) fn watch(&mut self, troubled: Vec<Arc<Lease>>) {
        self.troubled.extend(troubled);
    }

    /// What is to be refreshed in this turn: the semaphores of one slot, and what is `due` anyway.
    pub(super) fn turn(&mut self, turn: u64, mut due: Leases) -> Vec<Group> {
        let slot = &mut self.slots[(turn % u64::from(TURNS)) as usize];
        slot.retain(|name, leases| {
            leases.retain(|lease| !lease.has_ended());
            if !leases.is_empty() {
                due.insert(Arc::clone(name), leases.clone());
            }
            !leases.is_empty()
        });
        due.into_iter()
            .flat_map(|(name, leases)| groups(&name, leases))
            .collect()
    }

    /// Gives a place to what was granted and is held still. Returns those that were granted from a
    /// line, which cannot wait for their slot.
    pub(super) fn hold(&mut self, mut leases: Vec<Arc<Lease>>) -> Leases {
        let mut hasty = Leases::new();
        leases.retain(|lease| !lease.has_ended());
        for lease in leases {
            let name = lease.name();
            if lease.is_hasty() {
                let leases = hasty.entry(Arc::clone(&name)).or_default();
                leases.push(Arc::clone(&lease));
            }
            let slot = self.hasher.hash_one(&name) % u64::from(TURNS);
            let entry = self.slots[slot as usize].entry(name);
            lease.share_name(entry.key());
            entry.or_default().push(lease);
        }
        hasty
    }

    /// Tells the holders whose deadline has passed without a good refresh.
    pub(super) fn tell(&mut self, now: u64) {
        self.troubled.retain(|lease| {
            let live = !lease.has_ended() && lease.is_troubled();
            if live && lease.is_past(now) {
                lease.loss.set();
                return false;
            }
            live
        });
    }

    /// The process has slept: no refresh may have been sent in time.
    pub(super) fn watch_all(&mut self) {
        let live = self.live().filter(|lease| lease.trouble()).collect();
        self.watch(live);
    }

    /// All that is held.
    pub(super) fn live(&self) -> impl Iterator<Item = Arc<Lease>> {
        let placed = self.slots.iter().flat_map(HashMap::values).flatten();
        placed.filter(|lease| !lease.has_ended()).cloned()
    }
}

/// As many commands as the permits of one semaphore need.
fn groups(name: &Arc<str>, leases: Vec<Arc<Lease>>) -> impl Iterator<Item = Group> + use<> {
    let name = Arc::clone(name);
    let chunks = chunks(leases, |lease| lease.units.weight);
    chunks.into_iter().map(move |leases| Group {
        name: Arc::clone(&name),
        leases,
    })
}

/// What became of a refresh that the keeper has to act on.
#[derive(Default)]
pub(super) struct Beaten {
    /// No answer came for these.
    pub(super) troubled: Vec<Arc<Lease>>,
    /// These came back after their holders were done with them.
    pub(super) ghosts: Vec<Arc<Lease>>,
}

/// Refreshes these, tells those that are lost, and tries to bring them back.
pub(super) async fn beat(core: Arc<Core>, groups: Vec<Group>) -> Beaten {
    let mut beaten = Beaten::default();
    let mut lost = Vec::new();
    let deadline = core.times.deadline(Instant::now());
    let answers = core.scripts.refresh(&groups).await;
    for (group, answer) in groups.iter().zip(answers) {
        match answer {
            Ok(held) => {
                for (lease, held) in group.leases.iter().zip(held.of(&group.leases)) {
                    match held {
                        true => lease.renewed(deadline),
                        false => lost.push(Arc::clone(lease)),
                    }
                }
            }
            Err(_) => {
                let troubled = group.leases.iter().filter(|lease| lease.trouble());
                beaten.troubled.extend(troubled.cloned());
            }
        }
    }
    beaten.ghosts = bring_back(&core, lost).await;
    beaten
}

/// Claims again what was lost, as any newcomer would. Returns what nobody wants any more.
async fn bring_back(core: &Core, mut lost: Vec<Arc<Lease>>) -> Vec<Arc<Lease>> {
    lost.retain(|lease| !lease.has_ended());
    if lost.is_empty() {
        return lost;
    }
    for lease in &lost {
        lease.loss.set();
    }
    let deadline = core.times.deadline(Instant::now());
    let claims: Vec<_> = lost.iter().map(|lease| Claims::one(lease, None)).collect();
    let answers = core.scripts.acquire(&claims).await;
    let mut back = lost
        .into_iter()
        .zip(answers)
        .filter_map(|(lease, answer)| match answer {
            Ok(Answer::Granted { token, .. }) => {
                lease.granted(token, deadline);
                Some(lease)
            }
            _ => None,
        });
    back.by_ref().filter(|lease| lease.has_ended()).collect()
}
