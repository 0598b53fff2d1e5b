//! The server of the model. Every state of a semaphore has a number, and a call is not repeated in a state in which it
//! was made before.

use crate::{
    call::{Answer, Call},
    check,
    lua::Runner,
    messages::{Wake, messages},
    scripts::Scripts,
    semaphore::Semaphore,
    stand_in::StandIn,
    time::NOW,
    unit::Permit,
};
use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

/// The semaphores of a state, by the numbers of their states.
pub type Semaphores = [u32; 2];

/// The full effect of a call.
#[derive(Debug)]
pub struct Effect {
    /// The semaphores before the call.
    pub before: Vec<Semaphore>,
    /// The semaphores after the call.
    pub after: Vec<Semaphore>,
    /// One answer for each item, or for each claim.
    pub answers: Vec<Answer>,
    /// The messages, in their order.
    pub wakes: Vec<Wake>,
    /// The permits whose revocation a message reports.
    pub revoked: Vec<Permit>,
    /// The first command that has written.
    pub first_write: Option<String>,
}

/// The part of a call's effect that a state needs.
#[derive(Debug)]
pub struct Outcome {
    /// The semaphores after the call.
    pub after: Semaphores,
    /// One answer for each item, or for each claim.
    pub answers: Vec<Answer>,
    /// The messages.
    pub wakes: Vec<Wake>,
    /// The permits whose revocation a message reports.
    pub revoked: Vec<Permit>,
    /// The granted tokens, each with its semaphore.
    pub tokens: Vec<(u8, i64)>,
}

/// A broken invariant: its name, and the evidence.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The invariant's name in the crate's docs.
    pub invariant: &'static str,
    /// The evidence for the violation.
    pub seen: String,
}

/// Returns a violation as an error.
pub fn violated<T>(invariant: &'static str, seen: impl Into<String>) -> Result<T, Violation> {
    let seen = seen.into();
    Err(Violation { invariant, seen })
}

type CallResult = Result<Rc<Outcome>, Violation>;

/// The server.
#[derive(Debug)]
pub struct Server {
    pub(crate) runner: Runner,
    /// The states of semaphores, by their numbers.
    states: Vec<Rc<Semaphore>>,
    numbers: HashMap<Rc<Semaphore>, u32>,
    /// The outcomes of calls, by the call and the states before it.
    outcomes: HashMap<(Call, Semaphores), CallResult>,
    /// The number of the state some ms after another state.
    later: HashMap<(u32, i64), u32>,
    /// The states that were inspected.
    pub(crate) inspected: HashSet<u32>,
    /// How many units one call grants from a queue.
    max_advanced: usize,
    /// The largest leap back of the clock, in ms; at most 0.
    past: i64,
}

impl Server {
    /// A server for these scripts.
    ///
    /// # Panics
    ///
    /// If a script is not Lua.
    pub fn new(scripts: &Scripts, max_advanced: usize, past: i64) -> Self {
        let mut server = Self {
            runner: Runner::new(scripts).expect("the scripts are Lua"),
            states: Vec::new(),
            numbers: HashMap::new(),
            outcomes: HashMap::new(),
            later: HashMap::new(),
            inspected: HashSet::new(),
            max_advanced,
            past,
        };
        server.number(Semaphore::default());
        server
    }

    /// The state with this number. Number 0 is an unused semaphore.
    pub fn state(&self, number: u32) -> &Rc<Semaphore> {
        &self.states[number as usize]
    }

    /// The number of a state.
    pub fn number(&mut self, state: Semaphore) -> u32 {
        if let Some(number) = self.numbers.get(&state) {
            return *number;
        }
        let (state, number) = (Rc::new(state), self.states.len() as u32);
        self.states.push(Rc::clone(&state));
        self.numbers.insert(state, number);
        number
    }

    /// The number of different calls that the scripts have run.
    pub fn calls(&self) -> usize {
        self.outcomes.len()
    }

    /// The number of the state `ms` later.
    pub fn later(&mut self, number: u32, ms: i64) -> u32 {
        if let Some(later) = self.later.get(&(number, ms)) {
            return *later;
        }
        let after = self.state(number).after(ms, self.past);
        let later = self.number(after);
        self.later.insert((number, ms), later);
        later
    }

    /// Makes a call and checks its effect.
    ///
    /// # Errors
    ///
    /// Returns the first invariant that does not hold.
    pub fn call(&mut self, call: &Call, before: Semaphores) -> CallResult {
        let key = (call.clone(), before);
        if let Some(outcome) = self.outcomes.get(&key) {
            return outcome.clone();
        }
        let outcome = self.run(call, before).map(Rc::new);
        self.outcomes.insert(key, outcome.clone());
        outcome
    }

    fn run(&mut self, call: &Call, before: Semaphores) -> Result<Outcome, Violation> {
        let states = before.map(|number| Semaphore::clone(self.state(number)));
        let effect = self.effect(call, states.into());
        let effect = effect.or_else(|seen| violated("E", seen))?;
        check::check(call, &effect, self.max_advanced)?;
        let tokens = check::tokens(call, &effect);
        let mut after = before;
        for (number, state) in after.iter_mut().zip(effect.after) {
            *number = self.number(state);
        }
        Ok(Outcome {
            after,
            answers: effect.answers,
            wakes: effect.wakes,
            revoked: effect.revoked,
            tokens,
        })
    }

    fn effect(&self, call: &Call, before: Vec<Semaphore>) -> Result<Effect, String> {
        let mut server = StandIn::at(NOW);
        for (at, state) in before.iter().enumerate() {
            state.load(at as u8, &mut server);
        }
        let (keys, args) = (call.keys(), call.args());
        let reply = self.runner.run(call.verb, &mut server, &keys, &args);
        let reply = reply.map_err(|error| error.to_string())?;
        let after = (0..before.len()).map(|at| Semaphore::save(at as u8, &server));
        let (wakes, revoked) = messages(&server)?;
        Ok(Effect {
            after: after.collect::<Result<_, _>>()?,
            answers: call.read(&reply)?,
            wakes,
            revoked,
            first_write: server.first_write,
            before,
        })
    }
}
