//! The model: a scenario, and the server that its clients share.

use crate::{
    call::{Answer, Call},
    client::{Kind, Pending, Phase, Reply, Request, Revocation},
    request::unit,
    scenario::{Claim, Scenario},
    scripts::{MAX_ADVANCED, Scripts},
    server::{Outcome, Server, Violation, violated},
    state::State,
    time::{LEASE, NEVER, NOW, TIMEOUT},
};

/// The model.
#[derive(Debug)]
pub struct Model {
    /// The clients' possible actions, and the possible faults.
    pub scenario: Scenario,
    /// The server.
    pub server: Server,
}

impl Model {
    /// A model of these scripts.
    pub fn new(scenario: Scenario, scripts: &Scripts) -> Self {
        let past = scenario.set_back();
        let server = match scenario.max_advanced {
            None => Server::new(scripts, MAX_ADVANCED, past),
            Some(most) => Server::new(&scripts.advancing(most), most, past),
        };
        Self { scenario, server }
    }

    /// The claim that a client makes.
    pub fn claim(&self, state: &State, client: u8) -> &Claim {
        let claim = state.clients[usize::from(client)].claim;
        &self.scenario.clients[usize::from(client)][usize::from(claim)]
    }

    /// A client sends a request with everything that it knows about its claim. A release asks which units
    /// were still held if `with_answer` is true, or if an unanswered acquire may still run.
    pub fn send(&self, state: &mut State, client: u8, kind: Kind, with_answer: bool) {
        let levels = self.claim(state, client).iter().enumerate();
        let waiting = levels.filter(|(_, level)| level.waits.is_some());
        let waits = waiting.fold(0, |bits, (at, _)| bits | 1 << at);
        let client = &mut state.clients[usize::from(client)];
        let arrivals = client.arrivals.iter().enumerate();
        let sends_arrival = arrivals.fold(0, |bits, (at, arrival)| {
            bits | u8::from(*arrival != NEVER) << at
        });
        let is_acquire = kind == Kind::Acquire;
        let is_new = client.phase != Phase::Lost && is_acquire;
        let was_sent = is_acquire && client.phase != Phase::Idle;
        if client.phase == Phase::Idle {
            client.phase = Phase::Wanting;
        }
        let request = Request {
            kind,
            waits: if is_new { waits & !client.over } else { 0 },
            sends_arrival: if is_new { sends_arrival } else { 0 },
            deadline: if is_acquire { TIMEOUT } else { -1 },
            with_answer: kind == Kind::Release && (with_answer || client.unanswered != NEVER),
            is_light: client.is_light,
            was_sent,
        };
        let (sent, reply) = (0, None);
        client.pending = Some(Pending {
            request,
            sent,
            reply,
        });
    }

    /// The server runs requests of clients in one call. Returns a reply for each.
    ///
    /// # Errors
    ///
    /// Returns an invariant that does not hold.
    pub fn run(
        &mut self,
        state: &mut State,
        requests: &[(u8, Request)],
    ) -> Result<Vec<Reply>, Violation> {
        let call = self.call(state, requests);
        let outcome = self.server.call(&call, state.semaphores)?;
        for (index, (client, request)) in requests.iter().enumerate() {
            if request.kind == Kind::Acquire {
                self.comes_last(state, *client, &outcome, index)?;
            }
        }
        state.semaphores = outcome.after;
        self.record(state, &outcome)?;
        record_returns(state, requests, &outcome.answers);
        let replies = requests
            .iter()
            .enumerate()
            .map(|(index, (client, request))| {
                let unanswered = state.clients[usize::from(*client)].unanswered;
                match request.kind {
                    Kind::Acquire => Reply::Acquired(outcome.answers[index].clone()),
                    Kind::Refresh => Reply::Refreshed(is_held(&call, &outcome, *client)),
                    Kind::Release | Kind::Lighten => Reply::Released(unanswered == NEVER),
                }
            });
        Ok(replies.collect())
    }

