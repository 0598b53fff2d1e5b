//! A state of the model in a normal form: states that no client and no script can distinguish are equal.

use crate::{
    call::Answer,
    client::{Client, Reply},
    scenario::Scenario,
    semaphore::Semaphore,
    server::{Semaphores, Server},
    time::{CALL, NEVER},
};

/// The server's semaphores, the clients, and their messages under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The semaphores, by the numbers of their states.
    pub semaphores: Semaphores,
    /// The clients.
    pub clients: Vec<Client>,
    /// The highest granted token of each semaphore, in microseconds from now.
    pub tokens: [i64; 2],
    /// The highest time that the server stores, in microseconds from now, and its time to live.
    pub clock: Option<(i64, i64)>,
    /// The number of leaps of the clock so far.
    pub leaps: u8,
}

/// The meaning of a number of microseconds in a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Micros {
    Arrival,
    Token,
}

impl State {
    /// The first state, in which no client has acted.
    pub fn new(clients: usize) -> Self {
        Self {
            semaphores: [0; 2],
            clients: vec![Client::default(); clients],
            tokens: [NEVER; 2],
            clock: None,
            leaps: 0,
        }
    }

    /// Moves the clocks on by `ms`, or sets the server's clock back.
    pub fn pass(&mut self, ms: i64, server: &mut Server) {
        for number in &mut self.semaphores {
            *number = server.later(*number, ms);
        }
        for token in self.tokens.iter_mut().filter(|token| **token != NEVER) {
            *token -= ms * 1_000;
        }
        let clock = self
            .clock
            .map(|(highest, ttl)| (highest - ms * 1_000, ttl - ms));
        self.clock = clock.filter(|(_, ttl)| *ttl > 0);
        for client in &mut self.clients {
            client.pass(ms);
            client.visit_micros(|_, _, number| *number -= ms * 1_000);
        }
    }

    /// Brings the state into its normal form. For tokens and arrivals in the past only their order matters, and how far
    /// the token is from the next multiple of four, because every fourth token extends TTLs.
    pub fn normalise(&mut self, scenario: &Scenario, server: &mut Server) {
        self.clients.iter_mut().for_each(Client::tidy);
        let levels = scenario.clients.iter().flatten().flatten();
        let head_start = levels.clone().map(|level| level.head_start).max();
        let head_start = head_start.unwrap_or(0);
        let has_flows = levels.into_iter().any(|level| level.flow > 0);
        for key in 0..self.semaphores.len() as u8 {
            self.rank_past(Micros::Token, key, scenario, server);
            match head_start {
                0 if !has_flows => self.rank_past(Micros::Arrival, key, scenario, server),
                _ => self.shift_arrivals(key, -head_start * 1_000 - CALL, scenario, server),
            }
        }
    }

    /// Replaces the past numbers of one kind for a semaphore by ranks, in its state and in all clients.
    fn rank_past(&mut self, kind: Micros, key: u8, scenario: &Scenario, server: &mut Server) {
        let at = usize::from(key);
        let semaphore = server.state(self.semaphores[at]).clone();
        // The number whose remainder modulo four is kept: the last token, if it is past.
        let anchor = semaphore.token.map(|(token, _)| token);
        let anchor = anchor.filter(|token| kind == Micros::Token && *token <= CALL);
        let mut past = Vec::with_capacity(8);
        // A value is not past if setting the clock back would bring it into the future.
        let last = scenario.set_back() * 1_000;
        let mut add_past = |number: &mut i64| {
            if *number <= last + CALL && *number != NEVER {
                past.push(*number);
            }
        };
        add_past(&mut anchor.unwrap_or(NEVER));
        if kind == Micros::Token {
            add_past(&mut self.tokens[at]);
        } else {
            semaphore
                .queue
                .items
                .iter()
                .for_each(|(_, score)| add_past(&mut score.clone()));
        }
        self.visit_clients(kind, key, scenario, &mut add_past);
        if past.is_empty() {
            return;
        }
        let ranks = Ranks::new(past, anchor, last);
        self.visit_clients(kind, key, scenario, &mut |number| ranks.apply(number));
        if kind == Micros::Token {
            ranks.apply(&mut self.tokens[at]);
        }
        let mut next = Semaphore::clone(&semaphore);
        if let Some((token, _)) = next.token.as_mut().filter(|_| kind == Micros::Token) {
            ranks.apply(token);
        }
        if kind == Micros::Arrival {
            next.queue
                .items
                .iter_mut()
                .for_each(|(_, score)| ranks.apply(score));
        }
        if next != *semaphore {
            self.semaphores[at] = server.number(next);
        }
    }

