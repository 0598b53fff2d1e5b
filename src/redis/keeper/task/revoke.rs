//! What the keeper does with a permit that an operator has revoked.

use super::Task;
use crate::{
    observe::{LostBy, events},
    redis::lease::Lease,
};
use std::{sync::Arc, time::Instant};

/// A process says who it is this often, in leases: well before it is forgotten.
const INTRODUCTION: u32 = 2;

impl Task {
    /// A message says that the permit of this serial was revoked.
    pub(super) fn revoke(&mut self, serial: u64) {
        let found = self.leases().find(|lease| lease.serial == serial);
        if let Some(lease) = found {
            self.revoke_all_of(&lease);
        }
    }

    /// Releases all leases of a permit that was revoked, and reports it lost: it is not acquired again.
    pub(super) fn revoke_all_of(&mut self, lease: &Arc<Lease>) {
        let permit = lease.of_permit();
        // A claim that waits has nothing to lose.
        let is_lost_by_this = permit.is_granted() && !permit.loss.is_set();
        let leases: Vec<_> = self.leases().collect();
        let own = leases
            .iter()
            .filter(|lease| Arc::ptr_eq(&lease.of_permit(), &permit));
        for lease in own.filter(|lease| !lease.is_released()) {
            let is_sent = lease.release();
            self.core.outage.released(lease);
            self.core.registry.remove(lease.serial);
            match is_sent {
                true => self.pend(Arc::clone(lease), None),
                false => self.schedule.released(),
            }
        }
        if is_lost_by_this {
            permit.meter().lost(LostBy::Revoked);
            events::lost(permit.meter().of_what(), LostBy::Revoked, permit.token());
        }
        permit.loss.set();
    }

    /// All leases that this process holds or acquires.
    fn leases(&mut self) -> impl Iterator<Item = Arc<Lease>> + use<> {
        let mut leases = self.schedule.all();
        leases.extend(self.core.registry.all());
        leases.into_iter()
    }

    /// Says who this process is, and listens to revocations, if it holds permits for long.
    pub(super) fn introduce(&mut self, now: Instant, holds: bool) {
        let (core, protocol) = (Arc::clone(&self.core), &self.core.attempts.protocol);
        if holds {
            core.notifications.want();
        }
        let is_silent = core.outage.is_silent(&protocol.own_process_key());
        if now < self.next_introduction || is_silent || !core.notifications.is_wanted() {
            return;
        }
        self.next_introduction = now + core.times.lease * INTRODUCTION;
        tokio::spawn(async move {
            let deadline = Instant::now() + core.times.timeout;
            // A failure is ignored: nobody knows who the process is until the next time.
            let _ = core.attempts.protocol.introduce(deadline).await;
        });
    }
}
