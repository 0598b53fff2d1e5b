//! Market events as server-sent events.

use crate::{app::App, market::Event};
use axum::{
    Error,
    extract::State,
    response::sse::{self, KeepAlive, Sse},
};
use futures_util::{Stream, StreamExt};

/// `GET /market/events`: listings and trades from now on.
///
/// The stream has no natural end, so it ends when the server stops. An `EventSource` then reconnects.
pub(crate) async fn events(
    State(app): State<App>,
) -> Sse<impl Stream<Item = Result<sse::Event, Error>>> {
    let events = app.market.events().map(|event| frame(&event));
    let until_stop = events.take_until(app.stop.cancelled_owned());
    Sse::new(until_stop).keep_alive(KeepAlive::default())
}

fn frame(event: &Event) -> Result<sse::Event, Error> {
    sse::Event::default().event(event.name()).json_data(event)
}
