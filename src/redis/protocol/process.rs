//! process: who a process is. See `process.lua`.

use super::{
    call::{Call, Protocol},
    id::Owner,
    reply::Reply,
    script::Script,
    share::{Numbers, Share},
};
use crate::{redis::error::Error, semaphore::Process};
use futures_util::future::join_all;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use redis::{Cmd, Value, from_redis_value};
use std::{
    iter,
    sync::LazyLock,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Concatenated at compile time.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(include_str!("common.lua"), include_str!("process.lua"));
    // The name of the key is whole already.
    Script::new("process", source, &[""])
});

/// The longest part of what a process says of itself, in bytes.
const LONGEST: usize = 128;

/// A key, and what a process says there of itself. Nothing: it is asked.
struct About {
    key: String,
    text: Option<String>,
}

impl Share for About {
    fn names(&self) -> impl Iterator<Item = &str> {
        iter::once(&*self.key)
    }

    fn args(&self) -> usize {
        usize::from(self.text.is_some())
    }

    fn units(&self) -> usize {
        1
    }

    fn write(&self, _: &Owner, _: &Numbers<'_>, command: &mut Cmd) {
        if let Some(text) = &self.text {
            command.arg(text);
        }
    }

    fn items(&self, _: Option<&Value>) -> usize {
        1
    }
}

impl Protocol {
    /// Says who this process is, for eight leases.
    pub(in crate::redis) async fn introduce(&self, deadline: Instant) -> Result<(), Error> {
        let about = About {
            key: self.process_key(&self.owner.process),
            text: Some(described(&Process::current())),
        };
        self.about(&[about], deadline).await.pop();
        Ok(())
    }

    /// What other processes call this one.
    pub(in crate::redis) fn own_id(&self) -> &str {
        &self.owner.process
    }

    /// The key in which this process says who it is.
    pub(in crate::redis) fn own_process_key(&self) -> String {
        self.process_key(&self.owner.process)
    }

    /// Who these processes are, as far as they have said so lately. A failure tells nothing of them.
    pub(in crate::redis) async fn who(&self, ids: &[String], deadline: Instant) -> Vec<Process> {
        let asked: Vec<_> = ids
            .iter()
            .map(|id| About {
                key: self.process_key(id),
                text: None,
            })
            .collect();
        let answers = self.about(&asked, deadline).await.into_iter();
        let answers = answers.map(Result::unwrap_or_default);
        let both = ids.iter().zip(answers);
        both.map(|(id, text)| read(id, &text)).collect()
    }

    async fn about(&self, about: &[About], deadline: Instant) -> Vec<Result<String, Error>> {
        let call = Call {
            script: &SCRIPT,
            head: &[self.owner.lease_ms],
            deadline,
            is_confirmed: false,
        };
        // One call each, side by side: the script has one key.
        let calls = about.chunks(1).map(|one| self.run(&call, one));
        let answers = join_all(calls).await.into_iter().flatten();
        answers.map(|reply| reply.and_then(text_of)).collect()
    }

    fn process_key(&self, id: &str) -> String {
        format!("{}process:{id}", self.owner.prefix)
    }
}

fn text_of(reply: Reply) -> Result<String, Error> {
    let Reply::Items(_, mut items) = reply else {
        return Err(Error::Reply);
    };
    let text = items.pop().map(from_redis_value).transpose();
    text.ok().flatten().ok_or(Error::Reply)
}

/// `HOST PID NAME VERSION SINCE`, percent-encoded; SINCE is when it said so, in seconds of Unix time.
fn described(process: &Process) -> String {
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
