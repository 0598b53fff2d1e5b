//! The account of a request, from the header `x-account-id` or else from `account` in the query.

use crate::{app::App, market::Holdings, problem::Problem};
use axum::{
    Json,
    extract::{FromRequestParts, Path, State, rejection::PathRejection},
    http::request::Parts,
};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use std::fmt;
use tower_semaphore::{Key, KeyError};

/// The name of an account. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Account(String);

/// The account of a request, which is the key of its limit and the trader in the market.
///
/// The limit and the handlers both use this function, so they always agree on the account.
pub(crate) fn from_parts(parts: &Parts) -> Result<Account, KeyError> {
    let name = match in_header(parts)? {
        Some(name) => name,
        None => in_query(parts)?.ok_or_else(|| KeyError::missing("the account"))?,
    };
    if name.is_empty() {
        return Err(KeyError::Empty);
    }
    Ok(Account(name))
}

/// `GET /accounts/{id}`: the coins and items of an account. Anyone may read them without a permit.
pub(crate) async fn show(
    State(app): State<App>,
    account: Result<Path<Account>, PathRejection>,
) -> Result<Json<Holdings>, Problem> {
    let Path(account) = account?;
    Ok(Json(app.market.account(account).await?))
}

fn in_header(parts: &Parts) -> Result<Option<String>, KeyError> {
    let values = parts.headers.get_all("x-account-id").iter();
    let names = values.map(|value| value.as_bytes().to_vec());
    only(names, "the header x-account-id")
}

/// Browsers cannot set a header on an `EventSource` or a WebSocket, so the query may name the account instead.
fn in_query(parts: &Parts) -> Result<Option<String>, KeyError> {
    let fields = parts.uri.query().unwrap_or_default().split('&');
    let values = fields.filter_map(|field| field.strip_prefix("account="));
    let names = values.map(|value| percent_decode_str(value).collect());
    only(names, "the query's account")
}

/// The only name in `names`. Two names would be ambiguous.
fn only(
    mut names: impl Iterator<Item = Vec<u8>>,
    source: &str,
) -> Result<Option<String>, KeyError> {
    let first = names.next().map(String::from_utf8).transpose();
    if names.next().is_some() {
        return Err(KeyError::repeated(source));
    }
    first.map_err(|_| format!("{source} is not UTF-8").into())
}

impl FromRequestParts<App> for Account {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Ok(from_parts(parts)?)
    }
}

impl From<Account> for Key {
    fn from(account: Account) -> Self {
        account.0.into()
    }
}

impl Account {
    #[cfg(feature = "redis")]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
