//! Computes figures from samples.

use std::time::Duration;

/// The median.
///
/// # Panics
///
/// If `values` is empty.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

/// The median of the ratios of two series. Both series were measured round by round, so that noise in one round affects
/// both figures of the round.
pub fn ratio(of: &[f64], to: &[f64]) -> f64 {
    let ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
    median(&ratios)
}

/// The durations of many operations.
#[derive(Debug, Clone, Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    pub fn add(&mut self, took: Duration) {
        self.0.push(took.as_nanos() as u64);
    }

    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// These quantiles in microseconds, or zeros without samples.
    pub fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> [f64; N] {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        quantiles.map(|quantile| {
            let last = sorted.len().saturating_sub(1);
            let at = (quantile * last as f64).round() as usize;
            sorted.get(at).map_or(0.0, |&nanos| nanos as f64 / 1e3)
        })
    }

    /// The median in microseconds.
    pub fn p50(&self) -> f64 {
        self.quantiles([0.5])[0]
    }
}

/// Pseudo-random numbers, the same in every run.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound` (xorshift64*).
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }
}
