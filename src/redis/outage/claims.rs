//! What the way of a claim has to know of the claims themselves.

use crate::semaphore::Claim;
use std::time::Duration;

/// The claims, after they have waited for so long.
pub(super) fn less(claims: &[Claim], waited: Duration) -> Vec<Claim> {
    let less = claims.iter().map(|claim| match claim.wait() {
        Some(wait) => claim.clone().with_wait(wait.time.saturating_sub(waited)),
        None => claim.clone(),
    });
    less.collect()
}

/// How long the claims may wait.
pub(super) fn longest(claims: &[Claim]) -> Duration {
    let waits = claims.iter().filter_map(Claim::wait);
    waits.map(|wait| wait.time).max().unwrap_or_default()
}

/// Whether one level must not be admitted without the server.
pub(super) fn is_strict(claims: &[Claim]) -> bool {
    claims.iter().any(Claim::is_strict)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn claims_that_have_waited_wait_for_the_rest_of_their_time() {
        let claim = Claim::new("a").with_limit(1);
        let claims = [claim.clone().with_wait(SECOND * 3), claim];
        let waits = |waited| {
            let less = less(&claims, waited).into_iter();
            less.map(|claim| claim.wait().map(|wait| wait.time))
                .collect::<Vec<_>>()
        };
        assert_eq!(waits(SECOND), [Some(SECOND * 2), None]);
        assert_eq!(waits(SECOND * 4), [None, None]);
    }

    #[test]
    fn one_strict_level_makes_all_strict() {
        let claim = Claim::new("a").with_limit(1);
        let strict = claim.clone().with_strict(true);
        assert!(!is_strict(&[claim.clone(), claim.clone()]));
        assert!(is_strict(&[claim, strict]));
    }
}
