//! presence: whether a process lives and who it is, and the server's clock. See `presence.lua`.

#[cfg(tower_semaphore_core)]
use super::script::Form;
use super::{command::Verb, id::Owner, script::Script};
use crate::semaphore::Process;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use redis::{Cmd, Value, from_redis_value};
use std::{
    sync::LazyLock,
    time::{SystemTime, UNIX_EPOCH},
};
#[cfg(not(tower_semaphore_core))]
use {
    super::{
        answer,
        call::{Call, Protocol},
        reply::{Reply, micros},
        share::{Numbers, Share},
    },
    crate::redis::error::Error,
    futures_util::future::join_all,
    std::{iter, time::Instant},
};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::of(Verb::Presence));

#[cfg(not(tower_semaphore_core))]
/// How long a probe's own count lasts, in ms: it is of no use.
const PROBE_MS: u64 = 100;

/// The longest part of what a process says of itself, in bytes.
const LONGEST: usize = 128;

#[cfg(not(tower_semaphore_core))]
/// A key, what it is, and what a process says there.
struct Part {
    key: String,
    part: &'static str,
    value: String,
}

#[cfg(not(tower_semaphore_core))]
impl Share for Part {
    fn names(&self) -> impl Iterator<Item = &str> {
        iter::once(&*self.key)
    }

    fn args(&self) -> usize {
        2
    }

    fn units(&self) -> usize {
        0
    }

    fn write(&self, _: &Owner, _: &Numbers<'_>, command: &mut Cmd) {
        command.arg(self.part).arg(&self.value);
    }

    fn items(&self, _: Option<&Value>) -> usize {
        1
    }
}

#[cfg(not(tower_semaphore_core))]
impl Protocol {
    /// The key of the highest time.
    pub(in crate::redis) fn clock_key(&self) -> String {
        format!("{}clock", self.owner.prefix)
    }

    /// The key in which processes are counted.
    pub(in crate::redis) fn processes_key(&self) -> String {
        format!("{}processes", self.owner.prefix)
    }

    /// The key in which this process says who it is.
    pub(in crate::redis) fn own_process_key(&self) -> String {
        self.process_key(&self.owner.process)
    }

    fn process_key(&self, id: &str) -> String {
        format!("{}process:{id}", self.owner.prefix)
    }

    /// What other processes call this one.
    pub(in crate::redis) fn own_id(&self) -> &str {
        &self.owner.process
    }

    /// Reads the server's time, and exchanges the highest time that this process has seen for the
    /// highest that any process has seen.
    pub(in crate::redis) async fn clock(&self, deadline: Instant) -> Result<(), Error> {
        let part = Part {
            key: self.clock_key(),
            part: "clock",
            value: self.clock.floor().to_string(),
        };
        let highest = self.part(&part, (self.owner.lease_ms, false), deadline);
        self.clock.raise(micros(number(&highest.await?)?)?);
        Ok(())
    }

    /// Says that this process is alive. Returns how many are.
    pub(in crate::redis) async fn live(&self, deadline: Instant) -> Result<u32, Error> {
        let lease_ms = self.owner.lease_ms;
        self.count(self.processes_key(), lease_ms, deadline).await
    }

    /// Says that this process leaves.
    pub(in crate::redis) async fn leave(&self, deadline: Instant) -> Result<u32, Error> {
        self.count(self.processes_key(), 0, deadline).await
    }

    /// Finds out whether the node of a semaphore or of another key can work, by a count of its own that
    /// ends soon. `None` if there is only one server, or no key.
    pub(in crate::redis) fn probe(
        &self,
        key: &str,
        deadline: Instant,
    ) -> Option<impl Future<Output = Result<u32, Error>>> {
        if self.is_one_server() || key.is_empty() {
            return None;
        }
        // As a hash tag the whole name of a key has the slot of that key.
        let key = match key.contains('{') {
            true => format!("{key}processes"),
            false => format!("{}{{{key}}}processes", self.owner.prefix),
        };
        Some(async move { self.count(key, PROBE_MS, deadline).await })
    }

    async fn count(&self, key: String, lease_ms: u64, deadline: Instant) -> Result<u32, Error> {
        let Owner {
            process,
            lease_ms: usual,
            ..
        } = &self.owner;
        let part = Part {
            key,
            part: "processes",
            value: format!("{process}:{usual}"),
        };
        let count = self.part(&part, (lease_ms, lease_ms > 0), deadline).await?;
        u32::try_from(number(&count)?).map_err(|_| Error::Reply)
    }

    /// Says who this process is, for eight leases.
    pub(in crate::redis) async fn introduce(&self, deadline: Instant) -> Result<(), Error> {
        let about = described(&Process::current());
        // A failure tells nothing of the store.
        let _ = self.about(&self.owner.process, about, deadline).await;
        Ok(())
    }

