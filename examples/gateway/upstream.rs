//! A fake model that answers with the words of the prompt, one after another.

use crate::completion::Completion;
use futures_util::{Stream, StreamExt};
use std::time::Duration;
use tokio::time::interval;
use tokio_stream::wrappers::IntervalStream;

/// The time between two words.
const PACE: Duration = Duration::from_millis(50);

/// The words of the prompt, up to the number that the client allows.
pub(crate) fn words(completion: &Completion) -> impl Stream<Item = String> + use<> {
    let words: Vec<_> = completion
        .prompt
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let ticks = IntervalStream::new(interval(PACE)).enumerate();
    let words = ticks.map(move |(index, _)| match words.is_empty() {
        true => "…".to_owned(),
        false => words[index % words.len()].clone(),
    });
    words.take(completion.max_tokens as usize)
}
