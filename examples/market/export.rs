//! A slow response: the state of the market over time.

use crate::{
    app::App,
    market::{Market, StoreError},
    price::Price,
    problem::Problem,
};
use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderName, header::CONTENT_TYPE},
};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// The number of rows, and the time to wait before each.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct Export {
    rows: u32,
    interval_ms: u32,
}

impl Default for Export {
    fn default() -> Self {
        Self {
            rows: 10,
            interval_ms: 100,
        }
    }
}

/// The market at one moment.
#[derive(Debug, Serialize)]
struct Row {
    row: u32,
    listed: usize,
    cheapest: Option<Price>,
}

/// `GET /market/export?rows=N&interval_ms=M`: N rows of NDJSON, one every M milliseconds, or with 0 as fast as the
/// client reads. If the market cannot be read, the response is a problem. It never has a success status without rows.
pub(crate) async fn export(
    State(app): State<App>,
    query: Result<Query<Export>, QueryRejection>,
) -> Result<([(HeaderName, &'static str); 1], Body), Problem> {
    let Query(Export { rows, interval_ms }) = query?;
    app.market.listings().await?;
    let interval = Duration::from_millis(interval_ms.into());
    let lines = stream::iter(1..=rows).then(move |row| {
        let market = Arc::clone(&app.market);
        async move {
            // A sleep takes at least a millisecond.
            if !interval.is_zero() {
                sleep(interval).await;
            }
            encode(row, &*market).await
        }
    });
    let kind = [(CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)))
}

async fn encode(row: u32, market: &dyn Market) -> Result<String, StoreError> {
    let listings = market.listings().await?;
    let row = Row {
        row,
        listed: listings.len(),
        cheapest: listings.first().map(|listing| listing.price),
    };
    Ok(serde_json::to_string(&row)? + "\n")
}
