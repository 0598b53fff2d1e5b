//! Promises that were broken.

use super::lateness::Lateness;
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tower_semaphore::{AcquireError, Permit};

/// What a claim's budget is for its way to the server and back, besides its wait.
const TRY: Duration = Duration::from_millis(500);
/// By how much its answer may be later, besides what the machine was late.
const SLACK: Duration = Duration::from_millis(50);
/// A healthy link may be so much slower than it should before a failure of the store is no wonder.
const STALL: Duration = Duration::from_millis(75);
/// For so long after a claim that such a link has failed others may fail at once: the store takes the
/// failures for an outage, until it has seen that the server answers.
const OUTAGE: Duration = Duration::from_secs(1);

/// How a claim ended.
pub(crate) type Answer = Result<Permit, AcquireError>;

/// Gathers all that is wrong with a run.
#[derive(Debug)]
pub(crate) struct Oracle {
    /// Whether the server is there all the time.
    healthy: bool,
    /// How late the runtime of the load was.
    pub(crate) machine: Lateness,
    /// How late the link was, for a client that shares no code with the library.
    pub(crate) link: Lateness,
    /// Judged in the end, when it is known how late the machine was.
    suspects: Mutex<Vec<Suspect>>,
    wrong: Mutex<Wrong>,
    /// What happened, by key.
    counts: Mutex<BTreeMap<(&'static str, &'static str), usize>>,
}

/// What is wrong: how often, and the first example.
type Wrong = BTreeMap<String, (usize, String)>;

/// A claim that was answered, or not.
pub(crate) struct Claimed<'a> {
    pub(crate) key: &'static str,
    pub(crate) wait: Option<Duration>,
    pub(crate) from: Instant,
    /// Nothing when it was given up.
    pub(crate) answer: Option<&'a Answer>,
}

/// A claim that was answered late, or otherwise than it should.
#[derive(Debug)]
struct Suspect {
    kind: String,
    what: &'static str,
    example: String,
    from: Instant,
    to: Instant,
    excuse: Excuse,
}

/// What may excuse it.
#[derive(Debug)]
enum Excuse {
    Nothing,
    /// The machine was as late as the answer.
    Late(Duration),
    /// The link was slow.
    Slow,
}

impl Claimed<'_> {
    fn kind(&self) -> String {
        let who = match self.wait {
            Some(_) => "a claim that waits",
            None => "a try",
        };
        format!("{}: {who}", self.key)
    }

    /// Whether it was granted or refused, as claims of its kind are.
    fn is_plain(&self) -> bool {
        match self.answer {
            None | Some(Ok(_)) => true,
            Some(Err(AcquireError::Full { .. })) => self.wait.is_none(),
            Some(Err(AcquireError::TimedOut)) => self.wait.is_some(),
            Some(Err(_)) => false,
        }
    }

    fn is_failed(&self) -> bool {
        matches!(self.answer, Some(Err(AcquireError::Store { .. })))
    }

    fn suspect(&self, to: Instant, what: &'static str, excuse: Excuse) -> Suspect {
        let answer = match self.answer {
            None => "no answer".to_owned(),
            Some(Ok(_)) => "granted".to_owned(),
            Some(Err(error)) => format!("{error:?}"),
        };
        Suspect {
            kind: self.kind(),
            what,
            example: format!("{:?}, wait {:?}, {answer}", to - self.from, self.wait),
            from: self.from,
            to,
            excuse,
        }
    }
}

impl Oracle {
    pub(crate) fn new(healthy: bool) -> Self {
        Self {
            healthy,
            machine: Lateness::default(),
            link: Lateness::default(),
            suspects: Mutex::default(),
            wrong: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    /// What a claim may take that waits so long.
    pub(crate) fn budget(wait: Option<Duration>) -> Duration {
        wait.unwrap_or_default() + TRY
    }

    /// A claim has ended now.
    pub(crate) fn claim(&self, claimed: &Claimed<'_>) {
        let to = Instant::now();
        let answer = claimed.answer.map_or("unanswered", outcome);
        *lock(&self.counts).entry((claimed.key, answer)).or_default() += 1;
        let late = (to - claimed.from).saturating_sub(Self::budget(claimed.wait) + SLACK);
        if !late.is_zero() {
            let suspect = claimed.suspect(to, "outlived its budget", Excuse::Late(late));
            lock(&self.suspects).push(suspect);
        }
        let excuse = match claimed.is_failed() {
            true if !self.healthy => return,
            true => Excuse::Slow,
            false => Excuse::Nothing,
        };
        if !claimed.is_plain() {
            let suspect = claimed.suspect(to, "got a wrong answer", excuse);
            lock(&self.suspects).push(suspect);
        }
    }

    /// Something is not as promised.
    pub(crate) fn is_wrong(&self, about: &str, who: &str, what: &str, example: String) {
        add(
            &mut lock(&self.wrong),
            format!("{about}: {who} {what}"),
            example,
        );
    }

    /// How often claims for a key ended so.
    pub(crate) fn counted(&self, key: &'static str, outcome: &'static str) -> usize {
        lock(&self.counts)
            .get(&(key, outcome))
            .copied()
            .unwrap_or(0)
    }

    /// What is wrong, and what happened; nothing when all is well.
    pub(crate) fn problems(&self) -> Option<String> {
        let mut wrong = lock(&self.wrong);
        for suspect in self.guilty() {
            let kind = format!("{} {}", suspect.kind, suspect.what);
            add(&mut wrong, kind, suspect.example);
        }
        let entry = |(kind, (count, example)): (&String, &(usize, String))| {
            format!("  {kind}: {count} times, first: {example}\n")
        };
        let report: String = wrong.iter().map(entry).collect();
        (!report.is_empty()).then(|| format!("{report}  of {:?}", lock(&self.counts)))
    }

    /// The suspects that nothing excuses.
    fn guilty(&self) -> Vec<Suspect> {
        let mut suspects: Vec<_> = lock(&self.suspects).drain(..).collect();
        suspects.sort_by_key(|suspect| suspect.to);
        let mut outage = None;
        suspects.retain(|suspect| {
            let is_slow = matches!(suspect.excuse, Excuse::Slow);
            if self.is_excused(suspect) {
                outage = is_slow.then(|| suspect.to + OUTAGE).or(outage);
                return false;
            }
            !is_slow || outage.is_none_or(|end| suspect.from >= end)
        });
        suspects
    }

    fn is_excused(&self, suspect: &Suspect) -> bool {
        let machine = self.machine.late(suspect.from, suspect.to);
        match suspect.excuse {
            Excuse::Nothing => false,
            Excuse::Late(late) => late <= machine,
            Excuse::Slow => machine + self.link.late(suspect.from, suspect.to) > STALL,
        }
    }
}

fn add(wrong: &mut Wrong, kind: String, example: String) {
    wrong.entry(kind).or_insert((0, example)).0 += 1;
}

fn outcome(answer: &Answer) -> &'static str {
    match answer {
        Ok(_) => "granted",
        Err(AcquireError::Store { .. }) => "failed",
        Err(error) if error.is_refusal() => "refused",
        Err(_) => "otherwise",
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
