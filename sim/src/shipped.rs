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

const THREAD: RuntimeId = RuntimeId(0);

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
        orders: BTreeMap::new(),
        ids: BTreeMap::new(),
    })
}

#[derive(Debug)]
struct Shipped {
    settings: subject::Settings,
    core: Core,
    /// Made by claims, and not yet polled.
    calls: VecDeque<Call>,
    /// For each call that acquires the numbers of its claims, in the order in which they were sent.
    orders: BTreeMap<CallId, Vec<usize>>,
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

/// Claims by key, and their numbers in that order.
fn by_key(claims: &[Vec<Wanted>]) -> (Vec<(subject::Key, Vec<subject::Wanted>)>, Vec<usize>) {
    let mut of = BTreeMap::<_, Vec<_>>::new();
    for (number, claim) in claims.iter().enumerate() {
        let own = of.entry(key(&claim[0].name)).or_default();
        own.push((number, wanted(&claim[0])));
    }
    let order = of.values().flatten().map(|(number, _)| *number).collect();
    let of = of.into_iter().map(|(key, own)| {
        let own = own.into_iter().map(|(_, wanted)| wanted).collect();
        (key, own)
    });
    (of.collect(), order)
}

fn acquired(acquired: subject::Acquired) -> Acquired {
    match acquired {
        subject::Acquired::Granted { token } => Acquired::Granted(vec![(token, 0)]),
        subject::Acquired::Full => Acquired::Full { level: 0, held: 0 },
        subject::Acquired::QueueFull => Acquired::QueueFull { level: 0 },
        subject::Acquired::Queued {
            arrival,
            recheck,
            last_token,
        } => Acquired::Queued {
            level: 0,
            arrival,
            recheck,
            last_token,
        },
    }
}

impl Shipped {
    fn command(&mut self, call: CallId, command: &Command) -> subject::Command {
        match command {
            Command::Acquire {
                runs_until,
                floor,
                claims,
            } => {
                let (of, order) = by_key(claims);
                self.orders.insert(call, order);
                subject::Command::Acquire {
                    runs_until: *runs_until,
                    floor: *floor,
                    of,
                }
            }
            Command::Refresh { groups: of } => subject::Command::Refresh { of: groups(of) },
            Command::Release {
                floor, groups: of, ..
            } => subject::Command::Release {
                floor: *floor,
                of: groups(of),
            },
            Command::Presence { highest } => subject::Command::Clock { highest: *highest },
        }
    }

    fn answer(&mut self, order: &[usize], answer: subject::Answer) -> Answer {
        match answer {
            subject::Answer::Acquired(now, each) => {
                let mut each: Vec<_> = order.iter().zip(each).collect();
                each.sort_by_key(|(number, _)| **number);
                let each = each.into_iter().map(|(_, each)| acquired(each));
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
    fn acquire(&mut self, now: Time, claim: subject::Claim) -> subject::PermitId {
        let level = Level {
            name: wire::name(claim.key).into(),
            server: self.settings.server_of(claim.key),
            limit: claim.limit,
            weight: claim.weight,
            wait: claim.wait.map(|wait| Wait {
                time: wait.time,
                max_waiting: wait.max_waiting,
                head_start: wait.head_start,
            }),
            label: None,
        };
        let (id, call) = self.core.acquire(now, THREAD, vec![level]);
        self.calls.extend(call);
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
        let order = self.orders.remove(&call).unwrap_or_default();
        let reply = match reply {
            Ok(answers) => Ok(answers
                .into_iter()
                .map(|answer| self.answer(&order, answer))
                .collect()),
            Err(subject::Failure::NotConnected) => Err(Failure::NotConnected),
            Err(subject::Failure::Broken) => Err(Failure::Broken),
        };
        self.core.handle_reply(now, call, reply);
    }

    fn handle_message(&mut self, now: Time, message: subject::Message) {
        let message = Message::Granted(message.serial, message.token, 0);
        self.core.handle_message(now, message);
    }

    fn handle_servers(&mut self, now: Time, change: subject::Servers) {
        let change = match change {
            subject::Servers::Connected(server) => Change::Connected(THREAD, server),
            subject::Servers::Gone(server) => Change::Gone(THREAD, server),
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
        let call = call.or_else(|| self.core.poll_call(now, THREAD))?;
        let commands = call.commands.iter();
        Some(subject::Call {
            id: subject::CallId(call.id.0),
            server: call.server,
            commands: commands
                .map(|command| self.command(call.id, command))
                .collect(),
            deadline: call.deadline,
        })
    }

    fn poll_event(&mut self) -> Option<subject::Event> {
        loop {
            return Some(match self.core.poll_event()? {
                Event::Granted(id, grants) => {
                    subject::Event::Granted(subject::PermitId(id.serial), grants[0].0)
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
                Event::Held(..) | Event::Regained(..) | Event::Revoked(_) | Event::Released(..) => {
                    continue;
                }
            });
        }
    }
}
