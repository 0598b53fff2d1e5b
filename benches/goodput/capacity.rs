//! Searches for the lowest offered rate at which goodput, the claims granted in time per second, is at its peak.

use crate::variant::Variant;
use testing::bench::{open_loop::Rate, run::pick};

/// The first rate, and a rate that no variant reaches on a single machine.
const RATES: (f64, f64) = (64.0, 300_000.0);

/// Goodput below this fraction of the best value is far past its peak.
const PAST: f64 = 0.7;

/// Goodput of at least this fraction of the best value counts as the peak, because of noise.
const PEAK: f64 = 0.97;

/// The rate and the goodput at the peak. `None` if the variant is too slow for its budget.
pub(crate) async fn search(variant: Variant) -> Option<(f64, f64)> {
    let step = pick(2.0, 2_f64.sqrt());
    let (mut rate, end) = RATES;
    // The rates so far, and their goodput.
    let mut seen: Vec<(f64, f64)> = Vec::new();
    // The search ends once this is 2 or more.
    let mut worse = 0;
    while rate < end && worse < 2 {
        let offered = variant.measure(Rate::of(rate)).await;
        let best = best(&seen);
        if offered.good == 0.0 && best == 0.0 {
            return None;
        }
        // Stop when goodput was past its peak twice, or far past it once.
        worse += match offered.good {
            good if good < best * PAST => 2,
            good if good < best => 1,
            _ => 0,
        };
        seen.push((offered.rate, offered.good));
        rate *= step;
    }
    let peak = best(&seen);
    let first = seen.iter().find(|(_, good)| *good >= peak * PEAK);
    first.map(|(rate, _)| (*rate, peak))
}

fn best(seen: &[(f64, f64)]) -> f64 {
    seen.iter().map(|(_, good)| *good).fold(0.0, f64::max)
}
