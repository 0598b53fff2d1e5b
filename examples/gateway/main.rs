//! A gateway for completions. It limits its tenants, and its own use of the upstream accounts.
//!
//! - An API key is limited in its requests in flight and its tokens per minute.
//! - A model is limited in its tokens per minute. API keys that wait for the same model take turns.
//! - An account at an upstream is limited in its requests in flight and its tokens per minute. An answer of 429 pauses
//!   the account for the `Retry-After`, and requests go to the other accounts.
//!
//! ```sh
//! cargo run --example gateway
//!
//! # Streams 40 words. Each word is one token.
//! curl -N localhost:3000/v1/completions -H 'authorization: Bearer ann' \
//!   --json '{"model":"small","prompt":"40 words","max_tokens":100}'
//! # Lists ann's limits and their use.
//! curl localhost:3000/v1/limits -H 'authorization: Bearer ann'
//! # Makes the account `fake-1` answer 429. Requests go to `fake-2`, which the header `x-upstream` names.
//! curl -X POST 'localhost:3000/fake/fake-1/overload?seconds=30'
//! ```
//!
//! With `REDIS_URL` set, all gateways share the limits and pauses. `settings.rs` has the other settings.
//! `GET /health` reports whether their store works, and `--features metrics` adds `GET /metrics`.
//!
//! A request goes through `request.rs`, `limits.rs` and `answer.rs`, in this order. `answer.rs` sends the request to an
//! account of `accounts.rs`. `estimate.rs` estimates the tokens of a request, and `fake.rs` is the built-in upstream.

mod accounts;
mod answer;
mod error;
mod estimate;
mod fake;
mod health;
mod limits;
#[cfg(feature = "metrics")]
mod metrics;
mod request;
mod settings;
mod store;

use accounts::Accounts;
use axum::{
    Router, middleware,
    routing::{get, post},
};
use estimate::Estimates;
use settings::Settings;
use std::{error::Error, iter::successors, net::Ipv4Addr, process::ExitCode, sync::Arc};
use store::Store;
use tokio::net::TcpListener;

/// The state that the handlers share.
#[derive(Clone)]
struct App {
    settings: Arc<Settings>,
    store: Store,
    estimates: Arc<Estimates>,
    accounts: Arc<Accounts>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let settings = Settings::from_env()?;
    let store = Store::open(settings.redis_url.as_deref()).await?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port)).await;
    let listener = listener.map_err(|error| format!("PORT: {}: {error}", settings.port))?;
    let address = listener.local_addr()?;
    let app = App {
        estimates: Arc::new(Estimates::new(&settings)),
        accounts: Arc::new(Accounts::new(&settings, address, store.clone())),
        settings: Arc::new(settings),
        store,
    };
    let routes = routes(app)?;
    println!("listening on http://{address}");
    axum::serve(listener, routes).await?;
    Ok(())
}

fn routes(app: App) -> Result<Router, Box<dyn Error>> {
    // `layer` would also limit requests with another method, which no handler settles.
    let completions = post(answer::stream)
        .route_layer(limits::layer(&app))
        // The body is read outside of the limits, because the claims depend on it.
        .route_layer(middleware::from_fn_with_state(app.clone(), request::read));
    let routes = Router::new()
        .route("/v1/completions", completions)
        .route("/v1/limits", get(limits::show))
        .route("/health", get(health::show))
        .merge(fake::routes(&app.settings));
    #[cfg(feature = "metrics")]
    let routes = routes.route("/metrics", metrics::route()?);
    Ok(routes.with_state(app))
}

/// Joins the levels of an error, because each displays only its own part.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let levels = successors(Some(error), |error| (*error).source());
    let levels: Vec<_> = levels.map(ToString::to_string).collect();
    levels.join(": ")
}
