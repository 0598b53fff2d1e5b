//! The core that ships, as the simulation takes it.

use super::{
    core::{
        Acquired, Answer, Call, CallId, Change, Command, Core, Event, Failure, Level, Message,
        PermitId, Refusal, RuntimeId, Settings, Time, Wait, Wanted,
    },
    protocol::PermitId as UnitsOf,
};
use crate::{subject, wire};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

fn runtime(number: subject::Runtime) -> RuntimeId {
    RuntimeId(number as u32)
}

/// A core for a process.
pub(crate) fn shipped(settings: subject::Settings) -> Box<dyn subject::Subject> {
    let core = Core::new(Settings {
        lease: settings.lease,
        timeout: settings.timeout,
        servers: settings.servers,
    });
    Box::new(Shipped {
        settings,
        core,
        calls: VecDeque::new(),
        levels: BTreeMap::new(),
        ids: BTreeMap::new(),
    })
}

#[derive(Debug)]
struct Shipped {
    settings: subject::Settings,
    core: Core,
    /// Made by claims, and not yet polled.
    calls: VecDeque<(subject::Runtime, Call)>,
    /// For each call that acquires how many levels its claims have.
    levels: BTreeMap<CallId, Vec<usize>>,
    ids: BTreeMap<u64, PermitId>,
}

fn key(name: &str) -> subject::Key {
    let digits = name.trim_end_matches('}').rsplit('k').next();
    digits
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_default()
}

fn id(units: &UnitsOf) -> subject::Id {
    subject::Id {
        serial: units.serial,
        limit: units.limit,
        weight: units.weight,
    }
}

fn wanted(wanted: &Wanted) -> subject::Wanted {
    let position = wanted.position.map(|position| subject::Position {
        wait: subject::Wait {
            time: Time::ZERO,
            max_waiting: position.max_waiting,
            head_start: position.head_start,
        },
        alive: position.alive,
        arrival: position.arrival,
    });
    subject::Wanted {
        id: id(&wanted.units),
        position,
        was_sent: wanted.is_known,
    }
}

fn groups(groups: &[(Arc<str>, Vec<UnitsOf>)]) -> Vec<(subject::Key, Vec<subject::Id>)> {
    let groups = groups.iter();
    groups
        .map(|(name, units)| (key(name), units.iter().map(id).collect()))
        .collect()
}

fn acquired(acquired: subject::Acquired, levels: usize) -> Acquired {
    match acquired {
        subject::Acquired::Granted { tokens } => {
            let tokens = tokens.into_iter().take(levels);
            Acquired::Granted(tokens.map(|token| (token, 0)).collect())
        }
        subject::Acquired::Full { level } => Acquired::Full { level, held: 0 },
        subject::Acquired::QueueFull { level } => Acquired::QueueFull { level },
        subject::Acquired::Queued {
            level,
            arrival,
            recheck,
            last_token,
        } => Acquired::Queued {
            level,
            arrival,
            recheck,
            last_token,
        },
    }
}

fn tokens(of: impl Iterator<Item = u64>) -> [u64; subject::LEVELS] {
    let mut tokens = [0; subject::LEVELS];
    for (place, token) in tokens.iter_mut().zip(of) {
        *place = token;
    }
    tokens
}

impl Shipped {
    fn command(&mut self, call: CallId, command: &Command) -> subject::Command {
        match command {
            Command::Acquire {
                runs_until,
                floor,
                claims,
                ..
            } => {
                let levels = claims.iter().map(Vec::len).collect();
                self.levels.insert(call, levels);
                let claim = |claim: &Vec<Wanted>| {
                    let levels = claim.iter();
                    levels.map(|level| (key(&level.name), wanted(level))).collect()
                };
                subject::Command::Acquire {
                    runs_until: *runs_until,
                    floor: *floor,
                    claims: claims.iter().map(claim).collect(),
                }
            }
            Command::Refresh { groups: of, .. } => subject::Command::Refresh { of: groups(of) },
            Command::Release {
                floor, groups: of, ..
            } => subject::Command::Release {
                floor: *floor,
                of: groups(of),
            },
            Command::Presence { highest } => subject::Command::Clock { highest: *highest },
        }
    }

