//! Takes the steps: changes a state as a step does.

use crate::{
    call::{Answer, Call, Item},
    client::{Kind, Phase},
    model::Model,
    request::unit,
    scripts::Verb,
    server::Violation,
    state::State,
    steps::{Fate, Step, due, reports_clock},
};

impl Model {
    /// The state after a step, in its normal form.
    ///
    /// # Errors
    ///
    /// Returns an invariant that does not hold.
    pub fn take(&mut self, state: &State, step: Step) -> Result<State, Violation> {
        let mut next = state.clone();
        self.step(&mut next, step)?;
        next.normalise(&self.scenario, &mut self.server);
        Ok(next)
    }

    fn step(&mut self, state: &mut State, step: Step) -> Result<(), Violation> {
        match step {
            Step::Claim(at, claim, fate) => self.make_claim(state, at, claim, fate)?,
            Step::Send(at, Kind::Lighten, _) => self.lighten(state, at),
            Step::Send(at, kind, fate) => self.send_one(state, at, (kind, true), fate)?,
            Step::Drop(at, fate) => {
                state.clients[usize::from(at)].phase = Phase::Leaving;
                self.send_one(state, at, (Kind::Release, false), fate)?;
            }
            Step::LastPoll(at, fate) => {
                let client = &mut state.clients[usize::from(at)];
                client.over |= 1 << client.at;
                self.send_one(state, at, (Kind::Acquire, false), fate)?;
            }
            Step::Leave(at) => state.clients[usize::from(at)].phase = Phase::Leaving,
            Step::TimeOut(at, is_late) => state.clients[usize::from(at)].give_up(is_late),
            Step::Run(at) => self.run_pending(state, &[at])?,
            Step::RunBoth(first, second) => self.run_pending(state, &[first, second])?,
            Step::Together((first, second), claims) => {
                self.send_both(state, [(first, claims.0), (second, claims.1)])?;
            }
            Step::RunLate(at, late) => {
                let request = state.clients[usize::from(at)]
                    .late
                    .remove(usize::from(late));
                self.run(state, &[(at, request)])?;
            }
            Step::Receive(at) => self.receive(state, at),
            Step::LoseReply(at) => state.clients[usize::from(at)].give_up(false),
            Step::Wake(at) => {
                let levels = self.claim(state, at).len();
                state.clients[usize::from(at)].wake(levels);
            }
            Step::LoseWake(at) => state.clients[usize::from(at)].lose_wake(),
            Step::Revoke(at, level) => self.revoke(state, at, level)?,
            Step::Crash(at, is_late) => state.clients[usize::from(at)].crash(is_late),
            Step::Pass(pass) => self.pass(state, pass)?,
        }
        Ok(())
    }

    fn make_claim(
        &mut self,
        state: &mut State,
        at: u8,
        claim: u8,
        fate: Fate,
    ) -> Result<(), Violation> {
        let client = &mut state.clients[usize::from(at)];
        client.claim = claim;
        if self.scenario.sets_clock_back {
            self.report_clock(state, at)?;
        }
        self.send_one(state, at, (Kind::Acquire, false), fate)
    }

    fn send_both(&mut self, state: &mut State, both: [(u8, u8); 2]) -> Result<(), Violation> {
        for (at, claim) in both {
            let client = &mut state.clients[usize::from(at)];
            let kind = due(client).unwrap_or(Kind::Acquire);
            if client.phase == Phase::Idle {
                client.claim = claim;
            }
            self.send(state, at, kind, true);
        }
        self.run_pending(state, &both.map(|(at, _)| at))?;
        both.iter().for_each(|(at, _)| self.receive(state, *at));
        Ok(())
    }

    /// Sends a request, and lets it have its fate.
    fn send_one(
        &mut self,
        state: &mut State,
        at: u8,
        (kind, with_answer): (Kind, bool),
        fate: Fate,
    ) -> Result<(), Violation> {
        self.send(state, at, kind, with_answer);
        if matches!(fate, Fate::Answered | Fate::Unanswered) {
            self.run_pending(state, &[at])?;
        }
        match fate {
            Fate::Sent => {}
            Fate::Answered => self.receive(state, at),
            Fate::Unanswered | Fate::Lost => state.clients[usize::from(at)].give_up(false),
            Fate::Late => state.clients[usize::from(at)].give_up(true),
        }
        Ok(())
    }

    /// The permit counts as light from now on, whenever the release of its second unit runs.
    fn lighten(&self, state: &mut State, at: u8) {
        self.send(state, at, Kind::Lighten, false);
        let client = &mut state.clients[usize::from(at)];
        client.give_up(true);
        client.is_light = true;
    }

    pub(crate) fn run_pending(&mut self, state: &mut State, at: &[u8]) -> Result<(), Violation> {
        let requests = at.iter().filter_map(|at| {
            let pending = state.clients[usize::from(*at)].pending.as_ref()?;
            Some((*at, pending.request))
        });
        let requests: Vec<_> = requests.collect();
        let replies = self.run(state, &requests)?;
        for (at, reply) in at.iter().zip(replies) {
            if let Some(pending) = &mut state.clients[usize::from(*at)].pending {
                pending.reply = Some(reply);
            }
        }
        Ok(())
    }

    pub(crate) fn receive(&self, state: &mut State, at: u8) {
        let levels = self.claim(state, at).len();
        state.clients[usize::from(at)].receive(levels);
    }

    /// Moves the clock. If the clock may be set back, all processes report their highest time before.
    pub(crate) fn pass(&mut self, state: &mut State, pass: u8) -> Result<(), Violation> {
        for at in 0..state.clients.len() {
            if self.scenario.sets_clock_back && reports_clock(&state.clients[at]) {
                self.report_clock(state, at as u8)?;
            }
        }
        state.leaps += u8::from(pass > 0);
        let ms = self.scenario.distance(pass);
        state.pass(ms, &mut self.server);
        Ok(())
    }

    /// Runs an operator's revocation.
    fn revoke(&mut self, state: &mut State, at: u8, level: u8) -> Result<(), Violation> {
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
            groups: vec![vec![item]],
        };
        let outcome = self.server.call(&call, state.semaphores)?;
        state.semaphores = outcome.after;
        if outcome.answers == [Answer::Is(true)] {
            state.clients[usize::from(at)].revoked();
        }
        self.record(state, &outcome)
    }
}
