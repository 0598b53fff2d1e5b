//! Calls that belong to no claim: calls of the clock, usage queries of operators, and revocations of forged ids.

use crate::{
    check::{self, cleared},
    scripts::Verb,
    semaphore::{Semaphore, keys},
    server::{Semaphores, Server, Violation, violated},
    stand_in::{Entry, Reply, StandIn, Value},
    time::{LEASE, NOW, NOW_MS, REMEMBER},
    unit::Unit,
};

/// Texts that are not ids of permits, or ids that no permit has.
const STRANGE: [&str; 7] = [
    "",
    "*",
    "arrival",
    "revoked:p0.1",
    "revoked:p1.1",
    "p0.1.0.0.1.1",
    "p9.1.0.0.1.1.8c.0...",
];

impl Server {
    /// Checks that usage shows the real state and changes nothing. With `has_forged`, also checks that revoking a
    /// forged id changes nothing. Each state of a semaphore is inspected once.
    ///
    /// # Errors
    ///
    /// Returns the first invariant that does not hold.
    pub fn inspect(&mut self, semaphores: Semaphores, has_forged: bool) -> Result<(), Violation> {
        for number in semaphores {
            if !self.inspected.insert(number) {
                continue;
            }
            let semaphore = self.state(number);
            self.check_usage(semaphore)?;
            for id in forged(semaphore).iter().filter(|_| has_forged) {
                self.check_forged(semaphore, id)?;
            }
        }
        Ok(())
    }

    fn check_usage(&self, semaphore: &Semaphore) -> Result<(), Violation> {
        let mut server = StandIn::at(NOW);
        semaphore.load(0, &mut server);
        let before = server.clone();
        let [held, queue, alive, _] = keys(0);
        // A page of 1,000 members, and a cursor at the start for each of the three keys.
        let (keys, args) = (
            [held, queue, alive],
            ["1000", "3", "0", "0", "0"].map(str::to_owned),
        );
        let reply = self.runner.run(Verb::Usage, &mut server, &keys, &args);
        let reply = reply.or_else(|error| violated("E", error.to_string()))?;
        let is_same = server.entries().eq(before.entries()) && server.published.is_empty();
        match is_same && server.first_write.is_none() {
            true => check::usage(&before, &keys, &reply),
            false => violated("U", format!("usage changes something: {semaphore:?}")),
        }
    }

    fn check_forged(&self, semaphore: &Semaphore, id: &str) -> Result<(), Violation> {
        let mut server = StandIn::at(NOW);
        semaphore.load(0, &mut server);
        let (floor, remember) = (NOW.to_string(), REMEMBER.to_string());
        let args = [floor, remember, "1".to_owned(), id.to_owned()];
        let reply = self.runner.run(Verb::Revoke, &mut server, &keys(0), &args);
        let reply = reply.or_else(|error| violated("E", error.to_string()))?;
        let after = Semaphore::save(0, &server).or_else(|seen| violated("E", seen))?;
        let is_same = after == cleared(semaphore) && server.published.is_empty();
        match is_same && reply == Reply::List(vec![Reply::Int(NOW_MS), Reply::Int(0)]) {
            true => Ok(()),
            false => violated("R", format!("{id} is forged: {reply:?}, {after:?}")),
        }
    }

    /// Calls the clock's script with the highest time that the server knows and its time to live, and with the highest
    /// time that the process knows. Returns the server's new highest time, which is also the script's answer.
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
            [&LEASE.to_string(), "2", "clock", &(own + NOW).to_string()].map(str::to_owned),
        );
        let reply = self.runner.run(Verb::Presence, &mut server, &keys, &args);
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

/// Ids that the semaphore does not have. Most of them resemble an existing id.
fn forged(semaphore: &Semaphore) -> Vec<String> {
    let lists = [&semaphore.held, &semaphore.queue];
    let units = lists.into_iter().flat_map(|units| &units.items);
    let there: Vec<Unit> = units.map(|(unit, _)| unit.id()).collect();
    let resembling = there.iter().flat_map(|id| {
        let (limit, weight) = (id.limit + 1, id.weight + 1);
        let others = [Unit { limit, ..*id }, Unit { weight, ..*id }];
        let others = others.into_iter().filter(|other| !there.contains(other));
        let units = [format!("{id}:1"), format!("{id}:2"), format!("{id}x")];
        others.map(|other| other.to_string()).chain(units)
    });
    let strange = STRANGE.iter().map(ToString::to_string);
    strange.chain(resembling).collect()
}
