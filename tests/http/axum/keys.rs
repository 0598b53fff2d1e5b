//! Keys as the guide finds them, with the addresses of real connections.

use super::{
    client::{Client, Http},
    server::Server,
};
use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    response::Response,
};
use testing::http_requests::ACCOUNT;
use tower_semaphore::{Claim, ConcurrencyLimitLayer, Key, KeyExtractor, MemorySemaphore, key};

/// The account of a request; the empty name is none.
fn account(request: &Request) -> Option<String> {
    let name = request.headers()[ACCOUNT].to_str().expect("ASCII");
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// Alice's plan has two requests in flight, and others have one.
async fn plan(mut request: Request, next: Next) -> Response {
    tokio::task::yield_now().await;
    let name = account(&request).unwrap_or_default();
    let limit = if name == "alice" { 2 } else { 1 };
    let claim = Claim::new(name).with_limit(limit);
    request.extensions_mut().insert(claim);
    next.run(request).await
}

#[derive(Clone)]
struct Account(String);

impl From<Account> for Key {
    fn from(account: Account) -> Self {
        account.0.into()
    }
}

async fn authenticate(mut request: Request, next: Next) -> Response {
    if let Some(name) = account(&request) {
        request.extensions_mut().insert(Account(name));
    }
    next.run(request).await
}

/// The statuses of streams of these accounts that are all in flight together.
async fn statuses<const N: usize>(
    layers: impl FnOnce(Router) -> Router,
    accounts: [&str; N],
) -> [u16; N] {
    let server = Server::with(layers).await;
    let client = Client::new(Http::One, &server);
    let mut answers = Vec::new();
    for account in accounts {
        let answer = client.send(http::Method::GET, "/stream", account).await;
        answers.push(answer.expect("a response"));
    }
    let statuses: Vec<_> = answers
        .iter()
        .map(|answer| answer.status().as_u16())
        .collect();
    statuses.try_into().expect("as many")
}

#[tokio::test]
async fn a_plan_that_a_middleware_has_looked_up_is_the_limit_of_its_account() {
    let by_plan = key::from_extension::<Claim>();
    let limit = ConcurrencyLimitLayer::new(1, by_plan, MemorySemaphore::new());
    let layers = |routes: Router| routes.layer(limit).layer(from_fn(plan));
    let accounts = ["alice", "alice", "alice", "bob", "bob"];
    assert_eq!(statuses(layers, accounts).await, [200, 200, 429, 200, 429]);
}

#[tokio::test]
async fn a_plan_that_is_looked_up_inside_of_the_limit_is_a_mistake_of_the_service() {
    let by_plan = key::from_extension::<Claim>();
    let limit = ConcurrencyLimitLayer::new(1, by_plan, MemorySemaphore::new());
    let layers = |routes: Router| routes.layer(from_fn(plan)).layer(limit);
    assert_eq!(statuses(layers, ["alice"]).await, [500]);
}

#[tokio::test]
async fn clients_without_an_account_share_their_address_which_no_account_can_take() {
    let anonymous = key::peer_ip().map_claim(|claim| claim.with_policy("anonymous").with_limit(1));
    let key = key::first_of((key::from_extension::<Account>(), anonymous));
    let limit = ConcurrencyLimitLayer::new(2, key, MemorySemaphore::new());
    let layers = |routes: Router| routes.layer(limit).layer(from_fn(authenticate));
    let accounts = ["", "", "127.0.0.1", "127.0.0.1", "127.0.0.1", "alice"];
    let expected = [200, 429, 200, 200, 429, 200];
    assert_eq!(statuses(layers, accounts).await, expected);
}
