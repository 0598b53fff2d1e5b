//! The invariants of a state, and of the states that follow if all live clients go on undisturbed.

use crate::{
    client::{Kind, Phase, Revocation},
    model::Model,
    request::unit,
    semaphore::Semaphore,
    server::{Violation, violated},
    state::State,
    steps::due,
    time::{LEASE, NEVER, TICK},
    unit::Unit,
};
use std::collections::HashSet;

/// Ticks after which dead clients have nothing left. A clock that was set back gives a dead waiter one lease, and its
/// grant another one.
const MOST: i64 = 4 * LEASE / TICK;

/// Ticks after which a state at rest stays at rest, because every missed heartbeat and refresh would have ended
/// something.
const LEAST: i64 = LEASE / TICK + 1;

/// The hashes of states that are known to come to rest.
pub type Rested = HashSet<u128>;

impl Model {
    /// Checks a state.
    ///
    /// # Errors
    ///
    /// Returns the first invariant that does not hold.
    pub fn check(&self, state: &State) -> Result<(), Violation> {
        for (at, client) in state.clients.iter().enumerate() {
            match client.phase {
                Phase::Held if client.revocation == Revocation::None => {
                    self.check_held(state, at as u8)?;
                }
                Phase::Idle | Phase::Done => self.check_gone(state, at as u8)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// **S2** A client that counts as holding a permit holds it, unless an operator has revoked it.
    fn check_held(&self, state: &State, at: u8) -> Result<(), Violation> {
        let is_light = state.clients[usize::from(at)].is_light;
        for (index, level) in self.claim(state, at).iter().enumerate() {
            let held = &self.semaphore(state, level.key).held;
            // 9 is more than the weight of any permit.
            let units = unit(at, index, level)
                .all()
                .take(if is_light { 1 } else { 9 });
            for unit in units {
                if held.get(unit).is_none_or(|end| end <= 0) {
                    return violated("S2", format!("{unit} is not held: {held:?}"));
                }
            }
        }
        Ok(())
    }

    /// **L3** A refused or released claim leaves nothing behind, except for a second unit with a separate release on
    /// its way.
    fn check_gone(&self, state: &State, at: u8) -> Result<(), Violation> {
        let mut late = state.clients[usize::from(at)].late.iter();
        let most = match late.any(|request| request.kind == Kind::Lighten) {
            true => 1,
            false => u8::MAX,
        };
        for key in 0..state.semaphores.len() as u8 {
            let semaphore = self.semaphore(state, key);
            let lists = [&semaphore.held, &semaphore.queue, &semaphore.alive];
            let mut units = lists.into_iter().flat_map(|units| &units.items);
            if units.any(|(unit, _)| unit.client == at && unit.number <= most) {
                return violated("L3", format!("{at} has left something: {semaphore:?}"));
            }
        }
        Ok(())
    }

    fn semaphore(&self, state: &State, key: u8) -> &Semaphore {
        self.server.state(state.semaphores[usize::from(key)])
    }

    /// **L** From this state on every message is lost, no client makes a new claim, and all live clients go on. In the
    /// end dead clients hold nothing, and no waiter waits beside free room.
    ///
    /// # Errors
    ///
    /// Returns what is left.
    pub fn comes_to_rest(&mut self, state: &State, rested: &mut Rested) -> Result<(), Violation> {
        let mut state = state.clone();
        for client in &mut state.clients {
            client.give_up(false);
            client.late.clear();
            client.wake = None;
            client.has_revoked_message = false;
        }
        state.tokens = [NEVER; 2];
        state.normalise(&self.scenario, &mut self.server);
        if !rested.insert(crate::walk::hash(&state)) {
            return Ok(());
        }
        for tick in 0..MOST {
            self.make_due_calls(&mut state)?;
            if tick >= LEAST && self.check_rest(&state).is_ok() {
                return Ok(());
            }
            self.pass(&mut state, 0)?;
            state.normalise(&self.scenario, &mut self.server);
        }
        self.make_due_calls(&mut state)?;
        self.check_rest(&state)
    }

    /// Every live client makes its call, if one is due.
    fn make_due_calls(&mut self, state: &mut State) -> Result<(), Violation> {
        for at in 0..state.clients.len() as u8 {
            let client = &mut state.clients[usize::from(at)];
            if client.phase == Phase::Wanting {
                client.phase = Phase::Leaving;
            }
            let is_idle = client.phase == Phase::Idle;
            let Some(kind) = due(client).filter(|_| !is_idle) else {
                continue;
            };
            self.send(state, at, kind, true);
            self.run_pending(state, &[at])?;
            self.receive(state, at);
            for client in &mut state.clients {
                client.wake = None;
                client.has_revoked_message = false;
                client.tidy();
            }
        }
        Ok(())
    }

    fn check_rest(&self, state: &State) -> Result<(), Violation> {
        for (at, client) in state.clients.iter().enumerate() {
            if client.phase == Phase::Leaving {
                return violated("L", format!("{at} is not released"));
            }
            if client.phase == Phase::Queued {
                self.check_waiter(state, at as u8)?;
            }
            self.check_revoked(state, at as u8)?;
        }
        for key in 0..state.semaphores.len() as u8 {
            self.check_owners(state, key)?;
        }
        Ok(())
    }

    /// **R** A client whose permit was revoked finds out, although the message is lost.
    fn check_revoked(&self, state: &State, at: u8) -> Result<(), Violation> {
        let client = &state.clients[usize::from(at)];
        let goes_on = matches!(client.phase, Phase::Held | Phase::Queued);
        let levels = self.claim(state, at).iter().enumerate();
        let mut permits = levels.map(|(index, level)| {
            let permit = unit(at, index, level).permit();
            (permit, &self.semaphore(state, level.key).revoked)
        });
        let is_known = permits.any(|(permit, revoked)| {
            let mut revoked = revoked.iter();
            revoked.any(|(other, until)| *other == permit && *until > 0)
        });
        match goes_on && is_known && client.revocation == Revocation::Revoked {
            true => violated("R", format!("{at} goes on with what was revoked")),
            false => Ok(()),
        }
    }

    /// A waiter is in its queue, and the head of the queue does not fit.
    fn check_waiter(&self, state: &State, at: u8) -> Result<(), Violation> {
        let level = usize::from(state.clients[usize::from(at)].at);
        let semaphore = self.semaphore(state, self.claim(state, at)[level].key);
        let own = unit(at, level, &self.claim(state, at)[level]);
        let head = semaphore.queue.items.first().map(|(head, _)| *head);
        let used = semaphore.held.live().count();
        let fits = |head: Unit| used + usize::from(head.weight) <= usize::from(head.limit);
        match semaphore.queue.get(own).is_none() || head.is_none_or(fits) {
            true => violated("L", format!("{own} waits beside free room: {semaphore:?}")),
            false => Ok(()),
        }
    }

    /// **L1** Held units and waiters belong to live clients. An end that lies too far ahead, because the clock was set
    /// back, is found once a claim waits.
    fn check_owners(&self, state: &State, key: u8) -> Result<(), Violation> {
        let semaphore = self.semaphore(state, key);
        let waits = |client: u8| {
            let claim = self.claim(state, client);
            let client = &state.clients[usize::from(client)];
            client.phase == Phase::Queued && claim[usize::from(client.at)].key == key
        };
        let is_awaited = (0..state.clients.len() as u8).any(waits);
        let lives = |unit: &Unit| {
            let phase = state.clients[usize::from(unit.client)].phase;
            matches!(phase, Phase::Held | Phase::Queued)
        };
        // Scripts look at a waiter's end only when it is the head.
        let head = semaphore.queue.items.first().map(|(head, _)| *head);
        let alive = semaphore.alive.live();
        let alive = alive.filter(|(unit, end)| *end <= LEASE || head == Some(*unit));
        let mut units = semaphore.held.live().chain(alive);
        let is_left = |(unit, end): &(Unit, i64)| !lives(unit) && (is_awaited || *end <= LEASE);
        match units.find(is_left) {
            Some((unit, _)) => violated("L1", format!("{unit} is still there: {semaphore:?}")),
            None => Ok(()),
        }
    }
}