    /// Records the grants of a call, and the processes that it has notified. The owner of added units is notified of a
    /// revocation too.
    pub(crate) fn record(&self, state: &mut State, outcome: &Outcome) -> Result<(), Violation> {
        record_tokens(state, outcome)?;
        for wake in &outcome.wakes {
            state.clients[usize::from(wake.client)].wake = Some((wake.level, wake.token));
        }
        for at in 0..state.clients.len() as u8 {
            let levels = self.claim(state, at).iter().enumerate();
            let mut permits = levels.map(|(index, level)| unit(at, index, level).permit());
            let is_revoked = permits.any(|permit| outcome.revoked.contains(&permit));
            let client = &mut state.clients[usize::from(at)];
            client.has_revoked_message |=
                is_revoked && !matches!(client.phase, Phase::Idle | Phase::Dead);
        }
        Ok(())
    }

    /// **F1** A claim that joins a queue has a later arrival than all waiters, whatever their head starts, and even if
    /// the clock was set back. `index` is the place of the claim's answer.
    fn comes_last(
        &self,
        state: &State,
        at: u8,
        outcome: &Outcome,
        index: usize,
    ) -> Result<(), Violation> {
        let Answer::Queued { level, arrival, .. } = &outcome.answers[index] else {
            return Ok(());
        };
        let own = &self.claim(state, at)[usize::from(*level)];
        let [before, after] = [state.semaphores, outcome.after]
            .map(|semaphores| self.server.state(semaphores[usize::from(own.key)]));
        if after.is_fair() {
            return Ok(());
        }
        let waiter = unit(at, usize::from(*level), own);
        let is_new = before.queue.get(waiter).is_none() && after.queue.get(waiter).is_some();
        let is_known = state.clients[usize::from(at)].arrivals[usize::from(*level)] != NEVER;
        for (other, client) in state.clients.iter().enumerate() {
            let of_other = &self.claim(state, other as u8)[usize::from(client.at)];
            let waiter = unit(other as u8, usize::from(client.at), of_other);
            let waits = client.phase == Phase::Queued
                && of_other.key == own.key
                && before.queue.get(waiter).is_some();
            let is_later = *arrival > client.arrivals[usize::from(client.at)];
            if is_new && !is_known && waits && !is_later && other != usize::from(at) {
                return violated("F1", format!("{at} arrives at {arrival}, before {other}"));
            }
        }
        Ok(())
    }

    /// A client sends the highest time that it has seen to the clock's script, which returns the highest time that any
    /// client has seen. A new client has seen none.
    ///
    /// # Errors
    ///
    /// Returns an invariant that does not hold.
    pub fn report_clock(&self, state: &mut State, client: u8) -> Result<(), Violation> {
        let own = match state.clients[usize::from(client)].ahead {
            // The script gets 1.
            NEVER => 1 - NOW,
            ahead => ahead,
        };
        let highest = self.server.clock(state.clock, own)?;
        // A key lasts eight leases: `LEASES` in common.lua.
        state.clock = Some((highest, 8 * LEASE));
        state.clients[usize::from(client)].ahead = highest;
        Ok(())
    }
}

/// Returns true if a refresh has found all units of a client.
fn is_held(call: &Call, outcome: &Outcome, client: u8) -> bool {
    let mut units = call.items().zip(&outcome.answers);
    units.all(|(item, answer)| item.unit.client != client || *answer == Answer::Is(true))
}

/// The first acquire of a permit may run after a second acquire was granted and revoked. It brings the permit back, and
/// the store releases it later.
fn record_returns(state: &mut State, requests: &[(u8, Request)], answers: &[Answer]) {
    for ((at, request), answer) in requests.iter().zip(answers) {
        let client = &mut state.clients[usize::from(*at)];
        let is_there = matches!(answer, Answer::Granted(_) | Answer::Queued { .. });
        if client.revocation == Revocation::Revoked && !request.was_sent && is_there {
            client.revocation = Revocation::Returned;
        }
    }
}

/// **S3** Tokens strictly increase.
fn record_tokens(state: &mut State, outcome: &Outcome) -> Result<(), Violation> {
    let mut tokens = outcome.tokens.clone();
    tokens.sort_unstable();
    for (key, token) in tokens {
        let last = &mut state.tokens[usize::from(key)];
        if token <= *last {
            return violated("S3", format!("token {token} after {last}"));
        }
        *last = token;
    }
    Ok(())
}
