//! A gateway for completions: tenants in front, upstream accounts with quotas behind.
//!
//! - An API key has a number of requests in flight, and tokens per minute.
//! - A model has tokens per minute, which API keys that wait for them share fairly.
//! - An account at an upstream has a number of requests in flight, and tokens per minute. If the upstream answers 429
//!   with `Retry-After`, the account is paused, and requests go to the other accounts.
//!
//! ```sh
//! cargo run --example gateway
//!
//! # Streams 40 words. Each of them is a token.
//! curl -N localhost:3000/v1/completions -H 'authorization: Bearer ann' \
//!   --json '{"model":"small","prompt":"40 words","max_tokens":100}'
//! # The tokens that ann has used, or has reserved for a stream that runs.
//! curl localhost:3000/v1/limits -H 'authorization: Bearer ann'
//! # Pauses an account: the next requests go to `fake-2`, as the field `x-upstream` shows.
//! curl -X POST 'localhost:3000/fake/fake-1/overload?seconds=30'
//! ```
//!
//! With `REDIS_URL` set, all gateways share the limits and pauses. `settings.rs` has the other settings.
//! `GET /health` reports whether their store works, and `--features metrics` adds `GET /metrics`.
//!
//! A request goes through `request.rs`, `limits.rs`, `accounts.rs` and `answer.rs`, in this order. `estimate.rs` has the
//! number of tokens that it reserves, and `fake.rs` the upstream that is built in.

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
    let completions = Router::new()
        .route("/v1/completions", post(answer::stream))
        .layer(limits::layer(&app))
        // The body is read outside of the limits, because the claims depend on it.
        .layer(middleware::from_fn_with_state(app.clone(), request::read));
    let routes = Router::new()
        .merge(completions)
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
