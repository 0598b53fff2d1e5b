//! Reads the traffic for the judge: commands from KEYS and ARGV of scripts, and answers from their replies, as the
//! headers of the scripts describe them. This shares no code with the shipped encoders and decoders.

use crate::subject::{
    Acquired, Answer, CLOCK, Command, GENERATION, GROWTH, Id, Key, LEVELS, Limits, Message,
    PROCESSES, Position, Settings, SlotNo, Wait, Wanted,
};
use model::{scripts::Verb, stand_in::Reply};
use std::{collections::BTreeSet, time::Duration};

/// The prefix of the store's keys.
pub const PREFIX: &str = "semaphore:2:";

/// The script that pauses a semaphore for `length` ms, or ends its pause if that is 0.
pub fn pause(key: Key, process: &str, length: u64) -> Script {
    let [before, behind] = pause_parts(process, length);
    // The floor of tokens, the length, and two more arguments.
    let args = [
        "0".to_owned(),
        length.to_string(),
        "2".to_owned(),
        before,
        behind,
    ];
    Script {
        verb: Verb::Pause,
        keys: keys(key),
        args: args.into(),
        is_asking: false,
    }
}

/// How long a server remembers a revocation, in ms.
const REMEMBERED: &str = "3600000";

/// The script that revokes an id of a semaphore.
pub fn revocation(key: Key, id: &str) -> Script {
    Script {
        verb: Verb::Revoke,
        keys: keys(key),
        // The floor of tokens, the time, and one more argument.
        args: ["0", REMEMBERED, "1", id].map(str::to_owned).into(),
        is_asking: false,
    }
}

/// The script that lists the usage of a semaphore, which fits one page.
pub fn usage(key: Key) -> Script {
    Script {
        verb: Verb::Usage,
        keys: [":held", ":queue", ":alive"]
            .map(|end| name(key) + end)
            .into(),
        // The size of a page, and three more arguments: for each key the cursor of the first page.
        args: ["1000", "3", "0", "0", "0"].map(str::to_owned).into(),
        is_asking: false,
    }
}

/// A run of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The name of the script.
    pub verb: Verb,
    /// `KEYS`.
    pub keys: Vec<String>,
    /// `ARGV`.
    pub args: Vec<String>,
    /// True if it is sent with `ASKING`, so that the server to which its slot is moving runs it.
    pub is_asking: bool,
}

/// A pause has an entry in the queue, with this flow.
const PAUSE: &str = "!";

/// The number of the semaphore that is a lock.
pub const LOCK: Key = 9;

/// True if a semaphore is a lock. Not for budgets, which have higher numbers.
pub fn is_lock(key: Key) -> bool {
    key >= LOCK
}

/// The number of the first budget.
pub const BUDGET: Key = 20;

/// The number of budgets.
pub const BUDGETS: Key = 8;

/// The number of slots of budgets. Two budgets with different windows share a policy, a key and a slot.
const BUDGET_SLOTS: Key = BUDGETS / 2;

/// The windows of the budgets, in ms.
const WINDOWS: [u32; BUDGETS as usize] = [300, 1_000, 60, 3_000, 2_000, 150, 700, 53];

/// The window of a budget, in ms. `None`: the semaphore is no budget.
pub fn window(key: Key) -> Option<u32> {
    WINDOWS.get(usize::from(key.checked_sub(BUDGET)?)).copied()
}

/// The number of the semaphore that gives a key its slot: of two budgets that share a slot, the first.
pub fn slot_key(key: Key) -> Key {
    match window(key) {
        Some(_) => BUDGET + (key - BUDGET) % BUDGET_SLOTS,
        None => key,
    }
}

/// The prefix of a semaphore's keys, without the window of a budget.
pub fn tag(key: Key) -> String {
    let [policy_and_key, _] = limit_names(key);
    format!("{PREFIX}{{{policy_and_key}}}")
}

/// The prefix of a semaphore's keys.
pub fn name(key: Key) -> String {
    let window = window(key).map_or(String::new(), |window| window.to_string());
    tag(key) + &window
}

/// The keys of a semaphore or a budget, as most scripts take them.
pub fn keys(key: Key) -> Vec<String> {
    let last = match window(key) {
        Some(_) => tag(key) + ":budget",
        None => name(key) + ":token",
    };
    let sets = [":held", ":queue", ":alive"].map(|end| name(key) + end);
    sets.into_iter().chain([last]).collect()
}

