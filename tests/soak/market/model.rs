//! A small model of leases and queues. It applies the commands that the scripts ran, and reports those that break a
//! rule.

use super::plan::{FLEET_LIMIT, LEASE, LIMIT, micros};
use std::collections::HashMap;

/// The prefix of all keys of the library.
const PREFIX: &str = "semaphore:2:";
/// The model removes a unit this long after its end, in ms, even if no script has purged it.
const FORGOTTEN: i64 = 1_000;

/// An observation of the model.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A unit of this policy was granted to a claim that did not wait.
    Granted(String),
    /// A unit of this policy was granted to the head of the queue.
    GrantedFromQueue(String),
    Released,
    /// A unit was not released, and its lease ended at this time in ms.
    Expired {
        id: String,
        end: i64,
    },
    /// A unit was granted to a waiter that did not confirm it, and ended with the waiter's heartbeat.
    Untaken,
    /// A command broke a rule: the rule, and an example.
    Wrong(&'static str, String),
}

/// The semaphores, by their names without the last part.
#[derive(Debug, Default)]
pub(super) struct Model {
    semaphores: HashMap<String, Semaphore>,
    /// The waiters that left a queue in this call, by semaphore and id, each with a live waiter that was ahead of it,
    /// if any.
    departed: HashMap<(String, String), Option<String>>,
}

/// Splits a key into the semaphore's name and the part: `held`, `queue`, `alive` or `token`.
fn parts(key: &str) -> Option<(&str, &str)> {
    key.starts_with(PREFIX).then(|| key.rsplit_once(':'))?
}

/// Returns `concurrency` for `semaphore:2:{concurrency:ann}`.
fn policy(name: &str) -> String {
    let policy = name.split(['{', ':']).nth(3);
    policy.unwrap_or_default().to_owned()
}

/// The limit of a semaphore, as the settings define it.
fn limit(name: &str) -> usize {
    match &*policy(name) {
        "concurrency" => LIMIT as usize,
        "fleet" => FLEET_LIMIT as usize,
        // The lock of an item.
        _ => 1,
    }
}

impl Model {
    /// Begins a new call of a script, or another command.
    pub(super) fn next_call(&mut self) {
        self.departed.clear();
    }

    /// Loads the contents of a sorted set.
    pub(super) fn load(&mut self, at: i64, key: &str, members: &[(String, f64)]) {
        let Some((name, part)) = parts(key) else {
            return;
        };
        let semaphore = self.semaphores.entry(name.to_owned()).or_default();
        for (member, score) in members {
            semaphore.set(at, (part, member), *score);
        }
    }

