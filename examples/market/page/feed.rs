//! The page's feed: one stream of server-sent events.

use super::watchers::{Seen, Watching};
use crate::{account::Account, app::App, market::StoreError, problem::Problem};
use axum::{
    Error,
    extract::{Path, State, rejection::PathRejection},
    response::sse::{Event, KeepAlive, Sse},
};
use futures_util::{
    Stream, StreamExt,
    future::ready,
    stream::{iter, once, select},
};
use serde::Serialize;
use serde_json::json;
use std::time::Duration;
use tokio_stream::wrappers::{BroadcastStream, WatchStream};

/// The longest silence, so that a browser notices a broken connection.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The page draws 20. The others replace listings that are sold.
const MOST_LISTINGS: usize = 100;

/// A frame of the feed, or `None` at its end.
type Frame = Option<Result<Event, Error>>;

/// `GET /accounts/{id}/events`: the account's holders, waiters and refusals, and the market's trades. Takes no permit
/// of the account.
///
/// | event | data |
/// |---|---|
/// | `market` | the settings that the page shows, sent first |
/// | `permits` | the same as `GET /accounts/{id}/permits`, sent first and at each change, with the first hundred waiters and `queue_length` |
/// | `unavailable` | the store does not answer; the next `permits` is current again |
/// | `refusal` | a request of the account that this process refused |
/// | `listings` | the cheapest listings and the total number of listings, sent first |
/// | `listing`, `trade` | the same as `GET /market/events` |
///
/// The feed ends when the server stops or when its reader lags too far behind. An `EventSource` then reconnects.
pub(crate) async fn feed(
    State(app): State<App>,
    account: Result<Path<Account>, PathRejection>,
) -> Result<Sse<impl Stream<Item = Result<Event, Error>>>, Problem> {
    let Path(account) = account?;
    let market = market(&app).await?;
    let permits = permits(app.watchers.watch(account));
    let frames = iter([frame("market", &*app.about)]).chain(select(permits, market));
    let until_end = frames.take_while(|frame| ready(frame.is_some()));
    let until_stop = until_end.take_until(app.stop.cancelled_owned());
    let events = until_stop.filter_map(ready);
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

/// Frames of the account's holders, waiters and refusals.
fn permits(watching: Watching) -> impl Stream<Item = Frame> {
    let usage = WatchStream::new(watching.usage).filter_map(ready);
    let refusals =
        BroadcastStream::new(watching.refusals).filter_map(|refusal| ready(refusal.ok()));
    select(
        usage.map(|seen| usage_frame(&seen)),
        refusals.map(|refusal| frame("refusal", &refusal)),
    )
}

fn usage_frame(seen: &Seen) -> Frame {
    match seen {
        Some(usage) => Some(Ok(Event::default().event("permits").data(usage))),
        None => frame("unavailable", &json!({})),
    }
}

/// Frames of the current listings and then of all changes. A reader that is too slow is cut off, and sees everything
/// again once it has reconnected.
async fn market(app: &App) -> Result<impl Stream<Item = Frame> + use<>, StoreError> {
    // Subscribe first, so that no event is missed in between.
    let events = app.market.events();
    let listings = app.market.listings().await?;
    let cheapest = &listings[..listings.len().min(MOST_LISTINGS)];
    let listings = json!({"listings": cheapest, "total": listings.len()});
    let events = events.map(|event| frame(event.name(), &event));
    let first = iter([frame("listings", &listings)]);
    Ok(first.chain(events).chain(once(ready(None))))
}

fn frame(name: &str, data: &impl Serialize) -> Frame {
    Some(Event::default().event(name).json_data(data))
}
