//! The key that a request counts under.
//!
//! Promises: P7, P21.

use super::rig::{ok, problem, send, statuses};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, request::Parts};
use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};
use testing::{
    http_requests::{ACCOUNT, limit, request},
    stubs::Uncalled,
};
use tower::Layer;
use tower_semaphore::{
    Claim, ConcurrencyLimitLayer, Key, KeyError, KeyExtractor, MemorySemaphore, Policy, key,
};

fn parts() -> Parts {
    request::<String>("alice").into_parts().0
}

/// The key that `extractor` finds in `parts`.
fn key_in(extractor: &impl KeyExtractor, parts: &Parts) -> Result<Option<Key>, KeyError> {
    let claim = extractor.extract(parts)?;
    Ok(claim.map(|claim| claim.as_slice()[0].key().clone()))
}

fn with_extension<T: Clone + Send + Sync + 'static>(value: T) -> Parts {
    let mut parts = parts();
    parts.extensions.insert(value);
    parts
}

#[test]
fn a_closure_returns_a_key_or_a_claim_or_none_or_an_error() {
    let alice = || Ok(Some(Key::from("alice")));
    let found = [
        key_in(&|_: &Parts| Key::from("alice"), &parts()),
        key_in(&|_: &Parts| "alice", &parts()),
        key_in(&|_: &Parts| "alice".to_owned(), &parts()),
        key_in(&|_: &Parts| b"alice".to_vec(), &parts()),
        key_in(&|_: &Parts| Bytes::from("alice"), &parts()),
        key_in(&|_: &Parts| Some("alice"), &parts()),
        key_in(&|_: &Parts| Ok::<_, KeyError>("alice"), &parts()),
        key_in(&|_: &Parts| Ok::<_, String>(Some("alice")), &parts()),
        key_in(&account, &parts()),
    ];
    assert_eq!(found, [(); 9].map(|()| alice()));
    assert_eq!(key_in(&|_: &Parts| 42, &parts()), Ok(Some("42".into())));
    let heavy = |_: &Parts| Claim::new("alice").with_weight(3).with_limit(7);
    let claim = heavy.extract(&parts()).unwrap().unwrap();
    let claim = &claim.as_slice()[0];
    assert_eq!((claim.weight(), claim.limit()), (3, Some(7)));
    assert_eq!(key_in(&|_: &Parts| None::<Claim>, &parts()), Ok(None));
    let none = |_: &Parts| Ok::<_, String>(None::<Key>);
    assert_eq!(key_in(&none, &parts()), Ok(None));
    let bad = |_: &Parts| Err::<Key, _>("who are you?");
    let other = KeyError::from("who are you?");
    assert_eq!(key_in(&bad, &parts()), Err(other));
    let bad = |_: &Parts| Err::<Option<Key>, _>("who are you?".to_owned());
    assert!(key_in(&bad, &parts()).is_err());
}

/// A plain function serves as an extractor, as a closure does.
fn account(parts: &Parts) -> Option<String> {
    let value = parts.headers.get(ACCOUNT)?;
    value.to_str().ok().map(str::to_owned)
}

#[test]
fn every_usual_type_converts_into_a_key() {
    let account = "alice".to_owned();
    let value = HeaderValue::from_static("alice");
    let shared: Arc<str> = "alice".into();
    let alice = [
        Key::from(account.as_str()),
        Key::from(&account),
        Key::from(Cow::from("alice")),
        Key::from(Cow::from(account.clone())),
        Key::from(shared),
        Key::from(&value),
    ];
    assert!(alice.iter().all(|key| *key == Key::from("alice")));
    assert_eq!(alice[0].as_ref(), b"alice");
    assert_eq!(Key::from(-7_i8), Key::from("-7"));
    assert_eq!(Key::from(u128::MAX).as_bytes().len(), 39);
    assert_eq!(Key::from(i128::MIN).as_bytes().len(), 40);
}

#[test]
fn an_address_becomes_its_usual_text() {
    let mapped: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
    assert_eq!(Key::from(mapped), Key::from("192.0.2.7"));
    let longest: IpAddr = "1111:2222:3333:4444:5555:6666:7777:8888".parse().unwrap();
    assert_eq!(Key::from(longest), Key::from(longest.to_string()));
}

#[test]
fn bytes_stay_bytes() {
    let bytes = *b"sixteen bytes of";
    assert_eq!(Key::from(bytes).as_bytes(), bytes);
    assert_eq!(Key::from(&bytes), Key::from(bytes));
    assert_eq!(Key::from(b"ann"), Key::from("ann"));
}

#[cfg(feature = "uuid")]
#[test]
fn a_uuid_becomes_its_text() {
    let uuid = uuid::uuid!("67e55044-10b1-426f-9247-bb680e5fe0c8");
    assert_eq!(Key::from(uuid), Key::from(uuid.to_string()));
}

