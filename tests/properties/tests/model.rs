//! The reference model: the semaphore of one key, without a store.

/// Identifies a claim and its permit within a case.
pub(crate) type Id = usize;

/// The limit and the weight of a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Units {
    pub(crate) limit: u32,
    pub(crate) weight: u32,
}

/// The answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted,
    Full,
    QueueFull,
    TooHeavy,
    Waits,
}

/// The permits with their weights, and the queue.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) permits: Vec<(Id, u32)>,
    pub(crate) queue: Vec<(Id, Units)>,
}

impl Model {
    /// Units held.
    pub(crate) fn held(&self) -> u32 {
        self.permits.iter().map(|(_, weight)| weight).sum()
    }

    /// A claim that waits if at most `max_waiting` claims do, itself included. `None`: it does not.
    pub(crate) fn acquire(&mut self, id: Id, units: Units, max_waiting: Option<u32>) -> Answer {
        let room = self.queue.is_empty() && self.held() + units.weight <= units.limit;
        let answer = match max_waiting {
            _ if room => Answer::Granted,
            _ if units.limit == 0 => Answer::Full,
            _ if units.weight > units.limit => Answer::TooHeavy,
            Some(max_waiting) if self.queue.len() >= max_waiting as usize => Answer::QueueFull,
            Some(_) => Answer::Waits,
            None => Answer::Full,
        };
        match answer {
            Answer::Granted => self.permits.push((id, units.weight)),
            Answer::Waits => self.queue.push((id, units)),
            Answer::Full | Answer::QueueFull | Answer::TooHeavy => {}
        }
        answer
    }

    /// Removes a permit that was released or whose lease ended, or a waiter that was cancelled.
    /// Whether a permit was held.
    pub(crate) fn end(&mut self, id: Id) -> bool {
        self.queue.retain(|(other, _)| *other != id);
        let before = self.permits.len();
        self.permits.retain(|(other, _)| *other != id);
        self.permits.len() < before
    }

    /// Grants the head of the queue if it fits.
    pub(crate) fn next(&mut self) -> Option<(Id, Units)> {
        let (id, units) = *self.queue.first()?;
        let fits = self.held() + units.weight <= units.limit;
        fits.then(|| {
            self.permits.push((id, units.weight));
            self.queue.remove(0)
        })
    }
}
