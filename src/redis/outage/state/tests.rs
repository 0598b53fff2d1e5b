use super::*;
use crate::redis::protocol::PermitId;
use futures_util::FutureExt;
use std::{io, pin::pin, time::Duration};

const SECOND: Duration = Duration::from_secs(1);

fn outage(policy: WhenUnavailable) -> Outage {
    let times = Times::new(30 * SECOND, SECOND);
    let breaker = Breaker::new(times, policy.admits(), true);
    Outage::new(policy, Arc::new(breaker), times)
}

fn granted(serial: u64) -> Arc<Lease> {
    let lease = Lease::new("p{c:a}".into(), PermitId::new(serial, 20, 1));
    lease.granted(serial, u64::MAX);
    Arc::new(lease)
}

/// Whether a share of two units is not used up.
fn has_room(outage: &Outage) -> bool {
    let (name, units, share) = ("p{c:a}".into(), 1, 2);
    outage
        .counts
        .take(&[Wanted { name, units, share }])
        .is_some()
}

#[test]
fn permits_are_counted_when_something_fails_and_the_policy_has_to_know() {
    for (policy, counts) in [
        (WhenUnavailable::Share, true),
        (WhenUnavailable::ShareOf(0.5), true),
        (WhenUnavailable::Admit, false),
        (WhenUnavailable::Refuse, false),
    ] {
        let outage = outage(policy);
        outage.granted(&granted(1));
        assert_eq!(outage.uncounted(), None, "all is well");
        outage.breaker.suspect();
        assert_eq!(outage.uncounted(), counts.then_some(1));
        outage.count_all(&[], 1);
        assert_eq!(outage.uncounted(), None, "they are counted");
        assert!(has_room(&outage));
        let leases = [granted(2), granted(3)];
        leases.iter().for_each(|lease| outage.granted(lease));
        assert_eq!(has_room(&outage), !counts);
        assert!(leases[0].release());
        outage.released(&leases[0]);
        assert!(has_room(&outage));
    }
}

#[test]
fn a_return_is_told_once() {
    let outage = outage(WhenUnavailable::Admit);
    assert!(!outage.has_returned());
    let gone = io::Error::from(io::ErrorKind::ConnectionRefused);
    outage.breaker.failed(&Error::Unavailable(gone.into()));
    assert!(!outage.has_returned());
    outage.breaker.observe(&[Ok(())]);
    assert!(outage.is_settling() && outage.has_returned());
    assert!(!outage.has_returned());
}

#[test]
fn only_probes_are_sent_to_one_server_while_the_breaker_is_open() {
    for (one_server, is_silent) in [(true, true), (false, false)] {
        let times = Times::new(30 * SECOND, Duration::ZERO);
        let breaker = Arc::new(Breaker::new(times, true, one_server));
        let outage = Outage::new(WhenUnavailable::Admit, breaker, times);
        assert!(!outage.is_silent());
        (0..9).for_each(|_| outage.breaker.failed(&Error::Timeout(SECOND)));
        assert_eq!(outage.phase(), Phase::Open);
        assert_eq!(outage.is_silent(), is_silent);
    }
}

/// A store that has just come back.
fn settling() -> Outage {
    let times = Times::new(Duration::from_millis(30), Duration::from_millis(1));
    let outage = Outage::new(
        WhenUnavailable::Admit,
        Arc::new(Breaker::new(times, true, true)),
        times,
    );
    let gone = io::Error::from(io::ErrorKind::ConnectionRefused);
    outage.breaker.failed(&Error::Unavailable(gone.into()));
    outage.breaker.observe(&[Ok(())]);
    assert!(outage.is_settling() && outage.kept_until() > 1);
    outage
}

#[tokio::test]
async fn a_claim_waits_until_the_store_has_settled_or_its_time_is_over() {
    let (outage, far) = (settling(), Instant::now() + SECOND * 3_600);
    assert!(outage.settled(far).now_or_never().is_none());
    outage.settled(Instant::now()).await;
    tokio::time::sleep(outage.breaker.settling_time()).await;
    outage.breaker.settle();
    assert!(!outage.is_settling());
    assert!(outage.settled(far).now_or_never().is_some());
}

#[tokio::test]
async fn a_failure_is_a_blip_if_the_server_answers_others_before_it_is_clear() {
    let far = Instant::now() + SECOND * 3_600;
    let new = |processes| {
        let outage = outage(WhenUnavailable::Share);
        outage.live.told(processes, Instant::now(), SECOND);
        outage
    };
    let alone = new(1);
    assert!(!alone.was_a_blip(far).await);
    assert_eq!(alone.phase(), Phase::Failing);
    let blip = new(2);
    let before = Instant::now();
    {
        let mut decided = pin!(blip.was_a_blip(far));
        assert!(decided.as_mut().now_or_never().is_none());
        assert!(blip.breaker.clear_at() >= before + SECOND);
        blip.breaker.observe(&[Ok(())]);
        assert!(decided.await);
    }
    let outage = new(2);
    assert!(!outage.was_a_blip(Instant::now()).await, "its time is over");
    assert_eq!(outage.breaker.alarms(), 1);
}

#[tokio::test]
async fn a_claim_takes_a_place_once_all_permits_are_counted() {
    let (outage, far) = (
        outage(WhenUnavailable::Share),
        Instant::now() + SECOND * 3_600,
    );
    let wanted = || {
        let (name, units, share) = ("p{c:a}".into(), 1, 2);
        [Wanted { name, units, share }]
    };
    assert_eq!(outage.breaker.alarms(), 0);
    assert!(outage.place(&wanted(), far).await.is_some());
    outage.breaker.suspect();
    assert!(outage.place(&wanted(), far).now_or_never().is_none());
    assert!(outage.place(&wanted(), Instant::now()).await.is_none());
    outage.count_all(&[], 1);
    assert!(outage.place(&wanted(), far).await.is_some());
}