    /// Applies a command that ran at time `at`, in microseconds.
    pub(super) fn apply(&mut self, at: i64, words: &[&str]) -> Vec<Seen> {
        let Some((name, part)) = words.get(1).and_then(|key| parts(key)) else {
            return Vec::new();
        };
        match &*words[0].to_ascii_uppercase() {
            "ZADD" => self.add(at, (name, part), &words[2..]),
            "ZREM" => self.remove(at, (name, part), &words[2..]),
            "ZREMRANGEBYSCORE" => self.purge((name, part), words[3]),
            "DEL" | "UNLINK" => {
                for (name, part) in words[1..].iter().filter_map(|key| parts(key)) {
                    self.semaphore(name).clear(part);
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn semaphore(&mut self, name: &str) -> &mut Semaphore {
        if !self.semaphores.contains_key(name) {
            self.semaphores
                .insert(name.to_owned(), Semaphore::default());
        }
        self.semaphores.get_mut(name).expect("it is there now")
    }

    fn add(&mut self, at: i64, (name, part): (&str, &str), args: &[&str]) -> Vec<Seen> {
        let options = args.iter().take_while(|arg| arg.parse::<f64>().is_err());
        let only_known = options.clone().any(|option| *option == "XX");
        let pairs = args[options.count()..].chunks_exact(2);
        let mut seen = Vec::new();
        for pair in pairs {
            let (score, member) = (pair[0].parse().expect("a score"), pair[1]);
            let is_new = !self.semaphore(name).has(part, member);
            if is_new && only_known {
                continue;
            }
            self.semaphore(name).set(at, (part, member), score);
            if is_new && part == "held" {
                seen.push(self.granted(at, name, member));
            }
        }
        if part == "held" {
            seen.extend(self.excess(at, name));
        }
        seen
    }

    /// Judges the grant of a new unit by the queue.
    fn granted(&mut self, at: i64, name: &str, id: &str) -> Seen {
        let departed = self.departed.get(&(name.to_owned(), id.to_owned()));
        match departed {
            Some(None) => Seen::GrantedFromQueue(policy(name)),
            Some(Some(other)) => Seen::Wrong(
                "a waiter was granted that was not the head",
                format!("{id} before {other} of {name}"),
            ),
            // The claim has not waited, so all waiters come before it.
            None => match self.semaphore(name).waiter_before(id, f64::INFINITY, at) {
                None => Seen::Granted(policy(name)),
                Some(other) => Seen::Wrong(
                    "a claim was granted past the queue",
                    format!("{id} before {other} of {name}"),
                ),
            },
        }
    }

    fn excess(&mut self, at: i64, name: &str) -> Option<Seen> {
        let units = self.semaphore(name).unexpired(at);
        (units > limit(name)).then(|| {
            let example = format!("{units} of {name} at {at}");
            Seen::Wrong("more units were held than the limit", example)
        })
    }

    fn remove(&mut self, at: i64, (name, part): (&str, &str), members: &[&str]) -> Vec<Seen> {
        let mut seen = Vec::new();
        for member in members {
            let semaphore = self.semaphore(name);
            if part == "queue"
                && let Some(score) = semaphore.queue.get(*member)
            {
                let before = semaphore.waiter_before(member, *score, at).cloned();
                let waiter = (name.to_owned(), (*member).to_owned());
                self.departed.insert(waiter, before);
            }
            let was_there = self.semaphore(name).remove(part, member);
            if was_there && part == "held" {
                seen.push(Seen::Released);
            }
        }
        seen
    }

    /// Applies a purge. The scripts purge expired units of `held`, and all of `alive`.
    fn purge(&mut self, (name, part): (&str, &str), up_to: &str) -> Vec<Seen> {
        match (part, up_to.parse()) {
            ("held", Ok(up_to)) => self.semaphore(name).expire(up_to),
            (part, _) => {
                self.semaphore(name).clear(part);
                Vec::new()
            }
        }
    }

    /// Drops units that ended long ago.
    pub(super) fn sweep(&mut self, at: i64) -> Vec<Seen> {
        let up_to = at / 1_000 - FORGOTTEN;
        let semaphores = self.semaphores.values_mut();
        let seen = semaphores.flat_map(|semaphore| semaphore.expire(up_to));
        let seen = seen.collect();
        self.semaphores.retain(|_, semaphore| !semaphore.is_empty());
        seen
    }
}

/// A held unit.
#[derive(Debug, Clone, Copy)]
struct Unit {
    /// Its end in ms.
    end: i64,
    /// True if it was last held for a whole lease, and not just for the time that a waiter counts as alive.
    is_leased: bool,
}

/// The three sorted sets of one semaphore.
#[derive(Debug, Default)]
struct Semaphore {
    held: HashMap<String, Unit>,
    /// The score of each waiter.
    queue: HashMap<String, f64>,
    /// The time in ms until which each waiter counts as alive.
    alive: HashMap<String, i64>,
}

impl Semaphore {
    /// A waiter that counts as alive at time `at`, and whose score places it before the claim `id` with `score`.
    fn waiter_before(&self, id: &str, score: f64, at: i64) -> Option<&String> {
        let is_alive = |other: &str| self.alive.get(other).is_some_and(|end| end * 1_000 > at);
        let mut others = self.queue.iter().filter(|(other, _)| *other != id);
        let is_before =
            |other: &str, its_score: f64| its_score < score || its_score == score && other < id;
        let found =
            others.find(|(other, its_score)| is_before(other, **its_score) && is_alive(other));
        found.map(|(other, _)| other)
    }

    fn unexpired(&self, at: i64) -> usize {
        let units = self.held.values();
        units.filter(|unit| unit.end * 1_000 > at).count()
    }

    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    fn has(&self, part: &str, member: &str) -> bool {
        match part {
            "held" => self.held.contains_key(member),
            "queue" => self.queue.contains_key(member),
            _ => self.alive.contains_key(member),
        }
    }

    fn set(&mut self, at: i64, (part, member): (&str, &str), score: f64) {
        let member = member.to_owned();
        match part {
            "held" => drop(self.held.insert(member, Unit::until(score as i64, at))),
            "queue" => drop(self.queue.insert(member, score)),
            "alive" => drop(self.alive.insert(member, score as i64)),
            _ => {}
        }
    }

    fn remove(&mut self, part: &str, member: &str) -> bool {
        match part {
            "held" => self.held.remove(member).is_some(),
            "queue" => self.queue.remove(member).is_some(),
            _ => self.alive.remove(member).is_some(),
        }
    }

    fn clear(&mut self, part: &str) {
        match part {
            "held" => self.held.clear(),
            "queue" => self.queue.clear(),
            "alive" => self.alive.clear(),
            _ => {}
        }
    }

    fn expire(&mut self, up_to: i64) -> Vec<Seen> {
        let expired = self.held.extract_if(|_, unit| unit.end <= up_to);
        let expired = expired.map(|(id, Unit { end, is_leased })| {
            if is_leased {
                Seen::Expired { id, end }
            } else {
                Seen::Untaken
            }
        });
        expired.collect()
    }
}

impl Unit {
    fn until(end: i64, at: i64) -> Self {
        let is_leased = end * 1_000 - at > micros(LEASE) * 9 / 10;
        Self { end, is_leased }
    }
}
