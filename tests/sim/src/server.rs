//! A server: the shipped scripts over the model's stand-in, with a separate clock.

use crate::{
    judge::Name,
    schedule::Data,
    subject::{Answer, Command, Key, Refused, Said, SlotNo},
    wire::{self, Script},
};
use model::{
    lua::Runner,
    scripts::{Scripts, Verb},
    stand_in::{Entry, NOT_LOCAL, Reply, Sorted, StandIn, Value},
};
use std::{collections::BTreeMap, time::Duration};

/// The time on every server's clock at the start, in microseconds.
const EPOCH: i64 = 1_700_000_000_000_000;

/// How long a server that starts takes to load its data.
const LOADING: Duration = Duration::from_millis(50);

/// The server does not know the script of one in this many commands.
const FLUSH: usize = 97;

/// The interval between the snapshots of a server.
const SNAPSHOT: Duration = Duration::from_millis(700);

/// The suffixes of a semaphore's keys.
const SUFFIXES: [&str; 4] = [":held", ":queue", ":alive", ":token"];

/// True if a key has a value of another type than the store writes.
fn is_foreign((key, entry): &(String, Entry)) -> bool {
    key.ends_with(":token") != matches!(entry.value, Value::Text(_))
}

/// Compiles scripts, for any number of simulations.
///
/// # Panics
///
/// If a script is not valid Lua.
pub fn compiled(scripts: &Scripts) -> Runner {
    Runner::new(scripts).expect("the scripts are Lua")
}

/// The scripts that ship.
pub fn shipped() -> Runner {
    compiled(&Scripts::shipped())
}

/// Members and scores, in the order of scores.
pub type Set = Vec<(String, i64)>;

/// The data of a semaphore on a server.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The units.
    pub held: Set,
    /// The waiters.
    pub queue: Set,
    /// When each waiter no longer counts as alive; and revocations.
    pub alive: Set,
    /// The pause, which the queue has before the waiters: its length and its end, in ms.
    pub pause: Option<(i64, i64)>,
    /// When the queue expires, in ms.
    pub expires: Option<i64>,
    /// The last token.
    pub token: u64,
}

/// The data of a budget on a server, beside its sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BudgetView {
    /// The units that are spent, the time in ms at which that was so, the units that are reserved, the limit, and how
    /// many parts of the last spent unit have returned. (A unit has one part for each ms of the window.) `None`: the
    /// hash has no state.
    pub state: Option<[i64; 5]>,
    /// The settled units of each reservation.
    pub settled: BTreeMap<String, i64>,
    /// When `held` and the state expire, in ms.
    pub expires: [Option<i64>; 2],
}

/// A run of a script, as seen from outside.
#[derive(Debug)]
pub struct Run {
    /// The process that sent the call.
    pub process: usize,
    /// The clock of the server, in microseconds.
    pub clock: i64,
    /// The command that ran.
    pub command: Command,
    /// The script that ran.
    pub script: Script,
    /// The budgets that it names, each before and after the run.
    pub budgets: Vec<(Key, BudgetView, BudgetView)>,
    /// The reply of the server.
    pub reply: Result<Reply, Refused>,
    /// The same reply, decoded.
    pub answer: Answer,
    /// The semaphores that the command names, each before and after the run.
    pub semaphores: Vec<(Key, View, View)>,
    /// True if the server has just started, or has just lost its scripts, so that it may not have run earlier commands.
    pub is_fresh: bool,
    /// The published messages, each after its channel.
    pub published: Vec<(String, String)>,
}

impl Run {
    /// The part of the run that the process receives.
    pub fn said(self) -> Said {
        Said {
            reply: self.reply,
            answer: self.answer,
        }
    }
}