#[test]
fn a_header_is_a_key() {
    let value = HeaderValue::from_static("ann");
    assert_eq!(Key::from(&value), Key::from("ann"));
    assert_eq!(Key::from(value), Key::from("ann"));
}

#[test]
fn a_policy_compares_with_its_name() {
    let policy = Policy::from("reads");
    assert!(policy == "reads" && policy == *"reads" && policy != "writes");
}

#[test]
fn a_closure_needs_no_type_in_from_fn() {
    let by_path = key::from_fn(|parts| parts.uri.path().to_owned());
    assert_eq!(key_in(&by_path, &parts()), Ok(Some("/".into())));
    let by_header = key::from_fn(|parts| parts.headers.get(ACCOUNT).map(Key::from));
    assert_eq!(key_in(&by_header, &parts()), Ok(Some("alice".into())));
}

#[tokio::test]
async fn an_extractor_may_be_chosen_at_run_time() {
    type Shared = Arc<dyn KeyExtractor + Send + Sync>;
    let extractors: [Shared; 2] = [Arc::new(key::header(ACCOUNT)), Arc::new(key::fixed("all"))];
    for (extractor, second) in extractors.into_iter().zip([200, 429]) {
        let layer = ConcurrencyLimitLayer::new(1, extractor, MemorySemaphore::new());
        let requests = ["alice", "bob"].map(request);
        assert_eq!(statuses(&layer.layer(ok()), requests).await, [200, second]);
    }
    let boxed: Box<dyn KeyExtractor + Send + Sync> = Box::new(|_: &Parts| "alice");
    assert_eq!(key_in(&boxed, &parts()), Ok(Some("alice".into())));
}

#[test]
fn a_header_is_found_whatever_the_case_of_its_name() {
    let name = HeaderName::from_static(ACCOUNT);
    for by in [
        key::header(ACCOUNT),
        key::header("X-Account-ID"),
        key::header_name(name),
    ] {
        assert_eq!(key_in(&by, &parts()), Ok(Some("alice".into())));
    }
    let absent = key_in(&key::header("x-other"), &parts());
    assert_eq!(absent, Err(KeyError::missing("the header x-other")));
}

#[test]
#[should_panic(expected = "\"x account\" is not a header's name")]
fn a_name_that_no_header_can_have_is_in_the_panic() {
    let _ = key::header("x account");
}

#[test]
fn an_extension_may_be_a_whole_claim() {
    let plan = Claim::new("ann").with_limit(20).with_policy("plan");
    let found = key::from_extension::<Claim>().extract(&with_extension(plan.clone()));
    assert_eq!(found, Ok(Some(plan.clone().into())));
    let several = vec![plan, Claim::new("all").with_policy("fleet")];
    let found = key::from_extension::<Vec<Claim>>().extract(&with_extension(several.clone()));
    assert_eq!(found, Ok(Some(several.into())));
}

#[test]
fn an_extension_names_the_key() {
    let found = key_in(&key::from_extension::<u64>(), &with_extension(42_u64));
    assert_eq!(found, Ok(Some("42".into())));
    let absent = key_in(&key::from_extension::<u64>(), &with_extension(42_u32));
    assert_eq!(absent, Err(KeyError::missing_extension::<u64>()));
}

#[test]
fn the_peer_s_address_names_the_key_without_its_port() {
    let socket: SocketAddr = "192.0.2.7:4711".parse().unwrap();
    let mapped: SocketAddr = "[::ffff:192.0.2.7]:4711".parse().unwrap();
    let ip: IpAddr = "2001:db8::1".parse().unwrap();
    for (parts, expected) in [
        (with_extension(socket), "192.0.2.7"),
        (with_extension(mapped), "192.0.2.7"),
        (with_extension(ip), "2001:db8::/64"),
        #[cfg(feature = "axum")]
        (
            with_extension(axum::extract::ConnectInfo(socket)),
            "192.0.2.7",
        ),
        #[cfg(feature = "axum")]
        (
            with_extension(axum::extract::connect_info::MockConnectInfo(socket)),
            "192.0.2.7",
        ),
    ] {
        assert_eq!(key_in(&key::peer_ip(), &parts), Ok(Some(expected.into())));
    }
}

