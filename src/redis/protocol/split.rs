//! What the server answers to a call, share by share.

use super::{
    call::Protocol,
    reply::{Replies, Reply, millis},
    share::Share,
};
use crate::redis::error::Error;
use redis::Value;

impl Protocol {
    /// Splits the answer among the shares of a call. The answer begins with the server's time.
    pub(super) fn split<P: Share>(&self, batch: &[P], answer: Result<Value, Error>) -> Replies {
        let (now, mut items) = match answer.and_then(|value| self.read(value)) {
            Ok(Some((now, items))) => (now, items.into_iter()),
            Ok(None) => return vec![Ok(Reply::Done); batch.len()],
            Err(error) => return vec![Err(error); batch.len()],
        };
        let mut is_whole = true;
        let own = |share: &P| {
            let size = share.items(items.as_slice().first());
            let own: Vec<_> = items.by_ref().take(size).collect();
            is_whole &= own.len() == size;
            Ok(Reply::Items(now, own))
        };
        let replies = batch.iter().map(own).collect();
        match is_whole && items.len() == 0 {
            true => replies,
            false => vec![Err(Error::Reply); batch.len()],
        }
    }

    /// Reads the server's time, which every answer begins with, and the items after it. `None` if the
    /// answer is the time alone: all units are held, or no answer was requested.
    fn read(&self, answer: Value) -> Result<Option<(u64, Vec<Value>)>, Error> {
        let (now, items) = match answer {
            Value::Int(now) => (now, None),
            Value::Array(mut items) if !items.is_empty() => match items.remove(0) {
                Value::Int(now) => (now, Some(items)),
                _ => return Err(Error::Reply),
            },
            _ => return Err(Error::Reply),
        };
        let now = millis(now)?;
        if now > 0 {
            self.clock.observe(now);
        }
        match items {
            None => Ok(None),
            Some(items) if items.is_empty() => Err(Error::Late(now)),
            Some(items) => Ok(Some((now, items))),
        }
    }
}
