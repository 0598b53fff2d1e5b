//! The budgets of a key, as operators see them: one for each window.

use super::{ask::To, error::CallError, store::Store};
use crate::semaphore::{BudgetUsage, PermitInfo};
use redis::cmd;
use std::{collections::HashMap, time::Duration};

/// The window under which a pause is stored for all windows that are not in use yet.
pub(super) const NO_WINDOW: &str = "0";

/// The fields of the hash in which the budgets of a key have their states: see `budget.lua`.
pub(super) struct BudgetFields(HashMap<String, String>);

/// The state of one budget. Times are ms of the server's clock.
struct BudgetState {
    spent: u128,
    at: u64,
    reserved: u128,
    limit: u128,
    /// In parts: a unit has as many parts as the window has ms.
    credit: u128,
}

impl BudgetState {
    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ');
        let mut next = || numbers.next()?.parse::<u64>().ok();
        Some(Self {
            spent: next()?.into(),
            at: next()?,
            reserved: next()?.into(),
            limit: next()?.into(),
            credit: next()?.into(),
        })
    }

    /// The units that were spent and have not come back yet.
    fn spent_at(&self, now: u64, window: u32) -> u128 {
        let passed = u128::from(now.saturating_sub(self.at));
        let returned = (self.limit * passed + self.credit) / u128::from(window);
        self.spent.saturating_sub(returned)
    }
}

impl BudgetFields {
    /// The windows of the key's budgets, in ms.
    pub(super) fn windows(&self) -> Vec<u32> {
        // The other fields are a pause, and the windows with an id behind.
        let windows = self.0.keys().filter_map(|field| field.parse().ok());
        let mut windows: Vec<_> = windows.collect();
        windows.sort_unstable();
        windows
    }

    /// The usage of a budget at this time of the server's clock. `held` lists the reservations that have not ended, each after
    /// [`complete`](Self::complete). The reserved units beyond theirs belong to ended reservations, so they count as spent.
    pub(super) fn usage(&self, window: u32, now: u64, held: &[PermitInfo]) -> Option<BudgetUsage> {
        let state = BudgetState::read(self.0.get(&window.to_string())?)?;
        let left = held.iter().map(|info| {
            let settled = info.settled.unwrap_or_default();
            u128::from(info.weight.saturating_sub(settled))
        });
        let reserved = state.reserved.min(left.sum());
        let spent = state.spent_at(now, window) + state.reserved - reserved;
        let units = |units: u128| u32::try_from(units).unwrap_or(u32::MAX);
        let window = Duration::from_millis(window.into());
        Some(BudgetUsage::new(window, units(spent), units(reserved)))
    }

    /// Adds to a reservation what the hash has of it.
    pub(super) fn complete(&self, info: &mut PermitInfo, window: u32) {
        let field = self.0.get(&format!("{window}:{}", info.id));
        let settled = field.and_then(|units| units.parse().ok());
        info.settled = settled.filter(|units| *units > 0);
        info.window = Some(Duration::from_millis(window.into()));
    }
}

impl Store {
    /// Reads the states of a key's budgets. `name` is that of the key's semaphore.
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
        // A unit comes back each second, and 59 of 60 parts of the first have.
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
        let beside_an_ended_one = usage_beside(5_000, 12);
        assert_eq!(beside_an_ended_one, Some((118, 12)));
        assert_eq!(fields.usage(1, 5_000, &[]), None);
    }
}
