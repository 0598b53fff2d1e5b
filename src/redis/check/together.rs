//! One check at a time, for all who ask meanwhile.

use super::risk::Risk;
use crate::redis::connect_error::ConnectError;
use std::time::Instant;
use tokio::sync::Mutex;

type Checked = Result<Vec<Risk>, ConnectError>;

/// What the last check found, and when. Who waits for the lock has asked while a check was running.
#[derive(Default)]
pub(in crate::redis) struct Checks(Mutex<Option<(Instant, Checked)>>);

impl Checks {
    /// Runs a check, unless one ends before it is this one's turn. That one may have been cancelled, or
    /// belong to a runtime that has ended.
    pub(super) async fn run<F>(&self, check: impl FnOnce() -> F) -> Checked
    where
        F: Future<Output = Checked>,
    {
        let asked = Instant::now();
        let mut last = self.0.lock().await;
        if let Some((ended, checked)) = &*last
            && *ended >= asked
        {
            return checked.clone();
        }
        let checked = check().await;
        *last = Some((Instant::now(), checked.clone()));
        checked
    }
}