/// A server.
#[derive(Debug, Default)]
pub struct Server {
    data: StandIn,
    /// Old data, and when it was stored.
    snapshot: (Duration, StandIn),
    /// The data of its replica while that receives nothing. `None`: the replica has the same data.
    replica: Option<StandIn>,
    /// How far its clock was ahead of the world's at the start, plus all steps of the clock, in microseconds.
    pub offset: i64,
    /// How much faster its clock runs, in parts per million.
    drift: i64,
    /// True if it runs.
    pub is_up: bool,
    /// When it has loaded its data.
    loaded: Duration,
    /// The number of commands that have come.
    commands_received: usize,
    /// When it last turned out not to know a script.
    flushed_at: Duration,
    /// How many of its next commands it does not run because it has lost its scripts.
    pub flushed: usize,
    /// True if the slot of the script that runs next is moving away.
    pub gives_away: bool,
    /// The end of its stall.
    pub paused_until: Duration,
    /// When it accepts connections again.
    pub denies_until: Duration,
    /// When Sentinels stop naming the server that it has replaced.
    pub disputed_until: Duration,
}

impl Server {
    /// Creates a server that runs.
    pub fn new((ahead, drift): (i64, i64)) -> Self {
        Self {
            offset: ahead * 1_000,
            drift,
            is_up: true,
            ..Self::default()
        }
    }

    /// The time on its clock, in microseconds.
    pub fn clock(&self, now: Duration) -> i64 {
        let micros = now.as_micros() as i64;
        EPOCH + micros + micros * self.drift / 1_000_000 + self.offset
    }

    /// True if it answers.
    pub fn is_ready(&self, now: Duration) -> bool {
        self.is_up && now >= self.loaded && now >= self.paused_until
    }

    /// Its replica receives nothing from now on.
    pub fn mute(&mut self) {
        self.replica.get_or_insert_with(|| self.data.clone());
    }

    /// Its replica receives everything again.
    pub fn unmute(&mut self) {
        self.replica = None;
    }

    /// The number of replicas that have everything that it has written.
    pub fn replicas(&self) -> u32 {
        u32::from(self.replica.is_none())
    }

    /// Its replica takes its place, and gets an up-to-date replica.
    pub fn fail_over(&mut self) {
        self.data = self
            .replica
            .take()
            .unwrap_or_else(|| std::mem::take(&mut self.data));
    }

    /// Starts again, with this data.
    pub fn start(&mut self, now: Duration, data: Data) {
        match data {
            Data::Same => {}
            Data::Old => self.data = self.snapshot.1.clone(),
            Data::Empty => self.data = StandIn::default(),
        }
        self.is_up = true;
        self.loaded = now + LOADING;
    }

    /// Runs a command of a process.
    ///
    /// # Errors
    ///
    /// If a script fails, or its reply is not as its header describes.
    pub fn run(
        &mut self,
        runner: &Runner,
        now: Duration,
        process: usize,
        (script, command): (&Script, &Command),
    ) -> Result<Run, String> {
        if now >= self.snapshot.0 + SNAPSHOT {
            self.snapshot = (now, self.data.clone());
        }
        self.data.now = self.clock(now);
        self.data.gives_away = self.gives_away;
        let before = self.views(script, command);
        let budgets = self.budgets(script);
        let (reply, answer) = match self.refuses(now) {
            Some(refused) => (Err(refused), Answer::Error(refused)),
            None => {
                let reply = runner.run(script.verb, &mut self.data, &script.keys, &script.args);
                match reply.map_err(|error| error.to_string()) {
                    Err(error) if error.contains("WRONGTYPE") => {
                        let refused = Refused::WrongType;
                        (Err(refused), Answer::Error(refused))
                    }
                    Err(error) if error.contains(NOT_LOCAL) => {
                        let refused = Refused::Midway;
                        (Err(refused), Answer::Error(refused))
                    }
                    reply => {
                        let reply = reply?;
                        let answer = command.decode(&reply)?;
                        (Ok(reply), answer)
                    }
                }
            }
        };
        let semaphores = before
            .into_iter()
            .map(|(key, view)| (key, view, self.view(key)));
        let semaphores = semaphores.collect();
        Ok(Run {
            process,
            clock: self.data.now,
            command: command.clone(),
            script: script.clone(),
            budgets: self.with_budgets_after(budgets),
            reply,
            answer,
            semaphores,
            is_fresh: now < self.loaded.max(self.flushed_at) + LOADING * 10,
            published: std::mem::take(&mut self.data.published),
        })
    }

