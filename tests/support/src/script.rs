//! A body that follows a script.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll},
};

/// A body's reaction to a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Data(&'static str),
    Trailers,
    Fail,
    Panic,
}

/// A body that takes one step at each poll.
#[derive(Debug, Clone)]
pub struct Script {
    steps: VecDeque<Step>,
    /// True if the body reports its length and its end in advance.
    exact: bool,
}

impl Script {
    /// A body that reports its length and its end in advance, like a body with a content-length.
    pub fn exact(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps = steps.into_iter().collect();
        Self { steps, exact: true }
    }

    /// A body that reports nothing before its end, like a stream.
    pub fn stream(steps: impl IntoIterator<Item = Step>) -> Self {
        let exact = false;
        Self {
            exact,
            ..Self::exact(steps)
        }
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.steps.pop_front().map(|step| match step {
            Step::Data(data) => Ok(Frame::data(data.into())),
            Step::Trailers => Ok(Frame::trailers(trailers())),
            Step::Fail => Err(io::Error::other("on purpose")),
            Step::Panic => panic!("on purpose"),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.exact && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let size = |step: &Step| match step {
            Step::Data(data) => data.len() as u64,
            Step::Trailers | Step::Fail | Step::Panic => 0,
        };
        match self.exact {
            true => SizeHint::with_exact(self.steps.iter().map(size).sum()),
            false => SizeHint::default(),
        }
    }
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(
        http::HeaderName::from_static("x-checksum"),
        HeaderValue::from_static("42"),
    )])
}
