//! Budgets: what their holders settle, and claims that are decided without a server.
//!
//! A settlement travels with the next refresh or release of its lease. While a server is away, a budget's claims have a
//! bucket in this process: its share of the limit, which refills with time only. No server ever learns of it.

use super::{Core, id::PermitId, permit::ClaimedLevel, swept::SweptMap, time::Time};
use crate::verbs::window_of;
use std::{sync::Arc, time::Duration};

/// The buckets of budgets, by their names.
#[derive(Debug, Default)]
pub(super) struct LocalBudgets(SweptMap<Bucket>);

#[derive(Debug, Default)]
struct Bucket {
    /// The spent units that have not come back at `at`, times the window in ns, so that nothing is rounded.
    spent: u128,
    at: Time,
    /// The number of units that come back within a window.
    rate: u32,
}

impl Bucket {
    fn spent_at(&self, now: Time) -> u128 {
        let passed = now.saturating_sub(self.at).as_nanos();
        self.spent.saturating_sub(passed * u128::from(self.rate))
    }
}

/// One unit, in the measure of `Bucket::spent`: the window in ns.
fn scaled_unit(name: &str) -> u128 {
    let window = Duration::from_millis(window_of(name).unwrap_or(1).into());
    window.as_nanos().max(1)
}

impl LocalBudgets {
    /// The units of a budget's bucket that are left, rounded down.
    fn left(&self, name: &str, rate: u32, now: Time) -> u32 {
        let bucket = self.0.get(name);
        let spent = bucket.map_or(0, |bucket| bucket.spent_at(now));
        let spent = spent.div_ceil(scaled_unit(name));
        u32::try_from(spent).map_or(0, |spent| rate.saturating_sub(spent))
    }

    /// True if a claim fits. A full bucket admits any claim, even one for more units than the bucket has.
    fn fits(&self, name: &str, weight: u32, rate: u32, now: Time) -> bool {
        let left = self.left(name, rate, now);
        rate > 0 && (left == rate || weight <= left)
    }

    fn spend(&mut self, name: &Arc<str>, weight: u32, rate: u32, now: Time) {
        let is_kept = |bucket: &Bucket| bucket.spent_at(now) > 0;
        let bucket = self.0.entry(Arc::clone(name), is_kept);
        let spent = bucket.spent_at(now) + u128::from(weight) * scaled_unit(name);
        *bucket = Bucket {
            spent,
            at: now,
            rate,
        };
    }
}

impl Core {
    /// Notes how many units of a budget the holder of a permit has used so far. A total never shrinks.
    pub fn settle(&mut self, id: PermitId, level: usize, used: u32) {
        let permit = self.permits.get_mut(id);
        if let Some(permit) = permit.filter(|permit| permit.is_granted()) {
            permit.levels[level].units.settle(used);
        }
    }

    /// Notes that the units of a granted claim's rates are used. While one of its servers is not well, processes may
    /// admit claims without that server, so the claim also spends its units in the buckets of this process.
    pub(super) fn charge(&mut self, id: PermitId) {
        if self.needs_share(id) {
            self.spend_locally(id);
        }
        for level in &mut self.permits[id].levels {
            level.units.charge();
        }
    }

    /// True if a level fits into the bucket of its budget, or is not of a budget.
    pub(super) fn fits_bucket(&self, level: &ClaimedLevel) -> bool {
        let name = &self.keys[level.key].name;
        let weight = level.units.id.weight;
        !level.is_of_budget() || self.budgets.fits(name, weight, self.share(level), self.now)
    }

    /// The units of a budget that this process may still admit without its server.
    pub(super) fn left_in_bucket(&self, level: &ClaimedLevel) -> u32 {
        let name = &self.keys[level.key].name;
        self.budgets.left(name, self.share(level), self.now)
    }

    /// Spends the units of an admitted claim in the buckets of its budgets.
    pub(super) fn spend_locally(&mut self, id: PermitId) {
        for level in &self.permits[id].levels {
            if level.is_of_budget() {
                let (name, weight) = (&self.keys[level.key].name, level.units.id.weight);
                let rate = self.share(level);
                self.budgets.spend(name, weight, rate, self.now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::swept::FEW, LocalBudgets, Time};
    use std::sync::Arc;

    fn second(second: u64) -> Time {
        Time::from_secs(1_000 + second)
    }

    #[test]
    fn a_bucket_refills_with_time_only_and_a_larger_claim_passes_when_it_is_full() {
        let (mut budgets, name): (_, Arc<str>) = (LocalBudgets::default(), "{a:b}10000".into());
        // At each second, the weight of a claim and the units that are left before it.
        for (at, weight, expected) in [
            (0, 4, 10),
            (0, 6, 6),
            (0, 1, 0),
            (5, 6, 5),
            (5, 5, 5),
            (15, 25, 10),
            (25, 1, 0),
            (35, 6, 5),
            (40, 1, 10),
        ] {
            let now = second(at);
            assert_eq!(budgets.left(&name, 10, now), expected, "at {at}");
            let fits = weight <= expected || expected == 10;
            assert_eq!(budgets.fits(&name, weight, 10, now), fits, "at {at}");
            if fits {
                budgets.spend(&name, weight, 10, now);
            }
        }
        assert!(!budgets.fits("{a:c}10000", 1, 0, second(0)), "closed");
    }

    #[test]
    fn full_buckets_are_removed_once_there_are_many() {
        let mut budgets = LocalBudgets::default();
        for number in 0..1_000 {
            let name = Arc::from(format!("{{a:{number}}}1000"));
            budgets.spend(&name, 1, 1, second(number * 2));
            assert!(budgets.0.len() <= FEW + 1);
        }
    }
}
