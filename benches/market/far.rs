//! The market with a server that is half a millisecond away, instead of on the same machine.
//!
//! On a single machine all processors are busy, so the amount of work decides. Across a network the number of round
//! trips per deal decides.

use crate::{HEAD, figures_of, trade_at, variant::Variant};
use std::time::Duration;
use testing::{
    bench::{
        run::{bar, pick},
        table::{Table, figure},
    },
    proxy::Proxy,
    redis::RedisServer,
};
use tokio::runtime::Runtime;

/// The delay from a client to the server, and of the way back.
const WAY: Duration = Duration::from_micros(500);

pub(crate) fn compare() {
    let span = Duration::from_secs(pick(5, 20));
    let title = format!("Each way takes {WAY:?} more, {} s", span.as_secs());
    let mut table = Table::new(title, &HEAD);
    let variants = [Variant::ItemLock, Variant::Library];
    let progress = bar("far", variants.len());
    for variant in variants {
        let named = ["5 × 5".to_owned(), variant.name().to_owned()];
        table.row(named.into_iter().chain(trade(variant, span).map(figure)));
        progress.inc(1);
    }
    progress.finish_and_clear();
    println!("{table}");
}

fn trade(variant: Variant, span: Duration) -> [f64; 4] {
    let runtime = Runtime::new().expect("a runtime starts");
    let server = RedisServer::start();
    let proxy = runtime.block_on(Proxy::start(&server));
    proxy.delay(WAY, WAY);
    figures_of(&trade_at(&proxy.url(), variant, 5, 5, span))
}
