//! Turns requests of clients into one call.

use crate::{
    call::{Call, Item, Wait},
    client::{Kind, Request},
    model::Model,
    scenario::Level,
    scripts::Verb,
    state::State,
    unit::Unit,
};

impl Model {
    /// The call that the server runs for these requests.
    pub(crate) fn call(&self, state: &State, requests: &[(u8, Request)]) -> Call {
        let (first, request) = requests[0];
        let verb = match request.kind {
            Kind::Acquire => Verb::Acquire,
            Kind::Refresh => Verb::Refresh,
            Kind::Release | Kind::Lighten => Verb::Release,
        };
        let items = requests
            .iter()
            .map(|(client, request)| self.items(state, *client, *request));
        let groups = match verb {
            Verb::Acquire => items.collect(),
            _ => by_key(items.flatten()),
        };
        let deadlines = requests.iter().map(|(_, request)| request.deadline);
        Call {
            verb,
            with_answer: requests.iter().any(|(_, request)| request.with_answer),
            deadline: if verb == Verb::Refresh {
                0
            } else {
                deadlines.max().unwrap_or(0)
            },
            floor: state.clients[usize::from(first)].ahead.max(0),
            groups,
        }
    }

    /// The items that a request names.
    fn items(&self, state: &State, client: u8, request: Request) -> Vec<Item> {
        let owner = &state.clients[usize::from(client)];
        let levels = self.claim(state, client).iter().enumerate();
        let items = levels.flat_map(|(at, level)| {
            let unit = unit(client, at, level);
            let wait = (request.waits >> at & 1 == 1).then(|| Wait {
                max_waiting: level.waits.unwrap_or_default(),
                arrival: (request.sends_arrival >> at & 1 == 1).then(|| owner.arrivals[at]),
                head_start: level.head_start * 1_000,
            });
            let units: Vec<_> = match request.kind {
                Kind::Acquire => vec![unit],
                Kind::Lighten => unit.all().skip(1).collect(),
                _ if request.is_light => vec![unit],
                _ => unit.all().collect(),
            };
            let key = level.key;
            // The permit of added units may have been revoked before their first acquire.
            let was_sent = request.was_sent || unit.is_added();
            units.into_iter().map(move |unit| Item {
                key,
                unit,
                wait,
                was_sent,
            })
        });
        items.collect()
    }
}

/// The first unit of a claim at a level.
pub(crate) fn unit(client: u8, at: usize, level: &Level) -> Unit {
    Unit {
        process: level.added_to.unwrap_or(client),
        client,
        level: at as u8,
        limit: level.limit,
        weight: level.weight,
        flow: level.flow,
        share: level.share,
        number: 1,
    }
}

fn by_key(items: impl Iterator<Item = Item>) -> Vec<Vec<Item>> {
    let mut groups: Vec<Vec<Item>> = Vec::new();
    for item in items {
        match groups.iter_mut().find(|group| group[0].key == item.key) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    groups
}
