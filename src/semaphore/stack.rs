//! The permit of a request under nested limits.

use super::{BoxFuture, Grant, Loss, Permit, Units};

/// Permits of nested limits, the innermost first.
struct Stack {
    permits: [Permit; 2],
    /// Set only when the stack itself is ended.
    loss: Loss,
}

impl Permit {
    /// This permit, which also holds `outer` until the last clone is dropped. It is lost when one
    /// of the two is, and releasing it releases both. Its token, limit and remaining units stay as
    /// they are.
    ///
    /// Nested layers need it, because a request's extensions hold one permit.
    pub(crate) fn over(self, outer: Self) -> Self {
        let (limit, held) = (self.limit(), self.limit() - self.remaining());
        let stack = Stack {
            permits: [self, outer],
            loss: Loss::default(),
        };
        Self::new(stack, Units { limit, weight: 1 }, held)
    }
}

impl Grant for Stack {
    fn token(&self) -> u64 {
        self.permits[0].token()
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn parts(&self) -> &[Permit] {
        &self.permits
    }

    fn release(&self) -> BoxFuture<bool> {
        // Both are queued before the first is awaited.
        let [own, outer] = self.permits.each_ref().map(Permit::release);
        Box::pin(async move { own.await & outer.await })
    }
}
