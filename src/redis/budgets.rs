//! The usage of the budgets of a key, for operators. A key has one budget for each window.

use super::{ask::To, error::CallError, store::Store};
use crate::semaphore::{BudgetUsage, PermitInfo};
use redis::cmd;
use std::{collections::HashMap, time::Duration};

/// The name under which a pause applies to all windows that are not in use yet. No real window is 0 ms long.
pub(super) const NO_WINDOW: &str = "0";

/// The fields of the hash in which the budgets of a key have their states: see `budget.lua`.
pub(super) struct BudgetFields(HashMap<String, String>);

/// The state of one budget. Times are ms of the server's clock.
struct BudgetState {
    /// The units that were spent and had not come back at the time of `updated`.
    spent: u128,
    updated: u64,
    reserved: u128,
    /// The number of units that come back within a window.
    limit: u128,
    /// The part of the next unit that had come back. A unit has as many parts as the window has ms.
    credit: u128,
}

impl BudgetState {
    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ');
        let mut next = || numbers.next()?.parse::<u64>().ok();
        Some(Self {
            spent: next()?.into(),
            updated: next()?,
            reserved: next()?.into(),
            limit: next()?.into(),
            credit: next()?.into(),
        })
    }

    /// The units that were spent and have not come back yet.
    fn spent_at(&self, now: u64, window: u32) -> u128 {
        let passed = u128::from(now.saturating_sub(self.updated));
        let returned = (self.limit * passed + self.credit) / u128::from(window);
        self.spent.saturating_sub(returned)
    }
}

impl BudgetFields {
    /// The windows of the key's budgets, in ms.
    pub(super) fn windows(&self) -> Vec<u32> {
        // The other fields are a pause, and `WINDOW:ID` for each reservation.
        let windows = self.0.keys().filter_map(|field| field.parse().ok());
        let mut windows: Vec<_> = windows.collect();
        windows.sort_unstable();
        windows
    }

    /// The usage of a budget at this time of the server's clock. `held` lists the reservations that have not ended, as
    /// [`complete`](Self::complete) leaves them. Reserved units beyond theirs belong to ended reservations, and count
    /// as spent.
    pub(super) fn usage(&self, window: u32, now: u64, held: &[PermitInfo]) -> Option<BudgetUsage> {
        let state = BudgetState::read(self.0.get(&window.to_string())?)?;
        let unsettled = held.iter().map(|info| {
            let settled = info.settled.unwrap_or_default();
            u128::from(info.weight.saturating_sub(settled))
        });
        let reserved = state.reserved.min(unsettled.sum());
        let spent = state.spent_at(now, window) + state.reserved - reserved;
        let units = |units: u128| u32::try_from(units).unwrap_or(u32::MAX);
        let window = Duration::from_millis(window.into());
        Some(BudgetUsage::new(window, units(spent), units(reserved)))
    }

    /// Adds the settled units and the window to a reservation.
    pub(super) fn complete(&self, info: &mut PermitInfo, window: u32) {
        let field = self.0.get(&format!("{window}:{}", info.id));
        let settled = field.and_then(|units| units.parse().ok());
        info.settled = settled.filter(|units| *units > 0);
        info.window = Some(Duration::from_millis(window.into()));
    }
}

impl Store {
    /// Reads the states of a key's budgets. `name` is the name of the key's semaphore.
    pub(super) async fn budgets(&self, name: &str) -> Result<BudgetFields, CallError> {
        let key = format!("{name}:budget");
        let mut command = cmd("HGETALL");
        command.arg(&key);
        let turn = self.operator_turn().await;
        let fields = self.ask(To::Key(&key), command, turn.deadline);
        fields.await.map(BudgetFields)
    }

    /// The names of a key's budgets.
    pub(super) async fn budget_names(&self, name: &str) -> Result<Vec<String>, CallError> {
        let windows = self.budgets(name).await?.windows().into_iter();
        Ok(windows.map(|window| format!("{name}{window}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semaphore::Process;
    use std::time::UNIX_EPOCH;

    #[test]
    fn the_usage_of_a_budget_is_calculated_from_its_fields() {
        let fields = [
            // Spent, updated, reserved, limit, credit.
            ("60000", "100 5000 30 60 59000"),
            ("1", "bad"),
            ("1:p.1.0.0.5.2.7ps.0...", "7"),
        ];
        let fields = fields.map(|(field, value)| (field.to_owned(), value.to_owned()));
        let fields = BudgetFields(fields.into());
        assert_eq!(fields.windows(), [1, 60_000]);
        let held = |weight| {
            let process = Process::new("p");
            PermitInfo::new("p.1.0.0.5.2.7ps.0...", process, weight, 5, UNIX_EPOCH)
        };
        let usage_beside = |now, weight| {
            let usage = fields.usage(60_000, now, &[held(weight)])?;
            Some((usage.spent, usage.reserved))
        };
        let usage = |now| usage_beside(now, 30);
        // A unit comes back each second. At 5,000 ms, 59,000 of the 60,000 parts of the first have.
        let expected = [
            (4_000, 100),
            (5_016, 100),
            (5_017, 99),
            (6_017, 98),
            (999_999, 0),
        ];
        for (now, spent) in expected {
            assert_eq!(usage(now), Some((spent, 30)), "{now}");
        }
        // The other 18 reserved units belong to an ended reservation.
        assert_eq!(usage_beside(5_000, 12), Some((118, 12)));
        assert_eq!(fields.usage(1, 5_000, &[]), None);
    }
}
