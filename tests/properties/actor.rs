//! A holder in a scene.

use crate::world::Name;
use tokio::task::AbortHandle;
use tower_semaphore::Permit;

/// What has still to happen, if anything has.
pub(crate) type Lack = Result<(), &'static str>;

/// A holder that still runs.
pub(crate) struct Actor {
    pub(crate) name: Name,
    permit: Permit,
    /// What it took, and under which token.
    weight: u32,
    token: u64,
    pub(crate) lost: bool,
    /// Runs until it is told of a loss.
    ear: AbortHandle,
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.ear.abort();
    }
}

impl Actor {
    pub(crate) fn new(name: Name, weight: u32, permit: Permit) -> Self {
        let ear = permit.clone();
        Self {
            name,
            weight,
            token: permit.token(),
            lost: false,
            ear: tokio::spawn(async move { ear.lost().await }).abort_handle(),
            permit,
        }
    }

    /// Whether it holds its place again after a loss.
    pub(crate) fn is_back(&self, units: &[(Name, f64)]) -> bool {
        // What was struck and is still listed, has ended in the first millisecond of 1970.
        let live = |(unit, ends): &(Name, f64)| *unit == self.name && *ends > 1.0;
        self.lost && units.iter().any(live)
    }

    /// What has still to happen to it.
    pub(crate) fn lacks(&self, units: &[(Name, f64)], room: u32, end: f64) -> Lack {
        let ends = units.iter().find(|(unit, _)| *unit == self.name);
        let ends = ends.map(|(_, ends)| *ends);
        let back = self.permit.token() > self.token;
        let lack = match (self.lost, ends) {
            (false, None) => "a lease that ought to be kept is gone",
            (false, Some(ends)) if ends <= end => "a lease is not refreshed",
            (false, Some(_)) if self.permit.is_lost() => "a holder is told of a loss it had not",
            (false, Some(_)) if back => "a permit that was kept has a new token",
            (true, _) if !self.ear.is_finished() => "a holder is not told of its loss",
            (true, None) if !self.permit.is_lost() => "a lost permit does not know",
            (true, None) if self.weight <= room => "a lost permit is not back, with room for it",
            (true, Some(_)) if self.permit.is_lost() => "a permit that is back does not know",
            (true, Some(_)) if !back => "a permit is back under its old token",
            _ => return Ok(()),
        };
        Err(lack)
    }
}
