//! Which recorder counts.

use crate::exposition::{Series, builder, series};
use http::{Request, Response};
use metrics_exporter_prometheus::PrometheusRecorder;
use std::{convert::Infallible, time::Duration};
use testing::wait::eventually;
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, Semaphore};

fn granted(text: &str) -> f64 {
    let series = series(text).into_iter();
    let is_it = |it: &Series| it.name == "tower_semaphore_claims_total";
    series.filter(is_it).map(|it| it.value).sum()
}

async fn acquire(store: &MemorySemaphore) -> tower_semaphore::Permit {
    let claim = Claim::new("a").with_limit(9).with_policy("recorders");
    store.acquire(claim).await.expect("there is room")
}

#[tokio::test]
async fn a_recorder_that_is_installed_later_counts_from_then_on() {
    let store = MemorySemaphore::new();
    drop(acquire(&store).await);
    let recorder: PrometheusRecorder = builder().build_recorder();
    let text = recorder.handle();
    let guard = metrics::set_default_local_recorder(&recorder);
    let permit = acquire(&store).await;
    drop(guard);
    assert_eq!(granted(&text.render()), 1.0);
    assert!(text.render().contains("recorders\"} 1"));
    // The end of a permit counts where its beginning did.
    drop(permit);
    let active = series(&text.render()).into_iter();
    let mut active = active.filter(|it| it.name == "tower_semaphore_active_permits");
    assert_eq!(active.next().expect("it is there").value, 0.0);
}

/// A recorder that forgets what is idle gets a new instrument when there is something to count again.
#[tokio::test]
async fn what_a_recorder_forgets_while_it_is_idle_counts_again() {
    let idle = Duration::from_millis(10);
    let all = metrics_util::MetricKindMask::ALL;
    let recorder = builder().idle_timeout(all, Some(idle)).build_recorder();
    let text = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = MemorySemaphore::new();
    drop(acquire(&store).await);
    assert_eq!(granted(&text.render()), 1.0);
    eventually("it is forgotten", Duration::from_secs(20), async || {
        granted(&text.render()) == 0.0
    })
    .await;
    eventually("it counts again", Duration::from_secs(20), async || {
        drop(acquire(&store).await);
        granted(&text.render()) > 0.0
    })
    .await;
}

/// Nothing but requests counts there, because none of them makes a claim.
#[tokio::test]
async fn exempt_requests_count_again_after_a_recorder_has_forgotten_them() {
    let bound = Duration::from_secs(20);
    let idle = Some(Duration::from_millis(10));
    let all = metrics_util::MetricKindMask::ALL;
    let recorder = builder().idle_timeout(all, idle).build_recorder();
    let text = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let exempt = |_: &http::request::Parts| None::<Claim>;
    let service = ConcurrencyLimitLayer::new(1, exempt, MemorySemaphore::new()).layer(service_fn(
        async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())),
    ));
    let counted = || series(&text.render()).iter().any(|it| it.value > 0.0);
    let Ok(_) = service.clone().oneshot(Request::new(())).await;
    assert!(counted());
    eventually("it is forgotten", bound, async || !counted()).await;
    eventually("it counts again", bound, async || {
        let Ok(_) = service.clone().oneshot(Request::new(())).await;
        counted()
    })
    .await;
}
