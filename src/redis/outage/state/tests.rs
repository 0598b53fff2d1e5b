use super::*;
use crate::redis::{protocol::PermitId, transport::Unused};
use futures_util::FutureExt;
use std::{io, pin::pin, slice};

const SECOND: Duration = Duration::from_secs(1);

fn outage_of(policy: WhenUnavailable, one_server: bool, times: Times) -> Outage {
    let transport = Arc::new(Unused { one_server });
    Outage::new(policy, Breakers::new(transport, times, policy), times)
}

fn outage(policy: WhenUnavailable) -> Outage {
    outage_of(policy, true, Times::new(30 * SECOND, SECOND))
}

impl Outage {
    fn breaker(&self) -> Arc<Breaker> {
        self.breakers.of("p{c:a}")
    }

    fn observe(&self, outcome: Option<&Error>) {
        self.breaker().observe([("p{c:a}", outcome)]);
    }
}

fn gone() -> Error {
    let gone = io::Error::from(io::ErrorKind::ConnectionRefused);
    Error::Unavailable(gone.into())
}

fn granted(serial: u64) -> Arc<Lease> {
    let lease = Lease::new("p{c:a}".into(), PermitId::new(serial, 20, 1));
    lease.granted(serial, u64::MAX);
    Arc::new(lease)
}

fn wanted() -> [Wanted; 1] {
    let (name, units, share) = ("p{c:a}".into(), 1, 2);
    [Wanted { name, units, share }]
}

/// Whether a share of two units is not used up.
fn has_room(outage: &Outage) -> bool {
    outage.counts.take(&wanted()).is_some()
}

#[tokio::test]
async fn permits_are_counted_when_something_fails_and_the_policy_has_to_know() {
    for (policy, counts) in [
        (WhenUnavailable::Share, true),
        (WhenUnavailable::ShareOf(0.1), true),
        (WhenUnavailable::Admit, false),
        (WhenUnavailable::Refuse, false),
    ] {
        let outage = outage(policy);
        outage.live.told(10, Instant::now(), SECOND);
        assert_eq!(outage.uncounted(), None, "all is well");
        outage.breaker().suspect();
        assert_eq!(outage.uncounted(), counts.then_some(1));
        outage.count_all(&[], 1);
        assert_eq!(outage.uncounted(), None, "they are counted");
        assert!(has_room(&outage));
        let leases = [granted(2), granted(3), granted(4)];
        let is_used = |leases| outage.granted(leases, None).now_or_never();
        assert!(is_used(&leases[..2]).is_some_and(|used| used.is_ok()));
        assert_eq!(has_room(&outage), !counts);
        let over = is_used(slice::from_ref(&leases[2]));
        assert!(over.is_some_and(|used| used.is_err() == counts));
        assert!(leases[0].release());
        outage.released(&leases[0]);
        assert!(has_room(&outage));
    }
}

#[test]
fn a_return_is_told_once() {
    let outage = outage(WhenUnavailable::Admit);
    assert!(!outage.has_returned());
    outage.observe(Some(&gone()));
    assert!(!outage.has_returned());
    outage.observe(None);
    assert!(outage.is_settling() && outage.has_returned());
    assert!(!outage.has_returned());
}

#[test]
fn only_probes_are_sent_to_one_server_while_the_breaker_is_open() {
    for (one_server, is_silent) in [(true, true), (false, false)] {
        let times = Times::new(30 * SECOND, Duration::ZERO);
        let outage = outage_of(WhenUnavailable::Admit, one_server, times);
        assert!(!outage.is_silent("p{c:a}"));
        (0..9).for_each(|_| outage.observe(Some(&Error::Timeout(SECOND))));
        assert_eq!(outage.breaker().phase(), Phase::Open);
        assert_eq!(outage.is_silent("p{c:a}"), is_silent);
    }
}

#[tokio::test]
async fn a_claim_waits_until_the_store_has_settled_or_its_time_is_over() {
    let times = Times::new(Duration::from_millis(30), Duration::from_millis(1));
    let outage = outage_of(WhenUnavailable::Admit, true, times);
    outage.observe(Some(&gone()));
    outage.observe(None);
    assert!(outage.is_settling() && outage.kept_until(&granted(1)) > 1);
    let (breaker, far) = (outage.breaker(), Instant::now() + SECOND * 3_600);
    assert!(breaker.settled(far).now_or_never().is_none());
    breaker.settled(Instant::now()).await;
    tokio::time::sleep(breaker.settling_time()).await;
    outage.observe(None);
    assert!(!outage.is_settling());
    assert!(breaker.settled(far).now_or_never().is_some());
}

#[tokio::test]
async fn a_failure_is_a_blip_if_the_server_answers_others_before_it_is_clear() {
    let far = Instant::now() + SECOND * 3_600;
    let outage = outage(WhenUnavailable::Share);
    let (breaker, before) = (outage.breaker(), Instant::now());
    breaker.suspect();
    assert!(
        !breaker.was_a_blip(Instant::now()).await,
        "its time is over"
    );
    let mut decided = pin!(breaker.was_a_blip(far));
    assert!(decided.as_mut().now_or_never().is_none());
    assert!(breaker.clear_at() >= before + SECOND);
    outage.observe(None);
    assert!(decided.await);
}

#[tokio::test]
async fn a_claim_takes_a_place_once_all_permits_are_counted() {
    let (outage, far) = (
        outage(WhenUnavailable::Share),
        Instant::now() + SECOND * 3_600,
    );
    assert!(outage.reserve(&wanted(), far).await.is_some());
    outage.breaker().suspect();
    assert!(outage.reserve(&wanted(), far).now_or_never().is_none());
    assert!(outage.reserve(&wanted(), Instant::now()).await.is_none());
    outage.count_all(&[], 1);
    assert!(outage.reserve(&wanted(), far).await.is_some());
}