/// The names under which operators set the limit of a semaphore (`POLICY:KEY`) and of its policy.
pub fn limit_names(key: Key) -> [String; 2] {
    let policy = match window(key) {
        Some(_) => "budget",
        None if is_lock(key) => "lock",
        None => "concurrency",
    };
    [format!("{policy}:k{}", slot_key(key)), policy.to_owned()]
}

/// The prefixes of the keys in a slot. Each semaphore must have a separate slot.
pub fn prefixes(slot: SlotNo) -> Vec<String> {
    match slot {
        CLOCK => vec![format!("{PREFIX}clock")],
        PROCESSES => vec![format!("{PREFIX}processes"), limits_key()],
        slot => Key::try_from(slot).map(tag).into_iter().collect(),
    }
}

impl Script {
    /// The semaphores and budgets that its keys belong to, in their order.
    pub fn named(&self) -> Vec<Key> {
        let all = (0..=LOCK).chain(BUDGET..BUDGET + BUDGETS);
        let all: Vec<_> = all.map(|key| (name(key) + ":held", key)).collect();
        let held = self.keys.iter().filter(|key| key.ends_with(":held"));
        let number = |held: &String| all.iter().find(|(name, _)| name == held);
        held.filter_map(|held| Some(number(held)?.1)).collect()
    }

    /// The slot of its keys. Each semaphore must have a separate slot.
    pub fn slot(&self) -> Option<SlotNo> {
        let first = self.keys.first()?.strip_prefix(PREFIX)?;
        let semaphore = || {
            let (_, key) = first
                .strip_prefix('{')?
                .split_once('}')?
                .0
                .split_once(":k")?;
            key.parse::<Key>().ok()
        };
        match first {
            "clock" => Some(CLOCK),
            _ if first.starts_with("processes") || first.starts_with("limits") => Some(PROCESSES),
            _ => semaphore().map(SlotNo::from),
        }
    }

    /// Reads the command of a process.
    ///
    /// # Errors
    ///
    /// If it is not as the script's header describes.
    pub fn read(&self, owner: &Settings) -> Result<Command, String> {
        let mut args = Args(&self.args);
        let read = match self.verb {
            Verb::Acquire => self.acquire(owner, &mut args),
            Verb::Refresh => self.refresh(owner, &mut args),
            Verb::Release => self.release(owner, &mut args),
            Verb::Presence => self.clock(owner, &mut args),
            Verb::AcquireBudgets | Verb::RefreshBudgets | Verb::ReleaseBudgets => {
                self.budgets(&mut args)
            }
            Verb::Revoke | Verb::Usage | Verb::Limits | Verb::Pause => None,
        };
        let read = read.filter(|_| args.0.is_empty());
        read.ok_or_else(|| format!("a strange call {self:?}"))
    }

    /// The semaphores to which the keys belong, if each has exactly the keys with these suffixes and occurs once.
    fn semaphores(&self, suffixes: &[&str]) -> Option<Vec<Key>> {
        let mut numbers = Vec::new();
        for keys in self.keys.chunks(suffixes.len()) {
            let name_of_first = keys.first()?.strip_suffix(suffixes[0])?;
            let (_, digits) = name_of_first.strip_prefix(PREFIX)?.split_once(":k")?;
            let number: Key = digits.strip_suffix('}')?.parse().ok()?;
            let own = suffixes.iter().map(|suffix| name(number) + suffix);
            numbers.push(keys.iter().cloned().eq(own).then_some(number)?);
        }
        let each: BTreeSet<_> = numbers.iter().collect();
        (each.len() == numbers.len()).then_some(numbers)
    }

    fn acquire(&self, owner: &Settings, args: &mut Args<'_>) -> Option<Command> {
        let keys = self.semaphores(&[":held", ":queue", ":alive", ":token"])?;
        args.lease(owner)?;
        let (runs_until, floor) = (args.number()?, args.number()?);
        // `equal` is the number of levels of each claim, or 0 if it differs.
        let (lasts, equal) = (args.length(owner)?, args.number()?);
        let mut claims: Vec<Vec<(Key, Wanted)>> = Vec::new();
        while !args.0.is_empty() {
            let levels = if equal > 0 { equal } else { args.number()? };
            let count = args.number()?;
            let terms: Vec<_> = (0..levels).map(|_| args.next()).collect::<Option<_>>()?;
            for _ in 0..count {
                let claim = terms.iter().map(|terms| {
                    let key = args.number()?.checked_sub(1)?;
                    Some((*keys.get(key as usize)?, args.wanted(owner, terms)?))
                });
                claims.push(claim.collect::<Option<_>>()?);
            }
        }
        let named: BTreeSet<_> = claims.iter().flatten().map(|(key, _)| key).collect();
        (named.len() == keys.len()).then_some(Command::Acquire {
            lasts,
            runs_until,
            floor,
            claims,
        })
    }

