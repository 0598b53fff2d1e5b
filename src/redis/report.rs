//! What no caller's task tells a recorder or a subscriber.
//!
//! They are a stranger's code, which may block or be slow, and the keeper's thread must not wait for it: a late
//! refresh is a lost permit. So what that thread has to tell goes through a queue to another thread. Lines and
//! samples that do not fit into the queue are dropped, and counted; counters are added up, and never dropped.

use crate::{
    observe::{Answered, IS_ON, LostBy, Meter, Store::Redis as REDIS, called, events},
    redis::{
        core::Outage,
        driver::{Cause, Observer},
        error::Error as RedisError,
        outage::Alert,
    },
    semaphore::Policy,
};
use parking_lot::Mutex;
use std::{collections::VecDeque, error::Error, mem, sync::Arc, thread, time::Duration};

/// The most lines and samples that wait.
const MOST: usize = 1_024;

/// Something to tell.
pub(super) enum Line {
    Lost(Policy, u64, LostBy),
    /// A command of so many claims or permits.
    Called {
        verb: &'static str,
        took: Duration,
        size: usize,
        answered: Answered,
    },
    Degraded(Policy, Arc<str>, bool),
    /// Where, and whether again.
    Connected(String, bool),
    NotConnected(Option<Cause>),
    Fails(Cause),
    Works,
    /// The keeper's thread has panicked.
    KeeperDied,
    /// The core has.
    CoreDied,
}

/// What is counted of a policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    Lost(LostBy),
    Degraded,
}

/// The queue. Whoever finds that no thread empties it starts one.
#[derive(Clone, Default)]
pub(super) struct Reports {
    queue: Arc<Mutex<Queue>>,
    /// What was told of claims that fail.
    pub(super) alert: Arc<Alert>,
    /// How long the answer to a call may take.
    timeout: Duration,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Line>,
    dropped: u64,
    /// How many permits of each policy were lost, or became degraded, since they were last counted.
    counts: Vec<(Policy, Count, u64)>,
    /// Whether a thread empties it.
    runs: bool,
}

impl Reports {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            ..Self::default()
        }
    }

    pub(super) fn line(&self, line: Line) {
        if IS_ON {
            self.change(|queue| queue.push(line));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let mut queue = self.queue.lock();
        change(&mut queue);
        let starts = !mem::replace(&mut queue.runs, true);
        drop(queue);
        if starts {
            self.start();
        }
    }

    fn start(&self) {
        let reports = self.clone();
        let name = "tower-semaphore".to_owned();
        let thread = thread::Builder::new().name(name);
        if thread.spawn(move || reports.run()).is_err() {
            // The next line tries again.
            self.queue.lock().runs = false;
        }
    }

    /// The thread. It ends when nothing is left.
    fn run(&self) {
        while let Some(queue) = self.take() {
            queue.tell();
        }
    }

    fn take(&self) -> Option<Queue> {
        let mut queue = self.queue.lock();
        let runs = queue.dropped > 0 || !queue.lines.is_empty() || !queue.counts.is_empty();
        let taken = mem::take(&mut *queue);
        queue.runs = runs;
        runs.then_some(taken)
    }
}

impl Queue {
    fn push(&mut self, line: Line) {
        match self.lines.len() < MOST {
            true => self.lines.push_back(line),
            false => self.dropped += 1,
        }
    }

    fn count(&mut self, policy: &Policy, what: Count) {
        let mut known = self.counts.iter_mut();
        let known = known.find(|(of, known, _)| of == policy && *known == what);
        match known {
            Some((.., count)) => *count += 1,
            None => self.counts.push((policy.clone(), what, 1)),
        }
    }

    /// Both contain panics.
    fn tell(self) {
        for (policy, what, count) in self.counts {
            let meter = Meter::of(REDIS, &policy);
            (0..count).for_each(|_| match what {
                Count::Lost(by) => meter.lost(by),
                Count::Degraded => meter.degraded(),
            });
        }
        self.lines.into_iter().for_each(Line::tell);
        if self.dropped > 0 {
            events::dropped(self.dropped);
        }
    }
}

impl Line {
    fn tell(self) {
        match self {
            Self::Lost(policy, token, by) => events::lost(Some((REDIS, &policy)), by, token),
            Self::Called {
                verb,
                took,
                size,
                answered,
            } => called(REDIS, verb, took, [(size, answered)].into_iter()),
            Self::Degraded(policy, name, is_kept) => {
                let how = if is_kept { "kept" } else { "admitted" };
                events::degraded(Some((REDIS, &policy)), how, &name);
            }
            Self::Connected(address, again) => events::connected(&address, again),
            Self::NotConnected(why) => {
                let why: Option<&dyn Error> = why.as_ref().map(|why| &**why as _);
                // Its level says nothing more.
                let why = why.and_then(|why| why.source().or(Some(why)));
                why.into_iter().for_each(events::not_connected);
            }
            Self::Fails(why) => events::fails(&*why),
            Self::Works => events::works(),
            Self::KeeperDied => events::keeper_died(),
            Self::CoreDied => events::core_died(),
        }
    }
}

impl Observer for Reports {
    fn keeper_died(&self) {
        self.line(Line::KeeperDied);
    }

    fn core_died(&self) {
        self.line(Line::CoreDied);
    }

    fn connected(&self, address: String, again: bool) {
        self.line(Line::Connected(address, again));
    }

    fn not_connected(&self, why: Option<Cause>) {
        self.line(Line::NotConnected(why));
    }

    fn outage(&self, outage: Outage, why: Option<Cause>) {
        // Without a cause answers were only too slow.
        let why = why.unwrap_or_else(|| Arc::new(RedisError::Timeout(self.timeout)));
        let (is_news, line) = match outage {
            Outage::Begins => (self.alert.begins(), Line::Fails(why)),
            Outage::Ends { works } => (self.alert.ends(works), Line::Works),
        };
        if is_news {
            self.line(line);
        }
    }

    fn lost(&self, policy: &Policy, token: u64, by: LostBy) {
        if IS_ON {
            self.change(|queue| {
                queue.count(policy, Count::Lost(by));
                queue.push(Line::Lost(policy.clone(), token, by));
            });
        }
    }

    fn degraded(&self, policy: &Policy, name: &Arc<str>, is_kept: bool) {
        if IS_ON {
            self.change(|queue| {
                queue.count(policy, Count::Degraded);
                queue.push(Line::Degraded(policy.clone(), Arc::clone(name), is_kept));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_no_loss_is_forgotten() {
        let reports = Reports::default();
        // As if a thread ran, which stands still.
        reports.queue.lock().runs = true;
        for token in 0..MOST as u64 + 3 {
            reports.lost(&Policy::DEFAULT, token, LostBy::Lease);
        }
        let queue = reports.take();
        let (lost, lines, dropped) = match &queue {
            Some(queue) => (queue.counts[0].2, queue.lines.len(), queue.dropped),
            None => (0, 0, 0),
        };
        let expected = if IS_ON {
            (MOST as u64 + 3, MOST, 3)
        } else {
            (0, 0, 0)
        };
        assert_eq!((lost, lines, dropped), expected);
        assert!(reports.take().is_none() && !reports.queue.lock().runs);
    }
}
