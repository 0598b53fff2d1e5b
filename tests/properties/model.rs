//! What a semaphore of one key must do, as plainly as it can be said.

/// Names a permit for as long as the case runs.
pub(crate) type Id = usize;

/// What a claim asks of the semaphore.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub(crate) limit: u32,
    pub(crate) weight: u32,
}

/// Who holds how much.
#[derive(Debug, Default)]
pub(crate) struct Model {
    permits: Vec<(Id, u32)>,
}

impl Model {
    /// How many units are held.
    pub(crate) fn held(&self) -> u32 {
        self.permits.iter().map(|(_, weight)| weight).sum()
    }

    /// Whether the claim is granted.
    pub(crate) fn acquire(&mut self, id: Id, want: Want) -> bool {
        let room = self.held() + want.weight <= want.limit;
        self.permits.extend(room.then_some((id, want.weight)));
        room
    }

    /// The permit is given back, or its lease ends: whether it was held until now.
    pub(crate) fn end(&mut self, id: Id) -> bool {
        let before = self.permits.len();
        self.permits.retain(|(other, _)| *other != id);
        self.permits.len() < before
    }
}
