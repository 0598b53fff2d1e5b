//! A crawler that has at most three requests in flight at each host and obeys the host's `Retry-After`. Any number of
//! crawlers can share these limits.
//!
//! `cargo run --example crawler` crawls a small site of three hosts that it serves itself. At the end it asks each host
//! for the largest number of simultaneous requests, and fails if that was more than three. It also fails if a host
//! received more than two requests during a pause that it had asked for. Two are no fault: while the answer that asks
//! for the pause is on its way, two other requests may be too.
//!
//! Two crawlers that share the limit need Redis, and a site that outlives them:
//!
//! ```sh
//! cargo run --example crawler serve     # listening on http://127.0.0.1:PORT
//! SITE=http://127.0.0.1:PORT/ REDIS_URL=redis://127.0.0.1/ cargo run --example crawler &
//! SITE=http://127.0.0.1:PORT/ REDIS_URL=redis://127.0.0.1/ cargo run --example crawler
//! ```
//!
//! Without `REDIS_URL` each would count only its own requests, and the hosts would see six at a time.

mod crawl;
mod site;
mod store;
mod web;

use crawl::crawl;
use std::{env, error::Error, future::pending, process::ExitCode, time::Instant};
use store::Store;
use web::Web;

type BoxError = Box<dyn Error + Send + Sync>;

/// The number of simultaneous requests that a host permits.
const MOST: usize = 3;

#[tokio::main]
async fn main() -> Result<ExitCode, BoxError> {
    if env::args().nth(1).as_deref() == Some("serve") {
        serve().await?;
        return pending().await;
    }
    let start = match env::var("SITE") {
        Ok(site) => site,
        Err(_) => serve().await?,
    };
    let store = Store::from_environment().await?;
    let web = Web::new(store.clone(), limit()?);
    let begun = Instant::now();
    let pages = crawl(&web, start).await?;
    println!("{pages} pages in {:.1} s", begun.elapsed().as_secs_f64());
    store.close().await;
    report(&web).await
}

/// Serves the site and prints its address.
async fn serve() -> Result<String, BoxError> {
    let address = site::start().await?;
    println!("listening on http://{address}");
    Ok(format!("http://{address}/"))
}

/// Reads `LIMIT`. A value above the default shows how the check fails.
fn limit() -> Result<u32, BoxError> {
    let limit = env::var("LIMIT").unwrap_or_else(|_| MOST.to_string());
    Ok(limit.parse()?)
}

/// Prints the hosts' own counts of requests.
async fn report(web: &Web) -> Result<ExitCode, BoxError> {
    let mut code = ExitCode::SUCCESS;
    for host in web.hosts() {
        let seen = web.most_seen(&host).await?;
        let early = web.most_early(&host).await?;
        println!("{host} has seen {seen} requests at a time, and {early} in a pause");
        // Besides the request whose answer began the pause, `MOST - 1` may have been on their way.
        if seen > MOST || early >= MOST {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
