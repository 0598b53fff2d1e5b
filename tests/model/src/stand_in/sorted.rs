//! Sorted sets and their commands.

use super::{Entry, Outcome, Reply, StandIn, Value, WRONG_TYPE, integer, wrong_number};

/// A sorted set: scores and members, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sorted(Vec<(f64, String)>);

impl Sorted {
    /// The scores and members, lowest first.
    pub fn items(&self) -> &[(f64, String)] {
        &self.0
    }

    /// Adds a member, or moves it. Whether it is new, and whether anything has changed.
    pub fn add(&mut self, score: f64, member: &str) -> (bool, bool) {
        let old = self.remove(member);
        let at = self
            .0
            .partition_point(|(other, name)| (*other, name.as_str()) < (score, member));
        self.0.insert(at, (score, member.to_owned()));
        (old.is_none(), old != Some(score))
    }

    fn remove(&mut self, member: &str) -> Option<f64> {
        let at = self.0.iter().position(|(_, name)| name == member)?;
        Some(self.0.remove(at).0)
    }

    fn score(&self, member: &str) -> Option<f64> {
        let found = self.0.iter().find(|(_, name)| name == member);
        found.map(|(score, _)| *score)
    }

    /// The items at indexes, which may count from the end.
    fn slice(&self, start: i64, stop: i64) -> Vec<(f64, String)> {
        let length = self.0.len() as i64;
        let index = |at: i64| if at < 0 { at + length } else { at };
        let (start, stop) = (index(start).max(0), index(stop).min(length - 1));
        match start <= stop {
            true => self.0[start as usize..=stop as usize].to_vec(),
            false => Vec::new(),
        }
    }
}

impl StandIn {
    pub(super) fn sorted_command(&mut self, name: &str, args: &[&str]) -> Outcome {
        let (key, args) = args
            .split_first()
            .ok_or_else(|| wrong_number(&name.to_lowercase()))?;
        match (name, args) {
            ("ZCARD", []) => Ok(Reply::Int(self.sorted(key)?.0.len() as i64)),
            ("ZSCORE", [member]) => {
                let score = self.sorted(key)?.score(member);
                Ok(score.map_or(Reply::Nil, |score| Reply::Text(number(score))))
            }
            ("ZADD", [_, _, ..]) => self.add(key, args),
            ("ZREM", [_, ..]) => self.remove(key, |_, member| args.contains(&member)),
            ("ZREMRANGEBYSCORE", [low, high]) => {
                let (low, high) = (bound(low)?, bound(high)?);
                self.remove(key, |score, _| is_within(score, low, high))
            }
            ("ZRANGEBYSCORE", [low, high, options @ ..]) => {
                self.range_by_score(key, (bound(low)?, bound(high)?), options)
            }
            ("ZRANGE", [start, stop, options @ ..]) => {
                self.range(key, (integer(start)?, integer(stop)?), options)
            }
            _ => Err(wrong_number(&name.to_lowercase())),
        }
    }

    fn sorted(&self, key: &str) -> Result<Sorted, String> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(Sorted::default()),
            Some(Value::Sorted(sorted)) => Ok(sorted.clone()),
            Some(Value::Text(_)) => Err(WRONG_TYPE.to_owned()),
        }
    }

    /// Replaces a sorted set, and removes its key if it is empty.
    fn put(&mut self, key: &str, sorted: Sorted) {
        let expires_at = self.entry(key).and_then(|entry| entry.expires_at);
        self.keys.remove(key);
        if !sorted.0.is_empty() {
            let value = Value::Sorted(sorted);
            self.insert(key.to_owned(), Entry { value, expires_at });
        }
    }

    fn add(&mut self, key: &str, args: &[&str]) -> Outcome {
        let is_option = |arg: &&&str| ["XX", "GT", "CH"].contains(*arg);
        let (options, pairs) = args.split_at(args.iter().take_while(is_option).count());
        if pairs.is_empty() || pairs.len() % 2 > 0 {
            return Err("ERR syntax error".to_owned());
        }
        let scores = pairs.chunks(2).map(|pair| score(pair[0]));
        let scores = scores.collect::<Result<Vec<_>, _>>()?;
        let mut sorted = self.sorted(key)?;
        let mut count = 0;
        for (score, pair) in scores.into_iter().zip(pairs.chunks(2)) {
            let before = sorted.score(pair[1]);
            let is_less = before.is_some_and(|before| score <= before);
            if options.contains(&"XX") && before.is_none() || options.contains(&"GT") && is_less {
                continue;
            }
            let (is_new, is_changed) = sorted.add(score, pair[1]);
            let counts = is_new || is_changed && options.contains(&"CH");
            count += i64::from(counts);
        }
        self.put(key, sorted);
        Ok(Reply::Int(count))
    }

    fn remove(&mut self, key: &str, is_removed: impl Fn(f64, &str) -> bool) -> Outcome {
        let mut sorted = self.sorted(key)?;
        let before = sorted.0.len();
        sorted
            .0
            .retain(|(score, member)| !is_removed(*score, member));
        let removed = before - sorted.0.len();
        self.put(key, sorted);
        Ok(Reply::Int(removed as i64))
    }

    fn range_by_score(&self, key: &str, (low, high): (Bound, Bound), options: &[&str]) -> Outcome {
        let (with_scores, limit) = match options {
            [] => (false, (0, -1)),
            ["WITHSCORES"] => (true, (0, -1)),
            ["LIMIT", offset, count] => (false, (integer(offset)?, integer(count)?)),
            _ => return Err("ERR syntax error".to_owned()),
        };
        let mut items = self.sorted(key)?.0;
        items.retain(|(score, _)| is_within(*score, low, high));
        let count = if limit.1 < 0 {
            usize::MAX
        } else {
            limit.1 as usize
        };
        let items = items.into_iter().skip(limit.0.max(0) as usize).take(count);
        Ok(listed(items, with_scores))
    }

    fn range(&self, key: &str, (start, stop): (i64, i64), options: &[&str]) -> Outcome {
        let mut sorted = self.sorted(key)?;
        let (is_reversed, options) = match options {
            ["REV", options @ ..] => (true, options),
            options => (false, options),
        };
        if is_reversed {
            sorted.0.reverse();
        }
        let items = sorted.slice(start, stop).into_iter();
        match options {
            [] => Ok(listed(items, false)),
            ["WITHSCORES"] => Ok(listed(items, true)),
            _ => Err("ERR syntax error".to_owned()),
        }
    }
}

fn listed(items: impl Iterator<Item = (f64, String)>, with_scores: bool) -> Reply {
    let items = items.flat_map(|(score, member)| {
        let score = with_scores.then(|| Reply::Text(number(score)));
        [Some(Reply::Text(member)), score].into_iter().flatten()
    });
    Reply::List(items.collect())
}

/// An end of a range, and whether it is in the range itself.
type Bound = (f64, bool);

fn bound(text: &str) -> Result<Bound, String> {
    match text.strip_prefix('(') {
        Some(text) => Ok((score(text)?, false)),
        None => Ok((score(text)?, true)),
    }
}

/// Whether a score is in a range.
fn is_within(number: f64, (low, has_low): Bound, (high, has_high): Bound) -> bool {
    let is_above = low < number || has_low && low == number;
    let is_below = number < high || has_high && number == high;
    is_above && is_below
}

fn score(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(score) if !score.is_nan() => Ok(score),
        _ => Err("ERR value is not a valid float".to_owned()),
    }
}

/// A score as text. The scripts only use whole numbers.
fn number(score: f64) -> String {
    format!("{score:.0}")
}