#[test]
fn addresses_of_one_network_share_a_key() {
    let key_of = |address: &str, by: key::PeerIp| {
        let address: IpAddr = address.parse().unwrap();
        let Ok(Some(key)) = key_in(&by, &with_extension(address)) else {
            panic!("{address} has no key");
        };
        key
    };
    let default = key::peer_ip();
    let same = ["2001:db8:1:2::1", "2001:db8:1:2:ffff::9"];
    let same = same.map(|address| key_of(address, default));
    assert_eq!(same[0], same[1]);
    assert_ne!(same[0], key_of("2001:db8:1:3::1", default));
    assert_ne!(key_of("192.0.2.7", default), key_of("192.0.2.8", default));

    let whole = default.with_prefix(32, 128);
    assert_eq!(key_of("2001:db8::1", whole), "2001:db8::1".into());
    let wide = default.with_prefix(24, 48);
    assert_eq!(key_of("192.0.2.7", wide), "192.0.2.0/24".into());
    // A mapped address is converted to IPv4 before its network is computed.
    assert_eq!(key_of("::ffff:192.0.2.7", wide), "192.0.2.0/24".into());
    assert_eq!(key_of("2001:db8:1:2::1", wide), "2001:db8:1::/48".into());
    let none = default.with_prefix(0, 0);
    assert_eq!(key_of("192.0.2.7", none), "0.0.0.0/0".into());
    assert_eq!(key_of("2001:db8::1", none), "::/0".into());
}

#[test]
#[should_panic(expected = "an IPv4 address has 32 bits")]
fn a_network_has_no_more_bits_than_an_address() {
    let _ = key::peer_ip().with_prefix(33, 64);
}

#[test]
fn the_peer_s_address_never_comes_from_a_header() {
    let mut parts = parts();
    let forged = HeaderValue::from_static("192.0.2.7");
    parts.headers.insert("x-forwarded-for", forged.clone());
    parts.headers.insert("x-real-ip", forged);
    let missing = key_in(&key::peer_ip(), &parts);
    assert!(matches!(missing, Err(KeyError::MissingExtension { .. })));
}

/// A request of an account whose name is these bytes.
fn request_of(account: impl AsRef<[u8]>) -> Request<String> {
    let mut request = Request::new(String::new());
    let account = HeaderValue::from_bytes(account.as_ref()).expect("a header's value");
    request.headers_mut().insert(ACCOUNT, account);
    request
}

#[tokio::test]
async fn keys_are_equal_only_if_their_bytes_are() {
    let memory = MemorySemaphore::new();
    let service = limit(1, memory.clone()).layer(ok());
    let (long, longer) = ("k".repeat(65_536), "k".repeat(65_537));
    let accounts: [&[u8]; 12] = [
        b"a",
        b"A",
        b"a a",
        b"\xff",
        b"\xfe",
        b"\xff\xfe",
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
        b"}a",
        b"{a}",
        long.as_bytes(),
        longer.as_bytes(),
    ];
    let once = statuses(&service, accounts.map(request_of)).await;
    assert_eq!(once, [200; 12]);
    let twice = accounts
        .iter()
        .flat_map(|key| [request_of(key), request_of(key)]);
    assert_eq!(statuses(&service, twice).await, [200, 429].repeat(12));
    assert_eq!(memory.busy_keys(), 0);
}

/// The detail in the 400 for a request whose key is missing or wrong.
async fn detail<K: KeyExtractor + Clone>(extractor: K, request: Request<String>) -> String {
    let service = ConcurrencyLimitLayer::new(1, extractor, Uncalled).layer(ok());
    let answer = send(&service, request).await;
    assert_eq!(answer.status(), 400);
    let problem = problem(answer).await;
    assert_eq!(problem["type"], "about:blank");
    assert_eq!(problem["title"], "Bad Request");
    problem["detail"].as_str().expect("a reason").to_owned()
}

#[tokio::test]
async fn a_key_that_is_missing_empty_or_repeated_is_a_bad_request_that_says_so() {
    let header = || key::header(ACCOUNT);
    let mut twice = request_of("alice");
    let again = HeaderValue::from_static("alice");
    twice.headers_mut().append(ACCOUNT, again);
    let nameless = || Request::new(String::new());
    for (said, expected) in [
        (
            detail(header(), nameless()).await,
            "the header x-account-id is missing",
        ),
        (detail(header(), request_of("")).await, "the key is empty"),
        (detail(|_: &Parts| "", nameless()).await, "the key is empty"),
        (detail(key::fixed(""), nameless()).await, "the key is empty"),
        (
            detail(header(), twice).await,
            "the header x-account-id is given more than once",
        ),
    ] {
        assert_eq!(said, expected);
    }
}

#[tokio::test]
async fn an_error_of_the_extractor_is_a_bad_request_in_its_words() {
    let strange = "the \"account\" \\ is\nnot \u{7f} ours \u{1f40d}";
    let said = detail(
        move |_: &Parts| Err::<Key, _>(strange),
        Request::new(String::new()),
    )
    .await;
    assert_eq!(said, strange);
}