    fn answer(&mut self, levels: &[usize], answer: subject::Answer) -> Answer {
        match answer {
            subject::Answer::Acquired(now, each) => {
                let each = each.into_iter().zip(levels);
                let each = each.map(|(each, levels)| acquired(each, *levels));
                Answer::Acquired(now, each.collect())
            }
            subject::Answer::Late(now) => Answer::Late(now),
            subject::Answer::Held(each) => Answer::Held(each),
            subject::Answer::Released => Answer::Done,
            subject::Answer::Clock(now, highest) => Answer::Presence(now, highest),
            subject::Answer::Error(_) => Answer::Error,
        }
    }
}

impl subject::Subject for Shipped {
    fn acquire(
        &mut self,
        now: Time,
        from: subject::Runtime,
        claim: subject::Claim,
    ) -> subject::PermitId {
        let levels = claim.levels().map(|level| Level {
            name: wire::name(level.key).into(),
            server: self.settings.server_of(level.key),
            slot: 0,
            limit: level.limit,
            weight: level.weight,
            wait: level.wait.map(|wait| Wait {
                time: wait.time,
                max_waiting: wait.max_waiting,
                head_start: wait.head_start,
            }),
            label: None,
        });
        let (id, call) = self.core.acquire(now, runtime(from), &levels.collect::<Vec<_>>());
        self.calls.extend(call.map(|call| (from, call)));
        self.ids.insert(id.serial, id);
        subject::PermitId(id.serial)
    }

    fn release(&mut self, now: Time, permit: subject::PermitId) {
        if let Some(id) = self.ids.remove(&permit.0) {
            self.core.release(now, id, false);
        }
    }

    fn handle_reply(
        &mut self,
        now: Time,
        call: subject::CallId,
        reply: Result<Vec<subject::Answer>, subject::Failure>,
    ) {
        let call = CallId(call.0);
        let levels = self.levels.remove(&call).unwrap_or_default();
        let reply = match reply {
            Ok(answers) => Ok(answers
                .into_iter()
                .map(|answer| self.answer(&levels, answer))
                .collect()),
            Err(subject::Failure::NotConnected) => Err(Failure::NotConnected),
            Err(subject::Failure::Broken) => Err(Failure::Broken),
            Err(subject::Failure::Abandoned) => Err(Failure::Abandoned),
        };
        self.core.handle_reply(now, call, reply);
    }

    fn handle_message(&mut self, now: Time, message: subject::Message) {
        let message = Message::Granted(message.serial, message.token, 0);
        self.core.handle_message(now, message);
    }

    fn handle_servers(&mut self, now: Time, change: subject::Servers) {
        let change = match change {
            subject::Servers::Connected(from, server) => Change::Connected(runtime(from), server),
            subject::Servers::Gone(from, server) => Change::Gone(runtime(from), server),
        };
        self.core.handle_servers(now, change);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.core.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.core.handle_timeout(now);
    }

    fn poll_call(&mut self, now: Time) -> Option<subject::Call> {
        let call = self.calls.pop_front();
        let mut runtimes = 0..self.settings.runtimes;
        let core = &mut self.core;
        let (from, call) = call.or_else(|| {
            runtimes.find_map(|from| Some((from, core.poll_call(now, runtime(from))?)))
        })?;
        let commands = call.commands.iter();
        Some(subject::Call {
            id: subject::CallId(call.id.0),
            runtime: from,
            server: call.server,
            commands: commands
                .map(|command| self.command(call.id, command))
                .collect(),
            deadline: call.deadline,
        })
    }

    fn is_idle(&self) -> bool {
        self.core.is_idle()
    }

    fn poll_event(&mut self) -> Option<subject::Event> {
        loop {
            return Some(match self.core.poll_event()? {
                Event::Granted(id, grants) => {
                    let grants = grants.into_iter().map(|(token, _)| token);
                    subject::Event::Granted(subject::PermitId(id.serial), tokens(grants))
                }
                Event::Refused(id, why) => {
                    let why = match why {
                        Refusal::Full(..) => subject::Refusal::Full,
                        Refusal::QueueFull(_) => subject::Refusal::QueueFull,
                        Refusal::TimedOut(..) => subject::Refusal::TimedOut,
                        Refusal::Revoked | Refusal::Unavailable => subject::Refusal::Unavailable,
                    };
                    subject::Event::Refused(subject::PermitId(id.serial), why)
                }
                Event::Lost(id) => subject::Event::Lost(subject::PermitId(id.serial)),
                Event::Regained(id, all) => {
                    let tokens = tokens(all.into_iter());
                    subject::Event::Regained(subject::PermitId(id.serial), tokens)
                }
                Event::Queued(..)
                | Event::Held(..)
                | Event::Revoked(_)
                | Event::Released(..) => continue,
            });
        }
    }
}
