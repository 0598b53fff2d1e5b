//! Commands as KEYS and ARGV of the scripts, and their replies as answers: as the headers of the scripts
//! have them.

use crate::subject::{Acquired, Answer, Command, Id, Key, Message, Position, Settings, Wanted};
use model::{scripts::Verb, stand_in::Reply};
use std::time::Duration;

/// What the keys of the store begin with.
const PREFIX: &str = "semaphore:";

/// A run of a script.
#[derive(Debug)]
pub struct Script {
    /// Which.
    pub verb: Verb,
    /// `KEYS`.
    pub keys: Vec<String>,
    /// `ARGV`.
    pub args: Vec<String>,
}

/// What the keys of a semaphore begin with.
pub fn name(key: Key) -> String {
    format!("{PREFIX}{{concurrency:k{key}}}")
}

impl Command {
    /// As the script takes it.
    pub fn encode(&self, owner: &Settings) -> Script {
        let lease = owner.lease.as_millis().to_string();
        match self {
            Self::Acquire {
                lasts,
                runs_until,
                floor,
                claims,
            } => {
                let names = semaphores(claims);
                Script {
                    verb: Verb::Acquire,
                    keys: suffixed(&names, &[":held", ":queue", ":alive", ":token"]),
                    args: acquire_args(
                        owner,
                        [lasts.as_millis() as u64, *runs_until, *floor],
                        claims,
                        &names,
                    ),
                }
            }
            Self::Refresh { lasts, of } => Script {
                verb: Verb::Refresh,
                keys: keys(of, &[":held", ":token"]),
                args: args(vec![lasts.as_millis().to_string()], of, |id| {
                    units(owner, id)
                }),
            },
            Self::Release { floor, of } => Script {
                verb: Verb::Release,
                keys: keys(of, &[":held", ":queue", ":alive", ":token"]),
                args: args(vec!["0".to_owned(), floor.to_string()], of, |id| {
                    units(owner, id)
                }),
            },
            Self::Clock { highest } => Script {
                verb: Verb::Clock,
                keys: vec![format!("{PREFIX}clock")],
                args: vec![lease, highest.to_string(), "0".to_owned()],
            },
        }
    }

    /// Reads the reply.
    ///
    /// # Errors
    ///
    /// If the reply is not what the script's header says.
    pub fn decode(&self, reply: &Reply) -> Result<Answer, String> {
        let read = match self {
            Self::Acquire { claims, .. } => acquired(reply, claims),
            Self::Refresh { of, .. } => held(reply, of),
            Self::Release { .. } => (*reply == Reply::Int(0)).then_some(Answer::Released),
            Self::Clock { .. } => match numbers(reply).as_deref() {
                Some([now, highest]) => Some(Answer::Clock(*now, *highest)),
                _ => None,
            },
        };
        read.ok_or_else(|| format!("a strange reply {reply:?} to {self:?}"))
    }

    /// How long what it names lasts after it.
    pub fn lasts(&self) -> Duration {
        match self {
            Self::Acquire { lasts, .. } | Self::Refresh { lasts, .. } => *lasts,
            Self::Release { .. } | Self::Clock { .. } => Duration::ZERO,
        }
    }

    /// The permits that it names, and the semaphore of each.
    pub fn ids(&self) -> Vec<(Key, Id)> {
        match self {
            Self::Acquire { .. } => {
                let wanted = self.wanted().into_iter();
                wanted.map(|(key, wanted)| (key, wanted.id)).collect()
            }
            Self::Refresh { of, .. } | Self::Release { of, .. } => each(of, |id| *id),
            Self::Clock { .. } => Vec::new(),
        }
    }

    /// The levels that it wants, in the order of the answers.
    pub fn wanted(&self) -> Vec<(Key, Wanted)> {
        match self {
            Self::Acquire { claims, .. } => claims.iter().flatten().copied().collect(),
            _ => Vec::new(),
        }
    }
}

fn each<T, U>(of: &[(Key, Vec<T>)], map: impl Fn(&T) -> U) -> Vec<(Key, U)> {
    let all = of.iter();
    all.flat_map(|(key, items)| items.iter().map(|item| (*key, map(item))))
        .collect()
}

fn keys<T>(of: &[(Key, Vec<T>)], suffixes: &[&str]) -> Vec<String> {
    let keys: Vec<_> = of.iter().map(|(key, _)| *key).collect();
    suffixed(&keys, suffixes)
}

fn suffixed(keys: &[Key], suffixes: &[&str]) -> Vec<String> {
    let names = keys.iter().map(|key| name(*key));
    names
        .flat_map(|name| suffixes.iter().map(move |suffix| format!("{name}{suffix}")))
        .collect()
}

/// The semaphores of claims, each once.
fn semaphores(claims: &[Vec<(Key, Wanted)>]) -> Vec<Key> {
    let mut keys = Vec::new();
    for (key, _) in claims.iter().flatten() {
        if !keys.contains(key) {
            keys.push(*key);
        }
    }
    keys
}

/// The arguments for all semaphores; then for each the number of its own, and these.
fn args<T>(
    mut head: Vec<String>,
    of: &[(Key, Vec<T>)],
    own: impl Fn(&T) -> Vec<String>,
) -> Vec<String> {
    for (_, items) in of {
        let own: Vec<_> = items.iter().flat_map(&own).collect();
        head.push(own.len().to_string());
        head.extend(own);
    }
    head
}

