//! What a semaphore of one key must do, as plainly as it can be said.

/// Names a claim, and its permit, for as long as the case runs.
pub(crate) type Id = usize;

/// What a claim asks of the semaphore.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub(crate) limit: u32,
    pub(crate) weight: u32,
}

/// What a claim is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted,
    Full,
    QueueFull,
    TooHeavy,
    Waits,
}

/// Who holds how much, and who waits for how much.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) permits: Vec<(Id, u32)>,
    pub(crate) line: Vec<(Id, Want)>,
}

impl Model {
    /// How many units are held.
    pub(crate) fn held(&self) -> u32 {
        self.permits.iter().map(|(_, weight)| weight).sum()
    }

    /// A claim that waits in a line of this length at most, or not at all.
    pub(crate) fn acquire(&mut self, id: Id, want: Want, longest: Option<usize>) -> Answer {
        let room = self.line.is_empty() && self.held() + want.weight <= want.limit;
        let answer = match longest {
            _ if room => Answer::Granted,
            _ if want.limit == 0 => Answer::Full,
            _ if want.weight > want.limit => Answer::TooHeavy,
            Some(longest) if self.line.len() >= longest => Answer::QueueFull,
            Some(_) => Answer::Waits,
            None => Answer::Full,
        };
        match answer {
            Answer::Granted => self.permits.push((id, want.weight)),
            Answer::Waits => self.line.push((id, want)),
            Answer::Full | Answer::QueueFull | Answer::TooHeavy => {}
        }
        answer
    }

    /// The permit is given back, its lease ends, or its claim leaves the line: whether it was held
    /// until now.
    pub(crate) fn end(&mut self, id: Id) -> bool {
        self.line.retain(|(other, _)| *other != id);
        let before = self.permits.len();
        self.permits.retain(|(other, _)| *other != id);
        self.permits.len() < before
    }

    /// Lets the first of the line in, if there is room for it.
    pub(crate) fn next(&mut self) -> Option<(Id, Want)> {
        let (id, want) = *self.line.first()?;
        let fits = self.held() + want.weight <= want.limit;
        fits.then(|| {
            self.permits.push((id, want.weight));
            self.line.remove(0)
        })
    }
}
