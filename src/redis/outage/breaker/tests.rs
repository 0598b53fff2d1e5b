use super::*;
use redis::RedisError;
use std::{io, thread::sleep};

use WhenUnavailable::{Admit, Refuse, Share};

const MS: Duration = Duration::from_millis(1);

fn breaker(policy: WhenUnavailable) -> Breaker {
    Breaker::new(Times::new(30 * MS, MS), policy, true, &Arc::default())
}

impl Breaker {
    fn failed(&self, error: &Error) {
        self.observe([("key", Some(error))]);
    }

    fn succeeded(&self) {
        self.observe([("key", None)]);
    }
}

/// Fails, longer than a stall.
fn fail(breaker: &Breaker, times: u32) {
    for at in 1..=times {
        if at == times {
            sleep(2 * MS);
        }
        breaker.failed(&Error::Timeout(MS));
    }
}

#[test]
fn failures_in_a_row_open_it_and_an_answer_closes_it() {
    let breaker = breaker(Refuse);
    fail(&breaker, MAX_FAILURES - 1);
    breaker.succeeded();
    fail(&breaker, MAX_FAILURES - 1);
    assert_eq!(breaker.phase(), Phase::Failing);
    fail(&breaker, 1);
    assert_eq!(breaker.phase(), Phase::Open);
    assert!(!breaker.summary.is_well());
    let late = Error::Timeout(MS);
    breaker.observe([("key", Some(&late)), ("other", None)]);
    assert_eq!(breaker.phase(), Phase::Well);
    assert_eq!(breaker.kept_until(), 0, "`Refuse` keeps nothing");
}

#[test]
fn a_crowd_of_ours_neither_opens_it_nor_closes_it() {
    let breaker = breaker(Admit);
    (0..9).for_each(|_| breaker.failed(&Error::Congested));
    assert_eq!(breaker.phase(), Phase::Well);
    fail(&breaker, MAX_FAILURES);
    breaker.failed(&Error::Congested);
    assert_eq!(breaker.phase(), Phase::Open);
}

#[test]
fn connections_that_break_without_an_answer_open_it() {
    let breaker = breaker(Admit);
    let broken = io::Error::from(io::ErrorKind::BrokenPipe);
    let broken = Error::Redis(broken.into());
    for _ in 0..MAX_FAILURES {
        breaker.failed(&broken);
        sleep(2 * MS);
    }
    assert_eq!(breaker.phase(), Phase::Open);
}

#[test]
fn a_server_that_was_gone_for_a_moment_may_be_empty() {
    let error = |kind| RedisError::from(io::Error::from(kind));
    let refused = Error::Unavailable(error(io::ErrorKind::ConnectionRefused));
    let broken = Error::Redis(error(io::ErrorKind::BrokenPipe));
    for failure in [refused, broken] {
        let breaker = breaker(Admit);
        breaker.failed(&failure);
        breaker.succeeded();
        assert_eq!(breaker.phase(), Phase::Settling);
        assert!(breaker.kept_until() > 0 && *breaker.summary.returns.borrow() == 1);
    }
}

#[test]
fn others_may_have_taken_any_failure_for_an_outage() {
    for (policy, phase) in [(Admit, Phase::Well), (Share, Phase::Settling)] {
        let breaker = breaker(policy);
        fail(&breaker, 1);
        assert_eq!(breaker.kept_until(), u64::MAX);
        breaker.succeeded();
        assert_eq!(breaker.phase(), phase);
    }
}

/// Of a process to which the server has answered another call a moment before.
fn after_a_failure(error: &Error, then: impl FnOnce(&Breaker)) -> Phase {
    let times = Times::new(300_000 * MS, 100_000 * MS);
    let breaker = Breaker::new(times, Share, true, &Arc::default());
    sleep(MS);
    breaker.summary.worked(times.now());
    breaker.failed(error);
    then(&breaker);
    breaker.succeeded();
    breaker.phase()
}

#[test]
fn a_timeout_while_the_server_works_is_no_outage_unless_a_claim_was_admitted() {
    let timeout = Error::Timeout(MS);
    assert_eq!(after_a_failure(&timeout, |_| {}), Phase::Well);
    assert_eq!(after_a_failure(&timeout, Breaker::admits), Phase::Settling);
}

#[test]
fn a_server_that_says_that_it_cannot_work_is_unavailable_to_others_too() {
    let error = Error::NotReplicated(0);
    assert_eq!(after_a_failure(&error, |_| {}), Phase::Settling);
}

