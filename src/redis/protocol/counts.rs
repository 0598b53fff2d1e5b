//! The commands that count what is held and waits, and list processes, and their replies.

use crate::redis::error::CallError;
use proto::verbs::{PauseEntry, millis};
use redis::{Cmd, Value, cmd, from_redis_value};

/// Asks how many units of a semaphore are held, how many entries its queue has, and which is the first, at this time in
/// ms of the server's clock.
pub(in crate::redis) fn counting(name: &str, now: u64) -> [Cmd; 3] {
    let count = |end| {
        let mut count = cmd("ZCOUNT");
        count.arg(format!("{name}{end}")).arg(format!("({now}"));
        count.arg("+inf").take()
    };
    let first = cmd("ZRANGE")
        .arg(format!("{name}:queue"))
        .arg(0)
        .arg(0)
        .take();
    [count(":held"), count(":alive"), first]
}

/// The counts of a semaphore, and its pause.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::redis) struct Counted {
    pub(in crate::redis) units: u32,
    pub(in crate::redis) waiting: u32,
    /// The pause, and its end in ms of the server's clock.
    pub(in crate::redis) pause: Option<(PauseEntry, u64)>,
}

/// Reads the three replies to [`counting`].
pub(in crate::redis) fn counted_at(
    now: u64,
    replies: &[Result<Value, CallError>],
) -> Result<Counted, CallError> {
    let [units, entries, first] = replies else {
        return Err(CallError::Reply);
    };
    let number = |reply: &Result<Value, CallError>| {
        from_redis_value::<u32>(reply.clone()?).map_err(|_| CallError::Reply)
    };
    let first: Vec<Vec<u8>> = from_redis_value(first.clone()?).map_err(|_| CallError::Reply)?;
    let pause = first.into_iter().find_map(|id| {
        let entry = PauseEntry::read(str::from_utf8(&id).ok()?)?;
        let ends = entry.since.saturating_add(entry.length);
        (ends > now).then_some((entry, ends))
    });
    Ok(Counted {
        units: number(units)?,
        waiting: number(entries)?.saturating_sub(u32::from(pause.is_some())),
        pause,
    })
}

/// Reads the reply to `TIME`, in ms.
pub(in crate::redis) fn now(time: Value) -> Result<u64, CallError> {
    let (seconds, micros): (i64, i64) = from_redis_value(time).map_err(|_| CallError::Reply)?;
    millis(seconds * 1_000 + micros / 1_000).ok_or(CallError::Reply)
}

/// The ids of the processes that are alive then, of all that are listed as `ID:LEASE` with their ends.
pub(in crate::redis) fn alive(list: Value, now: u64) -> Result<Vec<String>, CallError> {
    let list: Vec<(String, f64)> = from_redis_value(list).map_err(|_| CallError::Reply)?;
    let alive = list.into_iter().filter(|(_, ends)| *ends > now as f64);
    let ids = alive.filter_map(|(member, _)| Some(member.split_once(':')?.0.to_owned()));
    Ok(ids.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_its_end() {
        let list = ["a:1", "101", "b:1", "100", "strange", "900"];
        let list = list.map(|text| Value::BulkString(text.as_bytes().to_vec()));
        let ids = alive(Value::Array(list.into()), 100);
        assert_eq!(ids.expect("a list"), ["a"]);
    }
}