    /// Runs an operator's revocation of an id. For the judge the run is a release by the owner, which has the same
    /// effect. Also returns true if the id was there.
    ///
    /// # Errors
    ///
    /// If the script fails, or its reply is not as its header describes.
    pub fn revoke(
        &mut self,
        runner: &Runner,
        now: Duration,
        key: Key,
        id: &str,
    ) -> Result<(Run, bool), String> {
        let name = Name::read(id).ok_or("an id that no process has")?;
        let command = Command::Release {
            with_answer: true,
            floor: 0,
            of: vec![(key, vec![name.id()])],
        };
        self.data.now = self.clock(now);
        self.data.gives_away = self.gives_away;
        let before = self.view(key);
        let script = wire::revocation(key, id);
        let budgets = self.budgets(&script);
        let reply = runner.run(script.verb, &mut self.data, &script.keys, &script.args);
        let reply = reply.map_err(|error| error.to_string())?;
        let was_there = match &reply {
            Reply::List(items) if items.len() == 2 => items[1] == Reply::Int(1),
            _ => return Err(format!("a strange reply {reply:?} to a revocation")),
        };
        let run = Run {
            process: name.process,
            clock: self.data.now,
            command,
            script,
            budgets: self.with_budgets_after(budgets),
            reply: Ok(reply),
            // By `Held` the judge knows that the script had no reason to look at the queue.
            answer: match was_there {
                true => Answer::Released,
                false => Answer::Held(vec![false]),
            },
            semaphores: vec![(key, before, self.view(key))],
            is_fresh: false,
            published: std::mem::take(&mut self.data.published),
        };
        Ok((run, was_there))
    }

    /// Runs the script that pauses a semaphore, or ends its pause. For the judge the run is a release of nothing. Also
    /// returns true if the semaphore is paused now or, when a pause is ended, if it was paused.
    ///
    /// # Errors
    ///
    /// If the script fails, or its reply is not as its header describes.
    pub fn pause(
        &mut self,
        runner: &Runner,
        now: Duration,
        (key, script): (Key, &Script),
    ) -> Result<(Run, bool), String> {
        let command = Command::Release {
            with_answer: true,
            floor: 0,
            of: vec![(key, Vec::new())],
        };
        self.data.now = self.clock(now);
        self.data.gives_away = self.gives_away;
        let before = self.view(key);
        let budgets = self.budgets(script);
        let reply = runner.run(Verb::Pause, &mut self.data, &script.keys, &script.args);
        let reply = reply.map_err(|error| error.to_string())?;
        let (is_expected, is_paused) = match &reply {
            Reply::List(items) if items.len() == 2 => (
                items[0] == Reply::Int(self.data.now / 1_000),
                items[1] == Reply::Int(1),
            ),
            _ => (false, false),
        };
        if !is_expected {
            return Err(format!("a strange reply {reply:?} to a pause"));
        }
        let run = Run {
            // Any process, because the release is of nothing.
            process: 0,
            clock: self.data.now,
            command,
            script: script.clone(),
            budgets: self.with_budgets_after(budgets),
            reply: Ok(reply),
            answer: Answer::Released,
            semaphores: vec![(key, before, self.view(key))],
            is_fresh: false,
            published: std::mem::take(&mut self.data.published),
        };
        Ok((run, is_paused))
    }

    /// Runs the script that lists the usage of a semaphore. Returns a unit that is held and not listed, if the list is
    /// incomplete.
    ///
    /// # Errors
    ///
    /// If the script fails, or its reply is not as its header describes.
    pub fn usage(
        &mut self,
        runner: &Runner,
        now: Duration,
        (key, script): (Key, &Script),
    ) -> Result<Option<String>, String> {
        self.data.now = self.clock(now);
        let reply = runner.run(Verb::Usage, &mut self.data, &script.keys, &script.args);
        let reply = reply.map_err(|error| error.to_string())?;
        let page = match &reply {
            Reply::List(items) => match &items[..] {
                [Reply::Int(_), Reply::List(held), _, _] => held.get(1),
                _ => None,
            },
            _ => None,
        };
        let Some(Reply::List(listed)) = page else {
            return Err(format!("a strange reply {reply:?} to a question of usage"));
        };
        let held = self.view(key).held.into_iter().map(|(id, _)| id);
        let mut missing = held.filter(|id| !listed.contains(&Reply::Text(id.clone())));
        Ok(missing.next())
    }

