//! check: what the server is, and whether it permits what the scripts do. See `check.lua`.

use super::script::{Form, Script};
use crate::redis::error::Error;
use redis::{Cmd, RedisError, Value, cmd, from_redis_value, make_extension_error};
use std::sync::LazyLock;
#[cfg(not(tower_semaphore_core))]
use {
    super::call::Protocol,
    crate::redis::transport::{Place, SAMPLES, Terms},
    futures_util::future::{join, join_all},
    std::{collections::BTreeSet, time::Instant},
};

static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new("check", include_str!("check.lua"), &[]));

/// The question whose answer is all that fails.
const CHECK: &str = "EVAL";

/// What a server says of itself and of this client's rights.
pub(in crate::redis) struct Inspected {
    /// The answer to `INFO`.
    pub(in crate::redis) info: Result<String, Error>,
    /// The commands that failed, each with its error.
    pub(in crate::redis) failed: Vec<(String, Error)>,
    /// Whether all commands work on a server.
    pub(in crate::redis) works: bool,
}

impl Inspected {
    pub(in crate::redis) fn new(
        info: Result<String, Error>,
        answers: impl Iterator<Item = (String, Result<Value, Error>)>,
    ) -> Self {
        let (mut failed, mut works) = (Vec::new(), false);
        for (name, answer) in answers {
            let failures = failures(&name, answer);
            works |= name == CHECK && failures.is_empty();
            failed.extend(failures);
        }
        Self {
            info,
            failed,
            works,
        }
    }
}

#[cfg(not(tower_semaphore_core))]
impl Protocol {
    /// What the servers of this store are.
    pub(in crate::redis) fn place(&self) -> Place {
        self.transport.place()
    }

    /// Runs `INFO`, and each command that a script needs, on a key of each part. `channel` is that of this
    /// process.
    pub(in crate::redis) async fn inspect(
        &self,
        channel: &str,
        deadline: Instant,
    ) -> Result<Inspected, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        let probes = self.reached(self.probes(), deadline - left / 2).await?;
        let own = vec![self.processes_key(), self.clock_key()];
        // What cannot be reached now is on a server that is down.
        let own = self.reached(own, deadline - left / 2).await;
        let questions = self.questions(channel, &probes, &own.unwrap_or_default());
        let (names, commands): (Vec<_>, _) = questions.into_iter().unzip();
        // Before the deadline, so that one silent node leaves time for what the others say.
        let bound = Terms::by(deadline - left / 4);
        let replicas = self.min_replicas;
        // `INFO` travels alone, because with too few replicas no other answer counts.
        let terms = Terms { replicas, ..bound };
        let info = self.transport.send(vec![cmd("INFO")], bound);
        let (info, answers) = join(info, self.transport.send(commands, terms)).await;
        let info = info.and_then(|mut info| info.pop().unwrap_or(Err(Error::Reply)));
        let info = info.and_then(|info| from_redis_value(info).map_err(|_| Error::Reply));
        Ok(Inspected::new(info, names.into_iter().zip(answers?)))
    }

    /// Those of the keys whose servers can be reached until then, or why none can.
    async fn reached(&self, keys: Vec<String>, deadline: Instant) -> Result<Vec<String>, Error> {
        // Not observed, as the answers are not: this may be the only runtime that cannot connect.
        let ready = async |key: String| match self.transport.ready(&key, deadline) {
            Some(ready) => ready.await.map(|()| key),
            None => Ok(key),
        };
        let mut error = None;
        let outcomes = join_all(keys.into_iter().map(ready)).await.into_iter();
        let reached = outcomes.filter_map(|outcome| outcome.map_err(|e| error = Some(e)).ok());
        let reached: Vec<_> = reached.collect();
        match error {
            Some(error) if reached.is_empty() => Err(error),
            _ => Ok(reached),
        }
    }

    /// Keys of a check, one of each part.
    fn probes(&self) -> Vec<String> {
        let keys = (0..SAMPLES).map(|number| format!("{}{{check{number}}}", self.owner.prefix));
        let mut parts = BTreeSet::new();
        keys.filter(|key| parts.insert(self.transport.part_of(key)))
            .collect()
    }

    /// Commands, and what they are called in an error.
    fn questions(&self, channel: &str, probes: &[String], own: &[String]) -> Vec<(String, Cmd)> {
        let probes = probes.iter().flat_map(|key| questions(key, channel));
        let own = own
            .iter()
            .map(|key| own_question(key, *key == self.clock_key()));
        probes.chain(own).collect()
    }

    /// Fails if a server says that another one has some of the keys: one node of a cluster of several.
    pub(in crate::redis) async fn elsewhere(&self, deadline: Instant) -> Result<(), Error> {
        let commands = (0..SAMPLES).map(|number| elsewhere(&self.owner.prefix, number));
        let terms = Terms::by(deadline);
        let answers = self.transport.send(commands.collect(), terms).await?;
        let errors = answers.into_iter().filter_map(Result::err);
        let mut moved = errors.filter(Error::is_moving);
        moved.next().map_or(Ok(()), Err)
    }
}

