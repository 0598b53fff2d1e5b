//! The `Retry-After` that single clients receive: the time for which permits were held, times a margin. The margin is
//! 2.25 under a limit of 1, and 1.88 under a limit of 2. Without holds so far, half a second is assumed.
//!
//! Promises: P21.

use futures_util::stream;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, StreamBody};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::Duration,
};
use testing::{
    http_requests::{limit, request},
    stubs::Failing,
};
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, Permit, ResponseBody, key};

type Endless = BoxCloneSyncService<Request<String>, Response<ResponseBody<Stream>>, Infallible>;

type Stream = StreamBody<stream::Pending<Result<http_body::Frame<bytes::Bytes>, Infallible>>>;

/// A response that lasts until it is dropped.
async fn endless(_: Request<String>) -> Result<Response<Stream>, Infallible> {
    Ok(Response::new(StreamBody::new(stream::pending())))
}

async fn send<S, B>(service: &S, account: &str) -> Response<B>
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    let Ok(answer) = service.clone().oneshot(request(account)).await;
    answer
}

fn retry_after<B>(answer: &Response<B>) -> u64 {
    let value = answer.headers()["retry-after"].to_str().expect("digits");
    value.parse().expect("seconds")
}

/// Holds the account's only permit for `time`. Then `others` more requests are refused. Returns their waits.
async fn hold<S, B>(service: &S, account: &str, time: Duration, others: usize) -> Vec<u64>
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    let held = send(service, account).await;
    assert_eq!(held.status(), 200);
    sleep(time).await;
    let mut times = Vec::new();
    for _ in 0..others {
        times.push(retry_after(&send(service, account).await));
    }
    drop(held);
    times
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_hours_sends_no_client_away_for_hours() {
    let service = limit(1, MemorySemaphore::new()).layer(service_fn(endless));
    hold(&service, "ann", Duration::from_secs(36_000), 0).await;
    let times = hold(&service, "ann", Duration::from_secs(1), 500).await;
    assert_eq!(
        times[0], 135,
        "60 s, the longest hold that counts, with a margin"
    );
    assert!(
        times.iter().all(|wait| *wait <= 600),
        "the longest schedule"
    );
    let last: BTreeSet<_> = times[400..].iter().collect();
    assert!(
        last.len() > 60,
        "clients for whom the schedule has no room are spread too"
    );
}

/// Holds two permits of an account until they have the given ages in seconds. Returns the wait of a third client.
async fn third_wait(service: &Endless, account: &str, ages: [u64; 2]) -> u64 {
    let one = send(service, account).await;
    sleep(Duration::from_secs(ages[0] - ages[1])).await;
    let other = send(service, account).await;
    sleep(Duration::from_secs(ages[1])).await;
    let refused = send(service, account).await;
    assert_eq!([one.status(), other.status()], [200, 200]);
    retry_after(&refused)
}

fn streams(limit: u32) -> Endless {
    let layer = self::limit(limit, MemorySemaphore::new());
    BoxCloneSyncService::new(layer.layer(service_fn(endless)))
}