    /// Runs the script with which an operator sets the limit of a name, or removes it.
    ///
    /// # Errors
    ///
    /// If the script fails, or its reply is not as its header describes.
    pub fn set_limit(
        &mut self,
        runner: &Runner,
        now: Duration,
        name: &str,
        limit: Option<u32>,
    ) -> Result<(), String> {
        self.data.now = self.clock(now);
        let value = limit.map_or("-1".to_owned(), |limit| limit.to_string());
        // No note, and at most 10,000 limits.
        let args = [name.to_owned(), value, String::new(), "10000".to_owned()];
        let reply = runner.run(Verb::Limits, &mut self.data, &[wire::limits_key()], &args);
        let reply = reply.map_err(|error| error.to_string())?;
        match &reply {
            Reply::List(items) if items.get(1) == Some(&Reply::Int(1)) => Ok(()),
            _ => Err(format!("a strange reply {reply:?} to a limit")),
        }
    }

    /// Returns the reason why it does not run a command now, if any. From time to time, that is a script that it does
    /// not know.
    fn refuses(&mut self, now: Duration) -> Option<Refused> {
        self.commands_received += 1;
        if now < self.loaded {
            return Some(Refused::Loading);
        }
        let is_flushed = self.flushed > 0 || self.commands_received.is_multiple_of(FLUSH);
        self.flushed = self.flushed.saturating_sub(1);
        if is_flushed {
            self.flushed_at = now;
        }
        is_flushed.then_some(Refused::NoScript)
    }

    /// Removes and returns the keys of a slot. Each semaphore must have a separate slot.
    pub fn take(&mut self, slot: SlotNo) -> Vec<(String, Entry)> {
        let prefixes = wire::prefixes(slot).into_iter();
        prefixes
            .flat_map(|prefix| self.data.take(&prefix))
            .collect()
    }

    /// Adds the data of another server. This server's clock is `ahead` ms ahead of that one's.
    pub fn put(&mut self, now: Duration, entries: Vec<(String, Entry)>, ahead: i64) {
        // The clock may have been set back since the server last ran a command.
        self.data.now = self.clock(now);
        for (key, mut entry) in entries {
            entry.expires_at = entry.expires_at.map(|end| end + ahead);
            self.data.insert(key, entry);
        }
    }

    /// Another program writes a value of another type over the key with this suffix of a semaphore.
    pub fn poison(&mut self, key: Key, which: usize) {
        let suffix = SUFFIXES[which];
        let value = match suffix {
            ":token" => Value::Sorted(Sorted::default()),
            _ => Value::Text("x".to_owned()),
        };
        let expires_at = None;
        let entry = Entry { value, expires_at };
        self.data.insert(wire::name(key) + suffix, entry);
    }

    /// Deletes the values that another program has written to a semaphore, also in the replica and the snapshot, which
    /// could bring them back.
    pub fn cure(&mut self, key: Key) {
        let others = self.replica.iter_mut().chain([&mut self.snapshot.1]);
        for data in others.chain([&mut self.data]) {
            let own = data.take(&wire::name(key)).into_iter();
            for (name, entry) in own.filter(|entry| !is_foreign(entry)) {
                data.insert(name, entry);
            }
        }
    }

    /// True if a key of a semaphore has another program's value.
    pub fn is_poisoned(&self, key: Key) -> bool {
        let name = wire::name(key);
        let own = self.data.entries();
        let mut own = own.filter(|(full, _)| full.starts_with(&name));
        own.any(|(full, entry)| is_foreign(&(full.clone(), entry.clone())))
    }

    /// True if it has a key.
    pub fn has_key(&self, now: Duration, key: &str) -> bool {
        let ms = self.clock(now) / 1_000;
        let entry = self.data.key(key);
        entry.is_some_and(|entry| entry.expires_at.is_none_or(|end| ms < end))
    }

    /// The data of the semaphores that a command names.
    fn views(&self, script: &Script, command: &Command) -> BTreeMap<Key, View> {
        let mut keys: Vec<_> = command.ids().into_iter().map(|(key, _)| key).collect();
        if let Command::Budgets { .. } = command {
            keys = script.named();
        }
        keys.into_iter().map(|key| (key, self.view(key))).collect()
    }

