//! An in-memory stand-in for the Redis commands that the scripts use. Its clock is set from outside. It refuses every
//! command and option that no script uses.

use std::collections::BTreeMap;

/// A reply before its conversion to Lua.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// An integer.
    Int(i64),
    /// A string.
    Text(String),
    /// A missing value.
    Nil,
    /// A list.
    List(Vec<Reply>),
    /// A status such as `OK`.
    Status(&'static str),
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string.
    Text(String),
    /// A sorted set.
    Sorted(Sorted),
    /// A hash.
    Hash(BTreeMap<String, String>),
}

/// A key's value, and when the key expires.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// The expiry in ms of the clock; `None` if the key never expires.
    pub expires_at: Option<i64>,
}

/// A sorted set: scores and members, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sorted(Vec<(f64, String)>);

impl Sorted {
    /// The scores and members, lowest first.
    pub fn items(&self) -> &[(f64, String)] {
        &self.0
    }

    /// Adds or moves a member. Returns its previous score.
    pub fn add(&mut self, score: f64, member: &str) -> Option<f64> {
        let before = self.score(member);
        self.0.retain(|(_, other)| other != member);
        let is_before = |(other, name): &(f64, String)| (*other, &**name) < (score, member);
        let at = self.0.partition_point(is_before);
        self.0.insert(at, (score, member.to_owned()));
        before
    }

    fn score(&self, member: &str) -> Option<f64> {
        let found = self.0.iter().find(|(_, name)| name == member);
        found.map(|(score, _)| *score)
    }
}

/// The stand-in.
#[derive(Debug, Clone, Default)]
pub struct StandIn {
    /// The clock, in microseconds.
    pub now: i64,
    keys: BTreeMap<String, Entry>,
    /// The keys that the present call may name; `None` allows any key.
    pub declared: Option<Vec<String>>,
    /// True on a node that is giving away the slot of all keys. The node runs a script only if all of its keys are
    /// present, and ends it once it names a key that it has emptied.
    pub gives_away: bool,
    /// True while a script runs that found all of its keys present at its start.
    is_whole: bool,
    /// The published channels and messages.
    pub published: Vec<(String, String)>,
    /// The first command that wrote.
    pub first_write: Option<String>,
    /// How many more writes and messages succeed before one fails, as for a user who loses the right; `None`: all do.
    pub writes_left: Option<usize>,
}

type CommandResult = Result<Reply, String>;

/// The error of a node that gives a slot away, for a script that names a key that it has emptied.
pub const NOT_LOCAL: &str = "ERR Script attempted to access a non local key in a cluster node";

