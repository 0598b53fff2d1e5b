//! What may happen next in a state.

use crate::{
    client::{Client, Kind, Pending, Phase},
    model::Model,
    server::Violation,
    state::State,
    time::NEVER,
};

/// What becomes of a request where requests are not under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is under way.
    Sent,
    /// It runs, and its reply arrives.
    Answered,
    /// It runs, and its reply is lost.
    Unanswered,
    /// It never arrives.
    Lost,
    /// It arrives after the client has given up.
    Late,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A client makes one of its claims.
    Claim(u8, u8, Fate),
    /// It sends a request: a retry, a poll, a refresh, a release, an acquire of what it has lost.
    Send(u8, Kind, Fate),
    /// It releases its permit, and wants no answer.
    Drop(u8, Fate),
    /// Its wait where it waits is over, and it acquires what there is.
    LastPoll(u8, Fate),
    /// It leaves before it has got what it wants, or gives its permit back.
    Leave(u8),
    /// It gives up a request: lost, or late.
    TimeOut(u8, bool),
    /// The server runs the request that it awaits.
    Run(u8),
    /// The server runs the requests of two clients in one call.
    RunBoth(u8, u8),
    /// Two clients send what they have to send, the server runs it in one call, and both replies
    /// arrive. Idle clients make these claims.
    Together((u8, u8), (u8, u8)),
    /// The server runs a request that nobody awaits.
    RunLate(u8, u8),
    /// The reply arrives.
    Receive(u8),
    /// The reply is lost.
    LoseReply(u8),
    /// A message arrives.
    Wake(u8),
    /// A message is lost.
    LoseWake(u8),
    /// The process is killed. What it has sent is lost, or late.
    Crash(u8, bool),
    /// The clock moves.
    Pass(u8),
}

