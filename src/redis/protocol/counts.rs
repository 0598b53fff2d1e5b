//! The commands that count permits and waiters, and the replies to these and to the list of processes.

use crate::redis::error::CallError;
use proto::verbs::{PauseEntry, millis};
use redis::{Cmd, Value, cmd, from_redis_value};

/// The commands that count a semaphore's held units and live entries (waiters and the pause), and read the first entry
/// of its queue. `now` is ms of the server's clock.
pub(in crate::redis) fn count_commands(name: &str, now: u64) -> [Cmd; 3] {
    let count = |suffix| {
        let mut count = cmd("ZCOUNT");
        count.arg(format!("{name}{suffix}")).arg(format!("({now}"));
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
pub(in crate::redis) struct SemaphoreCounts {
    pub(in crate::redis) units: u32,
    pub(in crate::redis) waiting: u32,
    /// The pause, and its end in ms of the server's clock.
    pub(in crate::redis) pause: Option<(PauseEntry, u64)>,
}

/// Reads the replies to [`count_commands`]. A pause is the first entry of the queue, and is left out if it has ended by
/// `now`.
pub(in crate::redis) fn read_counts(
    now: u64,
    replies: &[Result<Value, CallError>],
) -> Result<SemaphoreCounts, CallError> {
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
    Ok(SemaphoreCounts {
        units: number(units)?,
        waiting: number(entries)?.saturating_sub(u32::from(pause.is_some())),
        pause,
    })
}

/// Reads the reply to `TIME`, in ms.
pub(in crate::redis) fn read_time(time: Value) -> Result<u64, CallError> {
    let (seconds, micros): (i64, i64) = from_redis_value(time).map_err(|_| CallError::Reply)?;
    millis(seconds * 1_000 + micros / 1_000).ok_or(CallError::Reply)
}

/// The ids of processes whose leases end after `now`. The list has members `ID:LEASE`, and the ends as scores.
pub(in crate::redis) fn live_processes(list: Value, now: u64) -> Result<Vec<String>, CallError> {
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
        let ids = live_processes(Value::Array(list.into()), 100);
        assert_eq!(ids.expect("a list"), ["a"]);
    }
}
