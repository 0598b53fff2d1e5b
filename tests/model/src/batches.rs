//! Requests of two clients that travel together.

use crate::{
    client::{Client, Kind, Phase},
    model::Model,
    state::State,
    steps::Step,
};

impl Model {
    /// What two clients may do together.
    pub(crate) fn batches(&self, state: &State, steps: &mut Vec<Step>) {
        let clients = 0..state.clients.len() as u8;
        let pairs = clients
            .clone()
            .flat_map(|a| clients.clone().map(move |b| (a, b)));
        for (first, second) in pairs.filter(|(a, b)| self.scenario.has_batches && a != b) {
            let [a, b] = [first, second].map(|at| &state.clients[usize::from(at)]);
            let script = unrun(a).filter(|_| self.scenario.has_messages);
            if script.is_some() && script == unrun(b) {
                steps.push(Step::RunBoth(first, second));
            }
            let script = due(a).filter(|_| !self.scenario.has_messages);
            if script.is_some() && script == due(b) {
                self.together((first, a), (second, b), steps);
            }
        }
    }

    fn together(&self, first: (u8, &Client), second: (u8, &Client), steps: &mut Vec<Step>) {
        let claims = |(at, client): (u8, &Client)| match client.phase {
            Phase::Idle => self.scenario.clients[usize::from(at)].len() as u8,
            _ => 1,
        };
        for claim in 0..claims(first) {
            let others = 0..claims(second);
            steps.extend(others.map(|other| Step::Together((first.0, second.0), (claim, other))));
        }
    }
}

/// The script of a request that is under way.
fn unrun(client: &Client) -> Option<Kind> {
    let pending = client.pending.as_ref()?;
    let script = match pending.request.kind {
        Kind::Lighten => Kind::Release,
        kind => kind,
    };
    pending.reply.is_none().then_some(script)
}

/// What a client has to send.
pub(crate) fn due(client: &Client) -> Option<Kind> {
    match client.phase {
        _ if client.pending.is_some() || client.is_light => None,
        Phase::Idle | Phase::Wanting | Phase::Lost => Some(Kind::Acquire),
        Phase::Queued if client.due <= 0 => Some(Kind::Acquire),
        Phase::Held => Some(Kind::Refresh),
        Phase::Leaving => Some(Kind::Release),
        _ => None,
    }
}
