//! The responses that are in flight, as their clients see them.
//!
//! A response counts from its head to the moment at which its client hangs up, or before which its
//! body cannot have ended. So it has a permit all that time, unless a fault has taken it: a response
//! whose request was sent before the end of such a fault does not count any more.

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
    /// How often permits may have been lost, in all and by process.
    losses: HashMap<Option<usize>, u64>,
    /// How many faults go on, in all and by process.
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

/// When a request was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    process: usize,
    losses: (u64, u64),
}

impl InFlight {
    /// For a request that is about to be sent.
    pub(crate) fn ticket(&self, process: usize) -> Ticket {
        let losses = self.lock().losses(process);
        Ticket { process, losses }
    }

    /// Counts a response whose head has come, if it is sure to have a permit. Returns its number,
    /// and what is wrong.
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

    /// A fault begins that may take permits.
    pub(crate) fn suspend(&self, whom: Whom) {
        let mut state = self.lock();
        *state.faults.entry(index(whom)).or_default() += 1;
        state.lose(whom);
    }

    /// It is over.
    pub(crate) fn resume(&self, whom: Whom) {
        let mut state = self.lock();
        *state.faults.entry(index(whom)).or_default() -= 1;
        state.lose(whom);
    }

    /// The most that ever counted together.
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
