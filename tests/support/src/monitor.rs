//! What the scripts do, as `MONITOR` shows it.

use super::{redis::RedisServer, resp::Raw};

/// A connection that reads `MONITOR`.
pub struct Monitor(Raw);

/// One call of a script: its arguments, and the commands that it ran.
#[derive(Debug, Default)]
pub struct Call {
    /// The call itself, from its name on.
    pub args: Vec<String>,
    /// The commands that it ran.
    pub commands: Vec<Vec<String>>,
}

/// Whether a command changes nothing.
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
    /// Whether an argument names this.
    pub fn names(&self, key: &str) -> bool {
        self.args.iter().any(|arg| arg.contains(key))
    }
}

impl Monitor {
    /// Reads from now on.
    pub async fn start(server: &RedisServer) -> Self {
        let mut raw = Raw::connect(server.port()).await;
        raw.cmd(&["MONITOR"]).await;
        Self(raw)
    }

    /// The calls of scripts until now.
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

    /// Whether a command was run by a script, and its words.
    async fn next(&mut self) -> (bool, Vec<String>) {
        let seen = self.0.next().await.expect("the server sends it");
        // 1700000000.000000 [0 lua] "ZADD" "key" "1" "member"
        let (head, words) = seen.text().split_once("] ").expect("a command");
        let words = words.trim_matches('"').split("\" \"");
        (head.ends_with("lua"), words.map(str::to_owned).collect())
    }
}
