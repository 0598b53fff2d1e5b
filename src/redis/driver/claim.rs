//! A handle, the future of an acquire, and the permit.

use super::{
    carry::{Carrier, Link, spawn_all},
    cell::{Cell, Refused},
    clock::boot_time,
    inbox::Dropped,
    keeper,
    shared::{Health, Observer, Shared},
    transport::{Cause, Transport},
};
use crate::{
    redis::core::{Level, PermitId, Settings, Time},
    semaphore::{Loss, timer},
};
use std::{
    convert::Infallible,
    future::poll_fn,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::runtime::{Handle, Id};

/// Longer than anybody waits, and short enough to be added to an instant.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How soon a claim looks again that time alone has not decided.
const AGAIN: Duration = Duration::from_millis(10);

/// All handles and permits have it, and neither the thread nor tasks: with it the last of them is gone.
pub(super) struct Door<T: Transport>(pub(super) Arc<Shared<T>>);

impl<T: Transport> Drop for Door<T> {
    fn drop(&mut self) {
        self.0.post(Dropped::Handles);
    }
}

/// A handle to a running store.
pub(in crate::redis) struct Driver<T: Transport>(pub(super) Arc<Door<T>>);

impl<T: Transport> Clone for Driver<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Transport> Driver<T> {
    /// Starts the keeper's thread.
    pub(in crate::redis) fn start(
        transport: T,
        settings: Settings,
        observer: impl Observer,
    ) -> Self {
        let driver = Self::new(transport, settings, (Box::new(observer), boot_time));
        driver.0.0.enter(|_, _, _| ());
        driver
    }

    pub(in crate::redis) fn new(
        transport: T,
        settings: Settings,
        (observer, clock): (Box<dyn Observer>, fn() -> Time),
    ) -> Self {
        let shared = Shared::new(transport, settings, observer, clock, keeper::start);
        Self(Arc::new(Door(Arc::new(shared))))
    }

    pub(in crate::redis) fn health(&self) -> Health {
        self.0.0.health()
    }

    /// What went wrong last with a server, as far as is known.
    pub(in crate::redis) fn error(&self, server: usize) -> Option<Cause> {
        self.0.0.transport.error(server)
    }

    /// Claims levels, from narrow to wide.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes the claim back.
    pub(in crate::redis) fn acquire(
        &self,
        levels: Vec<Level>,
    ) -> impl Future<Output = Result<Held<T>, Refused>> + Send + 'static {
        let driver = self.clone();
        async move { driver.claim_and_wait(levels).await }
    }

    async fn claim_and_wait(self, levels: Vec<Level>) -> Result<Held<T>, Refused> {
        let shared = Arc::clone(&self.0.0);
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        let mut bound = pin!(here.map(|_| bound(&shared, &levels)));
        let (held, own) = self.claim(here, &levels)?;
        let mut own = pin!(own.map(Carrier::carry));
        // Dropped before the call, which then names nothing that is still wanted.
        let held = held;
        let outcome = poll_fn(|cx| {
            if let Some(carrying) = own.as_mut().as_pin_mut()
                && carrying.poll(cx).is_ready()
            {
                own.set(None);
            }
            let outcome = held.cell.poll_outcome(cx);
            // A timer of a runtime that has ended panics outside of another one. Then the thread alone looks.
            if let Some(bound) = bound.as_mut().as_pin_mut()
                && outcome.is_pending()
                && Handle::try_current().is_ok()
            {
                let _ = bound.poll(cx);
            }
            outcome
        });
        outcome.await.map(|()| held)
    }

    /// Claims. The call, if there is one, is for the caller's own task.
    pub(super) fn claim(
        self,
        here: Option<Id>,
        levels: &[Level],
    ) -> Result<(Held<T>, Option<Carrier<T>>), Refused> {
        let shared = Arc::clone(&self.0.0);
        let cell = Arc::new(Cell::new(levels.len()));
        let servers: Vec<_> = levels.iter().map(|level| level.server).collect();
        let entered = shared.enter(|core, rest, now| {
            let from = rest.runtimes.enter(here);
            let connects = servers.into_iter();
            let connects = connects.filter(|server| rest.runtimes.connects(now, from, *server));
            let connects: Vec<_> = connects.collect();
            rest.keeper.is_busy = true;
            let (id, call) = core.acquire(now, from, levels);
            let old = rest.cells.insert(id, &cell);
            let own = call.and_then(|call| rest.load(core, now, (from, call)));
            let next = rest.next(core, now, from);
            (id, (from, connects), (own, next), old)
        });
        let (id, (from, connects), (own, next), _old) = entered.ok_or(Refused::Closed)?;
        for server in connects {
            Link::new(&shared, from, server).spawn();
        }
        spawn_all(&shared, shared.loads(from, Some(next)));
        let own = own.map(|load| Carrier::new(&shared, load));
        let driver = self;
        Ok((Held { driver, id, cell }, own))
    }
}

/// Lets time pass when the claim is to be decided at the latest, in case that the thread does not.
fn bound<T: Transport>(
    shared: &Arc<Shared<T>>,
    levels: &[Level],
) -> impl Future<Output = Infallible> + use<T> {
    let waits = levels.iter().filter_map(|level| level.wait);
    let longest = waits.map(|wait| wait.time).max().unwrap_or_default();
    let mut at = Instant::now() + longest.min(FOREVER) + shared.settings.budget();
    let shared = Arc::clone(shared);
    async move {
        loop {
            timer::sleep_until(at).await;
            shared.enter(|core, _, now| core.handle_timeout(now));
            at = Instant::now() + AGAIN;
        }
    }
}

/// A permit. Its drop releases it.
pub(in crate::redis) struct Held<T: Transport> {
    driver: Driver<T>,
    pub(super) id: PermitId,
    pub(super) cell: Arc<Cell>,
}

impl<T: Transport> Held<T> {
    pub(in crate::redis) fn token(&self, level: usize) -> u64 {
        self.cell.token(level)
    }

    /// How many units of each level were held when it was granted.
    pub(in crate::redis) fn held(&self) -> &[u32] {
        match self.cell.outcome() {
            Some(Ok(held)) => held,
            _ => &[],
        }
    }

    pub(in crate::redis) fn is_lost(&self) -> bool {
        self.cell.is_lost((self.driver.0.0.clock)())
    }

    pub(in crate::redis) fn loss(&self) -> &Loss {
        self.cell.loss()
    }

    /// Releases it, and returns whether it was held until then.
    ///
    /// # Cancel safety
    ///
    /// It is released even if the future is dropped.
    pub(in crate::redis) async fn release(self) -> bool {
        let asked = self.driver.0.0.enter(|core, rest, now| {
            let is_known = rest.cells.get(self.id).is_some();
            if is_known {
                core.release(now, self.id, true);
            }
            is_known
        });
        asked == Some(true) && poll_fn(|cx| self.cell.poll_was_held(cx)).await
    }
}

impl<T: Transport> Drop for Held<T> {
    fn drop(&mut self) {
        let is_refused = matches!(self.cell.outcome(), Some(Err(_)));
        if !is_refused {
            self.driver.0.0.post(Dropped::Permit(self.id));
        }
    }
}
