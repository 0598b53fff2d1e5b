//! Reads the replies to calls.

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
    /// If the reply has a form that the script's header does not document.
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
            Verb::Acquire => self.read_claims(items),
            _ => items.iter().map(read_unit).collect(),
        };
        answers.filter(|answers| answers.len() == self.count())
    }

    /// A granted claim has two items for each level. A claim that is not granted has one item with the reason.
    fn read_claims(&self, mut items: &[Reply]) -> Option<Vec<Answer>> {
        let mut answers = Vec::new();
        for levels in &self.groups {
            let size = match items.first()? {
                Reply::List(_) => 1,
                _ => 2 * levels.len(),
            };
            let (own, others) = items.split_at_checked(size)?;
            answers.push(read_claim(own)?);
            items = others;
        }
        items.is_empty().then_some(answers)
    }

    /// The number of answers that the call expects.
    fn count(&self) -> usize {
        match self.verb {
            Verb::Acquire => self.groups.len(),
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

fn read_claim(items: &[Reply]) -> Option<Answer> {
    let level = |number: i64| u8::try_from(number - 1).ok();
    let [Reply::List(refusal)] = items else {
        let numbers = numbers(items)?;
        let pairs = numbers.chunks(2).map(|pair| match *pair {
            [token, held] if token > 0 => Some((token - NOW, held)),
            _ => None,
        });
        return Some(Answer::Granted(pairs.collect::<Option<_>>()?));
    };
    // The header of acquire.lua explains these numbers.
    match numbers(refusal)?[..] {
        [0, at, held] => Some(Answer::Full {
            level: level(at)?,
            held,
        }),
        [-1, at, _] => Some(Answer::QueueFull { level: level(at)? }),
        [-3, at, _] => Some(Answer::Revoked { level: level(at)? }),
        [-2, at, held, arrival, recheck, last_token] => {
            Some(queued(level(at)?, held, [arrival, recheck, last_token]))
        }
        _ => None,
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