const DENIED: &str = "NOPERM this user has no permissions to run the command";
const SYNTAX: &str = "ERR syntax error";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl StandIn {
    /// An empty server whose clock shows `now`. It gives away all slots, so a script fails if it names a key that it
    /// has emptied.
    pub fn at(now: i64) -> Self {
        Self {
            now,
            gives_away: true,
            ..Self::default()
        }
    }

    /// Begins a script that declares these keys.
    pub fn begin(&mut self, keys: &[String]) {
        self.is_whole = keys.iter().all(|key| self.entry(key).is_some());
        self.declared = Some(keys.to_vec());
    }

    /// The keys that have not expired.
    pub fn entries(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.keys.iter().filter(|(_, entry)| self.is_live(entry))
    }

    /// A key that was not deleted, even if it has expired.
    pub fn key(&self, key: &str) -> Option<&Entry> {
        self.keys.get(key)
    }

    /// Removes and returns the keys with this prefix.
    pub fn take(&mut self, prefix: &str) -> Vec<(String, Entry)> {
        let has_prefix = |key: &String| key.starts_with(prefix);
        let keys = self.entries().map(|(key, _)| key.clone());
        let keys: Vec<_> = keys.filter(has_prefix).collect();
        let taken = keys.into_iter();
        taken
            .filter_map(|key| self.keys.remove_entry(&key))
            .collect()
    }

    /// Adds a key.
    pub fn insert(&mut self, key: String, entry: Entry) {
        self.keys.insert(key, entry);
    }

    fn is_live(&self, entry: &Entry) -> bool {
        entry.expires_at.is_none_or(|end| self.now_ms() < end)
    }

    fn now_ms(&self) -> i64 {
        self.now / 1_000
    }

    /// Runs a command.
    ///
    /// # Errors
    ///
    /// Returns the server's message, or an error if the stand-in does not know the command.
    pub fn command(&mut self, args: &[&str]) -> CommandResult {
        let (name, args) = args.split_first().ok_or("ERR no command")?;
        self.check_keys(name, args)?;
        if WRITES.contains(name) && self.first_write.is_none() {
            self.first_write = Some((*name).to_owned());
        }
        if WRITES.contains(name) || *name == "PUBLISH" {
            self.writes_left = match self.writes_left {
                Some(0) => return Err(DENIED.to_owned()),
                left => left.map(|left| left - 1),
            };
        }
        match (*name, args) {
            ("TIME", []) => Ok(self.time()),
            ("PUBLISH", [channel, message]) => Ok(self.publish(channel, message)),
            ("DEL", [_, ..]) => Ok(self.delete(args)),
            ("EXISTS", [_, ..]) => Ok(count(args.iter().filter(|key| self.entry(key).is_some()))),
            ("GET", [key]) => Ok(self.text(key)?.map_or(Reply::Nil, Reply::Text)),
            ("INCR", [key]) => self.increment(key),
            ("SET", [key, value, "PX", ttl]) => self.set(key, value, integer(ttl)?),
            ("PEXPIRE", [key, ttl]) => Ok(self.expire(key, integer(ttl)?)),
            ("PTTL", [key]) => Ok(self.ttl(key)),
            ("HGET", [key, field]) => {
                let value = self.hash(key)?.remove(*field);
                Ok(value.map_or(Reply::Nil, Reply::Text))
            }
            ("HMGET", [key, fields @ ..]) if !fields.is_empty() => {
                let hash = self.hash(key)?;
                let value = |field: &&str| hash.get(*field).cloned();
                let values = fields
                    .iter()
                    .map(|field| value(field).map_or(Reply::Nil, Reply::Text));
                Ok(Reply::List(values.collect()))
            }
            ("HGETALL", [key]) => {
                let items = self.hash(key)?.into_iter();
                let items = items.flat_map(|(field, value)| [field, value].map(Reply::Text));
                Ok(Reply::List(items.collect()))
            }
            ("HEXISTS", [key, field]) => {
                let is_there = self.hash(key)?.contains_key(*field);
                Ok(Reply::Int(is_there.into()))
            }
            ("HLEN", [key]) => Ok(count(self.hash(key)?.iter())),
            ("HSET", [key, pairs @ ..]) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
                let set = |hash: &mut BTreeMap<String, String>, pair: &[&str]| {
                    hash.insert(pair[0].to_owned(), pair[1].to_owned())
                };
                self.change_hash(key, |hash| {
                    let new = pairs.chunks(2).filter(|pair| set(hash, pair).is_none());
                    new.count()
                })
            }
            ("HDEL", [key, fields @ ..]) if !fields.is_empty() => self.change_hash(key, |hash| {
                let removed = fields.iter().filter(|field| hash.remove(**field).is_some());
                removed.count()
            }),
            ("ZCARD", [key]) => Ok(count(self.sorted(key)?.0.iter())),
            ("ZSCORE", [key, member]) => {
                let score = self.sorted(key)?.score(member);
                Ok(score.map_or(Reply::Nil, |score| Reply::Text(number(score))))
            }
            ("ZADD", [key, args @ ..]) => self.add(key, args),
            ("ZREM", [key, members @ ..]) => {
                self.remove(key, |_, member| members.contains(&member))
            }
            ("ZREMRANGEBYSCORE", [key, low, high]) => {
                let is_within = within(low, high)?;
                self.remove(key, |score, _| is_within(score))
            }
            ("ZRANGEBYSCORE", [key, low, high, options @ ..]) => {
                self.range_by_score(key, within(low, high)?, options)
            }
            ("ZRANGE", [key, start, stop, options @ ..]) => {
                self.range(key, [integer(start)?, integer(stop)?], options)
            }
            // A small set is scanned in one step.
            ("ZSCAN", [key, "0", "COUNT", _]) => {
                let items = listed(self.sorted(key)?.0.into_iter(), true);
                Ok(Reply::List(vec![Reply::Text("0".to_owned()), items]))
            }
            _ => Err(format!("ERR the stand-in does not know {name} {args:?}")),
        }
    }

    /// A script may only name the keys of its call, because on a cluster other keys live elsewhere.
    fn check_keys(&self, name: &str, args: &[&str]) -> Result<(), String> {
        let Some(declared) = &self.declared else {
            return Ok(());
        };
        let keys = match name {
            "TIME" | "PUBLISH" => &args[..0],
            "DEL" | "EXISTS" => args,
            _ => args.get(..1).unwrap_or_default(),
        };
        let is_undeclared = |key: &&&str| !declared.iter().any(|own| own == **key);
        if let Some(key) = keys.iter().find(is_undeclared) {
            return Err(format!("ERR undeclared key {key}"));
        }
        let is_gone = |key: &&&str| self.entry(key).is_none();
        match keys.iter().find(is_gone) {
            Some(key) if self.gives_away && self.is_whole => Err(format!("{NOT_LOCAL}: {key}")),
            _ => Ok(()),
        }
    }

    fn time(&self) -> Reply {
        let (seconds, micros) = (self.now / 1_000_000, self.now % 1_000_000);
        let parts = [seconds, micros].map(|part| Reply::Text(part.to_string()));
        Reply::List(parts.into())
    }

    fn publish(&mut self, channel: &str, message: &str) -> Reply {
        self.published
            .push((channel.to_owned(), message.to_owned()));
        Reply::Int(0)
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.keys.get(key).filter(|entry| self.is_live(entry))
    }

    /// Sets the value of a key, and keeps its expiry if it has one.
    fn put(&mut self, key: &str, value: Value) {
        let expires_at = self.entry(key).and_then(|entry| entry.expires_at);
        self.insert(key.to_owned(), Entry { value, expires_at });
    }

    fn delete(&mut self, keys: &[&str]) -> Reply {
        let was_there = keys.iter().filter(|key| {
            let was_there = self.entry(key).is_some();
            self.keys.remove(**key);
            was_there
        });
        count(was_there)
    }

    fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.clone())),
            Some(Value::Sorted(_) | Value::Hash(_)) => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn hash(&self, key: &str) -> Result<BTreeMap<String, String>, String> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(BTreeMap::new()),
            Some(Value::Hash(hash)) => Ok(hash.clone()),
            Some(Value::Sorted(_) | Value::Text(_)) => Err(WRONG_TYPE.to_owned()),
        }
    }

    /// Changes a hash, and removes its key if the hash is empty. Returns how many fields were added or removed.
    fn change_hash(
        &mut self,
        key: &str,
        change: impl FnOnce(&mut BTreeMap<String, String>) -> usize,
    ) -> CommandResult {
        let mut hash = self.hash(key)?;
        let counts = change(&mut hash);
        match hash.is_empty() {
            true => drop(self.keys.remove(key)),
            false => self.put(key, Value::Hash(hash)),
        }
        Ok(Reply::Int(counts as i64))
    }

    fn increment(&mut self, key: &str) -> CommandResult {
        let number = self.text(key)?.map_or(Ok(0), |text| integer(&text))? + 1;
        self.put(key, Value::Text(number.to_string()));
        Ok(Reply::Int(number))
    }

    fn set(&mut self, key: &str, value: &str, ttl: i64) -> CommandResult {
        if ttl <= 0 {
            return Err("ERR invalid expire time in 'set' command".to_owned());
        }
        let value = Value::Text(value.to_owned());
        let expires_at = Some(self.now_ms() + ttl);
        self.insert(key.to_owned(), Entry { value, expires_at });
        Ok(Reply::Status("OK"))
    }

    fn expire(&mut self, key: &str, ttl: i64) -> Reply {
        let end = self.now_ms() + ttl;
        let is_there = self.entry(key).is_some();
        match self.keys.get_mut(key).filter(|_| is_there) {
            None => return Reply::Int(0),
            Some(_) if ttl <= 0 => drop(self.keys.remove(key)),
            Some(entry) => entry.expires_at = Some(end),
        }
        Reply::Int(1)
    }

    fn ttl(&self, key: &str) -> Reply {
        Reply::Int(match self.entry(key).map(|entry| entry.expires_at) {
            None => -2,
            Some(None) => -1,
            Some(Some(end)) => end - self.now_ms(),
        })
    }

    fn sorted(&self, key: &str) -> Result<Sorted, String> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(Sorted::default()),
            Some(Value::Sorted(sorted)) => Ok(sorted.clone()),
            Some(Value::Text(_) | Value::Hash(_)) => Err(WRONG_TYPE.to_owned()),
        }
    }

    /// Replaces a sorted set, and removes its key if the set is empty.
    fn put_sorted(&mut self, key: &str, sorted: Sorted) {
        match sorted.0.is_empty() {
            true => drop(self.keys.remove(key)),
            false => self.put(key, Value::Sorted(sorted)),
        }
    }

    fn add(&mut self, key: &str, args: &[&str]) -> CommandResult {
        let is_option = |arg: &&&str| ["XX", "GT", "CH"].contains(*arg);
        let (options, pairs) = args.split_at(args.iter().take_while(is_option).count());
        if pairs.is_empty() || pairs.len() % 2 > 0 {
            return Err(SYNTAX.to_owned());
        }
        let has = |option| options.contains(&option);
        let (mut sorted, mut count) = (self.sorted(key)?, 0);
        let scores = pairs.chunks(2).map(|pair| score(pair[0]));
        let scores = scores.collect::<Result<Vec<_>, _>>()?;
        for (score, pair) in scores.into_iter().zip(pairs.chunks(2)) {
            let is_less = |before| score <= before;
            let before = sorted.score(pair[1]);
            if has("XX") && before.is_none() || has("GT") && before.is_some_and(is_less) {
                continue;
            }
            sorted.add(score, pair[1]);
            let counts = before.is_none() || has("CH") && before != Some(score);
            count += i64::from(counts);
        }
        self.put_sorted(key, sorted);
        Ok(Reply::Int(count))
    }

    fn remove(&mut self, key: &str, is_removed: impl Fn(f64, &str) -> bool) -> CommandResult {
        let mut sorted = self.sorted(key)?;
        let removed = sorted
            .0
            .extract_if(.., |(score, member)| is_removed(*score, member));
        let removed = count(removed);
        self.put_sorted(key, sorted);
        Ok(removed)
    }

    fn range_by_score(
        &self,
        key: &str,
        is_within: impl Fn(f64) -> bool,
        options: &[&str],
    ) -> CommandResult {
        let (with_scores, [offset, most]) = match options {
            [] => (false, [0, -1]),
            ["WITHSCORES"] => (true, [0, -1]),
            ["WITHSCORES", "LIMIT", offset, count] => (true, [integer(offset)?, integer(count)?]),
            ["LIMIT", offset, count] => (false, [integer(offset)?, integer(count)?]),
            _ => return Err(SYNTAX.to_owned()),
        };
        let items = self.sorted(key)?.0.into_iter();
        let items = items.filter(|(score, _)| is_within(*score));
        let items = items.skip(offset.max(0) as usize);
        // A negative count returns all items.
        Ok(listed(items.take(most as usize), with_scores))
    }

    /// The items between two indexes, which may count from the end.
    fn range(&self, key: &str, [start, stop]: [i64; 2], options: &[&str]) -> CommandResult {
        let mut items = self.sorted(key)?.0;
        let (is_reversed, with_scores) = match options {
            [] => (false, false),
            ["REV"] => (true, false),
            ["WITHSCORES"] => (false, true),
            ["REV", "WITHSCORES"] => (true, true),
            _ => return Err(SYNTAX.to_owned()),
        };
        if is_reversed {
            items.reverse();
        }
        let index = |at: i64| if at < 0 { at + items.len() as i64 } else { at };
        let (start, end) = (index(start).max(0), index(stop) + 1);
        let items = items.into_iter().take(end.max(0) as usize);
        Ok(listed(items.skip(start as usize), with_scores))
    }
}

