//! What a process says of itself. See `presence.lua`.

use crate::semaphore::Process;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use redis::{Value, from_redis_value};

/// The longest part of a process's description, in characters.
const LONGEST: usize = 128;

/// A process, as far as it has said lately who it is.
pub(in crate::redis) fn process(id: &str, reply: Option<Value>) -> Process {
    let said = reply.and_then(|reply| from_redis_value::<(u64, String)>(reply).ok());
    read(id, &said.map(|(_, said)| said).unwrap_or_default())
}

/// `HOST PID NAME VERSION`, percent-encoded.
pub(in crate::redis) fn described(process: &Process) -> String {
    let pid = process.pid.map(|pid| pid.to_string());
    let parts = [&process.host, &pid, &process.name, &process.version];
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
