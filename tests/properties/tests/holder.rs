//! A holder in a scenario.

use crate::{driver::Name, server::is_same_permit};
use tokio::task::AbortHandle;
use tower_semaphore::Permit;

/// `Err` says what has not happened yet.
pub(crate) type Settled = Result<(), &'static str>;

/// A permit whose owner still runs.
pub(crate) struct Holder {
    pub(crate) name: Name,
    permit: Permit,
    /// Its weight and token when it was granted.
    weight: u32,
    token: Option<u64>,
    pub(crate) lost: bool,
    /// A task that ends when the permit is reported lost.
    loss_watch: AbortHandle,
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.loss_watch.abort();
    }
}

impl Holder {
    pub(crate) fn new(name: Name, weight: u32, permit: Permit) -> Self {
        let loss_watch = permit.clone();
        Self {
            name,
            weight,
            token: permit.token(),
            lost: false,
            loss_watch: tokio::spawn(async move { loss_watch.lost().await }).abort_handle(),
            permit,
        }
    }

    /// Whether the permit is held again after a loss.
    pub(crate) fn is_back(&self, units: &[(Name, f64)]) -> bool {
        // `end_lease` sets the end of a lease that stays listed to the first millisecond of 1970.
        let live = |(unit, ends): &(Name, f64)| is_same_permit(unit, &self.name) && *ends > 1.0;
        self.lost && units.iter().any(live)
    }

    /// Whether the permit has reached the state that follows from its lease.
    pub(crate) fn settled(&self, units: &[(Name, f64)], room: u32, end: f64) -> Settled {
        let ends = units
            .iter()
            .find(|(unit, _)| is_same_permit(unit, &self.name));
        // See `is_back`.
        let ends = ends.map(|(_, ends)| *ends).filter(|ends| *ends > 1.0);
        let back = self.permit.token() > self.token;
        let settled = match (self.lost, ends) {
            (false, None) => "a lease that was not ended is gone",
            (false, Some(ends)) if ends <= end => "a lease is not refreshed",
            (false, Some(_)) if self.permit.is_lost() => "a held permit is reported lost",
            (false, Some(_)) if back => "a permit that was never lost has a new token",
            (true, None) if !self.loss_watch.is_finished() => {
                "the loss is not reported to the holder"
            }
            (true, None) if !self.permit.is_lost() => "a lost permit does not say so",
            (true, None) if self.weight <= room => {
                "a lost permit is not held again, with room for it"
            }
            (true, Some(_)) if self.permit.is_lost() => {
                "a permit that is held again says that it is lost"
            }
            // One that was held again before its end was never lost to its holder.
            (true, Some(_)) if back != self.loss_watch.is_finished() => {
                "the token is another one, or the same, although the loss was not reported, or was"
            }
            _ => return Ok(()),
        };
        Err(settled)
    }
}