    fn refresh(&self, owner: &Settings, args: &mut Args<'_>) -> Option<Command> {
        let keys = self.semaphores(&[":held", ":token"])?;
        let lasts = args.length(owner)?;
        let of = args.groups(owner, keys)?;
        Some(Command::Refresh { lasts, of })
    }

    fn release(&self, owner: &Settings, args: &mut Args<'_>) -> Option<Command> {
        let keys = self.semaphores(&[":held", ":queue", ":alive", ":token"])?;
        let with_answer = args.next()? == "1";
        let floor = args.number()?;
        let of = args.groups(owner, keys)?;
        Some(Command::Release {
            with_answer,
            floor,
            of,
        })
    }

    /// Reads only the permits that an acquire wants. The judge of budgets reads the rest from the arguments.
    fn budgets(&self, args: &mut Args<'_>) -> Option<Command> {
        let ids = self.args.iter().filter_map(|arg| IdFields::read(arg));
        let wanted = match self.verb {
            Verb::AcquireBudgets => ids.map(|parts| parts.id.permit()).collect(),
            _ => Vec::new(),
        };
        *args = Args(&[]);
        let args = self.args.clone();
        Some(Command::Budgets { wanted, args })
    }

    /// Reads a command to `presence.lua`: a question for the server's time and the values of up to one key, or the end
    /// of a process.
    fn clock(&self, owner: &Settings, args: &mut Args<'_>) -> Option<Command> {
        if self.leaves(owner) {
            *args = Args(&[]);
            return Some(Command::Leave);
        }
        args.lease(owner)?;
        let (mut highest, mut counts, mut limits) = (None, false, None);
        for key in &self.keys {
            let part = key.strip_prefix(PREFIX)?;
            let name = part.split('{').next()?;
            // The arguments of a key: their number, which is 2, its name, and a value.
            (args.number()? == 2 && args.next()? == name).then_some(())?;
            match part {
                "clock" => highest = Some(args.number()?),
                "processes" => {
                    let (process, lease) = args.next()?.split_once(':')?;
                    let own = (owner.process.as_str(), owner.lease.as_millis().to_string());
                    counts = (process, lease.to_owned()) == own;
                    counts.then_some(())?;
                }
                _ if *key == limits_key() => limits = Some(args.next()?.parse().ok()),
                _ => return None,
            }
        }
        // While a slot moves, its servers refuse commands with several keys. So each command has at most one.
        (self.keys.len() < 2).then_some(())?;
        Some(Command::Clock {
            highest,
            counts,
            limits,
        })
    }

    /// True if the process must not count as alive any more.
    fn leaves(&self, owner: &Settings) -> bool {
        let keys = [format!("{PREFIX}processes")];
        self.keys == keys && self.args == ["0", "2", "processes", &presence_entry(owner)]
    }
}

/// The key of the limits that operators set.
pub fn limits_key() -> String {
    format!("{PREFIX}limits{{{PREFIX}processes}}")
}

/// The text under which a process is counted.
fn presence_entry(owner: &Settings) -> String {
    format!("{}:{}", owner.process, owner.lease.as_millis())
}

/// Arguments that are read one by one.
struct Args<'a>(&'a [String]);

