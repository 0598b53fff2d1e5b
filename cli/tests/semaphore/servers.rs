//! The same commands on clusters, with Sentinels and over TLS.

use crate::program::{Run, patient, run};
use serde_json::Value;
use std::{collections::BTreeSet, fs, time::Duration};
use testing::{
    redis::{
        Cluster, Sentinels,
        secure::{Authority, SecureServer},
    },
    stores::connected,
};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

/// Runs the program with the options `servers` and a command.
fn run_with(servers: &[&str], args: &str) -> Run {
    let mut command = patient();
    command.args(servers).args(args.split(' '));
    run(command)
}

/// Permits of 20 keys, so that each server of a cluster has some of the keys.
async fn permits(store: &RedisSemaphore) -> Vec<Permit> {
    let mut permits = Vec::new();
    for number in 0..20 {
        let claim = Claim::new(format!("account-{number}")).with_limit(2);
        permits.push(store.acquire(claim).await.expect("there is room"));
    }
    permits
}

/// Asserts that each command finds what this store holds. `servers` are the options that lead to its servers.
async fn assert_served(store: &RedisSemaphore, servers: &[&str]) {
    let held = permits(store).await;
    let keys = run_with(servers, "--json keys concurrency");
    let listed = keys.out.lines().map(|line| {
        let value: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(value["units"], 1, "{line}");
        value["key"].to_string()
    });
    assert_eq!(
        listed.collect::<BTreeSet<_>>().len(),
        held.len(),
        "{keys:?}"
    );
    let top: Value = serde_json::from_str(&run_with(servers, "--json top").out).expect("JSON");
    assert_eq!((&top["keys"], &top["units"]), (&20.into(), &20.into()));
    let processes = run_with(servers, "--json processes");
    assert_eq!(processes.out.lines().count(), 1, "{processes:?}");
    for args in ["check", "set-limit concurrency account-1 0", "limits"] {
        let run = run_with(servers, args);
        assert_eq!(run.code, Some(0), "{args}: {run:?}");
    }
    for (args, expected) in [
        ("pause concurrency account-4 1h", "the pause ends in 60 min"),
        ("usage concurrency account-4", "paused "),
        ("top", "paused 1"),
        ("resume concurrency account-4", "the pause has ended"),
    ] {
        let run = run_with(servers, args);
        assert!(run.code == Some(0) && run.out.contains(expected), "{run:?}");
    }
    let usage = run_with(servers, "usage concurrency account-1");
    assert!(usage.out.contains("limit 0 (set), held 1"), "{usage:?}");
    let closed = async || store.acquire(Claim::new("account-1").with_limit(2)).await;
    testing::wait::eventually("it is closed", Duration::from_secs(20), async || {
        matches!(closed().await, Err(AcquireError::KeyClosed { .. }))
    })
    .await;
    let revoked = run_with(servers, "revoke concurrency account-2 --all --yes");
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let lost = tokio::time::timeout(Duration::from_secs(20), held[2].lost()).await;
    lost.expect("its holder is notified of the loss");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_served_on_all_its_nodes() {
    let cluster = Cluster::of_primaries(3).await;
    let urls = cluster.urls();
    let patient = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    let store = connected(async || patient.clone().connect_cluster(urls.clone()).await).await;
    assert_served(&store, &["--cluster", "--url", &urls.join(",")]).await;
    assert_one_node_is_refused(&urls[0]);
}

/// A single node of a cluster is refused, and the message names the remedy.
fn assert_one_node_is_refused(url: &str) {
    let run = run_with(&["--url", url], "check");
    assert!(
        run.code == Some(2) && run.err.contains("which --cluster connects to"),
        "{run:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_primary_that_sentinels_name_is_served() {
    let sentinels = Sentinels::start().await;
    let (urls, name) = (sentinels.urls(), Sentinels::NAME);
    let patient = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    let connect = async || patient.clone().connect_sentinel(urls.clone(), name).await;
    let store = connected(connect).await;
    let urls = urls.join(",");
    assert_served(&store, &["--sentinel", name, "--url", &urls]).await;
    let run = run_with(&["--sentinel", "nobody", "--url", &urls], "processes");
    assert!(
        run.code == Some(2) && run.err.contains("know no primary"),
        "{run:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_server_is_served_if_its_authority_is_named() {
    let server = SecureServer::start().await;
    let certificate = server.authority.certificate();
    let builder = RedisSemaphore::builder().root_certificate(certificate);
    let store = connected(async || builder.clone().connect(server.url()).await).await;
    let (file, url) = (server.authority_file(), server.url());
    let ca = file.to_str().expect("text");
    assert_served(&store, &["--ca", ca, "--url", &url]).await;
    let unknown = run_with(&["--url", &url], "processes");
    assert!(
        unknown.code == Some(2) && unknown.err.contains("certificate"),
        "{unknown:?}"
    );
    let other = file.with_file_name("other.pem");
    fs::write(&other, Authority::new().certificate()).expect("a file");
    let other = other.to_str().expect("text");
    let wrong = run_with(&["--ca", other, "--url", &url], "processes");
    assert!(
        wrong.code == Some(2) && wrong.err.contains("certificate"),
        "{wrong:?}"
    );
}

#[test]
fn a_certificate_needs_a_tls_url() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    fs::write(&file, "none").expect("a file");
    let ca = file.to_str().expect("text");
    let run = run_with(&["--ca", ca, "--url", "redis://127.0.0.1:1/"], "processes");
    assert!(run.code == Some(2) && run.err.contains("--ca: "), "{run:?}");
}
