//! The description that a process stores. See `presence.lua`.

use crate::semaphore::Process;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use redis::{Value, from_redis_value};

/// Longer parts are cut to this many characters.
const MAX_PART: usize = 128;

/// Reads the description of a process. Parts that are missing stay `None`.
pub(in crate::redis) fn read_process(id: &str, reply: Option<Value>) -> Process {
    let read_reply = reply.and_then(|reply| from_redis_value::<(u64, String)>(reply).ok());
    // The first item is the time of the server's clock.
    let (_, description) = read_reply.unwrap_or_default();
    read(id, &description)
}

/// `HOST PID NAME VERSION`, percent-encoded.
pub(in crate::redis) fn describe(process: &Process) -> String {
    let pid = process.pid.map(|pid| pid.to_string());
    let parts = [&process.host, &pid, &process.name, &process.version];
    let parts = parts.map(|part| encoded(part.as_deref().unwrap_or_default()));
    parts.join(" ")
}

fn encoded(part: &str) -> String {
    let short: String = part.chars().take(MAX_PART).collect();
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
    fn a_description_is_read_back() {
        let mut process = Process::new("p");
        process.host = Some("web 1\n\u{fc}%".to_owned());
        process.pid = Some(4_711);
        process.name = Some("n".to_owned());
        process.version = Some("1.2".to_owned());
        assert_eq!(read("p", &describe(&process)), process);
    }

    #[test]
    fn an_empty_description_leaves_every_part_unknown() {
        for text in ["", " ", "    "] {
            assert_eq!(read("p", text), Process::new("p"), "{text:?}");
        }
    }

    #[test]
    fn a_pid_that_is_no_number_is_left_out() {
        let process = read("p", "h x y");
        assert_eq!((process.pid, process.name.as_deref()), (None, Some("y")));
    }
}
