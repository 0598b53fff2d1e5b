//! `SHADOW=1`: logs which account would be refused. The key is written to this process's log only.

use tower_semaphore::{Acquire, AcquireError, Claim, Claims, Permit, Semaphore};

/// A store that writes its refusals to standard error.
pub(crate) struct Logged<S>(pub(crate) S);

impl<S: Semaphore> Semaphore for Logged<S> {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        // The first claim is that of the account.
        let account = claims.as_slice().first().cloned();
        let acquire = self.0.acquire_all(claims);
        Acquire::pending(async move {
            let answer = acquire.await;
            if let Some(claim) = account {
                log_refusal(&claim, &answer);
            }
            answer
        })
    }
}

fn log_refusal(claim: &Claim, answer: &Result<Permit, AcquireError>) {
    let account = claim.key().as_bytes().escape_ascii();
    match answer {
        Ok(_) => {}
        Err(AcquireError::Full { policy, limit, .. }) => {
            eprintln!("would refuse {account}: {policy} is full with {limit}");
        }
        Err(error) => eprintln!("would refuse {account}: {error}"),
    }
}