    /// Who these processes are, as far as they have said so lately. A failure tells nothing of them.
    pub(in crate::redis) async fn who(&self, ids: &[String], deadline: Instant) -> Vec<Process> {
        let calls = ids.iter().map(|id| self.about(id, String::new(), deadline));
        // One call each, side by side: their keys may live on several nodes.
        let answers = join_all(calls).await.into_iter();
        let both = ids.iter().zip(answers.map(Result::unwrap_or_default));
        both.map(|(id, text)| read(id, &text)).collect()
    }

    async fn about(&self, id: &str, value: String, deadline: Instant) -> Result<String, Error> {
        let part = Part {
            key: self.process_key(id),
            part: "process",
            value,
        };
        let said = self.part(&part, (self.owner.lease_ms, false), deadline);
        from_redis_value(said.await?).map_err(|_| Error::Reply)
    }

    /// Runs the script for one key. Returns the item behind the server's time.
    async fn part(
        &self,
        part: &Part,
        (lease_ms, is_confirmed): (u64, bool),
        deadline: Instant,
    ) -> Result<Value, Error> {
        let call = Call {
            script: &SCRIPT,
            head: &[lease_ms],
            deadline,
            is_confirmed,
        };
        let replies = self.run(&call, std::slice::from_ref(part)).await;
        match replies.into_iter().next() {
            Some(Ok(Reply::Items(_, mut items))) => items.pop().ok_or(Error::Reply),
            Some(Err(error)) => Err(error),
            _ => Err(Error::Reply),
        }
    }
}

#[cfg(not(tower_semaphore_core))]
fn number(item: &Value) -> Result<i64, Error> {
    answer::Reply::integer(item).ok_or(Error::Reply)
}

#[cfg(tower_semaphore_core)]
impl Owner {
    /// The keys of the store itself: of the highest time, and of the processes.
    pub(in crate::redis) fn keys(&self) -> [String; 2] {
        ["clock", "processes"].map(|part| format!("{}{part}", self.prefix))
    }

    /// The key in which this process says who it is.
    pub(in crate::redis) fn process_key(&self) -> String {
        format!("{}process:{}", self.prefix, self.process)
    }

    /// The key in which a process says who it is, and the question who it is.
    pub(in crate::redis) fn who(&self, id: &str) -> (String, Cmd) {
        let key = format!("{}process:{id}", self.prefix);
        let mut command = SCRIPT.call(Form::Source, 8, 0);
        command.arg(1).arg(&key);
        command.arg(self.lease_ms).arg(2).arg("process").arg("");
        (key, command)
    }
}

#[cfg(tower_semaphore_core)]
/// A process, as far as it has said lately who it is.
pub(in crate::redis) fn process(id: &str, reply: Option<Value>) -> Process {
    let said = reply.and_then(|reply| from_redis_value::<(u64, String)>(reply).ok());
    read(id, &said.map(|(_, said)| said).unwrap_or_default())
}

/// `HOST PID NAME VERSION SINCE`, percent-encoded; SINCE is when it said so first, in seconds of Unix time.
pub(in crate::redis) fn described(process: &Process) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default().as_secs().to_string();
    let pid = process.pid.map(|pid| pid.to_string());
    let parts = [
        &process.host,
        &pid,
        &process.name,
        &process.version,
        &Some(since),
    ];
    let parts = parts.map(|part| encoded(part.as_deref().unwrap_or_default()));
    parts.join(" ")
}

fn encoded(part: &str) -> String {
    let short: String = part.chars().take(LONGEST).collect();
    utf8_percent_encode(&short, NON_ALPHANUMERIC).to_string()
}

fn read(id: &str, text: &str) -> Process {
    let mut parts = text.split(' ').map(|part| {
        let part = percent_decode_str(part).decode_utf8_lossy().into_owned();
        Some(part).filter(|part| !part.is_empty())
    });
    let mut next = || parts.next().flatten();
    let mut process = Process::new(id);
    process.host = next();
    process.pid = next().and_then(|pid| pid.parse().ok());
    process.name = next();
    process.version = next();
    process
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_says_of_itself_is_read_back() {
        let mut process = Process::new("p");
        process.host = Some("web 1\n\u{fc}%".to_owned());
        process.pid = Some(4_711);
        assert_eq!(read("p", &described(&process)), process);
    }

    #[test]
    fn what_says_nothing_is_a_process_of_which_nothing_is_known() {
        for text in ["", " ", "    ", " x y"] {
            assert_eq!(read("p", text).pid, None, "{text:?}");
        }
    }
}