    /// Moves all arrivals by the same distance, so that the last is no earlier than `to`. With head starts or flow tags
    /// the differences between arrivals matter, but not the time since the last one, once it exceeds every head start.
    fn shift_arrivals(&mut self, key: u8, to: i64, scenario: &Scenario, server: &mut Server) {
        let at = usize::from(key);
        let mut next = Semaphore::clone(server.state(self.semaphores[at]));
        let scores = next.queue.items.iter().map(|(_, score)| *score);
        let mut last = scores.chain(next.last_arrival).max().unwrap_or(NEVER);
        self.visit_clients(Micros::Arrival, key, scenario, &mut |number| {
            last = last.max(*number);
        });
        if last == NEVER || last >= to {
            return;
        }
        let shift = |number: &mut i64| *number += to - last;
        self.visit_clients(Micros::Arrival, key, scenario, &mut |number| shift(number));
        next.queue
            .items
            .iter_mut()
            .for_each(|(_, score)| shift(score));
        next.last_arrival.iter_mut().for_each(shift);
        let finishes = next.finishes.iter_mut();
        finishes.for_each(|(_, finish)| shift(finish));
        self.semaphores[at] = server.number(next);
    }

    /// Visits the numbers of one kind for a semaphore in all clients.
    fn visit_clients(
        &mut self,
        kind: Micros,
        key: u8,
        scenario: &Scenario,
        visit: &mut impl FnMut(&mut i64),
    ) {
        for (client, claims) in self.clients.iter_mut().zip(&scenario.clients) {
            let claim = &claims[usize::from(client.claim)];
            client.visit_micros(|found, level, number| {
                if found == kind && claim.get(usize::from(level)).is_some_and(|l| l.key == key) {
                    visit(number);
                }
            });
        }
    }
}

impl Client {
    /// Visits the numbers of microseconds: the kind of each, its level, and the number.
    fn visit_micros(&mut self, mut visit: impl FnMut(Micros, u8, &mut i64)) {
        let mut visit = |kind, level, number: &mut i64| {
            if *number != NEVER {
                visit(kind, level, number);
            }
        };
        for (level, arrival) in self.arrivals.iter_mut().enumerate() {
            visit(Micros::Arrival, level as u8, arrival);
        }
        visit(Micros::Token, self.at, &mut self.last_token);
        if let Some((level, Some(token))) = &mut self.wake {
            visit(Micros::Token, *level, token);
        }
        let reply = self
            .pending
            .as_mut()
            .and_then(|pending| pending.reply.as_mut());
        match reply {
            Some(Reply::Acquired(Answer::Queued {
                level,
                arrival,
                last_token,
                ..
            })) => {
                visit(Micros::Arrival, *level, arrival);
                visit(Micros::Token, *level, last_token);
            }
            // The checks of the call have used these numbers already, and later steps ignore them.
            Some(Reply::Acquired(Answer::Granted(levels))) => {
                levels.iter_mut().for_each(|level| *level = (0, 0));
            }
            _ => {}
        }
    }
}

/// Past numbers, each with its replacement.
struct Ranks(Vec<(i64, i64)>);

impl Ranks {
    /// The replacements lie before `last`. They keep the order of all numbers, and the anchor's remainder modulo 4.
    fn new(mut numbers: Vec<i64>, anchor: Option<i64>, last: i64) -> Self {
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers.dedup();
        let mut next = last - 4;
        let ranks = numbers.into_iter().map(|number| {
            if anchor == Some(number) {
                while (next - number).rem_euclid(4) != 0 {
                    next -= 1;
                }
            }
            next -= 1;
            (number, next + 1)
        });
        Self(ranks.collect())
    }

    fn apply(&self, number: &mut i64) {
        if let Some((_, rank)) = self.0.iter().find(|(old, _)| old == number) {
            *number = *rank;
        }
    }
}
