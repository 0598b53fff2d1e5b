//! Problems that connecting through Sentinels finds.
//!
//! Promises: P20.

use super::{patient, works};
use testing::{
    causes::causes,
    redis::{RedisServer, Sentinels, sentinel, sentinel_with},
    resp::Raw,
};
use tower_semaphore::{
    RedisSemaphore,
    redis::{Builder, ConnectError, Kind},
};

/// The text of an error that names a setting.
fn blamed(outcome: Result<RedisSemaphore, ConnectError>) -> String {
    match outcome {
        Err(error) if error.setting().is_some() => error.to_string(),
        other => panic!("no setting is blamed: {other:?}"),
    }
}

async fn unavailable(builder: Builder, urls: &[String]) -> String {
    match builder
        .connect_sentinel(urls.to_vec(), Sentinels::NAME)
        .await
    {
        Err(error) if error.kind() == Kind::Unavailable => format!("{error:?}"),
        other => panic!("it is not unavailable: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_sentinel_knows_is_blamed() {
    let server = RedisServer::start();
    let sentinel = sentinel(server.client_port(), 1);
    let outcome = patient()
        .connect_sentinel([sentinel.url()], "another")
        .await;
    assert_eq!(
        blamed(outcome),
        "connect_sentinel: the Sentinels know no primary of this name: correct it"
    );
    let none: [&str; 0] = [];
    let outcome = patient().connect_sentinel(none, "shop").await;
    assert_eq!(blamed(outcome), "connect_sentinel: it names no server");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_is_found_by_a_sentinel_at_a_unix_socket() {
    let (server, folder) = (RedisServer::start(), tempfile::tempdir());
    let folder = folder.expect("a temporary folder can be made");
    let socket = format!("{}/sentinel", folder.path().display());
    let _sentinel = sentinel_with(&["--unixsocket", &socket], server.port(), 1);
    let url = format!("unix://{socket}");
    let store = patient().connect_sentinel([url], Sentinels::NAME).await;
    assert!(works(&store.expect("it is found")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_primaries_that_cannot_be_reached_are_reported() {
    let mut server = RedisServer::start();
    let mut sentinel = sentinel(server.client_port(), 1);
    let urls = [sentinel.url()];
    server.kill();
    unavailable(patient(), &urls).await;
    sentinel.kill();
    unavailable(patient(), &urls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn most_sentinels_must_answer_at_the_start() {
    let server = RedisServer::start();
    let mut sentinels = [1, 2, 3].map(|_| sentinel(server.client_port(), 2));
    let urls: Vec<_> = sentinels.iter().map(RedisServer::url).collect();
    sentinels[0].stop();
    let store = patient()
        .connect_sentinel(urls.clone(), Sentinels::NAME)
        .await;
    assert!(works(&store.expect("two are enough")).await);
    sentinels[1].kill();
    let error = unavailable(patient(), &urls).await;
    assert!(error.contains("too few"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_the_primary_have_separate_passwords() {
    let server = RedisServer::start();
    let sentinel = sentinel(server.client_port(), 1);
    let mut raw = Raw::connect(sentinel.port()).await;
    raw.cmd(&["SENTINEL", "SET", "shop", "auth-pass", "battery-staple"])
        .await;
    raw.cmd(&["ACL", "SETUSER", "watcher", "on", ">of sentinels", "+@all"])
        .await;
    raw.cmd(&["ACL", "SETUSER", "default", "off"]).await;
    let mut raw = Raw::connect(server.port()).await;
    let rule = "ACL SETUSER ann on >battery-staple ~* &* +@all";
    raw.cmd(&rule.split(' ').collect::<Vec<_>>()).await;
    raw.cmd(&["CONFIG", "SET", "requirepass", "battery-staple"])
        .await;
    // The Sentinel's URL names the primary's database. It is inserted, because with TLS the URL ends with a fragment.
    let (address, database) = (format!("{}/", sentinel.client_port()), "3");
    let url = sentinel.url_of("watcher:of%20sentinels");
    let urls = [url.replacen(&address, &format!("{address}{database}"), 1)];
    let builder = patient().fixed_credentials("ann", "battery-staple");
    let text = format!("{builder:?}");
    assert!(!text.contains("staple"), "{text}");
    let store = builder
        .connect_sentinel(urls.clone(), Sentinels::NAME)
        .await;
    assert!(works(&store.expect("both let it in")).await);
    // `raw` was connected before the password was set, so it may still send commands.
    let clients = raw.cmd(&["CLIENT", "LIST"]).await;
    let ours = clients
        .text()
        .lines()
        .filter(|line| line.contains("user=ann"));
    assert!(ours.clone().count() > 0 && ours.clone().all(|line| line.contains(" db=3 ")));
    let refused = async |builder: Builder, urls: &[String]| {
        let outcome = builder
            .connect_sentinel(urls.to_vec(), Sentinels::NAME)
            .await;
        let error = outcome.expect_err("the credentials are wrong");
        assert_eq!(error.kind(), Kind::Misconfigured, "{error:?}");
        let text = format!("{} {error:?}", causes(&error));
        assert!(!text.contains("staple"), "{text}");
        error.setting().expect("it is named")
    };
    let wrong = patient().fixed_credentials("ann", "wrong-staple");
    assert_eq!(refused(wrong, &urls).await, "credentials");
    assert_eq!(refused(patient(), &urls).await, "credentials");
    let right = patient().fixed_credentials("ann", "battery-staple");
    assert_eq!(refused(right, &[sentinel.url()]).await, "url");
}
