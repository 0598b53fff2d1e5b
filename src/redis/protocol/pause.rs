//! pause: closes a semaphore until a time, or opens it. See `pause.lua`.

use super::script::{Form, Script};
use crate::semaphore::Pause;
use proto::verbs::{Digits, Owner, Verb, decoded, encoded, number};
use redis::Cmd;
use std::{fmt, sync::LazyLock};

static PAUSE: LazyLock<Script> = LazyLock::new(|| Script::of(Verb::Pause));

/// The flow of a pause's entry, which no claim can have.
const FLOW: &str = "!";

/// A call that pauses a semaphore or ends its pause.
pub(in crate::redis) struct PauseCall<'a> {
    /// The prefix of the semaphore's keys.
    pub(in crate::redis) name: &'a str,
    /// The least token of a semaphore that has none yet, in microseconds.
    pub(in crate::redis) floor: u64,
    /// `None` ends the pause.
    pub(in crate::redis) pause: Option<&'a Pause>,
}

impl PauseCall<'_> {
    pub(in crate::redis) fn command(&self, owner: &Owner, form: Form) -> Cmd {
        let millis = self.pause.map_or(0, |pause| pause.time.as_millis() as u64);
        let note = self.pause.and_then(|pause| pause.note.as_deref());
        let note = encoded(note.unwrap_or_default().as_bytes());
        let process = &owner.process;
        let before = format!("{process}.0.0.0.0.1.{}.", Digits::<36>(millis));
        let behind = format!(".1.{FLOW}.{note}");
        let args: [&dyn fmt::Display; 5] = [&self.floor, &millis, &2, &before, &behind];
        PAUSE.run_for(form, self.name, &args)
    }
}

/// The entry of a pause, as its id describes it. Times are ms of the server's clock.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::redis) struct PauseEntry {
    pub(in crate::redis) since: u64,
    pub(in crate::redis) length: u64,
    pub(in crate::redis) note: Option<String>,
}

impl PauseEntry {
    /// `None` if the text is not the id of a pause.
    pub(in crate::redis) fn read(id: &str) -> Option<Self> {
        let parts: Vec<_> = id.split('.').collect();
        let [_, "0", "0", "0", "0", "1", length, since, "1", FLOW, note] = parts[..] else {
            return None;
        };
        let note = String::from_utf8(decoded(note)).ok()?;
        Some(Self {
            since: since.parse().ok()?,
            length: number(length)?,
            note: Some(note).filter(|note| !note.is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The id that the script builds.
    fn id(pause: &Pause, now: u64) -> String {
        let owner = Owner {
            process: "0a9ZKq".into(),
            lease_ms: 10_000,
            prefix: "semaphore:2:".to_owned(),
            about: String::new(),
        };
        let pausing = PauseCall {
            name: "a",
            floor: 0,
            pause: Some(pause),
        };
        let command = pausing.command(&owner, Form::Hash);
        let args: Vec<_> = command.args_iter().collect();
        let text = |at: usize| match &args[args.len() - at] {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        format!("{}{now}{}", text(2), text(1))
    }

    #[test]
    fn the_entry_of_a_pause_is_read_as_it_was_written() {
        for note in [None, Some("429: Retry-After 30.5"), Some("a.b!c~\u{1f600}")] {
            let time = Duration::from_secs(30);
            let note = note.map(str::to_owned);
            let pause = Pause { time, note };
            let read = PauseEntry::read(&id(&pause, 1_795_345_200_123));
            let (since, length, note) = (1_795_345_200_123, 30_000, pause.note);
            assert_eq!(
                read,
                Some(PauseEntry {
                    since,
                    length,
                    note
                })
            );
        }
        for other in [
            "",
            "0a9ZKq.q.0.0.5.1.7ps.mwrq6ebf...",
            "a.0.0.0.0.1.1.x.1.!.",
        ] {
            assert_eq!(PauseEntry::read(other), None, "{other}");
        }
    }
}
