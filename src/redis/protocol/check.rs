//! check: asks the server what it is, and whether it permits what the scripts do. See `check.lua`.

use super::{
    call::Protocol,
    script::{Form, Script},
};
use crate::redis::{error::Error, transport::Terms};
use redis::{Cmd, Value, cmd, from_redis_value};
use std::{sync::LazyLock, time::Instant};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("check.lua"), &[]));

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
        self.ready(&format!("{}{{check}}", self.prefix), deadline)
            .await?;
        let mut commands = vec![
            cmd("INFO"),
            self.check(Form::Hash, channel),
            self.check(Form::Source, channel),
        ];
        if self.is_confirmed() {
            commands.push(cmd("WAIT").arg(self.min_replicas).arg(WAIT_MS).take());
        }
        let answers = self.transport.send(commands, Terms::by(deadline)).await?;
        let mut answers = answers.into_iter();
        let info = answers.next().ok_or(Error::Reply)?;
        let mut failed = Vec::new();
        for (name, answer) in ["EVALSHA", "EVAL", "WAIT"].into_iter().zip(answers) {
            match answer {
                Ok(Value::Int(have)) if have < i64::from(self.min_replicas) => {
                    let said = format!("only {have} replicas have what was written");
                    failed.push((name.to_owned(), said));
                }
                Ok(Value::Int(_)) => {}
                Ok(answer) => {
                    let pairs: Vec<_> = from_redis_value(answer).map_err(|_| Error::Reply)?;
                    failed.extend(pairs);
                }
                Err(error) if error.is_no_script() => {}
                Err(Error::Redis(error)) if error.code().is_some() => {
                    let said = error.detail().unwrap_or_default();
                    failed.push((name.to_owned(), said.to_owned()));
                }
                Err(error) => return Err(error),
            }
        }
        let info = info.ok().and_then(|info| from_redis_value(info).ok());
        Ok(Inspected { info, failed })
    }

    fn check(&self, form: Form, channel: &str) -> Cmd {
        let mut command = SCRIPT.call(form, 5, 0);
        let key = |name: &str| format!("{}{{check}}:{name}", self.prefix);
        command.arg(2).arg(key("probe")).arg(key("number"));
        command.arg(channel);
        command
    }
}
