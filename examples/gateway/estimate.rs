//! The number of tokens that a request reserves.

use crate::{
    request::Completion,
    settings::{EstimateMode, Settings},
};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// A model's mean is used from this number of answers on.
const MIN_ANSWERS: u32 = 10;

/// The fraction of a mean that is added to it. Answers differ, and use beyond an estimate delays later requests.
const MARGIN: f64 = 0.5;

/// The most answers that a mean counts. From then on older answers count less, so the mean follows its model.
const MAX_ANSWERS: u32 = 100;

/// Bounds the memory, because clients choose the names of models. Models beyond this number have no mean.
const MAX_MODELS: usize = 1_000;

/// Estimates the tokens of requests from earlier answers. Other requests cannot use reserved tokens, so a gateway that
/// reserves `max_tokens` leaves much of its budgets unused.
pub(crate) struct Estimates {
    mode: EstimateMode,
    /// The smaller of `KEY_TPM` and `MODEL_TPM`. A claim of more tokens than a budget's limit is refused.
    smallest_budget: u32,
    means: Mutex<HashMap<String, Mean>>,
}

#[derive(Default)]
struct Mean {
    /// At most [`MAX_ANSWERS`].
    answers: u32,
    tokens: f64,
}

impl Estimates {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            mode: settings.estimate_mode,
            smallest_budget: settings.key_tpm.min(settings.model_tpm),
            means: Mutex::default(),
        }
    }

    /// Returns the tokens to reserve. With [`EstimateMode::MaxTokens`] they may exceed the limit of a budget. Then the
    /// request is refused.
    pub(crate) fn tokens_for(&self, completion: &Completion) -> u32 {
        let max = completion.max_tokens.get();
        if self.mode == EstimateMode::MaxTokens {
            return max;
        }
        let means = self.means.lock().unwrap_or_else(PoisonError::into_inner);
        let mean = means.get(&completion.model);
        let typical = match mean.filter(|mean| mean.answers >= MIN_ANSWERS) {
            Some(mean) => (mean.tokens * (1.0 + MARGIN)).ceil() as u32,
            None => max,
        };
        typical.clamp(1, max.min(self.smallest_budget))
    }

    /// Adds a finished answer to its model's mean.
    pub(crate) fn record(&self, model: &str, tokens: u32) {
        let mut means = self.means.lock().unwrap_or_else(PoisonError::into_inner);
        if means.len() >= MAX_MODELS && !means.contains_key(model) {
            return;
        }
        let mean = means.entry(model.to_owned()).or_default();
        mean.answers = (mean.answers + 1).min(MAX_ANSWERS);
        mean.tokens += (f64::from(tokens) - mean.tokens) / f64::from(mean.answers);
    }
}
