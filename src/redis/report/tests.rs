use super::*;
use crate::observe::Answered;
use redis::{ErrorKind, RedisError};

const LEASE: Duration = Duration::from_secs(9);
const TIMEOUT: Duration = Duration::from_millis(250);

/// A server that fails and works by turns: what is logged of it, and the time.
struct FailingServer {
    state: ReportState,
    now: Instant,
}

impl FailingServer {
    fn new() -> Self {
        Self {
            state: ReportState::default(),
            now: Instant::now(),
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    fn fails(&mut self, error: &CallError) -> bool {
        self.state.failed(error, self.now, TIMEOUT)
    }

    fn works(&mut self) -> bool {
        self.state.worked(self.now, LEASE)
    }

    /// Asserts that claims work again, and that this is logged once, after a lease without a failure.
    fn assert_ends(&mut self) {
        assert!(!self.works(), "a failure may follow");
        self.wait(LEASE);
        assert!(self.works() && !self.works() && self.state.is_idle());
    }
}

/// A server's error with this code and text.
fn answer(text: &str) -> CallError {
    let line = format!("-{text}\r\n");
    let value = redis::parse_redis_value(line.as_bytes()).expect("an error is a value");
    let redis::Value::ServerError(error) = value else {
        panic!("{text} is no error");
    };
    CallError::Redis(error.into())
}

fn error_of_one_key() -> CallError {
    answer("WRONGTYPE x")
}

#[test]
fn a_cause_that_a_person_must_correct_is_logged_at_once_and_only_once() {
    let wrong = RedisError::from((ErrorKind::AuthenticationFailed, "a wrong password"));
    for error in [
        answer("NOAUTH Authentication required."),
        answer("ERR Protocol error: unauthenticated multibulk length"),
        answer("WRONGPASS invalid username-password pair"),
        answer("NOPERM User ann has no permissions to run the 'evalsha' command"),
        answer(
            "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
        ),
        CallError::Unavailable(wrong),
        CallError::PausedClock,
    ] {
        let mut server = FailingServer::new();
        assert!(server.fails(&error), "{error:?}");
        assert!(
            !server.fails(&error) && !server.fails(&error_of_one_key()) && !server.state.opens()
        );
        assert!(!server.state.closes(true), "only a person can correct it");
        server.assert_ends();
    }
}

#[test]
fn silence_is_logged_once_it_lasts_longer_than_a_stall() {
    let (mut server, silence) = (FailingServer::new(), CallError::Timeout(TIMEOUT));
    let round = |server: &mut FailingServer| {
        assert!((0..9).all(|_| !server.fails(&silence)), "a stall");
        server.wait(TIMEOUT);
    };
    round(&mut server);
    assert!(!server.works());
    round(&mut server);
    assert!(server.fails(&silence) && !server.fails(&silence));
    server.assert_ends();
}

#[test]
fn failures_and_successes_by_turns_are_logged_once() {
    for text in [
        "WRONGTYPE x",
        "NOPERM No permissions to access a key",
        "NOPERM User ann has no permissions to run the 'zrange' command",
    ] {
        let (mut server, error) = (FailingServer::new(), answer(text));
        assert!(server.fails(&error));
        for _ in 0..9 {
            server.wait(LEASE / 2);
            assert!(!server.works() && !server.fails(&error));
        }
        server.assert_ends();
    }
}

#[test]
fn the_end_of_the_last_outage_ends_the_log_entry_of_a_passing_cause() {
    let mut server = FailingServer::new();
    assert!(server.state.opens() && !server.state.opens());
    server.wait(LEASE);
    assert!(!server.state.closes(true) && !server.works());
    assert!(server.state.closes(true) && server.state.is_idle());
    // An answer that is an error may be due to a restart, so only the first answered claim ends the log entry.
    assert!(server.state.opens() && !server.state.closes(false));
    assert!(server.works() && server.state.is_idle());
}

#[test]
fn a_cause_that_needs_another_remedy_is_logged_too() {
    let mut server = FailingServer::new();
    assert!(server.fails(&error_of_one_key()));
    assert!(server.state.opens() && !server.state.closes(false));
    assert!(server.fails(&answer("NOAUTH x")) && !server.fails(&error_of_one_key()));
    server.assert_ends();
}

#[test]
fn news_that_do_not_fit_are_counted_and_so_is_each_loss() {
    let reports = Arc::new(Reports::new(LEASE, TIMEOUT));
    // As if the thread ran, but stood still.
    reports.mailbox.queue.lock().has_reader = true;
    for token in 0..MAX_NEWS as u64 + 3 {
        reports.report(News::Lost(Policy::DEFAULT, token, LostBy::Lease));
    }
    let mailbox = Arc::clone(&reports.mailbox);
    drop(reports);
    let batch = mailbox.take();
    let (lost, news, dropped) = match &batch {
        Some(batch) => (batch.counts.values().sum(), batch.news.len(), batch.dropped),
        None => (0, 0, 0),
    };
    let expected = if IS_ON {
        (MAX_NEWS as u64 + 3, MAX_NEWS, 3)
    } else {
        (0, 0, 0)
    };
    assert_eq!((lost, news, dropped), expected);
    assert!(mailbox.take().is_none());
}

#[test]
fn a_call_is_not_queued_without_a_recorder() {
    let reports = Reports::new(LEASE, TIMEOUT);
    reports.report(News::Called {
        verb: "refresh",
        size: 1,
        took: Duration::ZERO,
        answered: Answered::Ok,
        by_thread: true,
    });
    let queue = reports.mailbox.queue.lock();
    assert!(queue.batch.news.is_empty() && !queue.has_reader);
}
