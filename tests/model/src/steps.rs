//! The possible next steps of a state.

use crate::{
    client::{Client, Kind, Pending, Phase},
    model::Model,
    state::State,
    time::NEVER,
};

/// The fate of a request. In scenarios without `splits_calls` it is decided when the request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The request is under way.
    Sent,
    /// The request runs, and its reply arrives.
    Answered,
    /// The request runs, and its reply is lost.
    Unanswered,
    /// The request never arrives.
    Lost,
    /// The request arrives after the client has given up.
    Late,
}

/// A step: one event in the life of the clients and the server. A client is named by its index, often called `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A client makes its claim with this number.
    Claim(u8, u8, Fate),
    /// A client sends a request: a retry, a poll, a refresh, a release, or an acquire of a lost permit.
    Send(u8, Kind, Fate),
    /// A client releases its permit and wants no answer.
    Drop(u8, Fate),
    /// A client's wait at its present level is over, and it tries a last time without waiting.
    LastPoll(u8, Fate),
    /// A client leaves before it has a permit, or begins to release its permit.
    Leave(u8),
    /// A client gives up a request, which is lost or, if true, late.
    TimeOut(u8, bool),
    /// The server runs the request that a client awaits.
    Run(u8),
    /// The server runs the requests of two clients in one call.
    RunBoth(u8, u8),
    /// Two clients send what is due, the server runs both requests in one call, and both replies arrive. The first
    /// pair names the clients. The second has the number of the claim that each makes if it is idle.
    Together((u8, u8), (u8, u8)),
    /// The server runs the client's late request with this number, whose answer no client awaits.
    RunLate(u8, u8),
    /// A reply arrives.
    Receive(u8),
    /// A reply is lost.
    LoseReply(u8),
    /// An operator revokes the permit of a client at a level.
    Revoke(u8, u8),
    /// A message arrives.
    Wake(u8),
    /// A message is lost.
    LoseWake(u8),
    /// A process is killed. Its pending request is lost or, if true, late.
    Crash(u8, bool),
    /// The clock moves: 0 by a tick, another number by that leap of the scenario.
    Pass(u8),
}

