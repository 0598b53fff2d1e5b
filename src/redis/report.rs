//! Logs and metrics that no caller's task can emit, and the log of outages.
//!
//! Recorders and subscribers are foreign code, which may be slow or block. The keeper's thread must not wait for them,
//! because a late refresh loses a permit. So the keeper sends its news through a queue to another thread, which starts
//! with the first news and ends with the store. Calls are reported only if a recorder is installed. News that do not
//! fit into the queue are dropped and counted. Counters are added up, and never dropped.
//!
//! Failing claims are logged once when they begin to fail, and once when they work again:
//!
//! | cause | is logged at |
//! |---|---|
//! | one key: its type, a missing permission | the first failure |
//! | the server is silent, away or unable to work now | several failures in a row that one stall does not explain, or an outage |
//! | only a person can correct it: credentials, permissions, a paused clock | the first failure |
//!
//! Claims work again with the first answered claim after a lease without a failure that counts. So calls that fail and
//! succeed by turns are logged once, not many times. The end of an outage ends its log entry sooner. While claims fail,
//! a cause further down in the table is logged too, because it needs another remedy. Answers to other commands end
//! nothing, because claims may use another connection with other credentials.

use crate::{
    observe::{IS_ON, LostBy, Meter, Store::Redis as REDIS, called, events, has_recorder},
    redis::{driver::News, error::CallError, fault},
    semaphore::Policy,
};
use parking_lot::{Condvar, Mutex};
use proto::core::{LimitsEvent, Outage};
use std::{
    collections::{HashMap, VecDeque},
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The most news that wait for the thread that reports.
const MAX_NEWS: usize = 1_024;

/// Temporary failures are logged from this number in a row on, unless all of them fall within one timeout: one stall of
/// the server, or of this process, fails all calls in flight.
const MIN_FAILURES: u32 = 3;

pub(super) struct Reports {
    mailbox: Arc<Mailbox>,
    state: Mutex<ReportState>,
    /// True while failures are noted. If not, the answer to a claim changes nothing, and need not take the lock.
    has_failures: AtomicBool,
    lease: Duration,
    /// How long the answer to a call may take.
    timeout: Duration,
}

/// Shared by the thread that reports and the threads that have news.
#[derive(Default)]
struct Mailbox {
    queue: Mutex<NewsQueue>,
    has_changed: Condvar,
}

#[derive(Default)]
struct NewsQueue {
    batch: Batch,
    /// True if a thread takes the news. If not, the next caller starts it.
    has_reader: bool,
    /// True once the store has ended.
    is_over: bool,
}

/// News that are reported together.
#[derive(Default)]
struct Batch {
    news: VecDeque<News>,
    dropped: u64,
    /// The number of permits of each policy that were lost since the last batch, or with `None` became degraded.
    counts: HashMap<(Policy, Option<LostBy>), u64>,
}

impl Reports {
    pub(super) fn new(lease: Duration, timeout: Duration) -> Self {
        Self {
            mailbox: Arc::default(),
            state: Mutex::default(),
            has_failures: AtomicBool::new(false),
            lease,
            timeout,
        }
    }

    /// Reports news of the driver.
    pub(super) fn report(&self, news: News) {
        let news = match news {
            News::Called {
                by_thread: false, ..
            } => return emit(news),
            News::Called { .. } if !has_recorder() => return,
            News::Outage(outage, why) => {
                let is_news = self.change(|state| match outage {
                    Outage::Begins => state.opens(),
                    Outage::Ends { works } => state.closes(works),
                });
                if !is_news {
                    return;
                }
                // If no cause is known, answers were only too slow.
                let too_slow = || Arc::new(CallError::Timeout(self.timeout)) as _;
                News::Outage(outage, why.or_else(|| Some(too_slow())))
            }
            news => news,
        };
        if IS_ON {
            self.mailbox.put(news);
        }
    }

    /// Notes a failed claim, and logs it if it is news. `shown` is the error as users see it.
    pub(super) fn claim_failed(&self, error: &CallError, shown: impl FnOnce() -> fault::Error) {
        let (now, timeout) = (Instant::now(), self.timeout);
        if self.change(|state| state.failed(error, now, timeout)) {
            events::fails(&shown());
        }
    }

    /// Notes an answered claim, and logs it if claims work again.
    pub(super) fn claim_worked(&self) {
        let now = Instant::now();
        let has_failures = self.has_failures.load(Relaxed);
        if has_failures && self.change(|state| state.worked(now, self.lease)) {
            events::works();
        }
    }

    /// Changes the state. Returns the result of `change`: true if the change is news.
    fn change(&self, change: impl FnOnce(&mut ReportState) -> bool) -> bool {
        let mut state = self.state.lock();
        let is_news = change(&mut state);
        self.has_failures.store(!state.is_idle(), Relaxed);
        is_news
    }
}

/// Lets the thread report the remaining news and end.
impl Drop for Reports {
    fn drop(&mut self) {
        self.mailbox.queue.lock().is_over = true;
        self.mailbox.has_changed.notify_one();
    }
}

impl Mailbox {
    fn put(self: &Arc<Self>, news: News) {
        let mut queue = self.queue.lock();
        queue.batch.push(news);
        // If no thread can be started, the next news try again.
        queue.has_reader = queue.has_reader || self.start().is_ok();
        drop(queue);
        self.has_changed.notify_one();
    }

    /// Starts the thread that reports.
    fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let mailbox = Arc::clone(self);
        let thread = thread::Builder::new().name("semaphore-news".to_owned());
        thread.spawn(move || {
            while let Some(batch) = mailbox.take() {
                batch.report();
            }
        })
    }

    /// Waits for news. Returns `None` once the store has ended and no news are left.
    fn take(&self) -> Option<Batch> {
        let mut queue = self.queue.lock();
        while queue.batch.news.is_empty() {
            if queue.is_over {
                return None;
            }
            self.has_changed.wait(&mut queue);
        }
        Some(mem::take(&mut queue.batch))
    }
}

