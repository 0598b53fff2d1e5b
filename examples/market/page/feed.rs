//! What the page is told, as it happens: one stream of server-sent events.

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

/// How often a browser hears something at least, so that a connection that broke is noticed.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The page draws fewer.
const MOST_LISTINGS: usize = 100;

/// `None` where the feed ends.
type Frame = Option<Result<Event, Error>>;

/// `GET /accounts/{id}/events`: who holds the account's permits, who waits and who is refused, and
/// what the market trades. Takes no permit of the account.
///
/// | event | data |
/// |---|---|
/// | `market` | the settings that the page shows, first |
/// | `permits` | the same as `GET /accounts/{id}/permits`, first and at each change, with the first hundred who wait and `queue_length` |
/// | `unavailable` | the store does not say; the next `permits` is current again |
/// | `refusal` | a request of the account that this process refused |
/// | `listings` | the cheapest listings, and how many there are in all, first |
/// | `listing`, `trade` | the same as `GET /market/events` |
///
/// It ends when the server stops, or when its reader falls too far behind. An `EventSource`
/// reconnects.
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

/// Who holds the account's permits and who waits, and who is refused.
fn permits(watching: Watching) -> impl Stream<Item = Frame> {
    let usage = WatchStream::new(watching.usage).filter_map(ready);
    let refusals = BroadcastStream::new(watching.refusals).filter_map(|told| ready(told.ok()));
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

/// The listings now, and then what happens. A reader who is too slow for it is cut off, and sees
/// everything again when it has reconnected.
async fn market(app: &App) -> Result<impl Stream<Item = Frame> + use<>, StoreError> {
    // First, so that nothing is missed in between.
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