    /// Runs a script at a budget as if `ahead` ms later: the release of an id that no permit has. Returns the budget's
    /// data after that.
    ///
    /// # Errors
    ///
    /// If the script fails.
    pub fn touch(
        &mut self,
        runner: &Runner,
        now: Duration,
        (key, ahead): (Key, i64),
    ) -> Result<(View, BudgetView), String> {
        self.data.now = self.clock(now) + ahead * 1_000;
        self.data.gives_away = false;
        // An answer is wanted, no floor, and one id, whose holder has used nothing.
        let args = ["1", "0", "1", "none.0.0.0.1.1.1.0... 0"].map(str::to_owned);
        let reply = runner.run(
            Verb::ReleaseBudgets,
            &mut self.data,
            &wire::keys(key),
            &args,
        );
        reply.map_err(|error| error.to_string())?;
        Ok((self.view(key), self.budget(key)))
    }

    /// The data of the budgets that a script names.
    fn budgets(&self, script: &Script) -> Vec<(Key, BudgetView)> {
        let keys = script.named().into_iter();
        let budgets = keys.filter(|key| wire::window(*key).is_some());
        budgets.map(|key| (key, self.budget(key))).collect()
    }

    /// Adds the data of budgets after a run to that before it.
    fn with_budgets_after(
        &self,
        before: Vec<(Key, BudgetView)>,
    ) -> Vec<(Key, BudgetView, BudgetView)> {
        let all = before.into_iter();
        all.map(|(key, view)| (key, view, self.budget(key)))
            .collect()
    }

    /// The data of a budget, beside its sets.
    pub fn budget(&self, key: Key) -> BudgetView {
        let names = [wire::name(key) + ":held", wire::tag(key) + ":budget"];
        let is_live = |entry: &&Entry| {
            entry
                .expires_at
                .is_none_or(|end| self.data.now / 1_000 < end)
        };
        let [held, hash] = names.map(|name| self.data.key(&name).filter(is_live));
        let mut view = BudgetView {
            expires: [held, hash].map(|entry| entry.and_then(|entry| entry.expires_at)),
            ..BudgetView::default()
        };
        let Some(Value::Hash(fields)) = hash.map(|entry| &entry.value) else {
            return view;
        };
        let window = wire::window(key).map_or(String::new(), |window| window.to_string());
        for (field, value) in fields {
            if *field == window {
                let numbers = value.split(' ').filter_map(|number| number.parse().ok());
                view.state = numbers.collect::<Vec<_>>().try_into().ok();
            } else if let (Some((own, id)), Ok(settled)) = (field.split_once(':'), value.parse())
                && own == window
            {
                view.settled.insert(id.to_owned(), settled);
            }
        }
        view
    }

    /// The data of a semaphore.
    pub fn view(&self, key: Key) -> View {
        let name = wire::name(key);
        let mut view = View::default();
        for (full, entry) in self.data.entries() {
            let Some(suffix) = full.strip_prefix(&name) else {
                continue;
            };
            let set = match (&entry.value, suffix) {
                (Value::Sorted(set), ":held" | ":queue" | ":alive") => set,
                (Value::Text(token), ":token") => {
                    view.token = token.parse().unwrap_or_default();
                    continue;
                }
                _ => continue,
            };
            if suffix == ":queue" {
                view.expires = entry.expires_at;
            }
            let items = set.items().iter();
            let items = items.map(|(score, member)| (member.clone(), *score as i64));
            let own = match suffix {
                ":held" => &mut view.held,
                ":queue" => &mut view.queue,
                _ => &mut view.alive,
            };
            *own = items.collect();
        }
        let pause = view.queue.first().filter(|(_, score)| *score == 0);
        let pause = pause.and_then(|(id, _)| Some((id.clone(), wire::length_of_pause(id)?)));
        if let Some((id, length)) = pause {
            let end = view.alive.iter().find(|(other, _)| *other == id);
            view.pause = Some((length, end.map_or(0, |(_, end)| *end)));
            view.queue.remove(0);
            view.alive.retain(|(other, _)| *other != id);
        }
        view
    }
}
