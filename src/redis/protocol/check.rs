//! check: what the server is, and whether it permits what the scripts do. See `check.lua`.

use super::{
    call::Protocol,
    script::{Form, Script},
};
use crate::redis::{error::Error, transport::Terms};
use futures_util::future::join_all;
use redis::{Cmd, Value, cmd, from_redis_value};
use std::{sync::LazyLock, time::Instant};

static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new("check", include_str!("check.lua"), &[]));

/// How long replicas may take to tell what they have.
const WAIT_MS: u32 = 100;

/// What a server says of itself and of this client's rights.
pub(in crate::redis) struct Inspected {
    /// The answer to `INFO`; `None` if the server does not permit it.
    pub(in crate::redis) info: Option<String>,
    /// The commands that failed, each with its error.
    pub(in crate::redis) failed: Vec<(String, String)>,
}

impl Protocol {
    /// Runs `INFO`, and each command that a script needs. `channel` is that of this process.
    pub(in crate::redis) async fn inspect(
        &self,
        channel: &str,
        deadline: Instant,
    ) -> Result<Inspected, Error> {
        // Not observed, as the answers are not: this may be the only runtime that cannot connect.
        let ready = async |key: &str, deadline| match self.transport.ready(key, deadline) {
            Some(ready) => ready.await,
            None => Ok(()),
        };
        ready(&format!("{}{{check}}", self.prefix), deadline).await?;
        let own = [self.processes_key(), self.clock_key()];
        // Without a connection to their nodes, the reads say so.
        let soon = deadline - deadline.saturating_duration_since(Instant::now()) / 2;
        join_all(own.iter().map(|key| ready(key, soon))).await;
        let commands = self.questions(channel, &own);
        let answers = self.transport.send(commands, Terms::by(deadline)).await?;
        let mut answers = answers.into_iter();
        let info = answers.next().ok_or(Error::Reply)?;
        let mut failed = Vec::new();
        for (name, answer) in ["EVALSHA", "EVAL"].into_iter().zip(&mut answers) {
            failed.extend(failures(name, answer)?);
        }
        for (key, answer) in own.into_iter().zip(&mut answers) {
            let failures = failures("EVAL", answer);
            failed.extend(failures.unwrap_or_else(|error| vec![(key, error.to_string())]));
        }
        if let Some(replicas) = answers.next() {
            failed.extend(self.lacks_replicas(replicas)?);
        }
        let info = info.ok().and_then(|info| from_redis_value(info).ok());
        Ok(Inspected { info, failed })
    }

    fn questions(&self, channel: &str, own: &[String; 2]) -> Vec<Cmd> {
        let mut commands = vec![
            cmd("INFO"),
            self.check(Form::Hash, channel),
            self.check(Form::Source, channel),
            self.check_own("ZCARD", &own[0]),
            self.check_own("GET", &own[1]),
        ];
        if self.is_confirmed() {
            commands.push(cmd("WAIT").arg(self.min_replicas).arg(WAIT_MS).take());
        }
        commands
    }

    /// What is wrong with the answer to `WAIT`.
    fn lacks_replicas(&self, answer: Result<Value, Error>) -> Result<Vec<(String, String)>, Error> {
        match answer {
            Ok(Value::Int(have)) if have < i64::from(self.min_replicas) => {
                let said = format!("only {have} replicas have what was written");
                Ok(vec![("WAIT".to_owned(), said)])
            }
            Ok(Value::Int(_)) => Ok(Vec::new()),
            answer => failures("WAIT", answer),
        }
    }

    fn check(&self, form: Form, channel: &str) -> Cmd {
        let mut command = SCRIPT.call(form, 5, 0);
        let key = |name: &str| format!("{}{{check}}:{name}", self.prefix);
        command.arg(2).arg(key("probe")).arg(key("number"));
        command.arg(channel);
        command
    }

    /// Reads a key of the store itself, which may live on another node.
    fn check_own(&self, read: &str, key: &str) -> Cmd {
        let mut command = SCRIPT.call(Form::Source, 5, 0);
        command.arg(1).arg(key).arg("").arg(read);
        command
    }
}

/// The commands that failed in a script, or the script itself, each with its error.
fn failures(name: &str, answer: Result<Value, Error>) -> Result<Vec<(String, String)>, Error> {
    match answer {
        Ok(answer) => from_redis_value(answer).map_err(|_| Error::Reply),
        Err(error) if error.is_no_script() => Ok(Vec::new()),
        Err(Error::Redis(error)) if error.code().is_some() => {
            let said = error.detail().unwrap_or_default();
            Ok(vec![(name.to_owned(), said.to_owned())])
        }
        Err(error) => Err(error),
    }
}
