//! The holders of an account's permits, shown to anyone who looks at the market.

use crate::{account::Account, app::App, permits::Permits, problem::Problem, with_causes};
use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
};
use tower_semaphore::{
    Operate, Policy,
    semaphore::{StoreError, Usage},
};

/// The policy of the limit that all accounts share.
pub(crate) const FLEET: Policy = Policy::from_static("fleet");

/// The key of that limit.
pub(crate) const ALL: &str = "all";

/// The permits' store, and the limit of each account.
#[derive(Clone)]
pub(crate) struct Holders {
    pub(crate) permits: Permits,
    pub(crate) limit: u32,
}

impl Holders {
    /// Returns the holders of the account's permits, and the waiters.
    ///
    /// # Errors
    ///
    /// Returns the store's error.
    pub(crate) async fn usage(&self, account: Account) -> Result<Usage, StoreError> {
        let usage = self.permits.usage(&Policy::DEFAULT, &account.into());
        let mut usage = usage.await?;
        // A key without holders and waiters has no limit in the store.
        usage.limit.get_or_insert(self.limit);
        Ok(usage)
    }
}

/// `GET /accounts/{id}/permits`: the holders of the account's permits, and the waiters. Takes no permit.
pub(crate) async fn show(
    State(app): State<App>,
    account: Result<Path<Account>, PathRejection>,
) -> Result<([(HeaderName, &'static str); 1], String), Problem> {
    let Path(account) = account?;
    let usage = app.holders.usage(account).await?;
    Ok(([(CONTENT_TYPE, "application/json")], usage.to_json()))
}

/// `GET /fleet/permits`: the holders of permits under the limit of all accounts, and the waiters in their order.
pub(crate) async fn show_fleet(
    State(app): State<App>,
) -> Result<([(HeaderName, &'static str); 1], String), Problem> {
    let usage = app.holders.permits.usage(&FLEET, &ALL.into()).await?;
    Ok(([(CONTENT_TYPE, "application/json")], usage.to_json()))
}

/// `DELETE /accounts/{id}/permits/{permit}`: ends a permit and the response that holds it. A real market would let only
/// operators do this.
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