/// What a server is asked on keys that begin with this: commands, and what they are called in an error.
pub(in crate::redis) fn questions(key: &str, channel: &str) -> [(String, Cmd); 2] {
    [("EVALSHA", Form::Hash), (CHECK, Form::Source)].map(|(name, form)| {
        let mut command = SCRIPT.call(form, 5, 0);
        let key = |name: &str| format!("{key}:{name}");
        command.arg(2).arg(key("probe")).arg(key("number"));
        command.arg(channel);
        (name.to_owned(), command)
    })
}

/// Reads a key of the store itself: that of the highest time, or of the processes.
pub(in crate::redis) fn own_question(key: &str, is_clock: bool) -> (String, Cmd) {
    let read = if is_clock { "GET" } else { "ZCARD" };
    let mut command = SCRIPT.call(Form::Source, 5, 0);
    command.arg(1).arg(key).arg("").arg(read);
    (key.to_owned(), command)
}

/// Finds out whether another server has this one of the samples of keys.
pub(in crate::redis) fn elsewhere(prefix: &str, number: usize) -> Cmd {
    let key = format!("{prefix}{{{number}}}");
    cmd("EVAL").arg("return 0").arg(1).arg(key).take()
}

/// The commands that failed in a script, or the script itself, each with its error.
fn failures(name: &str, answer: Result<Value, Error>) -> Vec<(String, Error)> {
    let answer = answer.and_then(|answer| from_redis_value(answer).map_err(|_| Error::Reply));
    let failed: Vec<(String, String)> = match answer {
        Ok(failed) => failed,
        Err(error) if error.is_no_script() => Vec::new(),
        Err(error) => return vec![(name.to_owned(), error)],
    };
    let failed = failed.into_iter();
    failed
        .map(|(command, said)| (command, Error::Redis(of_script(&said))))
        .collect()
}

/// The error of a command in a script, which comes as text: `CODE text`, and before Redis 7 `-CODE text`
/// or only text, behind the place in the script.
fn of_script(said: &str) -> RedisError {
    let said = said.trim_start_matches("ERR ");
    let text = match said.strip_prefix('@').and_then(|_| said.split_once(": ")) {
        Some((_, rest)) => rest.split_once(": ").map_or(rest, |(_, text)| text),
        None => said,
    };
    let is_code = |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase());
    let (code, text) = match text.trim_start_matches('-').split_once(' ') {
        Some((code, rest)) if is_code(code) => (code, rest),
        _ => ("ERR", text),
    };
    make_extension_error(code.to_owned(), Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::of_script;

    #[test]
    fn an_error_in_a_script_has_the_code_of_its_text() {
        for (said, code, text) in [
            ("NOREPLICAS Not enough", "NOREPLICAS", "Not enough"),
            ("ERR The user can't", "ERR", "The user can't"),
            ("-MISCONF Errors", "MISCONF", "Errors"),
            ("@user_script: 7: -OOM too much", "OOM", "too much"),
            ("@user_script: 7: The user can't", "ERR", "The user can't"),
        ] {
            let error = of_script(said);
            assert_eq!((error.code(), error.detail()), (Some(code), Some(text)));
        }
    }
}
