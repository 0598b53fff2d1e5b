//! Labels: what operators read beside a permit.

use super::Claim;
use std::{borrow::Cow, sync::Arc};

/// The longest label, in bytes of UTF-8. In Redis it is part of the permit's id, so it is short.
pub const MAX_LABEL: usize = 64;

impl Claim {
    /// Sets a label that operators see beside the permit: a route, a job, a user. It may be any text,
    /// and grants nothing. What is longer than [`MAX_LABEL`] bytes is cut off at the end of a character,
    /// so a label never fails a claim. An empty one is none.
    ///
    /// [`Operate::usage`](super::Operate::usage) shows it. In Redis it is written with the permit, so
    /// whoever can read the server's keys can read it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::Claim;
    ///
    /// let claim = Claim::new("account-42").with_label("GET /market/export");
    /// assert_eq!(claim.label(), Some("GET /market/export"));
    /// assert_eq!(claim.with_label("é".repeat(50)).label(), Some(&*"é".repeat(32)));
    /// ```
    pub fn with_label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        let label = shortened(label.into());
        self.label = (!label.is_empty()).then(|| Arc::new(label));
        self
    }

    /// The label, if it has one. See [`with_label`](Self::with_label).
    pub fn label(&self) -> Option<&str> {
        self.label.as_ref().map(|label| &***label)
    }
}

fn shortened(mut label: Cow<'static, str>) -> Cow<'static, str> {
    let mut end = MAX_LABEL.min(label.len());
    while !label.is_char_boundary(end) {
        end -= 1;
    }
    match &mut label {
        Cow::Borrowed(text) => *text = &text[..end],
        Cow::Owned(text) => text.truncate(end),
    }
    label
}
