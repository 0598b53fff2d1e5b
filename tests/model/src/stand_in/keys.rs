//! The commands for strings and for keys of any type.

use super::{Entry, Outcome, Reply, StandIn, Value, WRONG_TYPE, integer, wrong_number};

impl StandIn {
    pub(super) fn key_command(&mut self, name: &str, args: &[&str]) -> Outcome {
        match (name, args) {
            ("DEL", [_, ..]) => Ok(self.delete(args)),
            ("EXISTS", [_, ..]) => Ok(self.exists(args)),
            ("GET", [key]) => self.get(key),
            ("INCR", [key]) => self.increment(key),
            ("SET", [key, value, "PX", ttl]) => self.set(key, value, integer(ttl)?),
            ("PEXPIRE", [key, ttl]) => Ok(self.expire(key, integer(ttl)?)),
            ("PTTL", [key]) => Ok(self.ttl(key)),
            ("DEL" | "EXISTS" | "GET" | "INCR" | "PEXPIRE" | "PTTL", _) => {
                Err(wrong_number(&name.to_lowercase()))
            }
            _ => Err(format!("ERR the stand-in does not know {name} {args:?}")),
        }
    }

    fn delete(&mut self, keys: &[&str]) -> Reply {
        let count = keys.iter().filter(|key| {
            let was_there = self.entry(key).is_some();
            self.keys.remove(**key);
            was_there
        });
        Reply::Int(count.count() as i64)
    }

    fn exists(&self, keys: &[&str]) -> Reply {
        let count = keys.iter().filter(|key| self.entry(key).is_some());
        Reply::Int(count.count() as i64)
    }

    fn get(&self, key: &str) -> Outcome {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(Reply::Nil),
            Some(Value::Text(text)) => Ok(Reply::Text(text.clone())),
            Some(Value::Sorted(_)) => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn increment(&mut self, key: &str) -> Outcome {
        let Some(entry) = self.entry_mut(key) else {
            let value = Value::Text("1".to_owned());
            let expires_at = None;
            self.insert(key.to_owned(), Entry { value, expires_at });
            return Ok(Reply::Int(1));
        };
        let Value::Text(text) = &mut entry.value else {
            return Err(WRONG_TYPE.to_owned());
        };
        let number = integer(text)? + 1;
        *text = number.to_string();
        Ok(Reply::Int(number))
    }

    fn set(&mut self, key: &str, value: &str, ttl: i64) -> Outcome {
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
        let Some(entry) = self.entry_mut(key) else {
            return Reply::Int(0);
        };
        entry.expires_at = Some(end);
        if ttl <= 0 {
            self.keys.remove(key);
        }
        Reply::Int(1)
    }

    fn ttl(&self, key: &str) -> Reply {
        let ttl = match self.entry(key).map(|entry| entry.expires_at) {
            None => -2,
            Some(None) => -1,
            Some(Some(end)) => end - self.now_ms(),
        };
        Reply::Int(ttl)
    }
}
