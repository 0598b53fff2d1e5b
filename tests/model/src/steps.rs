//! What may happen next in a state.

use crate::{
    client::{Client, Kind, Pending, Phase},
    model::Model,
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
    /// It leaves before it has got what it wants, or releases its permit.
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
    /// An operator revokes the permit of a client at a level.
    Revoke(u8, u8),
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
        self.revocations(state, &mut steps);
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
        if client.wake.is_some() || client.is_told {
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

    /// What a client may send.
    fn sends(&self, at: u8, client: &Client, state: &State, steps: &mut Vec<Step>) {
        let claim = self.claim(state, at);
        if self.scenario.has_no_refresh && client.phase == Phase::Held {
            return;
        }
        let can_leave = matches!(client.phase, Phase::Wanting | Phase::Queued | Phase::Lost);
        steps.extend(can_leave.then_some(Step::Leave(at)));
        for fate in self.fates(client) {
            self.sends_with(at, client, (claim.len(), fate), steps);
        }
        if client.phase == Phase::Held {
            steps.push(Step::Leave(at));
            let is_heavy = claim.iter().all(|level| level.weight == 2) && !client.is_light;
            let has_room = client.late.len() < self.scenario.late;
            let can_lighten = self.scenario.lightens && is_heavy && has_room;
            steps.extend(can_lighten.then_some(Step::Send(at, Kind::Lighten, Fate::Late)));
        }
    }

    /// What a client may send that has this fate.
    fn sends_with(
        &self,
        at: u8,
        client: &Client,
        (levels, fate): (usize, Fate),
        steps: &mut Vec<Step>,
    ) {
        let mut send = |kind| steps.push(Step::Send(at, kind, fate));
        match client.phase {
            Phase::Wanting => send(Kind::Acquire),
            Phase::Queued if client.due <= 0 => send(Kind::Acquire),
            Phase::Lost if levels == 1 && !client.is_light => send(Kind::Acquire),
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
            Phase::Held => steps.push(Step::Drop(at, fate)),
            _ => {}
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
}

/// Whether a process knows the highest time of the server's clock, and tells it.
pub(crate) fn is_telling(client: &Client) -> bool {
    client.phase != Phase::Dead && client.ahead != NEVER
}

impl Model {
    /// The permits that an operator may name: also those that were released or revoked.
    fn revocations(&self, state: &State, steps: &mut Vec<Step>) {
        let clients = state.clients.iter().enumerate();
        let clients =
            clients.filter(|(_, client)| self.scenario.revokes && client.phase != Phase::Idle);
        for (at, _) in clients {
            let levels = self.claim(state, at as u8).len() as u8;
            steps.extend((0..levels).map(|level| Step::Revoke(at as u8, level)));
        }
    }

    /// What two clients may do together.
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
