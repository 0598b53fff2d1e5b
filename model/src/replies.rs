//! What the reply to a call says.

use crate::{
    call::{Answer, Call},
    scripts::Verb,
    stand_in::Reply,
    time::{NOW, NOW_MS},
};

impl Call {
    /// Reads the reply, which begins with the server's time.
    ///
    /// # Errors
    ///
    /// If the reply is not what the script's header says.
    pub fn read(&self, reply: &Reply) -> Result<Vec<Answer>, String> {
        let strange = || format!("a strange reply {reply:?}");
        let count = self.items().count();
        match (self.verb, reply) {
            (Verb::Release, Reply::Int(0)) if !self.with_answer => Ok(vec![Answer::Unknown; count]),
            (Verb::Refresh, Reply::Int(NOW_MS)) => Ok(vec![Answer::Is(true); count]),
            (_, Reply::List(items)) => {
                let (first, items) = items.split_first().ok_or_else(strange)?;
                if *first != Reply::Int(NOW_MS) {
                    return Err(strange());
                }
                self.read_items(items).ok_or_else(strange)
            }
            _ => Err(strange()),
        }
    }

    fn read_items(&self, items: &[Reply]) -> Option<Vec<Answer>> {
        let answers: Option<Vec<_>> = match self.verb {
            Verb::Acquire if items.is_empty() => return Some(vec![Answer::Late; self.count()]),
            Verb::AcquireAll if items.is_empty() => return Some(vec![Answer::Late; self.count()]),
            Verb::Acquire => items.chunks(2).map(read_one).collect(),
            Verb::AcquireAll => items.iter().map(read_all).collect(),
            _ => items.iter().map(read_unit).collect(),
        };
        answers.filter(|answers| answers.len() == self.count())
    }

    /// How many answers there are.
    fn count(&self) -> usize {
        match self.verb {
            Verb::AcquireAll => self.shares.len(),
            _ => self.items().count(),
        }
    }
}

fn read_unit(item: &Reply) -> Option<Answer> {
    match item {
        Reply::Int(held @ (0 | 1)) => Some(Answer::Is(*held == 1)),
        _ => None,
    }
}

fn read_one(pair: &[Reply]) -> Option<Answer> {
    let [first, Reply::Int(held)] = pair else {
        return None;
    };
    let (held, level) = (*held, 0);
    match first {
        Reply::Int(0) => Some(Answer::Full { level, held }),
        Reply::Int(-1) => Some(Answer::QueueFull { level }),
        Reply::Int(-3) => Some(Answer::Revoked { level }),
        Reply::Int(token @ 1..) => Some(Answer::Granted(vec![(token - NOW, held)])),
        Reply::List(items) => match &numbers(items)?[..] {
            [arrival, recheck, last_token] => {
                Some(queued(level, held, [*arrival, *recheck, *last_token]))
            }
            _ => None,
        },
        _ => None,
    }
}

fn read_all(item: &Reply) -> Option<Answer> {
    let Reply::List(items) = item else {
        return None;
    };
    let level = |level: i64| u8::try_from(level - 1).ok();
    match numbers(items)?[..] {
        [0, at, held] => Some(Answer::Full {
            level: level(at)?,
            held,
        }),
        [-1, at, _] => Some(Answer::QueueFull { level: level(at)? }),
        [-3, at, _] => Some(Answer::Revoked { level: level(at)? }),
        [-2, at, held, arrival, recheck, last_token] => {
            Some(queued(level(at)?, held, [arrival, recheck, last_token]))
        }
        ref tokens => {
            let pairs = tokens.chunks(2).map(|pair| match *pair {
                [token, held] if token > 0 => Some((token - NOW, held)),
                _ => None,
            });
            Some(Answer::Granted(pairs.collect::<Option<_>>()?))
        }
    }
}

fn queued(level: u8, held: i64, [arrival, recheck, last_token]: [i64; 3]) -> Answer {
    Answer::Queued {
        level,
        held,
        arrival: arrival - NOW,
        recheck: (recheck >= 0).then_some(recheck),
        last_token: last_token - NOW,
    }
}

fn numbers(items: &[Reply]) -> Option<Vec<i64>> {
    let numbers = items.iter().map(|item| match item {
        Reply::Int(number) => Some(*number),
        _ => None,
    });
    numbers.collect()
}