impl<'a> Args<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self) -> Option<u64> {
        self.next()?.parse().ok()
    }

    /// Reads the lease, which must be that of the process.
    fn lease(&mut self, owner: &Settings) -> Option<()> {
        (u128::from(self.number()?) == owner.lease.as_millis()).then_some(())
    }

    /// Reads how long a grant lasts: at most for the lease of the process.
    fn length(&mut self, owner: &Settings) -> Option<Duration> {
        let length = Duration::from_millis(self.number()?);
        (length <= owner.lease).then_some(length)
    }

    /// Reads the id of a level, whose terms have come before.
    fn wanted(&mut self, owner: &Settings, terms: &str) -> Option<Wanted> {
        let id = id(self.next()?, owner)?;
        let (limit, words) = terms.split_once(' ').unwrap_or((terms, ""));
        // The first term is the limit, or marks an acquire that was sent before.
        let (was_sent, is_back) = match limit.parse::<i64>().ok()? {
            -2 => (true, true),
            -1 => (true, false),
            limit if limit == i64::from(id.limit) && id.weight == 1 => (false, false),
            0 if id.weight > 1 => (false, false),
            _ => return None,
        };
        let position = match words {
            "" => None,
            words => Some(position(words)?),
        };
        Some(Wanted {
            id,
            position,
            was_sent,
            is_back,
        })
    }

    /// Reads a count for each semaphore, and that number of units.
    fn groups(&mut self, owner: &Settings, keys: Vec<Key>) -> Option<Vec<(Key, Vec<Id>)>> {
        let keys = keys.into_iter();
        let groups = keys.map(|key| {
            let count = self.number()? as usize;
            let (own, rest) = self.0.split_at_checked(count)?;
            self.0 = rest;
            Some((key, permits(own, owner)?))
        });
        groups.collect()
    }
}

/// Groups units into permits. The units of one permit must follow each other.
fn permits(mut units: &[String], owner: &Settings) -> Option<Vec<Id>> {
    let mut permits = Vec::new();
    while let Some(first) = units.first() {
        let (text, begin) = unit(first)?;
        let follows = |place: usize, other: &String| {
            unit(other).is_some_and(|(own, number)| own == text && number == begin + place as u32)
        };
        let places = units.iter().enumerate();
        let count = places
            .take_while(|(place, other)| follows(*place, other))
            .count();
        let id = id(text, owner)?;
        let units_of = (begin, begin + count as u32 - 1);
        permits.push(
            Some(Id {
                units: units_of,
                ..id
            })
            .filter(|_| units_of.1 <= id.weight)?,
        );
        units = &units[count..];
    }
    Some(permits)
}

/// Splits a unit into the id of its permit and its number. The first unit is the id alone.
fn unit(text: &str) -> Option<(&str, u32)> {
    match text.split_once(':') {
        None => Some((text, 1)),
        Some((id, number)) => Some((id, number.parse().ok().filter(|number| *number > 1)?)),
    }
}

/// Reads an id, which must be one of the owner's.
fn id(text: &str, owner: &Settings) -> Option<Id> {
    let parts = IdFields::read(text)?;
    let lasts = u128::from(parts.lease_ms) == owner.lease.as_millis();
    (parts.process == owner.process && lasts).then_some(parts.id)
}

/// The fields of an id: `PROCESS.PERMIT.LEASE.GENERATION.LIMIT.WEIGHT.LEASE_MS.SINCE.SHARE.FLOW.LABEL`.
#[derive(Debug)]
pub struct IdFields<'a> {
    /// PROCESS.
    pub process: &'a str,
    /// PERMIT, LEASE, GENERATION, LIMIT and WEIGHT.
    pub id: Id,
    /// LEASE_MS.
    pub lease_ms: u64,
}

impl<'a> IdFields<'a> {
    /// Reads the id of a permit's first unit.
    pub fn read(text: &'a str) -> Option<Self> {
        let parts: Vec<_> = text.split('.').collect();
        let [process, numbers @ .., share, flow, label] = &parts[..] else {
            return None;
        };
        (*flow != PAUSE).then_some(())?;
        let numbers = numbers.iter().map(|digits| base36(digits));
        let numbers = numbers.collect::<Option<Vec<_>>>()?;
        let [permit, lease, generation, limit, weight, lease_ms, _] = numbers[..] else {
            return None;
        };
        let has_flow = base36(share).is_some() && !flow.is_empty();
        let is_right = has_flow || share.is_empty() && flow.is_empty();
        let fits = permit < GROWTH && lease < GENERATION / GROWTH && weight > 0;
        (is_right && fits && label.is_empty()).then_some(())?;
        let weight = u32::try_from(weight).ok()?;
        Some(Self {
            process,
            id: Id {
                serial: permit + GROWTH * lease + GENERATION * generation,
                limit: u32::try_from(limit).ok()?,
                weight,
                units: (1, weight),
            },
            lease_ms,
        })
    }
}

/// The parts of a pause's id before and behind the server's time: `PROCESS.0.0.0.0.1.LENGTH.` and `.1.!.NOTE`. The note
/// is empty here.
pub fn pause_parts(process: &str, length: u64) -> [String; 2] {
    let mut digits = Vec::new();
    let mut rest = length;
    while rest > 0 || digits.is_empty() {
        digits.extend(char::from_digit((rest % 36) as u32, 36));
        rest /= 36;
    }
    let digits: String = digits.iter().rev().collect();
    [
        format!("{process}.0.0.0.0.1.{digits}."),
        format!(".1.{PAUSE}."),
    ]
}

