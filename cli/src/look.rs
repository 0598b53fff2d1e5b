//! Commands that change nothing.

use crate::{
    arguments::KeyArguments,
    connect::failure,
    failure::Failure,
    json,
    output::{Output, escaped, line},
    progress::Progress,
    screen::Screen,
    table,
    tally::{Pages, Tally},
    text::{key, key_of, shown, whole},
};
use futures_util::StreamExt;
use serde_json::json;
use std::{
    fmt,
    time::{Duration, SystemTime},
};
use tokio::time::sleep;
use tower_semaphore::{
    Key, Operate, Policy, RedisSemaphore,
    semaphore::{KeyCounts, Usage},
};

pub(crate) async fn keys(
    store: &RedisSemaphore,
    policy: &str,
    output: Output,
) -> Result<(), Failure> {
    let (policy, mut count) = (Policy::from(policy), 0);
    let progress = Progress::new(!output.is_terminal);
    let mut pages = Pages::new(store, &policy);
    while let Some(page) = pages.next().await? {
        if count == 0 && !page.is_empty() && !output.is_json {
            output.text(&output.style().bold("UNITS  WAITING   PAUSED  KEY"))?;
        }
        count += page.len() as u64;
        let now = SystemTime::now();
        let lines = page.iter().map(|counts| line_of(counts, now, output));
        output.text(&lines.collect::<String>())?;
        progress.set(count);
    }
    match count {
        0 => Err(Failure::nothing(NO_KEY)),
        _ => Ok(()),
    }
}

const NO_KEY: &str = "no key of this policy has permits or waiters, or is paused";

fn line_of(counts: &KeyCounts, now: SystemTime, output: Output) -> String {
    if output.is_json {
        return line(&json::counts(counts));
    }
    let (units, waiting, key) = (counts.units, counts.waiting, key(&counts.key));
    let paused = table::paused(counts.pause.as_ref(), now);
    format!("{units:>5}  {waiting:>7}  {paused:>7}  {key}\n")
}

/// The policy and the key that the arguments name.
pub(crate) struct PolicyKey {
    pub(crate) policy: Policy,
    pub(crate) key: Key,
}

impl PolicyKey {
    pub(crate) fn new(arguments: &KeyArguments) -> Self {
        Self {
            policy: Policy::from(&*arguments.policy),
            key: key_of(&arguments.key),
        }
    }

    pub(crate) async fn usage(&self, store: &RedisSemaphore) -> Result<Usage, Failure> {
        let usage = store.usage(&self.policy, &self.key).await;
        usage.map_err(|error| Failure::store(&error))
    }

    fn text(&self, usage: &Usage, output: Output) -> String {
        table::usage(&self.to_string(), usage, output.style())
    }

    fn print(&self, usage: &Usage, output: Output) -> Result<(), Failure> {
        match output.is_json {
            true => output.text(&escaped(&usage.to_json())),
            false => output.text(&self.text(usage, output)),
        }
    }
}

/// The policy and the key, escaped for a terminal.
impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", shown(self.policy.as_str()), whole(&self.key))
    }
}

pub(crate) async fn usage(
    store: &RedisSemaphore,
    arguments: &KeyArguments,
    output: Output,
) -> Result<(), Failure> {
    let target = PolicyKey::new(arguments);
    let usage = target.usage(store).await?;
    let is_free = usage.held.is_empty() && usage.waiting.is_empty() && usage.budgets.is_empty();
    if is_free && usage.pause.is_none() {
        return Err(Failure::nothing(
            "nobody holds a permit of this key, or waits for one, and it is not paused",
        ));
    }
    target.print(&usage, output)
}

pub(crate) async fn watch(
    store: &RedisSemaphore,
    arguments: &KeyArguments,
    every: Duration,
    output: Output,
) -> Result<(), Failure> {
    let target = PolicyKey::new(arguments);
    if !output.is_live() {
        // Ends by a signal, or by an error such as a closed pipe.
        loop {
            target.print(&target.usage(store).await?, output)?;
            sleep(every).await;
        }
    }
    let mut screen = Screen::open()?;
    loop {
        screen.show(&target.text(&target.usage(store).await?, output))?;
        if !screen.wait_to_update(every).await? {
            return Ok(());
        }
    }
}

/// The lines of `top` that are not rows: the totals, and for each list an empty line and a heading.
const OTHER_LINES: u16 = 5;

pub(crate) async fn top(
    store: &RedisSemaphore,
    policy: &str,
    every: Duration,
    output: Output,
) -> Result<(), Failure> {
    let named = Policy::from(policy);
    let progress = Progress::new(true);
    let first = Tally::count(store, &named, rows(), |count| progress.set(count)).await?;
    drop(progress);
    if !output.is_live() {
        return print_top(&first, policy, output);
    }
    let (mut screen, mut tally) = (Screen::open()?, first);
    loop {
        screen.show(&tally.text(policy, output.style()))?;
        if !screen.wait_to_update(every).await? {
            return Ok(());
        }
        tally = Tally::count(store, &named, rows(), |_| ()).await?;
    }
}

/// The number of rows in each of the two lists, so that both fit on one screen.
fn rows() -> usize {
    let (_, height) = Screen::size();
    (usize::from(height.saturating_sub(OTHER_LINES)) / 2).max(1)
}

fn print_top(tally: &Tally, policy: &str, output: Output) -> Result<(), Failure> {
    if tally.keys == 0 {
        return Err(Failure::nothing(NO_KEY));
    }
    match output.is_json {
        true => output.json(&json::tally(tally)),
        false => output.text(&tally.text(policy, output.style())),
    }
}

pub(crate) async fn limits(store: &RedisSemaphore, output: Output) -> Result<(), Failure> {
    let (mut limits, mut all) = (Vec::new(), store.limits());
    while let Some(limit) = all.next().await {
        limits.push(limit.map_err(|error| Failure::store(&error))?);
    }
    limits.sort_by_key(|info| {
        let key = info.key.as_ref().map(key);
        (info.policy.as_str().to_owned(), key)
    });
    if limits.is_empty() {
        return Err(Failure::nothing("no limit is set"));
    }
    let table = || table::limits(&limits, SystemTime::now(), output.style());
    output.list(limits.iter().map(json::limit), table)
}

pub(crate) async fn processes(store: &RedisSemaphore, output: Output) -> Result<(), Failure> {
    let processes = store.processes().await;
    let mut processes = processes.map_err(|error| Failure::store(&error))?;
    processes.sort_by_cached_key(|process| (process.host.clone(), process.pid, process.id.clone()));
    if processes.is_empty() {
        return Err(Failure::nothing("no process is alive"));
    }
    let table = || table::processes(&processes, output.style());
    output.list(processes.iter().map(json::process), table)
}

pub(crate) async fn check(store: &RedisSemaphore, output: Output) -> Result<(), Failure> {
    let risks = store.check().await.map_err(|error| failure(&error))?;
    let risks: Vec<_> = risks.iter().map(ToString::to_string).collect();
    match (output.is_json, risks.is_empty()) {
        (true, _) => output.json(&json!({"risks": risks})),
        (false, true) => output.text("The server has all that an application needs."),
        (false, false) => {
            let lines = risks.iter().map(|risk| format!("risk: {}\n", shown(risk)));
            output.text(&lines.collect::<String>())
        }
    }
}