#[tokio::test(start_paused = true)]
async fn if_no_stream_has_ended_the_wait_follows_from_the_age_of_the_youngest() {
    assert_eq!(third_wait(&streams(2), "ann", [16, 16]).await, 30);
    assert_eq!(third_wait(&streams(2), "ann", [16, 8]).await, 15);
    assert_eq!(
        third_wait(&streams(2), "ann", [36_000, 600]).await,
        113,
        "the age counts up to 60 s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_refused_again_and_again_gets_ever_longer_waits() {
    let service = streams(1);
    let stream = send(&service, "ann").await;
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(retry_after(&send(&service, "ann").await));
        sleep(Duration::from_secs(times[times.len() - 1])).await;
    }
    assert!(times.is_sorted() && times[4] > 10 * times[0], "{times:?}");
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn the_age_of_streams_counts_although_other_requests_were_short() {
    let service = streams(2);
    for _ in 0..100 {
        hold(&service, "bob", Duration::from_millis(10), 0).await;
    }
    assert_eq!(third_wait(&service, "ann", [16, 16]).await, 30);
    assert_eq!(
        third_wait(&service, "bob", [0, 0]).await,
        1,
        "bob has no old streams"
    );
}

#[tokio::test(start_paused = true)]
async fn the_age_of_streams_counts_beside_short_requests_of_another_account() {
    let service = streams(2);
    let streaming = [send(&service, "ann").await, send(&service, "ann").await];
    sleep(Duration::from_secs(16)).await;
    for _ in 0..200 {
        drop(send(&service, "bob").await);
    }
    assert!(retry_after(&send(&service, "ann").await) >= 16);
    drop(streaming);
}

#[tokio::test(start_paused = true)]
async fn one_old_stream_does_not_lengthen_the_wait_for_short_requests_beside_it() {
    let service = streams(2);
    let stream = send(&service, "ann").await;
    hold(&service, "ann", Duration::from_millis(10), 0).await;
    for _ in 0..100 {
        sleep(Duration::from_secs(10)).await;
        let waits = hold(&service, "ann", Duration::from_millis(10), 1).await;
        assert_eq!(waits, [1]);
    }
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn waits_become_short_again_when_holds_do() {
    let service = streams(2);
    assert_eq!(third_wait(&service, "ann", [16, 16]).await, 30);
    // The longest schedule is over. In the mean a new hold has a weight of 1/64, so 200 short ones outweigh the long
    // ones.
    sleep(Duration::from_secs(600)).await;
    for _ in 0..200 {
        hold(&service, "ann", Duration::from_millis(10), 0).await;
    }
    assert_eq!(third_wait(&service, "ann", [0, 0]).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_permit_counts_no_longer_than_it_is_held_although_its_response_goes_on() {
    let ten = Duration::from_secs(10);
    let limit = || limit(1, MemorySemaphore::new());
    for layer in [limit().with_max_hold(ten), limit().with_max_stall(ten)] {
        let service = layer.layer(service_fn(endless));
        hold(&service, "ann", Duration::from_secs(1_000), 0).await;
        let cut = send(&service, "ann").await;
        sleep(Duration::from_secs(1_000)).await;
        let times = hold(&service, "ann", Duration::ZERO, 1).await;
        assert_eq!(times, [22], "10 s and a margin");
        drop(cut);
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_are_refused_together_get_different_waits() {
    let service = limit(1, MemorySemaphore::new()).layer(service_fn(endless));
    let times = hold(&service, "ann", Duration::from_millis(10), 20).await;
    assert_eq!(times.iter().collect::<BTreeSet<_>>().len(), 20, "{times:?}");
    assert_eq!(times[0], 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_refused_gets_waits_from_its_own_holds() {
    let service = limit(1, MemorySemaphore::new()).layer(service_fn(endless));
    for account in ["ann", "bob"] {
        hold(&service, account, Duration::ZERO, 1).await;
    }
    for _ in 0..20 {
        hold(&service, "ann", Duration::from_secs(10), 0).await;
        hold(&service, "bob", Duration::from_secs(1), 0).await;
    }
    // The longest schedule is over.
    sleep(Duration::from_secs(600)).await;
    let [ann, bob] = [
        hold(&service, "ann", Duration::ZERO, 1),
        hold(&service, "bob", Duration::ZERO, 1),
    ];
    let (ann, bob) = (ann.await[0], bob.await[0]);
    assert!((18..=23).contains(&ann), "ten seconds and a margin: {ann}");
    assert!((1..=3).contains(&bob), "one second and a margin: {bob}");
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_a_handler_keeps_counts_until_it_is_dropped() {
    let upgrade = service_fn(async |request: Request<String>| {
        let permit = request.extensions().get::<Permit>().cloned();
        tokio::spawn(async move {
            sleep(Duration::from_secs(20)).await;
            drop(permit);
        });
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let service = limit(1, MemorySemaphore::new()).layer(upgrade);
    let socket = send(&service, "ann").await;
    socket.into_body().collect().await.expect("an empty body");
    sleep(Duration::from_secs(21)).await;
    drop(send(&service, "ann").await);
    let wait = retry_after(&send(&service, "ann").await);
    assert_eq!(wait, 45, "20 s and a margin");
}

/// Asserts that 1,000 clients are spread evenly over 30 s, and that the spread begins again a minute later.
async fn assert_spread<S, B>(service: &S)
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body,
{
    let mut times = BTreeMap::new();
    for _ in 0..1_000 {
        *times
            .entry(retry_after(&send(service, "ann").await))
            .or_insert(0) += 1;
    }
    assert!(times.keys().all(|wait| (1..=30).contains(wait)));
    // About 33 in each second.
    let are_spread = |wait| (25..=45).contains(&times[&wait]);
    assert!((1..29).all(are_spread), "{times:?}");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        retry_after(&send(service, "ann").await),
        1,
        "another outage"
    );
}

#[tokio::test(start_paused = true)]
async fn clients_are_spread_over_half_a_minute_of_an_outage() {
    assert_spread(&limit(1, Failing).layer(service_fn(endless))).await;
}

#[tokio::test(start_paused = true)]
async fn clients_of_a_closed_limit_are_spread_too() {
    assert_spread(&limit(0, MemorySemaphore::new()).layer(service_fn(endless))).await;
}

#[tokio::test(start_paused = true)]
async fn a_custom_rejection_sees_the_wait() {
    let layer = limit(1, MemorySemaphore::new()).with_rejection(|rejection| {
        let time = rejection.retry_after();
        let response = rejection.into_response();
        assert_eq!(time, Some(Duration::from_secs(retry_after(&response))));
        response
    });
    let service = layer.layer(service_fn(endless));
    // The first client may return after 1.1 s, and each further one 2.25 s later.
    assert_eq!(hold(&service, "ann", Duration::ZERO, 3).await, [1, 3, 5]);
}

#[tokio::test]
async fn a_wrong_request_gets_no_wait() {
    let layer = limit(1, MemorySemaphore::new()).with_rejection(|rejection| {
        assert_eq!(rejection.retry_after(), None);
        rejection.into_response()
    });
    let nameless = layer
        .layer(service_fn(endless))
        .oneshot(Request::new(String::new()));
    let response = nameless.await.expect("it is answered");
    assert!(!response.headers().contains_key("retry-after"));
}

/// The schedule grows while more clients arrive than slots become free.
#[tokio::test(start_paused = true)]
async fn a_storm_that_is_over_makes_nobody_wait_longer() {
    let service = limit(10, MemorySemaphore::new()).layer(service_fn(endless));
    let longest_wait = async || {
        let mut held = Vec::new();
        for _ in 0..10 {
            held.push(send(&service, "ann").await);
        }
        sleep(Duration::from_secs(1)).await;
        let mut longest = 0;
        for _ in 0..20 {
            longest = retry_after(&send(&service, "ann").await).max(longest);
        }
        longest
    };
    // The first holds make the mean. After an hour the schedule is over.
    longest_wait().await;
    sleep(Duration::from_secs(3_600)).await;
    let before = longest_wait().await;
    for _ in 0..100 {
        longest_wait().await;
    }
    assert!(longest_wait().await > before * 2, "the schedule is long");
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(longest_wait().await, before);
}

/// The first waits of 1,000 accounts, each while its permits are held. With `is_storm`, another account is refused
/// 4,000 times before that. Otherwise the same 6 s pass.
async fn first_waits_of_others(limit: u32, is_storm: bool) -> Vec<u64> {
    let service = streams(limit);
    let mut held = Vec::new();
    for _ in 0..limit {
        held.push(send(&service, "storm").await);
    }
    for _ in 0..4_000 {
        if is_storm {
            assert_eq!(send(&service, "storm").await.status(), 429);
        }
        sleep(Duration::from_micros(1_500)).await;
    }
    let mut times = Vec::new();
    for other in 0..1_000 {
        let account = other.to_string();
        for _ in 0..limit {
            held.push(send(&service, &account).await);
        }
        times.push(retry_after(&send(&service, &account).await));
    }
    times
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_one_account_does_not_change_the_first_wait_of_another() {
    for limit in [0, 1] {
        let without = first_waits_of_others(limit, false).await;
        assert_eq!(first_waits_of_others(limit, true).await, without);
        assert!(without.iter().all(|wait| *wait == 1));
    }
}

/// All accounts share one limit, and each account is a flow.
#[tokio::test(start_paused = true)]
async fn the_refused_crowd_of_one_flow_sends_no_other_flow_away_for_longer() {
    let shared = key::from_fn(|parts| {
        let account = parts.headers.get("x-account-id")?;
        Some(Claim::new("model").with_flow(account))
    });
    let layer = ConcurrencyLimitLayer::new(1, shared, MemorySemaphore::new());
    let service = layer.layer(service_fn(endless));
    let times = hold(&service, "ann", Duration::from_secs(1), 20).await;
    assert!(times[19] > times[0] + 20, "{times:?}");
    let _held = send(&service, "ann").await;
    let first = retry_after(&send(&service, "bob").await);
    assert!(first <= times[0], "{first} of {times:?}");
}

/// The difference between the first and the last wait of eleven clients of an account.
async fn wait_spread(service: &Endless, account: &str) -> u64 {
    let first = retry_after(&send(service, account).await);
    let mut last = first;
    for _ in 0..10 {
        last = retry_after(&send(service, account).await);
    }
    last - first
}

/// All accounts share one limit, each account is a flow, and ann has four times the share of the others.
#[tokio::test(start_paused = true)]
async fn the_return_times_of_flows_follow_their_shares() {
    let shared = key::from_fn(|parts| {
        let account = parts.headers.get("x-account-id")?;
        let share = if account == "ann" { 4 } else { 1 };
        Some(Claim::new("model").with_flow(account).with_share(share))
    });
    let layer = ConcurrencyLimitLayer::new(1, shared, MemorySemaphore::new());
    let service = BoxCloneSyncService::new(layer.layer(service_fn(endless)));
    let _held = send(&service, "ann").await;
    sleep(Duration::from_secs(1)).await;
    // Alone, bob gets each slot. Beside bob, eve gets each second slot. Beside both, ann has 4 of 6 shares.
    let alone = wait_spread(&service, "bob").await;
    assert!(alone >= 20, "ten slots of 2.25 s: {alone}");
    let beside_bob = wait_spread(&service, "eve").await;
    let of_six = wait_spread(&service, "ann").await;
    assert!(
        beside_bob.abs_diff(2 * alone) <= 2,
        "{beside_bob} for {alone}"
    );
    assert!(of_six.abs_diff(alone * 6 / 4) <= 2, "{of_six} for {alone}");
}
