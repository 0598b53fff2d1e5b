//! A stand-in for the Redis commands that the scripts use, in memory, with a clock that is set from
//! outside. It refuses every command and option that no script uses.

mod keys;
mod sorted;

pub use sorted::Sorted;
use std::collections::BTreeMap;

/// A reply, as a script gets it before its conversion to Lua.
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
    /// A status, as `OK`.
    Status(&'static str),
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string.
    Text(String),
    /// A sorted set.
    Sorted(Sorted),
}

/// A key's value, and when the key expires.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// Ms of the clock; `None`: never.
    pub expires_at: Option<i64>,
}

/// The stand-in.
#[derive(Debug, Clone, Default)]
pub struct StandIn {
    /// The clock, in microseconds.
    pub now: i64,
    keys: BTreeMap<String, Entry>,
    /// What the present call may name. `None`: any key.
    pub declared: Option<Vec<String>>,
    /// Channels and messages.
    pub published: Vec<(String, String)>,
    /// The first command that has written.
    pub first_write: Option<String>,
}

type Outcome = Result<Reply, String>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl StandIn {
    /// An empty server whose clock shows `now`.
    pub fn at(now: i64) -> Self {
        Self {
            now,
            ..Self::default()
        }
    }

    /// The keys that have not expired.
    pub fn entries(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.keys.iter().filter(|(_, entry)| self.is_live(entry))
    }

    /// Takes away the keys that begin like this.
    pub fn take(&mut self, prefix: &str) -> Vec<(String, Entry)> {
        let is_own = |key: &String| key.starts_with(prefix);
        let keys = self.entries().map(|(key, _)| key.clone());
        let keys: Vec<_> = keys.filter(is_own).collect();
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
    /// With the server's message, or if the stand-in does not know the command.
    pub fn command(&mut self, args: &[&str]) -> Outcome {
        let (name, args) = args.split_first().ok_or("ERR no command")?;
        self.check_keys(name, args)?;
        if is_write(name) && self.first_write.is_none() {
            self.first_write = Some((*name).to_owned());
        }
        match *name {
            "TIME" => self.time(args),
            "PUBLISH" => self.publish(args),
            "ZCARD" | "ZADD" | "ZREM" | "ZREMRANGEBYSCORE" | "ZRANGEBYSCORE" | "ZSCORE"
            | "ZRANGE" => self.sorted_command(name, args),
            _ => self.key_command(name, args),
        }
    }

    /// A script may only name the keys of its call: on a cluster others live elsewhere.
    fn check_keys(&self, name: &str, args: &[&str]) -> Result<(), String> {
        let Some(declared) = &self.declared else {
            return Ok(());
        };
        let keys = match name {
            "TIME" | "PUBLISH" => &args[..0],
            "DEL" | "EXISTS" => args,
            _ => args.get(..1).unwrap_or_default(),
        };
        match keys
            .iter()
            .find(|key| !declared.iter().any(|own| own == *key))
        {
            Some(key) => Err(format!("ERR undeclared key {key}")),
            None => Ok(()),
        }
    }

    fn time(&self, args: &[&str]) -> Outcome {
        let [] = args else {
            return Err(wrong_number("time"));
        };
        let (seconds, micros) = (self.now / 1_000_000, self.now % 1_000_000);
        let parts = [seconds, micros].map(|part| Reply::Text(part.to_string()));
        Ok(Reply::List(parts.into()))
    }

    fn publish(&mut self, args: &[&str]) -> Outcome {
        let [channel, message] = args else {
            return Err(wrong_number("publish"));
        };
        let message = ((*channel).to_owned(), (*message).to_owned());
        self.published.push(message);
        Ok(Reply::Int(0))
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.keys.get(key).filter(|entry| self.is_live(entry))
    }

    /// The entry, for writing. An expired one is removed first.
    fn entry_mut(&mut self, key: &str) -> Option<&mut Entry> {
        if self.entry(key).is_none() {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }
}

/// Whether a server whose memory is full notes that a script has written.
fn is_write(name: &str) -> bool {
    let writes = [
        "ZADD",
        "ZREM",
        "ZREMRANGEBYSCORE",
        "DEL",
        "INCR",
        "SET",
        "PEXPIRE",
    ];
    writes.contains(&name)
}

fn wrong_number(command: &str) -> String {
    format!("ERR wrong number of arguments for '{command}' command")
}

fn integer(text: &str) -> Result<i64, String> {
    let number = text.parse();
    number.map_err(|_| "ERR value is not an integer or out of range".to_owned())
}
