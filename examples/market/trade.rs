//! Listing, selling and buying.

use crate::{
    account::Account,
    app::App,
    market::{Listing, Trade},
    price::Price,
    problem::Problem,
};
use axum::{
    Json,
    extract::{
        Path, State,
        rejection::{JsonRejection, PathRejection},
    },
    http::StatusCode,
};
use serde::Deserialize;

/// A seller's offer.
#[derive(Debug, Deserialize)]
pub(crate) struct Offer {
    item: String,
    price: Price,
}

/// `GET /market`: all listings.
pub(crate) async fn listings(State(app): State<App>) -> Result<Json<Vec<Listing>>, Problem> {
    Ok(Json(app.market.listings().await?))
}

/// `POST /market/items`: offers an item of the account for sale.
pub(crate) async fn list(
    State(app): State<App>,
    seller: Account,
    offer: Result<Json<Offer>, JsonRejection>,
) -> Result<(StatusCode, Json<Listing>), Problem> {
    let Json(Offer { item, price }) = offer?;
    let listing = app.market.list(seller, item, price).await??;
    Ok((StatusCode::CREATED, Json(listing)))
}

/// `POST /market/items/{id}/purchase`: buys the listing for the account.
pub(crate) async fn purchase(
    State(app): State<App>,
    buyer: Account,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Trade>, Problem> {
    let Path(id) = id?;
    Ok(Json(app.market.purchase(buyer, id).await??))
}