fn acquire_args(
    owner: &Settings,
    head: [u64; 3],
    claims: &[Vec<(Key, Wanted)>],
    names: &[Key],
) -> Vec<String> {
    let count = claims.first().map_or(0, Vec::len);
    let is_equal = claims.iter().all(|claim| claim.len() == count);
    let equal = if is_equal { count } else { 0 };
    let mut args = head.map(|number| number.to_string()).to_vec();
    args.push(equal.to_string());
    for claim in claims {
        if !is_equal {
            args.push(claim.len().to_string());
        }
        for (key, wanted) in claim {
            let number = names
                .iter()
                .position(|name| name == key)
                .map_or(0, |at| at + 1);
            args.push(number.to_string());
            args.extend(wanted_args(owner, wanted));
        }
    }
    args
}

fn wanted_args(owner: &Settings, wanted: &Wanted) -> Vec<String> {
    let limit = match wanted {
        Wanted { was_sent: true, .. } => -1,
        Wanted { id, .. } if id.weight > 1 => 0,
        Wanted { id, .. } => i64::from(id.limit),
    };
    let position = wanted.position.map(
        |Position {
             wait,
             alive,
             arrival,
         }| {
            let (alive, head_start) = (alive.as_millis(), wait.head_start.as_micros());
            format!("{alive} {} {arrival} {head_start}", wait.max_waiting)
        },
    );
    vec![
        text(owner, &wanted.id),
        limit.to_string(),
        position.unwrap_or_default(),
    ]
}

/// `PROCESS.SERIAL.LIMIT.WEIGHT.LEASE.SINCE`.
fn text(owner: &Settings, id: &Id) -> String {
    let (process, lease) = (&owner.process, owner.lease.as_millis());
    format!(
        "{process}.{:x}.{}.{}.{lease}.0",
        id.serial, id.limit, id.weight
    )
}

fn units(owner: &Settings, id: &Id) -> Vec<String> {
    let first = text(owner, id);
    let others = (2..=id.weight).map(|unit| format!("{first}:{unit}"));
    std::iter::once(first.clone()).chain(others).collect()
}

fn numbers(reply: &Reply) -> Option<Vec<u64>> {
    let Reply::List(items) = reply else {
        return None;
    };
    items.iter().map(number).collect()
}

fn number(item: &Reply) -> Option<u64> {
    match item {
        Reply::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn acquired(reply: &Reply, claims: &[Vec<(Key, Wanted)>]) -> Option<Answer> {
    let Reply::List(items) = reply else {
        return None;
    };
    let (now, items) = items.split_first()?;
    let now = number(now)?;
    if items.is_empty() {
        return Some(Answer::Late(now));
    }
    let mut items = items.iter();
    let mut each = Vec::new();
    for claim in claims {
        let first = items.next()?;
        if let Reply::List(refusal) = first {
            each.push(refused(refusal)?);
            continue;
        }
        let mut tokens = [number(first)?, 0, 0];
        items.next()?;
        for token in tokens.iter_mut().take(claim.len()).skip(1) {
            *token = number(items.next()?)?;
            items.next()?;
        }
        each.push(Acquired::Granted { tokens });
    }
    items
        .next()
        .is_none()
        .then_some(Answer::Acquired(now, each))
}

fn refused(items: &[Reply]) -> Option<Acquired> {
    let level = number(items.get(1)?)?.checked_sub(1)? as usize;
    match items {
        [Reply::Int(0), ..] => Some(Acquired::Full { level }),
        [Reply::Int(-1), ..] => Some(Acquired::QueueFull { level }),
        [Reply::Int(-3), ..] => Some(Acquired::Revoked { level }),
        [
            Reply::Int(-2),
            _,
            _,
            arrival,
            Reply::Int(recheck),
            last_token,
        ] => Some(Acquired::Queued {
            level,
            arrival: number(arrival)?,
            recheck: u64::try_from(*recheck).ok().map(Duration::from_millis),
            last_token: number(last_token)?,
        }),
        _ => None,
    }
}

/// A permit is held if all of its units are.
fn held(reply: &Reply, of: &[(Key, Vec<Id>)]) -> Option<Answer> {
    let ids = each(of, |id| *id);
    if matches!(reply, Reply::Int(_)) {
        return Some(Answer::Held(vec![true; ids.len()]));
    }
    let units = numbers(reply)?;
    let mut units = units.get(1..)?.iter();
    let each = ids.iter().map(|(_, id)| {
        let own: Vec<_> = units.by_ref().take(id.weight as usize).collect();
        own.iter().all(|unit| **unit == 1)
    });
    Some(Answer::Held(each.collect()))
}

/// Reads a message: the process, and what it is told.
pub fn message(channel: &str, text: &str) -> Option<(String, Message)> {
    let process = channel.strip_prefix(PREFIX)?.strip_prefix("wake:")?;
    let mut words = text.split(' ');
    let serial = u64::from_str_radix(words.next()?, 16).ok()?;
    let token = words.next()?.parse().ok()?;
    Some((process.to_owned(), Message { serial, token }))
}