/// The commands that count as writes for a server whose memory is full.
const WRITES: [&str; 9] = [
    "HSET",
    "HDEL",
    "ZADD",
    "ZREM",
    "ZREMRANGEBYSCORE",
    "DEL",
    "INCR",
    "SET",
    "PEXPIRE",
];

fn count<T>(items: impl Iterator<Item = T>) -> Reply {
    Reply::Int(items.count() as i64)
}

fn integer(text: &str) -> Result<i64, String> {
    let number = text.parse();
    number.map_err(|_| "ERR value is not an integer or out of range".to_owned())
}

fn listed(items: impl Iterator<Item = (f64, String)>, with_scores: bool) -> Reply {
    let items = items.flat_map(|(score, member)| {
        let score = with_scores.then(|| Reply::Text(number(score)));
        [Some(Reply::Text(member)), score].into_iter().flatten()
    });
    Reply::List(items.collect())
}

/// Returns true for scores in the range. An end belongs to the range unless it begins with `(`.
fn within(low: &str, high: &str) -> Result<impl Fn(f64) -> bool, String> {
    let end =
        |text: &str| Ok::<_, String>((score(text.trim_start_matches('('))?, text.starts_with('(')));
    let ((low, without_low), (high, without_high)) = (end(low)?, end(high)?);
    Ok(move |score| {
        let is_above = low < score || !without_low && low == score;
        is_above && (score < high || !without_high && score == high)
    })
}

fn score(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(score) if !score.is_nan() => Ok(score),
        _ => Err("ERR value is not a valid float".to_owned()),
    }
}

/// A score as text. The scripts use whole numbers only.
fn number(score: f64) -> String {
    format!("{score:.0}")
}
