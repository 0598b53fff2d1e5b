use super::*;
use crate::observe::Answered;
use redis::{ErrorKind, RedisError};

const TIMES: (Duration, Duration) = (Duration::from_secs(9), Duration::from_millis(250));

/// The state of the log, and the time on a server that fails and works.
struct FailingServer(ReportState, Instant);

impl FailingServer {
    fn new() -> Self {
        Self(ReportState::default(), Instant::now())
    }

    fn wait(&mut self, time: Duration) {
        self.1 += time;
    }

    fn fails(&mut self, error: &CallError) -> bool {
        self.0.failed(error, self.1, TIMES.1)
    }

    fn works(&mut self) -> bool {
        self.0.worked(self.1, TIMES.0)
    }

    /// Claims work again. That is logged once, after a lease without a failure.
    fn assert_ends(&mut self) {
        assert!(!self.works(), "a failure may follow");
        self.wait(TIMES.0);
        assert!(self.works() && !self.works() && self.0.is_idle());
    }
}

fn answer(text: &str) -> CallError {
    let line = format!("-{text}\r\n");
    let value = redis::parse_redis_value(line.as_bytes()).expect("an error is a value");
    let redis::Value::ServerError(error) = value else {
        panic!("{text} is no error");
    };
    CallError::Redis(error.into())
}

fn key() -> CallError {
    answer("WRONGTYPE x")
}

#[test]
fn what_a_person_has_to_mend_is_told_at_once_and_once() {
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
        assert!(!server.fails(&error) && !server.fails(&key()) && !server.0.opens());
        assert!(!server.0.closes(true), "a person has to");
        server.assert_ends();
    }
}

#[test]
fn silence_is_told_once_it_is_no_stall() {
    let (mut server, silence) = (FailingServer::new(), CallError::Timeout(TIMES.1));
    let round = |server: &mut FailingServer| {
        assert!((0..9).all(|_| !server.fails(&silence)), "a stall");
        server.wait(TIMES.1);
    };
    round(&mut server);
    assert!(!server.works());
    round(&mut server);
    assert!(server.fails(&silence) && !server.fails(&silence));
    server.assert_ends();
}

#[test]
fn failures_by_turns_with_successes_are_one_time() {
    for text in [
        "WRONGTYPE x",
        "NOPERM No permissions to access a key",
        "NOPERM User ann has no permissions to run the 'zrange' command",
    ] {
        let (mut server, error) = (FailingServer::new(), answer(text));
        assert!(server.fails(&error));
        for _ in 0..9 {
            server.wait(TIMES.0 / 2);
            assert!(!server.works() && !server.fails(&error));
        }
        server.assert_ends();
    }
}

#[test]
fn a_breaker_that_closes_ends_what_may_pass_unless_others_are_open() {
    let mut server = FailingServer::new();
    assert!(server.0.opens() && !server.0.opens());
    server.wait(TIMES.0);
    assert!(!server.0.closes(true) && !server.works());
    assert!(server.0.closes(true) && server.0.is_idle());
    // An answer that is an error may be due to a restart, so only the first answered claim ends the log entry.
    assert!(server.0.opens() && !server.0.closes(false));
    assert!(server.works() && server.0.is_idle());
}

#[test]
fn a_cause_that_needs_another_remedy_is_told_too() {
    let mut server = FailingServer::new();
    assert!(server.fails(&key()));
    assert!(server.0.opens() && !server.0.closes(false));
    assert!(server.fails(&answer("NOAUTH x")) && !server.fails(&key()));
    server.assert_ends();
}

#[test]
fn what_does_not_fit_is_counted_and_no_loss_is_forgotten() {
    let reports = Arc::new(Reports::new(TIMES.0, TIMES.1));
    // As if the thread ran, but stood still.
    reports.mailbox.queue.lock().has_reader = true;
    for token in 0..MOST as u64 + 3 {
        reports.tell(News::Lost(Policy::DEFAULT, token, LostBy::Lease));
    }
    let mailbox = Arc::clone(&reports.mailbox);
    drop(reports);
    let batch = mailbox.take();
    let (lost, news, dropped) = match &batch {
        Some(batch) => (batch.counts.values().sum(), batch.news.len(), batch.dropped),
        None => (0, 0, 0),
    };
    let expected = if IS_ON {
        (MOST as u64 + 3, MOST, 3)
    } else {
        (0, 0, 0)
    };
    assert_eq!((lost, news, dropped), expected);
    assert!(mailbox.take().is_none());
}

#[test]
fn a_call_is_not_queued_without_a_recorder() {
    let reports = Reports::new(TIMES.0, TIMES.1);
    reports.tell(News::Called {
        verb: "refresh",
        size: 1,
        took: Duration::ZERO,
        answered: Answered::Ok,
        by_thread: true,
    });
    let queue = reports.mailbox.queue.lock();
    assert!(queue.batch.news.is_empty() && !queue.has_reader);
}
