//! The responses in flight, as their clients see them.
//!
//! A response counts from its head until its client hangs up, or until the earliest time at which its body can end. It
//! holds a permit for all that time, unless a fault has taken the permit. So a response stops counting if its request
//! was sent before the end of such a fault.

use super::{
    plan::{FLEET_LIMIT, LIMIT},
    report::Whom,
};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

#[derive(Debug, Default)]
pub(crate) struct InFlight(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How often permits may have been lost, for all processes together (`None`) and for each.
    losses: HashMap<Option<usize>, u64>,
    /// The number of current faults, for all processes together (`None`) and for each.
    faults: HashMap<Option<usize>, u32>,
    responses: HashMap<u64, Response>,
    last: u64,
    most: usize,
}

#[derive(Debug)]
struct Response {
    process: usize,
    account: &'static str,
}

/// The state of a process when a request was sent to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    process: usize,
    losses: (u64, u64),
}

impl InFlight {
    /// Creates the ticket of a request that is about to be sent.
    pub(crate) fn ticket(&self, process: usize) -> Ticket {
        let losses = self.lock().losses(process);
        Ticket { process, losses }
    }

    /// Counts a response whose head has arrived, if it is certain to hold a permit. Returns its number, and a
    /// description of any excess over a limit.
    pub(crate) fn begin(
        &self,
        ticket: Ticket,
        account: &'static str,
    ) -> (Option<u64>, Option<String>) {
        let mut state = self.lock();
        let process = ticket.process;
        if state.losses(process) != ticket.losses || state.goes_on(process) {
            return (None, None);
        }
        state.last += 1;
        let number = state.last;
        state
            .responses
            .insert(number, Response { process, account });
        state.most = state.most.max(state.responses.len());
        (Some(number), state.excess(account))
    }

    pub(crate) fn end(&self, number: Option<u64>) {
        if let Some(number) = number {
            self.lock().responses.remove(&number);
        }
    }

    /// Begins a fault to which permits may be lost.
    pub(crate) fn suspend(&self, whom: Whom) {
        let mut state = self.lock();
        *state.faults.entry(index(whom)).or_default() += 1;
        state.lose(whom);
    }

    /// Ends such a fault.
    pub(crate) fn resume(&self, whom: Whom) {
        let mut state = self.lock();
        *state.faults.entry(index(whom)).or_default() -= 1;
        state.lose(whom);
    }

    /// The largest number of responses that counted at the same time.
    pub(crate) fn most(&self) -> usize {
        self.lock().most
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn losses(&self, process: usize) -> (u64, u64) {
        let of = |index| self.losses.get(&index).copied().unwrap_or_default();
        (of(None), of(Some(process)))
    }

    fn goes_on(&self, process: usize) -> bool {
        let of = |index| self.faults.get(&index).is_some_and(|faults| *faults > 0);
        of(None) || of(Some(process))
    }

    fn lose(&mut self, whom: Whom) {
        *self.losses.entry(index(whom)).or_default() += 1;
        let stays =
            |response: &Response| whom != Whom::All && whom != Whom::Process(response.process);
        self.responses.retain(|_, response| stays(response));
    }

    fn excess(&self, account: &str) -> Option<String> {
        let same = |response: &&Response| response.account == account;
        let own = self.responses.values().filter(same).count();
        let all = self.responses.len();
        let is_excess = own > LIMIT as usize || all > FLEET_LIMIT as usize;
        is_excess.then(|| format!("{own} of {account}, {all} in all: {:?}", self.responses))
    }
}

fn index(whom: Whom) -> Option<usize> {
    match whom {
        Whom::All => None,
        Whom::Process(process) => Some(process),
    }
}