/// The length of a pause in ms, by its id. Returns `None` for other ids.
pub fn length_of_pause(id: &str) -> Option<i64> {
    let parts: Vec<_> = id.split('.').collect();
    match parts[..] {
        [_, "0", "0", "0", "0", "1", length, _, "1", PAUSE, ""] => Some(base36(length)? as i64),
        _ => None,
    }
}

fn base36(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 36).ok()
}

/// `ALIVE MAX_WAITING ARRIVAL HEAD_START`.
fn position(words: &str) -> Option<Position> {
    let words = words.split(' ').map(|word| word.parse::<u64>().ok());
    let [alive, max_waiting, arrival, head_start] = words.collect::<Option<Vec<_>>>()?[..] else {
        return None;
    };
    let wait = Wait {
        time: Duration::ZERO,
        max_waiting: u32::try_from(max_waiting).ok()?,
        head_start: Duration::from_micros(head_start),
    };
    Some(Position {
        wait,
        alive: Duration::from_millis(alive),
        arrival,
    })
}

impl Command {
    /// Reads the reply.
    ///
    /// # Errors
    ///
    /// If the reply is not as the script's header describes.
    pub fn decode(&self, reply: &Reply) -> Result<Answer, String> {
        let read = match self {
            Self::Acquire { claims, .. } => acquired(reply, claims),
            Self::Refresh { of, .. } => held(reply, of),
            Self::Release {
                with_answer: false, ..
            } => (*reply == Reply::Int(0)).then_some(Answer::Released),
            // The reply lists which of the permits were held.
            Self::Release { of, .. } => held(reply, of).map(|_| Answer::Released),
            // The time comes first, and then the values of the keys.
            Self::Clock {
                highest,
                counts,
                limits,
            } => clock_answer(reply, (highest.is_some(), *counts, limits.is_some())),
            Self::Leave => numbers(reply).map(|_| Answer::Released),
            Self::Budgets { .. } => Some(Answer::Budgets),
        };
        read.ok_or_else(|| format!("a strange reply {reply:?} to {self:?}"))
    }

    /// How long the units that it names last after it.
    pub fn lasts(&self) -> Duration {
        match self {
            Self::Acquire { lasts, .. } | Self::Refresh { lasts, .. } => *lasts,
            Self::Release { .. } | Self::Clock { .. } | Self::Leave | Self::Budgets { .. } => {
                Duration::ZERO
            }
        }
    }

    /// The permits that it names, each with its semaphore.
    pub fn ids(&self) -> Vec<(Key, Id)> {
        match self {
            Self::Acquire { .. } => {
                let wanted = self.wanted().into_iter();
                wanted.map(|(key, wanted)| (key, wanted.id)).collect()
            }
            Self::Refresh { of, .. } | Self::Release { of, .. } => each(of, |id| *id),
            Self::Clock { .. } | Self::Leave | Self::Budgets { .. } => Vec::new(),
        }
    }

    /// The levels that it wants, in the order of the answers.
    pub fn wanted(&self) -> Vec<(Key, Wanted)> {
        match self {
            Self::Acquire { claims, .. } => claims.iter().flatten().copied().collect(),
            _ => Vec::new(),
        }
    }
}

/// Reads the server's time and the values of its keys. The limits come last.
fn clock_answer(
    reply: &Reply,
    (has_highest, counts, has_limits): (bool, bool, bool),
) -> Option<Answer> {
    let Reply::List(items) = reply else {
        return None;
    };
    let (numbers, limits) = items.split_at(items.len() - usize::from(has_limits));
    let numbers: Vec<_> = numbers.iter().map(number).collect::<Option<_>>()?;
    let live = numbers.get(1 + usize::from(has_highest));
    let live = live.filter(|_| counts).map(|live| *live as u32);
    let limits = match limits.first() {
        Some(Reply::List(all)) => Some(limits_of(all)?),
        None | Some(Reply::Int(0)) => None,
        Some(_) => return None,
    };
    Some(Answer::Clock(*numbers.first()?, live, limits))
}

