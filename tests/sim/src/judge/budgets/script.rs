//! Reads the scripts that handle budgets, and their replies, as the headers of the scripts describe them.

use crate::{subject::Key, wire::Script};
use model::{scripts::Verb, stand_in::Reply};

/// A level of a claim: the semaphore or budget, the id, and the words behind them (`terms`).
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: Key,
    pub(super) id: &'a str,
    terms: &'a str,
}

impl Wanted<'_> {
    /// True if its caller holds the permit, so that the acquire brings it back.
    pub(super) fn is_back(&self) -> bool {
        self.terms.split(' ').next() == Some("-2")
    }

    /// True if the units count as used once they are granted.
    pub(super) fn is_rate(&self) -> bool {
        self.terms.split(' ').nth(1) == Some("rate")
    }

    /// For how many ms the claim counts as alive while it waits there.
    pub(super) fn alive(&self) -> i64 {
        let mut words = self.terms.split(' ').skip(1).filter(|word| *word != "rate");
        words.next().and_then(|word| word.parse().ok()).unwrap_or(0)
    }
}

/// The answer to a claim.
#[derive(Debug)]
pub(super) enum Decision {
    Granted,
    /// It waits (-2) or is refused (another number). The level counts from 0. The list has the numbers of the reply
    /// that follow the number of units.
    Other(i64, usize, Vec<i64>),
}

/// Something that a script has done.
#[derive(Debug)]
pub(super) enum Act<'a> {
    /// Decided a claim: the levels and the answer.
    Claim(Vec<Wanted<'a>>, Decision),
    /// Moved the end of a reservation, which has settled this total.
    Refresh(Key, &'a str, i64),
    /// Released a reservation that has settled this total. True if it stays.
    Release(Key, &'a str, i64, bool),
    /// Revoked a reservation for an operator.
    Revoke(Key, &'a str),
}

/// The acts of a script, and for how many ms it grants or prolongs. `None`: it came too late and did nothing.
pub(super) type Acts<'a> = Option<(Vec<Act<'a>>, i64)>;

/// Reads a script and its reply. Returns `None` if they are not as the header describes.
pub(super) fn read<'a>(script: &'a Script, reply: &Reply) -> Option<Acts<'a>> {
    let keys = script.named();
    let mut args = script.args.iter().map(String::as_str);
    match script.verb {
        Verb::Acquire | Verb::AcquireBudgets => acquire(&keys, &script.args, reply),
        Verb::Refresh | Verb::RefreshBudgets => {
            let lasts = args.next()?.parse().ok()?;
            let mut acts = Vec::new();
            for key in keys {
                let count: usize = args.next()?.parse().ok()?;
                for unit in args.by_ref().take(count) {
                    let (id, total) = unit.split_once(' ').unwrap_or((unit, "0"));
                    acts.push(Act::Refresh(key, id, total.parse().ok()?));
                }
            }
            Some(Some((acts, lasts)))
        }
        Verb::Release | Verb::ReleaseBudgets => {
            // The flag for an answer, and the floor.
            let (_, _) = (args.next()?, args.next()?);
            let mut acts = Vec::new();
            for key in keys {
                let count: usize = args.next()?.parse().ok()?;
                for unit in args.by_ref().take(count) {
                    let mut words = unit.split(' ');
                    let (id, total) = (words.next()?, words.next().unwrap_or("0"));
                    let stays = words.next() == Some("keep");
                    acts.push(Act::Release(key, id, total.parse().ok()?, stays));
                }
            }
            Some(Some((acts, 0)))
        }
        Verb::Revoke => Some(Some((vec![Act::Revoke(*keys.first()?, args.nth(3)?)], 0))),
        Verb::Pause | Verb::Presence | Verb::Usage | Verb::Limits => Some(Some((Vec::new(), 0))),
    }
}

fn acquire<'a>(keys: &[Key], args: &'a [String], reply: &Reply) -> Option<Acts<'a>> {
    let Reply::List(items) = reply else {
        return None;
    };
    let mut items = items[1..].iter().peekable();
    if items.peek().is_none() {
        return Some(None);
    }
    // The lease, the deadline and the floor come first. `equal` is the number of levels of each claim, or 0 if it
    // differs.
    let (lasts, equal): (i64, usize) = (args[3].parse().ok()?, args[4].parse().ok()?);
    let (mut args, mut acts) = (args[5..].iter().map(String::as_str).peekable(), Vec::new());
    while args.peek().is_some() {
        let levels = match equal {
            0 => args.next()?.parse().ok()?,
            equal => equal,
        };
        let count: usize = args.next()?.parse().ok()?;
        let terms: Vec<_> = args.by_ref().take(levels).collect();
        for _ in 0..count {
            let mut claim = Vec::new();
            for terms in &terms {
                let number: usize = args.next()?.parse().ok()?;
                let (key, id) = (*keys.get(number - 1)?, args.next()?);
                claim.push(Wanted { key, id, terms });
            }
            let decision = match items.next()? {
                Reply::List(refusal) => {
                    let numbers = refusal.iter().map(|item| match item {
                        Reply::Int(number) => Some(*number),
                        _ => None,
                    });
                    let numbers: Vec<_> = numbers.collect::<Option<_>>()?;
                    let level = usize::try_from(numbers[1] - 1).ok()?;
                    Decision::Other(numbers[0], level, numbers[3..].to_vec())
                }
                _ => {
                    items.by_ref().take(2 * levels - 1).for_each(drop);
                    Decision::Granted
                }
            };
            acts.push(Act::Claim(claim, decision));
        }
    }
    Some(Some((acts, lasts)))
}
