//! The calls themselves: none without work, nothing twice, nothing for a claim that is over.

use super::{Flight, Flights, LATE, Verdict, Who, check, is_dazed};
use crate::{
    process::Process,
    subject::{Acquired, Answer, Call, CallId, Command, Failure, Id, Key, PermitId, Time},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The most arguments of a call.
const MOST_ARGS: usize = 3_999;

/// With so many calls in flight a release waits for an answer, and with so many everything does.
const MANY_CALLS: usize = 8;
const MOST_CALLS: usize = 16;

#[derive(Debug, Default)]
struct Record {
    /// Its semaphores.
    keys: BTreeSet<Key>,
    /// Its claim was refused, or its caller has given it up.
    is_over: bool,
    /// Since when a call of it is due because its server has lost others.
    recheck: Option<Time>,
    /// When the last call that acquires or refreshes it was sent.
    named: Time,
    was_sent: bool,
    /// A message may have granted it, beside a call that refuses it.
    was_granted: bool,
    was_released: bool,
    /// When its caller gave it up, and its semaphore, until a release is sent.
    due: Option<(Time, Key)>,
    /// The deadline of the last call that acquires or refreshes it: a lease later the server has forgotten it.
    named_until: Time,
    /// Acquires without an answer, and until when each may run.
    may_run: BTreeMap<CallId, Time>,
    /// Releases in flight that were sent when no acquire could run any more.
    last_releases: BTreeSet<CallId>,
    /// Such a release was answered, or a refusal.
    is_gone: bool,
}

/// What was sent for each permit.
#[derive(Debug, Default)]
pub(super) struct Calls(BTreeMap<Who, Record>);

impl Calls {
    pub(super) fn over(&mut self, who: Who) {
        self.0.entry(who).or_default().is_over = true;
    }

    pub(super) fn granted(&mut self, who: Who) {
        self.0.entry(who).or_default().was_granted = true;
    }

    pub(super) fn lost(&mut self, who: Who) {
        self.0.entry(who).or_default().was_granted = false;
    }

    /// A caller has given up something that a server may know.
    pub(super) fn is_due(&mut self, who: Who, key: Key, local: Time) {
        let record = self.0.entry(who).or_default();
        let is_known =
            record.was_sent && !record.is_gone && !record.is_over && !record.was_released;
        record.due = is_known.then_some((local, key));
    }

    pub(super) fn killed(&mut self, at: usize) {
        self.0.retain(|(process, _), _| *process != at);
    }

    /// A server that has lost a lease may have lost others: all that were not refreshed since are due.
    fn recheck(&mut self, at: usize, flight: &Flight, local: Time) {
        let own = self.0.range_mut((at, PermitId(0))..(at + 1, PermitId(0)));
        for (_, record) in own {
            let key = record.keys.first().copied().unwrap_or_default();
            let is_here = usize::from(key) % flight.servers == flight.call.server;
            let is_held = record.was_granted && !record.is_over && record.may_run.is_empty();
            if is_here && is_held && record.named < flight.sent {
                record.recheck = record.recheck.or(Some(local));
            }
        }
    }

    /// A release is sent at once, and what a server may have lost is, if there is a connection.
    pub(super) fn pass(&self, processes: &[Process], now: Duration) -> Verdict {
        for ((at, permit), record) in &self.0 {
            let recheck = record.recheck.filter(|_| !record.is_over);
            let key = record.keys.first().copied().unwrap_or_default();
            let due = record.due.or(recheck.map(|since| (since, key)));
            let (process, Some((since, key))) = (&processes[*at], due) else {
                continue;
            };
            // The keeper's thread carries what nothing else does.
            let link = &process.links[process.settings.link(0, process.settings.server_of(key))];
            let has_room = link.in_flight.len() < MANY_CALLS;
            let could =
                has_room && link.is_up && now > link.since + LATE && !is_dazed(process, now);
            let is_over = process.local(now) > record.named_until + process.settings.lease;
            let is_late = could && !is_over && process.local(now) > since + LATE;
            check(!is_late, "L2", || {
                format!("p{at} does not release {permit:?}, or refresh it")
            })?;
        }
        Ok(())
    }

    /// What a process has given up, and no call in flight can bring back.
    pub(super) fn given_up(&self, at: usize) -> Vec<(Key, PermitId)> {
        let own = self.0.range((at, PermitId(0))..(at + 1, PermitId(0)));
        let given_up = own.filter(|(_, record)| {
            let is_over = record.is_over && record.was_sent && !record.is_gone;
            is_over && record.may_run.is_empty()
        });
        given_up
            .flat_map(|((_, permit), record)| record.keys.iter().map(|key| (*key, *permit)))
            .collect()
    }

    pub(super) fn sent(
        &mut self,
        at: usize,
        call: &Call,
        local: Time,
        flights: &Flights,
    ) -> Verdict {
        check(!call.commands.is_empty(), "work", || {
            "a call without a command".to_owned()
        })?;
        check(call.deadline > local, "work", || {
            "a call without time".to_owned()
        })?;
        let others = flights.range((at, CallId(0))..(at + 1, CallId(0)));
        let count = others.filter(|(_, other)| {
            let is_same = (other.call.runtime, other.call.server) == (call.runtime, call.server);
            is_same && other.call.deadline > local
        });
        check(count.count() < MOST_CALLS, "flow", || {
            format!("p{at} has more than {MOST_CALLS} calls in flight")
        })?;
        for command in &call.commands {
            let ids = command.ids();
            check_size(command, &ids)?;
            for (key, id) in &ids {
                let record = self.0.entry((at, id.permit())).or_default();
                record.keys.insert(*key);
                self.check(at, call.id, command, *id, local, flights)?;
                self.note(at, call, command, *id, local);
            }
        }
        Ok(())
    }

    fn check(
        &self,
        at: usize,
        call: CallId,
        command: &Command,
        id: Id,
        local: Time,
        flights: &Flights,
    ) -> Verdict {
        let none = Record::default();
        let who = (at, id.permit());
        let record = self.0.get(&who).unwrap_or(&none);
        let says = |what: &str| format!("p{at} {call:?} {what} {:?}", id.permit());
        if let Command::Release { .. } = command {
            check(record.was_sent, "work", || {
                says("releases what it never sent,")
            })?;
            return check(!record.is_gone, "work", || says("releases once more"));
        }
        check(!record.is_over, "an end", || {
            says("acquires or refreshes what is over,")
        })?;
        let others = flights.range((at, CallId(0))..(at + 1, CallId(0)));
        let is_alone = !others.clone().any(|(_, other)| is_busy(other, id, local));
        check(is_alone, "one call", || says("names, beside another call,"))
    }

    fn note(&mut self, at: usize, call: &Call, command: &Command, id: Id, local: Time) {
        let record = self.0.entry((at, id.permit())).or_default();
        if let Command::Release { .. } = command {
            (record.was_released, record.due) = (true, None);
        } else {
            record.named_until = call.deadline;
            (record.recheck, record.named) = (None, local);
        }
        match command {
            Command::Acquire { .. } => {
                (record.was_sent, record.is_gone) = (true, false);
                record.may_run.insert(call.id, call.deadline);
            }
            Command::Release { .. } if record.may_run.values().all(|end| *end <= local) => {
                record.last_releases.insert(call.id);
            }
            _ => {}
        }
    }

    pub(super) fn replied(
        &mut self,
        at: usize,
        flight: &Flight,
        reply: &Result<Vec<Answer>, Failure>,
        local: Time,
    ) {
        // A core may ignore what comes later.
        let is_timely = local < flight.call.deadline;
        if is_timely && has_lost(flight, reply) {
            self.recheck(at, flight, local);
        }
        for (number, command) in flight.call.commands.iter().enumerate() {
            let answer = reply.as_ref().map(|answers| answers.get(number));
            for (place, (_, id)) in command.ids().into_iter().enumerate() {
                let record = self.0.entry((at, id.permit())).or_default();
                record.was_granted &= !matches!(
                    (command, answer),
                    (Command::Refresh { .. }, Ok(Some(Answer::Held(each)))) if !each[place]
                );
                if !matches!(answer, Err(Failure::Broken | Failure::Abandoned)) {
                    record.may_run.remove(&flight.call.id);
                }
                let is_left = record.may_run.values().any(|end| *end > local);
                let may_hold = is_left || record.was_granted;
                let acquired = acquired(command, answer, id).filter(|_| is_timely && !may_hold);
                record.is_gone |= is_refused(acquired);
                // A core may release what was revoked all the same.
                let is_revoked = matches!(acquired, Some(Acquired::Revoked { .. }));
                let was_last = record.last_releases.remove(&flight.call.id);
                record.is_gone |= is_timely && was_last && answer == Ok(Some(&Answer::Released));
                record.due = record.due.filter(|_| !record.is_gone && !is_revoked);
            }
        }
    }
}

/// Whether a server has not found a lease.
fn has_lost(flight: &Flight, reply: &Result<Vec<Answer>, Failure>) -> bool {
    let answers = reply.iter().flatten();
    let mut answers = flight.call.commands.iter().zip(answers);
    answers.any(|(command, answer)| match (command, answer) {
        (Command::Refresh { .. }, Answer::Held(each)) => each.contains(&false),
        _ => false,
    })
}

/// Whether another call acquires or refreshes the permit, and may have an answer yet.
fn is_busy(other: &Flight, id: Id, local: Time) -> bool {
    let is_same = |(_, other): (Key, Id)| other.permit() == id.permit();
    let mut commands = other.call.commands.iter();
    other.call.deadline > local
        && commands.any(|command| {
            let is_release = matches!(command, Command::Release { .. });
            !is_release && command.ids().into_iter().any(is_same)
        })
}

/// Whether an answer says that the server knows nothing of a permit any more.
fn is_refused(acquired: Option<Acquired>) -> bool {
    matches!(
        acquired,
        Some(Acquired::Full { .. } | Acquired::QueueFull { .. })
    )
}

/// What is answered to an acquire of a permit.
fn acquired(
    command: &Command,
    answer: Result<Option<&Answer>, &Failure>,
    id: Id,
) -> Option<Acquired> {
    let (Command::Acquire { claims, .. }, Ok(Some(Answer::Acquired(_, each)))) = (command, answer)
    else {
        return None;
    };
    let mut own = claims.iter().zip(each).filter(|(claim, _)| {
        let mut levels = claim.iter();
        levels.any(|(_, wanted)| wanted.id.permit() == id.permit())
    });
    own.next().map(|(_, acquired)| *acquired)
}

fn check_size(command: &Command, ids: &[(Key, Id)]) -> Verdict {
    let Command::Clock { .. } = command else {
        let names: BTreeSet<_> = ids.iter().map(|(key, id)| (key, id.serial)).collect();
        let units: usize = ids.iter().map(|(_, id)| id.weight as usize).sum();
        check(!ids.is_empty(), "work", || {
            format!("{command:?} names nothing")
        })?;
        check(names.len() == ids.len(), "work", || {
            format!("{command:?} names one twice")
        })?;
        let size = 8 + 5 * ids.len() + units;
        return check(size <= MOST_ARGS, "size", || {
            format!("some {size} arguments")
        });
    };
    Ok(())
}
