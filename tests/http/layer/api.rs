//! The public types that users combine.
//!
//! Promises: P20.

use super::rig::{ok, send, statuses};
use futures_util::FutureExt;
use http::Request;
use std::{
    collections::HashSet,
    env, fs,
    future::Future,
    path::PathBuf,
    pin::pin,
    process::Command,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};
use testing::{
    http_requests::{ACCOUNT, limit, request},
    stubs::{Broken, Fickle},
};
use tower::{Layer, Service, ServiceExt};
use tower_semaphore::{
    Acquire, AcquireError, Claim, ConcurrencyLimit, ConcurrencyLimitLayer, GlobalConcurrencyLimit,
    GlobalConcurrencyLimitLayer, MemorySemaphore, Operate, Policy, ReleaseAt, Semaphore, key,
};

#[tokio::test]
async fn a_service_needs_no_layer() {
    let memory = MemorySemaphore::new();
    let service = ConcurrencyLimit::new(ok(), 1, key::header(ACCOUNT), memory);
    let requests = ["alice", "alice", "bob"].map(request);
    assert_eq!(statuses(&service, requests).await, [200, 429, 200]);
}

#[tokio::test]
async fn a_global_service_needs_no_layer() {
    let memory = MemorySemaphore::new();
    let mut service = GlobalConcurrencyLimit::new(ok(), 1, "host", memory);
    let mut clone = service.clone();
    let Ok(held) = service
        .ready()
        .await
        .unwrap()
        .call(Request::new(String::new()))
        .await;
    assert!(clone.ready().now_or_never().is_none());
    drop(held);
    assert!(clone.ready().now_or_never().is_some());
}

#[test]
fn the_inner_service_can_be_reached() {
    let mut keyed = limit(1, MemorySemaphore::new()).layer(7);
    *keyed.get_mut() += 1;
    assert_eq!((*keyed.get_ref(), keyed.into_inner()), (8, 8));
    let global = GlobalConcurrencyLimitLayer::new(1, "host", MemorySemaphore::new());
    let mut global = global.layer(7);
    *global.get_mut() += 1;
    assert_eq!((*global.get_ref(), global.into_inner()), (8, 8));
}

#[tokio::test]
async fn the_global_layer_has_the_settings_of_the_keyed_layer() {
    let memory = MemorySemaphore::new();
    let layer = GlobalConcurrencyLimitLayer::new(1, "host", memory.clone())
        .with_release(ReleaseAt::Head)
        .with_rejection(|rejection| rejection.into_response().map(|_| "own".to_owned()));
    let service = layer.layer(ok());
    let Ok(_held) = service.clone().oneshot(Request::new(String::new())).await;
    assert_eq!(memory.busy_keys(), 0);

    let closed = GlobalConcurrencyLimitLayer::new(0, "host", memory)
        .with_rejection(|rejection| rejection.into_response().map(|_| "own".to_owned()));
    let Ok(refused) = closed
        .layer(ok())
        .oneshot(Request::new(String::new()))
        .await;
    assert_eq!(refused.status(), 429);
    let body = http_body_util::BodyExt::collect(refused.into_body()).await;
    assert_eq!(body.unwrap().to_bytes(), "own");
}

