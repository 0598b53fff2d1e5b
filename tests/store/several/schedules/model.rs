//! The reference model: the holders and the queue of each key at each level. Claims that are granted at one level may
//! arrive at the next in any order, and the model follows every order.

use std::collections::BTreeSet;

pub(crate) const LEVELS: usize = 3;
pub(crate) const KEYS: usize = 4;

/// The number of a claim and of its permit.
pub(crate) type Id = usize;

/// A value for each key of each level.
pub(crate) type Each<T> = [[T; KEYS]; LEVELS];

/// The units that a claim needs of one semaphore.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) level: usize,
    pub(crate) key: usize,
    pub(crate) limit: u32,
    pub(crate) weight: u32,
}

/// A claim of a schedule.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    /// The number of the client that makes the claim.
    pub(crate) owner: usize,
    /// From the narrowest level to the widest.
    pub(crate) parts: Vec<Part>,
    /// In units that are each longer than a schedule.
    pub(crate) head_start: u32,
}

/// The holders and waiters while no step is pending.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) held: Each<BTreeSet<Id>>,
    pub(crate) queue: Each<Vec<Id>>,
    /// The claims that hold everything they need.
    pub(crate) granted: BTreeSet<Id>,
}

/// A step that is still to be taken. Pending steps may be taken in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A claim arrives at its part with this index. If it has no such part, it is granted.
    Arrive(Id, usize),
    /// At a level and key, the claim's units are released, or it leaves the queue.
    Free(Id, usize, usize),
    /// At a level and key, waiters are granted from the head of the queue as long as they fit.
    Advance(usize, usize),
}

/// The state as far as it is visible from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) granted: BTreeSet<Id>,
    pub(crate) held: Each<u32>,
    pub(crate) waiting: Each<usize>,
}

impl State {
    pub(crate) fn seen(&self, specs: &[Spec]) -> Seen {
        let mut seen = Seen {
            granted: self.granted.clone(),
            held: Default::default(),
            waiting: Default::default(),
        };
        for (level, key) in everywhere() {
            seen.held[level][key] = self.units(specs, level, key);
            seen.waiting[level][key] = self.queue[level][key].len();
        }
        seen
    }

    fn units(&self, specs: &[Spec], level: usize, key: usize) -> u32 {
        let held = self.held[level][key].iter();
        held.map(|&id| part(specs, id, level).1.weight).sum()
    }

    /// True if the claim's part with the index `at` fits. The claim is the queue's head.
    fn fits(&self, specs: &[Spec], id: Id, at: usize) -> bool {
        let part = specs[id].parts[at];
        self.units(specs, part.level, part.key) + part.weight <= part.limit
    }

    /// True if `units` more units fit at this part and its queue is empty.
    pub(crate) fn admits(&self, specs: &[Spec], part: &Part, units: u32) -> bool {
        let held = self.units(specs, part.level, part.key);
        self.queue[part.level][part.key].is_empty() && held + units <= part.limit
    }

    /// The part that refuses a claim that does not wait, if any.
    pub(crate) fn refuses(&self, specs: &[Spec], id: Id) -> Option<Part> {
        let mut parts = specs[id].parts.iter();
        let refuses = |part: &&Part| !self.admits(specs, part, part.weight);
        parts.find(refuses).copied()
    }

    /// The parts at which a claim that may wait can end up waiting.
    pub(crate) fn would_wait_at(&self, specs: &[Spec], id: Id) -> Vec<Part> {
        let outcomes = self.clone().outcomes(specs, vec![Step::Arrive(id, 0)]);
        let waits = outcomes.iter().flat_map(|state| {
            let waits = |part: &&Part| state.queue[part.level][part.key].contains(&id);
            specs[id].parts.iter().find(waits)
        });
        waits.copied().collect()
    }

    fn run(&mut self, specs: &[Spec], step: Step) -> Vec<Step> {
        match step {
            Step::Arrive(id, at) => self.arrive(specs, id, at),
            Step::Free(id, level, key) => {
                self.held[level][key].remove(&id);
                self.queue[level][key].retain(|other| *other != id);
                self.advance(specs, level, key)
            }
            Step::Advance(level, key) => self.advance(specs, level, key),
        }
    }

    fn arrive(&mut self, specs: &[Spec], id: Id, at: usize) -> Vec<Step> {
        let Some(&Part { level, key, .. }) = specs[id].parts.get(at) else {
            self.granted.insert(id);
            return Vec::new();
        };
        let queue = &mut self.queue[level][key];
        // Insert it behind the waiters whose head start is at least as long: they arrived earlier.
        let own = specs[id].head_start;
        let before = queue
            .iter()
            .filter(|&&other| specs[other].head_start >= own);
        let place = before.count();
        queue.insert(place, id);
        self.advance(specs, level, key)
    }

    fn advance(&mut self, specs: &[Spec], level: usize, key: usize) -> Vec<Step> {
        let mut arrivals = Vec::new();
        while let Some(&id) = self.queue[level][key].first() {
            let (at, _) = part(specs, id, level);
            if !self.fits(specs, id, at) {
                break;
            }
            self.queue[level][key].remove(0);
            self.held[level][key].insert(id);
            arrivals.push(Step::Arrive(id, at + 1));
        }
        arrivals
    }

    /// Every state that these steps can lead to, in any order and with all their consequences.
    pub(crate) fn outcomes(self, specs: &[Spec], steps: Vec<Step>) -> BTreeSet<Self> {
        let mut open = vec![(self, steps)];
        let (mut known, mut settled) = (BTreeSet::new(), BTreeSet::new());
        while let Some((state, mut steps)) = open.pop() {
            steps.sort_unstable();
            if !known.insert((state.clone(), steps.clone())) {
                continue;
            }
            for (at, step) in steps.iter().enumerate() {
                let (mut next, mut left) = (state.clone(), steps.clone());
                left.remove(at);
                left.extend(next.run(specs, *step));
                open.push((next, left));
            }
            if steps.is_empty() {
                settled.insert(state);
            }
        }
        settled
    }
}

/// Each level with each key.
pub(crate) fn everywhere() -> impl Iterator<Item = (usize, usize)> {
    (0..LEVELS).flat_map(|level| (0..KEYS).map(move |key| (level, key)))
}

/// The index of a claim's part at a level, and the part.
fn part(specs: &[Spec], id: Id, level: usize) -> (usize, Part) {
    let mut parts = specs[id].parts.iter().copied().enumerate();
    let part = parts.find(|(_, part)| part.level == level);
    part.expect("it is a claim for this level")
}
