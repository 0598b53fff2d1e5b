//! Who holds an account's permits, for whoever looks at the market.

use crate::{account::Account, app::App, permits::Permits, problem::Problem, with_causes};
use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
};
use tower_semaphore::{
    Operate, Policy,
    semaphore::{StoreError, Usage},
};

/// The limit of all accounts together.
pub(crate) const FLEET: Policy = Policy::from_static("fleet");

/// Its key.
pub(crate) const ALL: &str = "all";

/// Permits, and how many of them an account may have.
#[derive(Clone)]
pub(crate) struct Holders {
    pub(crate) permits: Permits,
    pub(crate) limit: u32,
}

impl Holders {
    /// Who holds the account's permits, and who waits for one.
    ///
    /// # Errors
    ///
    /// The store's own, if it failed.
    pub(crate) async fn usage(&self, account: Account) -> Result<Usage, StoreError> {
        let usage = self.permits.usage(&Policy::DEFAULT, &account.into());
        let mut usage = usage.await?;
        // Where nobody holds or waits, the store knows no limit.
        usage.limit.get_or_insert(self.limit);
        Ok(usage)
    }
}

/// `GET /accounts/{id}/permits`: who holds the account's permits, and who waits for one. It takes none.
pub(crate) async fn show(
    State(app): State<App>,
    account: Result<Path<Account>, PathRejection>,
) -> Result<([(HeaderName, &'static str); 1], String), Problem> {
    let Path(account) = account?;
    let usage = app.holders.usage(account).await?;
    Ok(([(CONTENT_TYPE, "application/json")], usage.to_json()))
}

/// `GET /fleet/permits`: who holds permits of the limit of all accounts together, and who waits for one in which order.
pub(crate) async fn show_fleet(
    State(app): State<App>,
) -> Result<([(HeaderName, &'static str); 1], String), Problem> {
    let usage = app.holders.permits.usage(&FLEET, &ALL.into()).await?;
    Ok(([(CONTENT_TYPE, "application/json")], usage.to_json()))
}

/// `DELETE /accounts/{id}/permits/{permit}`: ends a permit, and the response that holds it. A real market
/// would let operators do so, and nobody else.
pub(crate) async fn revoke(
    State(app): State<App>,
    path: Result<Path<(Account, String)>, PathRejection>,
) -> Result<StatusCode, Problem> {
    let Path((account, permit)) = path?;
    let permits = app.holders.permits;
    let was_held = permits
        .revoke(&Policy::DEFAULT, &account.into(), &permit)
        .await?;
    match was_held {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "the account has no such permit",
        )),
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        eprintln!("the permits' store failed: {}", with_causes(&error));
        let detail = "nobody knows the permits for the moment";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}