/// Reads the limits: pairs of a name and a value. If any limits are set, one pair is the version.
fn limits_of(all: &[Reply]) -> Option<Limits> {
    let mut limits = Limits::default();
    for pair in all.chunks(2) {
        let [Reply::Text(name), Reply::Text(value)] = pair else {
            return None;
        };
        match name.as_str() {
            "*version" => limits.version = value.split(' ').next()?.parse().ok()?,
            name => {
                let limit = value.split(' ').next()?.parse().ok()?;
                limits.all.insert(name.to_owned(), limit);
            }
        }
    }
    Some(limits)
}

/// Maps the items of all groups.
fn each<T, U>(groups: &[(Key, Vec<T>)], map: impl Fn(&T) -> U) -> Vec<(Key, U)> {
    let all = groups.iter();
    all.flat_map(|(key, items)| items.iter().map(|item| (*key, map(item))))
        .collect()
}

fn numbers(reply: &Reply) -> Option<Vec<u64>> {
    let Reply::List(items) = reply else {
        return None;
    };
    items.iter().map(number).collect()
}

fn number(item: &Reply) -> Option<u64> {
    match item {
        Reply::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// Reads the answers to an acquire. A reply of nothing but the time is late.
fn acquired(reply: &Reply, claims: &[Vec<(Key, Wanted)>]) -> Option<Answer> {
    let Reply::List(items) = reply else {
        return None;
    };
    let (now, items) = items.split_first()?;
    let now = number(now)?;
    if items.is_empty() {
        return Some(Answer::Late(now));
    }
    let mut items = items.iter();
    let mut each = Vec::new();
    for claim in claims {
        let first = items.next()?;
        if let Reply::List(refusal) = first {
            each.push(refused(refusal)?);
            continue;
        }
        let (mut tokens, mut held) = ([number(first)?, 0, 0], [0; LEVELS]);
        held[0] = number(items.next()?)?;
        for level in 1..claim.len() {
            tokens[level] = number(items.next()?)?;
            held[level] = number(items.next()?)?;
        }
        each.push(Acquired::Granted { tokens, held });
    }
    items
        .next()
        .is_none()
        .then_some(Answer::Acquired(now, each))
}

/// Reads the answer to a claim that is not granted.
fn refused(items: &[Reply]) -> Option<Acquired> {
    let level = number(items.get(1)?)?.checked_sub(1)? as usize;
    let time = |item| number(item).map(Duration::from_millis);
    match items {
        [Reply::Int(-4), _, _, left] => Some(Acquired::Paused {
            level,
            left: time(left)?,
        }),
        [Reply::Int(0), ..] => Some(Acquired::Full { level }),
        [Reply::Int(-1), ..] => Some(Acquired::QueueFull { level }),
        [Reply::Int(-3), ..] => Some(Acquired::Revoked { level }),
        [
            Reply::Int(-2),
            _,
            _,
            arrival,
            Reply::Int(recheck),
            last_token,
            pause @ ..,
        ] if pause.len() < 2 => Some(Acquired::Queued {
            level,
            arrival: number(arrival)?,
            recheck: u64::try_from(*recheck).ok().map(Duration::from_millis),
            last_token: number(last_token)?,
            pause: match pause {
                [left] => Some(time(left)?),
                _ => None,
            },
        }),
        _ => None,
    }
}

/// Reads which permits are held: those whose units all are.
fn held(reply: &Reply, of: &[(Key, Vec<Id>)]) -> Option<Answer> {
    let ids = each(of, |id| *id);
    if matches!(reply, Reply::Int(_)) {
        return Some(Answer::Held(vec![true; ids.len()]));
    }
    let units = numbers(reply)?;
    let mut units = units.get(1..)?.iter();
    let each = ids.iter().map(|(_, id)| {
        let own: Vec<_> = units.by_ref().take(id.count() as usize).collect();
        own.iter().all(|unit| **unit == 1)
    });
    Some(Answer::Held(each.collect()))
}

/// Reads the message of a grant. Also returns the name of the process that receives it.
pub fn message(channel: &str, text: &str) -> Option<(String, Message)> {
    let process = channel.strip_prefix(PREFIX)?.strip_prefix("wake:")?;
    let mut words = text.split(' ');
    let name = words.next()?.split('.').map(base36);
    let [permit, lease, generation] = name.collect::<Option<Vec<_>>>()?[..] else {
        return None;
    };
    let serial = permit + GROWTH * lease + GENERATION * generation;
    let token = words.next()?.parse().ok()?;
    Some((process.to_owned(), Message { serial, token }))
}