impl Batch {
    fn push(&mut self, news: News) {
        let counted = match &news {
            News::Lost(policy, _, by) => Some((policy.clone(), Some(*by))),
            News::Degraded(policy, ..) => Some((policy.clone(), None)),
            _ => None,
        };
        if let Some(counted) = counted {
            *self.counts.entry(counted).or_default() += 1;
        }
        match self.news.len() < MAX_NEWS {
            true => self.news.push_back(news),
            false => self.dropped += 1,
        }
    }

    /// Reports the news. A panic of a recorder or a subscriber ends nothing.
    fn report(self) {
        for ((policy, lost), count) in self.counts {
            let meter = Meter::for_claims(REDIS, policy.as_str());
            (0..count).for_each(|_| lost.map_or_else(|| meter.degraded(), |by| meter.lost(by)));
        }
        self.news.into_iter().for_each(emit);
        if self.dropped > 0 {
            events::dropped(self.dropped);
        }
    }
}

/// Calls the recorder or the subscriber.
fn emit(news: News) {
    match news {
        News::KeeperDied => events::keeper_died(),
        News::CoreDied => events::core_died(),
        News::Limits(LimitsEvent::Lost) => events::limits_lost(),
        News::Limits(LimitsEvent::Unreported) => events::limits_untold(),
        News::Connected(address, false) => events::connected(&address),
        News::Connected(address, true) => events::connected_again(&address),
        News::NotConnected(why) => {
            // The outermost error adds nothing.
            let why = why.as_ref().map(|why| why.source().unwrap_or(&**why));
            why.into_iter().for_each(events::not_connected);
        }
        News::Outage(Outage::Begins, why) => {
            why.iter().for_each(|why| events::fails(&**why));
        }
        News::Outage(Outage::Ends { .. }, _) => events::works(),
        News::Lost(policy, token, by) => {
            events::lost(REDIS, policy.as_str(), by, known_token(token));
        }
        News::Degraded(policy, name, is_kept) => {
            let how = if is_kept { "kept" } else { "admitted" };
            events::degraded(REDIS, policy.as_str(), how, &name);
        }
        News::Called {
            verb,
            size,
            took,
            answered,
            ..
        } => called(REDIS, verb, size, took, answered),
    }
}

/// The failures of claims. Several servers count as one.
#[derive(Default)]
struct ReportState {
    logged: LoggedCause,
    /// The time of the last failed claim that counts. A temporary failure counts only if the row of failures is long
    /// enough to be logged. `None` after the end of an outage.
    failed: Option<Instant>,
    /// The number of outages that have begun and not ended. Negative for a moment if an end is noted before its begin.
    open: i32,
    /// The number of claims in a row that have failed for a temporary reason.
    failures: u32,
    /// The time of the first of these failures.
    failing_since: Option<Instant>,
}

/// The cause that was logged, in the order of the module's table.
#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LoggedCause {
    #[default]
    Nothing,
    OfKey,
    /// The cause may pass without a change of settings.
    Passing,
    Mistake,
}

impl ReportState {
    fn is_idle(&self) -> bool {
        self.logged == LoggedCause::Nothing && self.failures == 0
    }

    /// Notes a failed claim. Returns true if it should be logged.
    fn failed(&mut self, error: &CallError, now: Instant, timeout: Duration) -> bool {
        let may_pass = error.may_pass();
        if may_pass {
            let since = *self.failing_since.get_or_insert(now);
            self.failures += 1;
            if self.failures < MIN_FAILURES || now - since < timeout {
                return false;
            }
        }
        self.failed = Some(now);
        self.note_cause(match error.is_of_one_key() {
            true => LoggedCause::OfKey,
            false if may_pass => LoggedCause::Passing,
            false => LoggedCause::Mistake,
        })
    }

    /// Notes an answered claim. Returns true if it should be logged that claims work again. `quiet` is the time without
    /// a failure that this needs.
    fn worked(&mut self, now: Instant, quiet: Duration) -> bool {
        (self.failures, self.failing_since) = (0, None);
        let is_quiet = self.failed.is_none_or(|failed| now - failed >= quiet);
        self.open == 0 && is_quiet && self.end()
    }

    /// Notes the begin of an outage. Returns true if it should be logged.
    fn opens(&mut self) -> bool {
        self.open += 1;
        self.open > 0 && self.note_cause(LoggedCause::Passing)
    }

    /// Notes the end of an outage. Returns true if it should be logged. `has_worked` is true if the server has run all
    /// commands of the call.
    fn closes(&mut self, has_worked: bool) -> bool {
        self.open -= 1;
        let has_passed = self.open == 0 && self.logged == LoggedCause::Passing;
        if has_passed {
            self.failed = None;
        }
        has_passed && has_worked && self.end()
    }

    /// Notes a cause to log. Returns true unless this cause, or one further down in the table, was logged already.
    fn note_cause(&mut self, cause: LoggedCause) -> bool {
        let is_news = cause > self.logged;
        self.logged = self.logged.max(cause);
        is_news
    }

    /// Resets the state. Returns true if anything was logged.
    fn end(&mut self) -> bool {
        let was_logged = self.logged != LoggedCause::Nothing;
        *self = Self::default();
        was_logged
    }
}

/// The token, or `None` for 0, which means that no server has granted one.
pub(super) fn known_token(token: u64) -> Option<u64> {
    (token > 0).then_some(token)
}

#[cfg(test)]
mod tests;
