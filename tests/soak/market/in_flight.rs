//! The responses in flight, as their clients see them.
//!
//! A response counts from its head until its client hangs up, or until the earliest time at which its body can end. It
//! holds a permit for all that time, unless a fault has made its process lose permits. So a response is not counted, or
//! is no longer counted, if such a fault began or ended after its request was sent.

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
    /// The number of beginnings and ends of faults that may lose permits: of all processes (`None`) and of each.
    losses: HashMap<Option<usize>, u64>,
    /// The number of such faults that have not ended: of all processes (`None`) and of each.
    faults: HashMap<Option<usize>, u32>,
    responses: HashMap<u64, Response>,
    /// The number of the last response.
    last: u64,
    /// The largest number of responses at the same time.
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
    /// `State::losses` of all processes and of this one.
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
        if state.losses(process) != ticket.losses || state.has_fault(process) {
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

    /// Begins a fault that may make holders lose permits.
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
        let count = |index| self.losses.get(&index).copied().unwrap_or_default();
        (count(None), count(Some(process)))
    }

    fn has_fault(&self, process: usize) -> bool {
        let has_any = |index| self.faults.get(&index).is_some_and(|faults| *faults > 0);
        has_any(None) || has_any(Some(process))
    }

    /// Stops counting the responses of these processes.
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