impl Model {
    /// All that may happen next.
    pub fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::with_capacity(24);
        for (at, client) in state.clients.iter().enumerate() {
            let at = at as u8;
            self.requests(at, client, &mut steps);
            if client.is_ready() {
                self.sends(at, client, state, &mut steps);
            }
            self.ends(at, client, &mut steps);
        }
        self.batches(state, &mut steps);
        let passes = (0..=self.scenario.leaps.0.len()).map(|pass| pass as u8);
        let passes = passes.filter(|pass| self.can_pass(state, *pass));
        steps.extend(passes.map(Step::Pass));
        steps
    }

    /// Whether the clock may move so far. Where it may be set back it leaps only while a process lives
    /// that tells its highest time.
    fn can_pass(&self, state: &State, pass: u8) -> bool {
        let mut told = state.clients.iter().map(is_telling);
        let is_told = !self.scenario.has_clock || told.any(|tells| tells);
        pass == 0 || state.leaps < self.scenario.leaps.1 && is_told
    }

    /// What becomes of the requests and messages of a client.
    fn requests(&self, at: u8, client: &Client, steps: &mut Vec<Step>) {
        let has_room = client.late.len() < self.scenario.late;
        steps.extend((0..client.late.len()).map(|late| Step::RunLate(at, late as u8)));
        if client.wake.is_some() {
            steps.push(Step::LoseWake(at));
            if client.phase == Phase::Queued && client.pending.is_none() {
                steps.push(Step::Wake(at));
            }
        }
        let Some(Pending { reply, .. }) = &client.pending else {
            return;
        };
        match reply {
            None => {
                steps.push(Step::Run(at));
                steps.extend(self.scenario.loses.then_some(Step::TimeOut(at, false)));
                steps.extend(has_room.then_some(Step::TimeOut(at, true)));
            }
            Some(_) => {
                steps.push(Step::Receive(at));
                steps.extend(self.scenario.loses.then_some(Step::LoseReply(at)));
            }
        }
    }

    /// What a client may send.
    fn sends(&self, at: u8, client: &Client, state: &State, steps: &mut Vec<Step>) {
        let claim = self.claim(state, at);
        if self.scenario.has_no_refresh && client.phase == Phase::Held {
            return;
        }
        let can_leave = matches!(client.phase, Phase::Wanting | Phase::Queued | Phase::Lost);
        steps.extend(can_leave.then_some(Step::Leave(at)));
        for fate in self.fates(client) {
            let mut send = |kind| steps.push(Step::Send(at, kind, fate));
            match client.phase {
                Phase::Wanting => send(Kind::Acquire),
                Phase::Queued if client.due <= 0 => send(Kind::Acquire),
                Phase::Lost if claim.len() == 1 && !client.is_light => send(Kind::Acquire),
                Phase::Held => send(Kind::Refresh),
                Phase::Leaving => send(Kind::Release),
                _ => {}
            }
            match client.phase {
                Phase::Idle => {
                    let claims = self.scenario.clients[usize::from(at)].len();
                    steps.extend((0..claims).map(|claim| Step::Claim(at, claim as u8, fate)));
                }
                Phase::Queued if client.over >> client.at & 1 == 0 => {
                    steps.push(Step::LastPoll(at, fate));
                }
                Phase::Held => {
                    steps.push(Step::Drop(at, fate));
                }
                _ => {}
            }
        }
        if client.phase == Phase::Held {
            steps.push(Step::Leave(at));
            let is_heavy = claim.iter().all(|level| level.weight == 2) && !client.is_light;
            let has_room = client.late.len() < self.scenario.late;
            let can_lighten = self.scenario.lightens && is_heavy && has_room;
            steps.extend(can_lighten.then_some(Step::Send(at, Kind::Lighten, Fate::Late)));
        }
    }

    fn fates(&self, client: &Client) -> impl Iterator<Item = Fate> + use<> {
        let (has_messages, loses) = (self.scenario.has_messages, self.scenario.loses);
        let has_room = client.late.len() < self.scenario.late;
        let fates = [
            (Fate::Sent, has_messages),
            (Fate::Answered, !has_messages),
            (Fate::Unanswered, !has_messages && loses),
            (Fate::Lost, !has_messages && loses),
            (Fate::Late, !has_messages && has_room),
        ];
        let fates = fates.into_iter().filter(|(_, may_be)| *may_be);
        fates.map(|(fate, _)| fate)
    }

    fn ends(&self, at: u8, client: &Client, steps: &mut Vec<Step>) {
        let is_there = !matches!(client.phase, Phase::Idle | Phase::Done | Phase::Dead);
        if !self.scenario.crashes || !is_there {
            return;
        }
        steps.push(Step::Crash(at, false));
        let is_sent = client
            .pending
            .as_ref()
            .is_some_and(|pending| pending.reply.is_none());
        if is_sent && client.late.len() < self.scenario.late {
            steps.push(Step::Crash(at, true));
        }
    }

    fn batches(&self, state: &State, steps: &mut Vec<Step>) {
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

    /// The state after a step, in its normal form.
    ///
    /// # Errors
    ///
    /// With an invariant that does not hold.
    pub fn take(&mut self, state: &State, step: Step) -> Result<State, Violation> {
        let mut next = state.clone();
        self.step(&mut next, step)?;
        next.normalise(&self.scenario, &mut self.server);
        Ok(next)
    }

    fn step(&mut self, state: &mut State, step: Step) -> Result<(), Violation> {
        match step {
            Step::Claim(at, claim, fate) => self.claims(state, at, claim, fate)?,
            Step::Send(at, Kind::Lighten, _) => self.lighten(state, at),
            Step::Send(at, kind, fate) => self.sends_one(state, at, (kind, true), fate)?,
            Step::Drop(at, fate) => {
                state.clients[usize::from(at)].phase = Phase::Leaving;
                self.sends_one(state, at, (Kind::Release, false), fate)?;
            }
            Step::LastPoll(at, fate) => {
                let client = &mut state.clients[usize::from(at)];
                client.over |= 1 << client.at;
                self.sends_one(state, at, (Kind::Acquire, false), fate)?;
            }
            Step::Leave(at) => state.clients[usize::from(at)].phase = Phase::Leaving,
            Step::TimeOut(at, is_late) => state.clients[usize::from(at)].give_up(is_late),
            Step::Run(at) => self.run_pending(state, &[at])?,
            Step::RunBoth(first, second) => self.run_pending(state, &[first, second])?,
            Step::Together((first, second), claims) => {
                self.sends_both(state, [(first, claims.0), (second, claims.1)])?;
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
            Step::LoseWake(at) => state.clients[usize::from(at)].wake = None,
            Step::Crash(at, is_late) => state.clients[usize::from(at)].crash(is_late),
            Step::Pass(pass) => self.pass(state, pass)?,
        }
        Ok(())
    }

    fn claims(
        &mut self,
        state: &mut State,
        at: u8,
        claim: u8,
        fate: Fate,
    ) -> Result<(), Violation> {
        let client = &mut state.clients[usize::from(at)];
        (client.phase, client.claim) = (Phase::Wanting, claim);
        if self.scenario.has_clock {
            self.tell_clock(state, at)?;
        }
        self.sends_one(state, at, (Kind::Acquire, false), fate)
    }

    fn sends_both(&mut self, state: &mut State, both: [(u8, u8); 2]) -> Result<(), Violation> {
        for (at, claim) in both {
            let client = &mut state.clients[usize::from(at)];
            let kind = due(client).unwrap_or(Kind::Acquire);
            if client.phase == Phase::Idle {
                (client.phase, client.claim) = (Phase::Wanting, claim);
            }
            self.send(state, at, kind, true);
        }
        self.run_pending(state, &both.map(|(at, _)| at))?;
        both.iter().for_each(|(at, _)| self.receive(state, *at));
        Ok(())
    }

    fn sends_one(
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

    /// The permit counts as light from now on, whenever its second unit is released.
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

    /// The clock moves. Where it may be set back, all processes have told it before.
    pub(crate) fn pass(&mut self, state: &mut State, pass: u8) -> Result<(), Violation> {
        for at in 0..state.clients.len() {
            if self.scenario.has_clock && is_telling(&state.clients[at]) {
                self.tell_clock(state, at as u8)?;
            }
        }
        state.leaps += u8::from(pass > 0);
        let ms = self.scenario.pass(pass);
        state.pass(ms, &mut self.server);
        Ok(())
    }
}

/// Whether a process knows the highest time of the server's clock, and tells it.
fn is_telling(client: &Client) -> bool {
    client.phase != Phase::Dead && client.ahead != NEVER
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
fn due(client: &Client) -> Option<Kind> {
    match client.phase {
        _ if client.pending.is_some() || client.is_light => None,
        Phase::Idle | Phase::Wanting | Phase::Lost => Some(Kind::Acquire),
        Phase::Queued if client.due <= 0 => Some(Kind::Acquire),
        Phase::Held => Some(Kind::Refresh),
        Phase::Leaving => Some(Kind::Release),
        _ => None,
    }
}
