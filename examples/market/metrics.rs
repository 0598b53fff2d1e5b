//! `GET /metrics`: metrics of the permits for a Prometheus server.

use crate::app::App;
use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use std::time::Duration;
use tower_semaphore::observe::{CALL_SIZE, SECONDS, SIZES};

/// How often histogram samples are put into their buckets. Until then each sample takes memory.
const UPKEEP: Duration = Duration::from_secs(5);

/// The media type of the text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Starts counting, and returns the route `GET /metrics`.
pub(crate) fn router() -> Result<Router<App>, BuildError> {
    let handle = install()?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            upkeep.run_upkeep();
        }
    });
    let show = async move || ([(CONTENT_TYPE, TEXT)], handle.render());
    Ok(Router::new().route("/metrics", get(show)))
}

fn install() -> Result<PrometheusHandle, BuildError> {
    PrometheusBuilder::new()
        .with_recommended_naming(true)
        .set_buckets_for_metric(Matcher::Prefix("tower_semaphore".into()), SECONDS)?
        .set_buckets_for_metric(Matcher::Full(CALL_SIZE.into()), SIZES)?
        .install_recorder()
}
