//! The server of the model: every state of a semaphore has a number, and a call that was made in
//! the same state before is not made again.

use crate::{
    call::{Answer, Call},
    check,
    lua::Runner,
    scripts::{Scripts, Verb},
    semaphore::Semaphore,
    stand_in::{Entry, StandIn, Value},
    time::{LEASE, NOW, NOW_MS},
};
use std::{collections::HashMap, rc::Rc};

/// The semaphores of a state, by their numbers.
pub type Semaphores = [u32; 2];

/// A message to a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wake {
    /// The process.
    pub client: u8,
    /// The level of its claim.
    pub level: u8,
    /// From now, microseconds; `None`: the waiter should poll.
    pub token: Option<i64>,
}

/// What a call has done.
#[derive(Debug)]
pub struct Effect {
    /// The semaphores before, and after.
    pub before: Vec<Semaphore>,
    /// See `before`.
    pub after: Vec<Semaphore>,
    /// For each item, or each claim.
    pub answers: Vec<Answer>,
    /// The messages, in their order.
    pub wakes: Vec<Wake>,
    /// The first command that has written.
    pub first_write: Option<String>,
}

/// What a state keeps of a call.
#[derive(Debug)]
pub struct Outcome {
    /// The semaphores after it.
    pub after: Semaphores,
    /// For each item, or each claim.
    pub answers: Vec<Answer>,
    /// The messages.
    pub wakes: Vec<Wake>,
    /// The tokens that were granted, and of which semaphores.
    pub tokens: Vec<(u8, i64)>,
}

/// An invariant that does not hold: its name, and what was seen.
#[derive(Debug, Clone)]
pub struct Violation {
    /// As TESTING.md names it.
    pub invariant: &'static str,
    /// What was seen.
    pub seen: String,
}

/// A violation.
pub fn violated<T>(invariant: &'static str, seen: impl Into<String>) -> Result<T, Violation> {
    let seen = seen.into();
    Err(Violation { invariant, seen })
}

type Known = Result<Rc<Outcome>, Violation>;

/// The server.
#[derive(Debug)]
pub struct Server {
    runner: Runner,
    states: Vec<Rc<Semaphore>>,
    numbers: HashMap<Rc<Semaphore>, u32>,
    known: HashMap<(Call, Semaphores), Known>,
    later: HashMap<(u32, i64), u32>,
    /// How many units one call grants from a queue.
    max_granted: usize,
    /// How far the clock may be set back, ms, at most 0.
    past: i64,
}

impl Server {
    /// A server for these scripts.
    ///
    /// # Panics
    ///
    /// If a script is not Lua.
    pub fn new(scripts: &Scripts, max_granted: usize, past: i64) -> Self {
        let mut server = Self {
            runner: Runner::new(scripts).expect("the scripts are Lua"),
            states: Vec::new(),
            numbers: HashMap::new(),
            known: HashMap::new(),
            later: HashMap::new(),
            max_granted,
            past,
        };
        server.number(Semaphore::default());
        server
    }

    /// The state with this number. Number 0 is a semaphore that nobody has used.
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

    /// How many calls the scripts have run.
    pub fn calls(&self) -> usize {
        self.known.len()
    }

    /// The state after so many ms.
    pub fn later(&mut self, number: u32, ms: i64) -> u32 {
        if let Some(later) = self.later.get(&(number, ms)) {
            return *later;
        }
        let after = self.state(number).after(ms, self.past);
        let later = self.number(after);
        self.later.insert((number, ms), later);
        later
    }

    /// Makes a call, and checks what it has done.
    ///
    /// # Errors
    ///
    /// With the first invariant that does not hold.
    pub fn call(&mut self, call: &Call, before: Semaphores) -> Known {
        let key = (call.clone(), before);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let outcome = self.run(call, before).map(Rc::new);
        self.known.insert(key, outcome.clone());
        outcome
    }

    fn run(&mut self, call: &Call, before: Semaphores) -> Result<Outcome, Violation> {
        let states = before.map(|number| Semaphore::clone(self.state(number)));
        let effect = self.effect(call, states.into());
        let effect = effect.or_else(|seen| violated("E", seen))?;
        check::check(call, &effect, self.max_granted)?;
        let tokens = check::tokens(call, &effect);
        let mut after = before;
        for (number, state) in after.iter_mut().zip(effect.after) {
            *number = self.number(state);
        }
        Ok(Outcome {
            after,
            answers: effect.answers,
            wakes: effect.wakes,
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
        let wakes = server.published.iter().map(|(to, text)| wake(to, text));
        Ok(Effect {
            after: after.collect::<Result<_, _>>()?,
            answers: call.read(&reply)?,
            wakes: wakes.collect::<Result<_, _>>()?,
            first_write: server.first_write,
            before,
        })
    }

    /// Calls the script of the clock, with the highest time that the server knows and that the
    /// process knows, from now. The server's highest time then, which is also the answer.
    ///
    /// # Errors
    ///
    /// If the script fails or answers something else.
    pub fn clock(&self, known: Option<(i64, i64)>, own: i64) -> Result<i64, Violation> {
        let mut server = StandIn::at(NOW);
        if let Some((highest, ttl)) = known {
            let value = Value::Text((highest + NOW).to_string());
            let expires_at = Some(NOW_MS + ttl);
            server.insert("clock".into(), Entry { value, expires_at });
        }
        let (keys, args) = (
            ["clock".to_owned()],
            [LEASE, own + NOW].map(|arg| arg.to_string()),
        );
        let reply = self.runner.run(Verb::Clock, &mut server, &keys, &args);
        let reply = reply.or_else(|error| violated("E", error.to_string()))?;
        let stored = server.entries().next().map(|(_, entry)| entry.clone());
        let highest = check::clock(&reply, stored.as_ref(), server.first_write.as_deref())?;
        match highest == own.max(0).max(known.map_or(0, |(highest, _)| highest)) {
            true => Ok(highest),
            false => violated(
                "S3",
                format!("highest time {highest} of {own} and {known:?}"),
            ),
        }
    }
}

fn wake(channel: &str, message: &str) -> Result<Wake, String> {
    let strange = || format!("a strange message {message} to {channel}");
    let process = channel.strip_prefix("swake:p").ok_or_else(strange)?;
    let mut words = message.split(' ').map(str::to_owned);
    let [Some(serial), Some(token), Some(_), None] =
        [words.next(), words.next(), words.next(), words.next()]
    else {
        return Err(strange());
    };
    let (client, serial) = (process.parse().ok(), u8::from_str_radix(&serial, 16).ok());
    let (client, serial): (u8, u8) = client.zip(serial).ok_or_else(strange)?;
    let token: i64 = token.parse().map_err(|_| strange())?;
    let level = serial.checked_sub(16 * client + 1).ok_or_else(strange)?;
    let token = (token != 0).then_some(token - NOW);
    Ok(Wake {
        client,
        level,
        token,
    })
}