#[tokio::test(start_paused = true)]
async fn the_longest_hold_ends_a_permit_under_the_global_layer_too() {
    let memory = MemorySemaphore::new();
    let layer = GlobalConcurrencyLimitLayer::new(1, "host", memory.clone())
        .with_max_hold(Duration::from_secs(30))
        .with_max_stall(Duration::from_secs(30));
    let Ok(_held) = layer.layer(ok()).oneshot(Request::new(String::new())).await;
    assert_eq!(memory.busy_keys(), 1);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn all_services_of_one_layer_count_together() {
    let layer = limit(1, MemorySemaphore::new());
    let (first, second) = (layer.layer(ok()), layer.clone().layer(ok()));
    let _held = send(&first, request("alice")).await;
    assert_eq!(send(&second, request("alice")).await.status(), 429);
}

#[tokio::test]
async fn a_store_may_be_chosen_at_run_time() {
    let memory = MemorySemaphore::new();
    let stores: [Box<dyn Semaphore>; 2] = [Box::new(memory), Box::new(Broken)];
    for (store, status) in stores.into_iter().zip([200, 503]) {
        let service = limit(1, store).layer(ok());
        assert_eq!(send(&service, request("alice")).await.status(), status);
    }
    let shared: Arc<dyn Semaphore> = Arc::new(Broken);
    let layer = ConcurrencyLimitLayer::new(1, key::fixed("all"), shared);
    assert_eq!(
        send(&layer.layer(ok()), request("alice")).await.status(),
        503
    );
}

#[test]
#[should_panic(expected = "`Acquire` polled after it was ready")]
fn an_acquire_that_is_polled_again_panics() {
    let mut acquire = pin!(Acquire::ready(Err(AcquireError::Closed)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(acquire.as_mut().poll(&mut cx).is_ready());
    let _ = acquire.as_mut().poll(&mut cx);
}

#[test]
fn claims_can_be_collected() {
    let alice = Claim::new("alice").with_limit(3);
    let bob = alice.clone().with_key("bob");
    assert_eq!(bob.limit(), Some(3));
    let claims = HashSet::from([alice.clone(), bob, alice]);
    assert_eq!(claims.len(), 2);
}

#[tokio::test]
async fn a_permit_is_lost_with_its_outer_permit_and_releases_it() {
    let (outer_store, inner_store) = (Fickle::default(), MemorySemaphore::new());
    let claim = || Claim::new("alice").with_limit(1);
    let outer = outer_store.acquire(claim()).await.unwrap();
    let inner = inner_store.acquire(claim()).await.unwrap();
    let permit = inner.with_outer(&outer);
    drop(outer);
    assert!(!permit.is_lost());
    let (lost, ()) = tokio::join!(
        tokio::time::timeout(Duration::from_secs(20), permit.lost()),
        async { outer_store.lose() }
    );
    assert!(lost.is_ok() && permit.is_lost());
    drop(permit);
    assert!(!outer_store.is_held() && inner_store.busy_keys() == 0);
}

/// The errors that the compiler prints for a program that uses this crate.
fn compile_errors(program: &str) -> String {
    let deps = env::current_exe().expect("a path");
    let deps = deps.parent().expect("it is in a folder");
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libtower_semaphore-") && name.ends_with(".rlib")
    };
    let files = fs::read_dir(deps).expect("the folder of this program");
    let libraries = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(is_library);
    let newest = libraries.max_by_key(|path| path.metadata().and_then(|file| file.modified()).ok());
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("main.rs");
    fs::write(&source, program).expect("it is written");
    let output = Command::new("rustc")
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--emit=metadata",
            "--out-dir",
        ])
        .args([folder.path(), &source])
        .arg(format!("-Ldependency={}", deps.display()))
        .arg("--extern")
        .arg(format!(
            "tower_semaphore={}",
            newest.expect("the library").display()
        ))
        .output();
    String::from_utf8_lossy(&output.expect("rustc runs").stderr).into_owned()
}

#[test]
fn an_async_extractor_does_not_compile_and_the_error_says_what_to_do() {
    let errors =
        compile_errors("pub fn extractor() { tower_semaphore::key::from_fn(async |_| 1); }");
    assert!(errors.contains("is neither a key nor a claim"), "{errors}");
    assert!(
        errors.contains("let a middleware look the plan up"),
        "{errors}"
    );
    let fine = compile_errors("pub fn extractor() { tower_semaphore::key::from_fn(|_| 1); }");
    assert!(!fine.contains("error"), "{fine}");
}

#[test]
fn code_that_relies_on_unpromised_details_does_not_compile() {
    // Each program, and the code of the error that the compiler must print for it.
    let programs = [
        (
            "use tower_semaphore::AcquireError;
            pub fn f(e: &AcquireError) -> bool { matches!(e, AcquireError::Full { policy: _, limit: _, held: _ }) }",
            "E0638",
        ),
        (
            "use tower_semaphore::semaphore::StoreError;
            pub fn f(a: &StoreError, b: &StoreError) -> bool { a == b }",
            "E0369",
        ),
        (
            "use tower_semaphore::AcquireError;
            pub fn f(a: &AcquireError, b: &AcquireError) -> bool { a == b }",
            "E0369",
        ),
        (
            "pub fn f(policy: &tower_semaphore::Policy) -> &str { policy }",
            "E0308",
        ),
        (
            "use tower_semaphore::{Claims, KeyError, key::IntoClaims};
            struct Own;
            impl IntoClaims for Own {
                fn into_claims(self) -> Result<Option<Claims>, KeyError> { Ok(None) }
            }",
            "E0050",
        ),
    ];
    for (program, code) in programs {
        let errors = compile_errors(program);
        assert!(errors.contains(code), "{program}: {errors}");
    }
}

#[tokio::test]
async fn a_store_for_operators_may_be_chosen_at_run_time() {
    async fn is_idle(store: impl Operate) -> bool {
        let usage = store.usage(&Policy::DEFAULT, &"alice".into()).await;
        usage.expect("memory answers").held.is_empty()
    }
    let boxed: Box<dyn Operate> = Box::new(MemorySemaphore::new());
    let shared: Arc<dyn Operate> = Arc::new(MemorySemaphore::new());
    assert!(is_idle(boxed).await && is_idle(shared).await);
}
