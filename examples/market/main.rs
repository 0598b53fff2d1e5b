//! The Fake Game company's market. An account may have five requests in flight, and all accounts together a thousand.
//!
//! ```sh
//! cargo run --example market                                               # and open localhost:3000
//!
//! curl localhost:3000/accounts/ann
//! curl localhost:3000/market/events -H 'x-account-id: ann'                 # holds a permit until you leave
//! websocat 'ws://localhost:3000/market/socket?account=ann'                 # so does this
//! curl localhost:3000/market/items -H 'x-account-id: ann' --json '{"item":"ann-1","price":100}'
//! curl localhost:3000/market/items/ID/purchase -H 'x-account-id: bob' -X POST
//! curl 'localhost:3000/market/export?rows=60&interval_ms=1000&account=ann' # six of them at once: 429
//! ```
//!
//! With `REDIS_URL` set (or `REDIS_CLUSTER`, or `REDIS_SENTINELS` and `REDIS_SENTINEL_NAME`), all processes form one
//! market with the same limits. An item listed in one process is sold in another, and an account's sixth request is
//! refused whichever process holds the five.
//!
//! `curl localhost:3000/health` reports whether the store of the permits works, and what may fail later.
//!
//! `curl localhost:3000/accounts/ann/permits` lists the holders of ann's permits. A `DELETE`, such as `curl -X DELETE
//! localhost:3000/accounts/ann/permits/ID`, ends a permit and the response that holds it.
//!
//! `--features metrics` adds `GET /metrics`, for which `grafana.json` is a dashboard.
//!
//! `app.rs` has the routes and their limits, `account.rs` the key, and `permits.rs` the key's store. `market.rs` has
//! the trait of a market, which `memory.rs` and `redis/` implement. `settings.rs` and `place.rs` have the settings.

mod account;
mod app;
mod events;
mod export;
mod health;
mod holders;
mod market;
mod memory;
#[cfg(feature = "metrics")]
mod metrics;
mod page;
mod permits;
mod place;
mod price;
mod problem;
#[cfg(feature = "redis")]
mod redis;
mod settings;
mod shadow;
mod shutdown;
mod socket;
mod trade;

use app::App;
use axum::{Router, http::request::Parts, middleware::from_fn_with_state, serve::ListenerExt};
use holders::Holders;
use market::Market;
use memory::MemoryMarket;
use page::{About, Watchers};
use permits::Permits;
use settings::{SettingError, Settings};
use shutdown::ClosingListener;
use socket::Sockets;
use std::{error::Error, io, net::Ipv4Addr, process::ExitCode, sync::Arc};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, KeyExtractor, OnLost, Semaphore};

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

/// Joins an error and its causes. A cause that the error's own text contains is not repeated.
fn with_causes(error: &dyn Error) -> String {
    let text = error.to_string();
    let cause = error.source().map(with_causes);
    match cause.filter(|cause| !text.contains(cause)) {
        Some(cause) => format!("{text}: {cause}"),
        None => text,
    }
}

/// Serves the market until a signal stops the process.
async fn run() -> Result<(), Box<dyn Error>> {
    let settings = Settings::from_env()?;
    let permits = Permits::open(&settings).await?;
    let limit = limits(&settings, permits.clone());
    let stop = shutdown::on_signal()?;
    let holders = Holders {
        permits: permits.clone(),
        limit: settings.limit,
    };
    let app = App {
        market: market(&settings, &permits).await?,
        about: Arc::new(About::new(&settings)),
        watchers: Watchers::new(holders.clone()),
        holders,
        stop: stop.clone(),
        sockets: Sockets::new(settings.max_stall),
    };
    let listener = listen(settings.port).await?;
    println!("listening on http://{}", listener.local_addr()?);
    eprintln!("{settings}");
    let sockets = app.sockets.clone();
    let routes = app::routes(limit, app.watchers.clone());
    #[cfg(feature = "metrics")]
    let routes = routes.merge(metrics::router()?);
    let routes = routes.layer(from_fn_with_state(stop.clone(), shutdown::ask_to_leave));
    let serving = serve(listener, routes.with_state(app), stop.clone());
    let served = until_overdue(stop, serving, &sockets).await;
    permits.close().await;
    Ok(served?)
}

/// Serves until the signal to stop, and then until all responses have ended.
async fn serve(listener: TcpListener, app: Router, stop: CancellationToken) -> io::Result<()> {
    let listener = ClosingListener::new(listener, stop.clone())?;
    // Rows and events are small and must be sent at once.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    let idle_close = shutdown::idle_connections_close(stop);
    let serving = axum::serve(listener, app).with_graceful_shutdown(idle_close);
    serving.await
}

/// Waits until the server and then its sockets have ended, or until their time is up.
async fn until_overdue(
    stop: CancellationToken,
    serving: impl Future<Output = io::Result<()>>,
    sockets: &Sockets,
) -> io::Result<()> {
    let all = async {
        let served = serving.await;
        sockets.closed().await;
        served
    };
    tokio::select! {
        served = all => served,
        () = shutdown::overdue(stop) => {
            eprintln!("some responses did not end in time");
            Ok(())
        }
    }
}

async fn listen(port: u16) -> Result<TcpListener, SettingError> {
    let address = (Ipv4Addr::LOCALHOST, port);
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| SettingError::Port { port, source })
}

/// The market, which is in the same store as the permits.
async fn market(settings: &Settings, permits: &Permits) -> Result<Arc<dyn Market>, SettingError> {
    match (permits, &settings.redis) {
        #[cfg(feature = "redis")]
        (Permits::Redis(semaphore), Some(redis)) => {
            let market = redis::RedisMarket::open(redis, semaphore.clone()).await;
            let unusable = |error| SettingError::unusable(redis.place.setting(), error);
            Ok(Arc::new(market.map_err(unusable)?))
        }
        _ => Ok(Arc::new(MemoryMarket::new())),
    }
}

/// How many turns a paying account takes, for one turn of another account, at the limit of all accounts.
const PAYING_SHARE: u32 = 4;

/// The limits of all routes under `/market`: the account's limit and the shared limit of all accounts.
fn limits(
    settings: &Settings,
    permits: Permits,
) -> ConcurrencyLimitLayer<impl KeyExtractor + Clone + use<>> {
    let fleet = Claim::new(holders::ALL)
        .with_policy(holders::FLEET)
        .with_limit(settings.fleet_limit);
    let claims = move |parts: &Parts| {
        let account = account::from_parts(parts)?;
        let label = format!("{} {}", parts.method, parts.uri.path());
        let is_paying = parts
            .headers
            .get("x-plan")
            .is_some_and(|plan| plan == "pro");
        let share = if is_paying { PAYING_SHARE } else { 1 };
        let fleet = fleet.clone().with_label(label.clone()).with_share(share);
        Ok::<_, KeyError>([Claim::new(account).with_label(label), fleet])
    };
    let permits: Box<dyn Semaphore> = match settings.shadow {
        true => Box::new(shadow::Logged(permits)),
        false => Box::new(permits),
    };
    let layer = ConcurrencyLimitLayer::new(settings.limit, claims, permits)
        .with_wait(settings.wait)
        .with_fair_queues()
        .with_on_lost(OnLost::Abort)
        .with_shadow(settings.shadow);
    match settings.max_stall {
        Some(max_stall) => layer.with_max_stall(max_stall),
        None => layer,
    }
}