impl Model {
    /// All possible next steps.
    pub fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::with_capacity(24);
        for (at, client) in state.clients.iter().enumerate() {
            let at = at as u8;
            self.add_fates(at, client, &mut steps);
            if client.is_ready() {
                self.add_requests(at, client, state, &mut steps);
            }
            self.add_crashes(at, client, &mut steps);
        }
        self.add_batches(state, &mut steps);
        self.add_revocations(state, &mut steps);
        let passes = (0..=self.scenario.leaps.distances.len()).map(|pass| pass as u8);
        let passes = passes.filter(|pass| self.can_pass(state, *pass));
        steps.extend(passes.map(Step::Pass));
        steps
    }

    /// Returns true if the clock may move by this step. If the clock may be set back, it leaps only while a live
    /// process knows the highest time and reports it.
    fn can_pass(&self, state: &State, pass: u8) -> bool {
        let is_reported = !self.scenario.sets_clock_back || state.clients.iter().any(reports_clock);
        pass == 0 || state.leaps < self.scenario.leaps.most && is_reported
    }

    /// Adds the possible fates of a client's requests and messages.
    fn add_fates(&self, at: u8, client: &Client, steps: &mut Vec<Step>) {
        let has_room = client.late.len() < self.scenario.late;
        steps.extend((0..client.late.len()).map(|late| Step::RunLate(at, late as u8)));
        if client.wake.is_some() || client.has_revoked_message {
            steps.push(Step::LoseWake(at));
            steps.extend(client.listens().then_some(Step::Wake(at)));
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

    /// Adds the requests that a client may send.
    fn add_requests(&self, at: u8, client: &Client, state: &State, steps: &mut Vec<Step>) {
        if self.scenario.holders_do_nothing && client.phase == Phase::Held {
            return;
        }
        let can_leave = matches!(client.phase, Phase::Wanting | Phase::Queued | Phase::Lost);
        steps.extend(can_leave.then_some(Step::Leave(at)));
        for fate in self.fates(client) {
            self.add_requests_with(at, client, fate, steps);
        }
        if client.phase == Phase::Held {
            steps.push(Step::Leave(at));
            let claim = self.claim(state, at);
            let is_heavy = claim.iter().all(|level| level.weight == 2) && !client.is_light;
            let has_room = client.late.len() < self.scenario.late;
            let can_lighten = self.scenario.lightens && is_heavy && has_room;
            // No client awaits its answer, so it is late from the start.
            steps.extend(can_lighten.then_some(Step::Send(at, Kind::Lighten, Fate::Late)));
        }
    }

    /// Adds the requests with this fate that a client may send.
    fn add_requests_with(&self, at: u8, client: &Client, fate: Fate, steps: &mut Vec<Step>) {
        if client.phase == Phase::Idle {
            let claims = self.scenario.clients[usize::from(at)].len();
            steps.extend((0..claims).map(|claim| Step::Claim(at, claim as u8, fate)));
            return;
        }
        steps.extend(due(client).map(|kind| Step::Send(at, kind, fate)));
        match client.phase {
            Phase::Queued if client.over >> client.at & 1 == 0 => {
                steps.push(Step::LastPoll(at, fate));
            }
            Phase::Held => steps.push(Step::Drop(at, fate)),
            _ => {}
        }
    }

    fn fates(&self, client: &Client) -> impl Iterator<Item = Fate> + use<> {
        let (splits_calls, loses) = (self.scenario.splits_calls, self.scenario.loses);
        let has_room = client.late.len() < self.scenario.late;
        let fates = [
            (Fate::Sent, splits_calls),
            (Fate::Answered, !splits_calls),
            (Fate::Unanswered, !splits_calls && loses),
            (Fate::Lost, !splits_calls && loses),
            (Fate::Late, !splits_calls && has_room),
        ];
        let fates = fates.into_iter().filter(|(_, may_be)| *may_be);
        fates.map(|(fate, _)| fate)
    }

    fn add_crashes(&self, at: u8, client: &Client, steps: &mut Vec<Step>) {
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
}

/// Returns true if a process knows the highest time of the server's clock, and reports it.
pub(crate) fn reports_clock(client: &Client) -> bool {
    client.phase != Phase::Dead && client.ahead != NEVER
}

impl Model {
    /// Adds revocations of every permit that an operator may name, including released and revoked ones.
    fn add_revocations(&self, state: &State, steps: &mut Vec<Step>) {
        let clients = state.clients.iter().enumerate();
        let clients =
            clients.filter(|(_, client)| self.scenario.revokes && client.phase != Phase::Idle);
        for (at, _) in clients {
            let levels = self.claim(state, at as u8).len() as u8;
            steps.extend((0..levels).map(|level| Step::Revoke(at as u8, level)));
        }
    }

    /// Adds the calls that two clients may share.
    fn add_batches(&self, state: &State, steps: &mut Vec<Step>) {
        let clients = 0..state.clients.len() as u8;
        let pairs = clients
            .clone()
            .flat_map(|a| clients.clone().map(move |b| (a, b)));
        for (first, second) in pairs.filter(|(a, b)| self.scenario.has_batches && a != b) {
            let [a, b] = [first, second].map(|at| &state.clients[usize::from(at)]);
            let script = unrun(a).filter(|_| self.scenario.splits_calls);
            if script.is_some() && script == unrun(b) {
                steps.push(Step::RunBoth(first, second));
            }
            let script = due(a).filter(|_| !self.scenario.splits_calls);
            if script.is_some() && script == due(b) {
                self.add_together((first, a), (second, b), steps);
            }
        }
    }

    fn add_together(&self, first: (u8, &Client), second: (u8, &Client), steps: &mut Vec<Step>) {
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

/// The script of the request that waits for the server, if any.
fn unrun(client: &Client) -> Option<Kind> {
    let pending = client.pending.as_ref()?;
    let script = match pending.request.kind {
        Kind::Lighten => Kind::Release,
        kind => kind,
    };
    pending.reply.is_none().then_some(script)
}

/// The kind of request that a client has to send, if any. A permit that was lost is acquired again with all of its levels. A
/// light one is not, because an acquire takes both units.
pub(crate) fn due(client: &Client) -> Option<Kind> {
    match client.phase {
        Phase::Idle | Phase::Wanting => Some(Kind::Acquire),
        Phase::Lost if !client.is_light => Some(Kind::Acquire),
        Phase::Queued if client.due <= 0 => Some(Kind::Acquire),
        Phase::Held => Some(Kind::Refresh),
        Phase::Leaving => Some(Kind::Release),
        _ => None,
    }
}
