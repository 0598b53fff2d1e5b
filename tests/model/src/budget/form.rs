//! The form of a state, by which a walk recognises the states that it has visited.

use super::{clients::Client, world::World};
use crate::{stand_in::Value, time::TICK};
use std::fmt::{Debug, Write};

/// Writes the parts of a form.
#[derive(Default)]
struct Form(String);

impl Form {
    fn add(&mut self, part: impl Debug) {
        write!(self.0, "{part:?};").expect("it writes");
    }
}

impl World {
    /// A text that is equal for states that no script and no client of the walk can distinguish. Times count from now, and
    /// arrivals only by their order. It leaves out
    ///
    /// - the expiries of keys: the keys outlive everything in them, and `check` finds those that do not
    /// - tokens, whose values the checks do not use
    /// - how long ago a waiter has died or a pause has ended
    /// - the oracle and the units of the semaphore, which equal the server's state
    pub(super) fn form(&self) -> String {
        let mut form = Form::default();
        self.add_server(&mut form);
        form.add((self.paused_until - self.now()).max(0));
        form.add((self.pauses, self.faults));
        for client in &self.clients {
            self.add_client(&mut form, client);
        }
        let mut arrivals: Vec<_> = self.clients.iter().map(|client| client.arrival).collect();
        arrivals.sort_unstable();
        for client in &self.clients {
            form.add(arrivals.binary_search(&client.arrival).ok());
        }
        for waiter in &self.queue {
            let polls = waiter.polls_at.map(|at| (at - self.now()).max(0));
            let alive = (waiter.alive_until - self.now()).max(0);
            form.add((waiter.client, alive, polls));
        }
        form.0
    }

    fn add_server(&self, form: &mut Form) {
        for (key, entry) in self.server.entries() {
            match &entry.value {
                Value::Sorted(sorted) => {
                    form.add(key);
                    for (score, member) in sorted.items() {
                        let is_pause = member.contains(".!.");
                        let member = if is_pause { "pause" } else { member };
                        form.add((self.relative(key, *score as i64), member));
                    }
                }
                Value::Hash(fields) => {
                    for (field, value) in fields {
                        self.add_field(form, field, value);
                    }
                }
                Value::Text(_) => {}
            }
        }
    }

    /// The score of a member, from now on. In `alive` the marks of past arrivals and of revocations are negative.
    fn relative(&self, key: &str, score: i64) -> i64 {
        if key.ends_with(":queue") || score < 0 {
            0
        } else if key.ends_with(":alive") {
            (score - self.now()).max(0)
        } else {
            // A reservation that has ended is spent at its end.
            score - self.now()
        }
    }

    fn add_field(&self, form: &mut Form, field: &str, value: &str) {
        match field {
            // `paused_until` has its end.
            "pause" => form.add("pause"),
            "400" => {
                let numbers: Vec<i64> = value.split(' ').filter_map(|n| n.parse().ok()).collect();
                let is_unused = numbers[0] == 0;
                let age = if is_unused {
                    0
                } else {
                    self.now() - numbers[1]
                };
                form.add((numbers[0], age, &numbers[2..]));
            }
            _ => form.add((field, value)),
        }
    }

    fn add_client(&self, form: &mut Form, client: &Client) {
        let late = client.late.as_ref().map(|late| {
            let age = (self.now() - late.sent).min(2 * TICK);
            (late.kind, age, late.was_sent, late.arrival > 0, late.keeps)
        });
        form.add((client.phase, client.total, late, client.is_revoked));
        form.add(client.arrival > 0);
    }
}
