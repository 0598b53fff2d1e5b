//! What operators do: they revoke permits.

use crate::{
    call::{Call, Item},
    client::Phase,
    model::{Model, note},
    request::unit,
    scripts::Verb,
    server::Violation,
    state::State,
    steps::Step,
};

impl Model {
    /// The permits that an operator may name: also those that were released or revoked.
    pub(crate) fn revocations(&self, state: &State, steps: &mut Vec<Step>) {
        let clients = state.clients.iter().enumerate();
        let clients =
            clients.filter(|(_, client)| self.scenario.revokes && client.phase != Phase::Idle);
        for (at, _) in clients {
            let levels = self.claim(state, at as u8).len() as u8;
            steps.extend((0..levels).map(|level| Step::Revoke(at as u8, level)));
        }
    }

    /// The server runs an operator's call.
    pub(crate) fn revoke(&mut self, state: &mut State, at: u8, level: u8) -> Result<(), Violation> {
        let own = &self.claim(state, at)[usize::from(level)];
        let item = Item {
            key: own.key,
            unit: unit(at, usize::from(level), own),
            wait: None,
            was_sent: true,
        };
        let known = state.clients.iter().map(|client| client.ahead).max();
        let call = Call {
            verb: Verb::Revoke,
            with_answer: true,
            deadline: 0,
            floor: known.unwrap_or_default().max(0),
            shares: vec![vec![item]],
        };
        let outcome = self.server.call(&call, state.semaphores)?;
        state.semaphores = outcome.after;
        note(state, &outcome)
    }
}
