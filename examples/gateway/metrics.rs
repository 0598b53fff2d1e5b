//! `GET /metrics`: metrics of the limits for a Prometheus server.

use crate::App;
use axum::{
    http::header::CONTENT_TYPE,
    routing::{MethodRouter, get},
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use std::time::Duration;
use tower_semaphore::observe::{CALL_SIZE, SECONDS, SIZES};

/// The period after which histogram samples are put into their buckets. Until then each sample takes memory.
const UPKEEP: Duration = Duration::from_secs(5);

/// The media type of Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Installs the recorder of all metrics, and returns the route's handler.
pub(crate) fn route() -> Result<MethodRouter<App>, BuildError> {
    let handle = PrometheusBuilder::new()
        .with_recommended_naming(true)
        .set_buckets_for_metric(Matcher::Prefix("tower_semaphore".into()), SECONDS)?
        .set_buckets_for_metric(Matcher::Full(CALL_SIZE.into()), SIZES)?
        .install_recorder()?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            upkeep.run_upkeep();
        }
    });
    Ok(get(async move || ([(CONTENT_TYPE, TEXT)], handle.render())))
}