#[test]
fn a_part_that_is_in_doubt_settles() {
    let breaker = breaker(Share);
    for _ in 0..2 {
        breaker.doubt("key");
        assert_eq!(breaker.phase(), Phase::Failing);
        assert_eq!(&*breaker.last_key(), "key");
        breaker.succeeded();
        assert_eq!(breaker.phase(), Phase::Settling);
    }
    fail(&breaker, MAX_FAILURES);
    breaker.doubt("other");
    assert_eq!(breaker.phase(), Phase::Open);
}

#[test]
fn a_failure_while_it_settles_begins_that_anew_and_leaves_no_trace() {
    let breaker = breaker(Share);
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    let refused = Error::Unavailable(refused.into());
    breaker.failed(&refused);
    breaker.succeeded();
    sleep(breaker.settling_time());
    breaker.failed(&refused);
    breaker.succeeded();
    assert_eq!(breaker.phase(), Phase::Settling);
    assert_eq!(*breaker.summary.returns.borrow(), 2);
    sleep(breaker.settling_time());
    breaker.succeeded();
    fail(&breaker, 1);
    breaker.succeeded();
    assert_eq!(*breaker.summary.returns.borrow(), 2);
}

/// A timeout while the server works does not begin that anew, but until an answer it is unclear.
#[test]
fn a_failure_of_this_process_while_it_settles_is_over_with_an_answer() {
    let times = Times::new(300_000 * MS, 100_000 * MS);
    let breaker = Breaker::new(times, Share, true, &Arc::default());
    breaker.failed(&Error::NotReplicated(0));
    breaker.succeeded();
    let returned = breaker.state.lock().returned;
    sleep(MS);
    breaker.summary.worked(times.now());
    breaker.failed(&Error::Timeout(MS));
    assert_eq!(breaker.phase(), Phase::Failing);
    assert_eq!(breaker.kept_until(), u64::MAX);
    breaker.succeeded();
    assert_eq!(breaker.phase(), Phase::Settling);
    assert_eq!(breaker.state.lock().returned, returned);
    let end = breaker.kept_until();
    assert!(end < u64::MAX, "leases that end are kept for ever");
    assert_eq!(*breaker.summary.alarms.borrow(), 1);
}

#[test]
fn it_settles_before_all_is_well() {
    let breaker = breaker(Admit);
    fail(&breaker, MAX_FAILURES);
    assert_eq!(breaker.kept_until(), u64::MAX);
    breaker.succeeded();
    assert_eq!(breaker.phase(), Phase::Settling);
    assert!(breaker.kept_until() < u64::MAX);
    let end = Instant::now() + breaker.settling_time();
    breaker.succeeded();
    assert!(breaker.phase() == Phase::Settling || Instant::now() >= end);
    sleep(breaker.settling_time());
    breaker.succeeded();
    assert_eq!(breaker.phase(), Phase::Well);
    assert_eq!(*breaker.summary.alarms.borrow(), 1);
    assert!(breaker.summary.is_well());
}

#[test]
fn one_stall_does_not_open_it() {
    let breaker = Breaker::new(
        Times::new(300_000 * MS, 100_000 * MS),
        Admit,
        true,
        &Arc::default(),
    );
    (0..100).for_each(|_| breaker.failed(&Error::Timeout(MS)));
    assert_eq!(breaker.phase(), Phase::Failing);
}

#[test]
fn a_suspended_machine_has_kept_leases_from_before_that_much_sooner() {
    let breaker = breaker(Admit);
    fail(&breaker, MAX_FAILURES);
    breaker.advance(MS);
    assert_eq!(breaker.kept_until(), u64::MAX, "the outage goes on");
    breaker.succeeded();
    let end = breaker.kept_until();
    breaker.advance(MS);
    assert_eq!(breaker.kept_until(), end - 1_000);
}

#[test]
fn settling_takes_a_lost_connection_four_timeouts_and_two_ticks() {
    let times = Times::new(48_000 * MS, 250 * MS);
    let breaker = Breaker::new(times, Admit, true, &Arc::default());
    assert_eq!(
        breaker.settling_time(),
        3_000 * MS + CONNECT + CONNECT_PAUSE
    );
    assert!(breaker.is_of_one_server());
    assert!(!Breaker::new(times, Admit, false, &Arc::default()).is_of_one_server());
}

#[test]
fn of_several_nodes_one_claim_now_and_then_tries() {
    let several = Breaker::new(Times::new(30 * MS, 5 * MS), Admit, false, &Arc::default());
    assert!(!several.may_try() || several.state.lock().returned.elapsed() >= 20 * MS);
    sleep(25 * MS);
    assert!(several.may_try());
    let one = Breaker::new(Times::new(30 * MS, 5 * MS), Admit, true, &Arc::default());
    sleep(25 * MS);
    assert!(!one.may_try());
}
