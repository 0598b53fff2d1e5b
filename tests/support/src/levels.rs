//! Claims under several limits.

use std::array;
use tower_semaphore::Claim;

pub const POLICIES: [&str; 3] = ["account", "route", "fleet"];

/// Claims of an account under its limit, under the limit of a route, and under the limit of the fleet.
pub fn claims(account: &str, limits: [u32; 3]) -> [Claim; 3] {
    let keys = [account, "export", "all"];
    array::from_fn(|level| {
        let claim = Claim::new(keys[level]).with_policy(POLICIES[level]);
        claim.with_limit(limits[level])
    })
}
