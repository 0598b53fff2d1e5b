//! The number of tokens that a request reserves.

use crate::{
    request::Completion,
    settings::{Estimate, Settings},
};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// The number of answers after which a model's mean is used.
const ENOUGH: u32 = 10;

/// The part of the mean that is added to it. Answers differ, and use beyond an estimate delays later requests.
const MARGIN: f64 = 0.5;

/// The number of answers in a mean. Older answers count less, so the mean follows its model.
const MEMORY: u32 = 100;

/// The most models with a mean, because clients name the models.
const MAX_MODELS: usize = 1_000;

/// Reservations that follow the use of earlier requests. Reserved tokens are of no use to others, so a gateway that
/// reserves `max_tokens` leaves much of its budgets unused.
pub(crate) struct Estimates {
    by: Estimate,
    /// The most tokens that a budget has room for.
    most: u32,
    means: Mutex<HashMap<String, Mean>>,
}

#[derive(Default)]
struct Mean {
    answers: u32,
    tokens: f64,
}

impl Estimates {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            by: settings.estimate,
            most: settings.key_tpm.min(settings.model_tpm),
            means: Mutex::default(),
        }
    }

    /// Returns the tokens to reserve. With [`Estimate::Max`] these may be more than a budget has, and the request is
    /// refused.
    pub(crate) fn reserve(&self, completion: &Completion) -> u32 {
        let max = completion.max_tokens.get();
        if self.by == Estimate::Max {
            return max;
        }
        let means = self.means.lock().unwrap_or_else(PoisonError::into_inner);
        let mean = means.get(&completion.model);
        let typical = match mean.filter(|mean| mean.answers >= ENOUGH) {
            Some(mean) => (mean.tokens * (1.0 + MARGIN)).ceil() as u32,
            None => max,
        };
        typical.clamp(1, max.min(self.most))
    }

    /// Records the tokens of an answer.
    pub(crate) fn record(&self, model: &str, tokens: u32) {
        let mut means = self.means.lock().unwrap_or_else(PoisonError::into_inner);
        if means.len() >= MAX_MODELS && !means.contains_key(model) {
            return;
        }
        let mean = means.entry(model.to_owned()).or_default();
        mean.answers = (mean.answers + 1).min(MEMORY);
        mean.tokens += (f64::from(tokens) - mean.tokens) / f64::from(mean.answers);
    }
}
