//! The commands of scripts, as `MONITOR` shows them.

use super::{redis::RedisServer, resp::Raw};

/// A connection that reads `MONITOR`.
pub struct Monitor(Raw);

/// One call of a script.
#[derive(Debug, Default)]
pub struct Call {
    /// The words of the call, beginning with the command's name.
    pub args: Vec<String>,
    /// The commands that the script ran.
    pub commands: Vec<Vec<String>>,
}

/// Returns true if a command changes nothing.
pub fn is_read(command: &[String]) -> bool {
    const READS: [&str; 8] = [
        "TIME",
        "EXISTS",
        "GET",
        "PTTL",
        "ZCARD",
        "ZRANGE",
        "ZRANGEBYSCORE",
        "ZSCORE",
    ];
    READS.contains(&&*command[0])
}

impl Call {
    /// Returns true if an argument contains this key.
    pub fn names(&self, key: &str) -> bool {
        self.args.iter().any(|arg| arg.contains(key))
    }

    /// Returns true if the call contains a poll: a claim that was sent before has -1 in place of its limit.
    pub fn is_poll(&self) -> bool {
        self.args.iter().any(|arg| arg.starts_with("-1 "))
    }
}

impl Monitor {
    /// Connects and starts `MONITOR`.
    pub async fn start(server: &RedisServer) -> Self {
        let mut raw = Raw::connect(server.port()).await;
        raw.cmd(&["MONITOR"]).await;
        Self(raw)
    }

    /// The calls of scripts since the start, or since this function was called last.
    pub async fn calls(&mut self, raw: &mut Raw) -> Vec<Call> {
        raw.cmd(&["ECHO", "end-of-calls"]).await;
        let mut calls = Vec::new();
        loop {
            let (is_inside, words) = self.next().await;
            match words[0].to_ascii_uppercase().as_str() {
                "ECHO" => return calls,
                name if is_inside => {
                    let words = [vec![name.to_owned()], words[1..].to_vec()].concat();
                    let call: &mut Call = calls.last_mut().expect("a script runs");
                    call.commands.push(words);
                }
                "EVAL" | "EVALSHA" => calls.push(Call {
                    args: words,
                    commands: Vec::new(),
                }),
                _ => {}
            }
        }
    }

    /// Reads the next command. Returns true if a script ran it, and its words.
    async fn next(&mut self) -> (bool, Vec<String>) {
        let seen = self.0.next().await.expect("the server sends it");
        // 1700000000.000000 [0 lua] "ZADD" "key" "1" "member"
        let (head, words) = seen.text().split_once("] ").expect("a command");
        let words = words.trim_matches('"').split("\" \"");
        (head.ends_with("lua"), words.map(str::to_owned).collect())
    }
}
