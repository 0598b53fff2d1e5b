//! What a layer has seen of each policy and key, in bounded memory.

use super::{mean::Mean, outage::Outage, schedule::Schedule};

/// How many keys have a schedule of their own at a time. Keys beyond that share one.
const PLACES: usize = 1_024;

/// How many policies have a mean of their own. Policies beyond that share one.
const POLICIES: usize = 16;

/// The schedule of a key: a hash of its policy, and of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Place {
    pub(super) policy: u64,
    pub(super) key: u64,
}

#[derive(Default)]
pub(super) struct Seen {
    policies: [Mean; POLICIES],
    /// Empty until the first refusal.
    places: Vec<Option<Box<(Place, Schedule)>>>,
    pub(super) outage: Outage,
}

impl Seen {
    pub(super) fn mean(&mut self, place: Place) -> &mut Mean {
        &mut self.policies[place.policy as usize % POLICIES]
    }

    /// The schedule of this key, if it was refused of late.
    pub(super) fn own(&mut self, place: Place) -> Option<&mut (Place, Schedule)> {
        let found = self.places.get_mut(index(place))?.as_deref_mut();
        found.filter(|(of, _)| *of == place)
    }

    /// The schedule of this key. A key whose schedule is not over shares it with those that hash
    /// alike: then they are told to come later than they must.
    pub(super) fn schedule(&mut self, place: Place, mean: Mean, now: f64) -> &mut Schedule {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, || None);
        }
        let found = &mut self.places[index(place)];
        if found
            .as_ref()
            .is_some_and(|old| old.0 != place && old.1.is_over(now))
        {
            *found = None;
        }
        let new = || Box::new((place, Schedule::new(mean)));
        &mut found.get_or_insert_with(new).1
    }
}

fn index(Place { policy, key }: Place) -> usize {
    (policy ^ key) as usize % PLACES
}
