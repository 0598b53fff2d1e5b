//! What the keeper does with a permit that an operator has revoked.

use super::Task;
use crate::{
    observe::{LostBy, events},
    redis::lease::Lease,
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

/// A process says who it is this often, in leases: well before it is forgotten.
const INTRODUCTION: u32 = 2;

impl Task {
    /// Messages say that the permits of these serials were revoked.
    pub(super) fn revoke(&mut self, serials: &[u64]) {
        let serials: HashSet<_> = serials.iter().collect();
        let named = self.leases();
        let named = named.filter(|lease| serials.contains(&lease.serial));
        self.revoke_all_of(&named.collect::<Vec<_>>());
    }

    /// Releases all leases of permits that were revoked, and reports these lost: they are not acquired
    /// again. All together, because a process may hold very many leases, and is to look at each once.
    pub(super) fn revoke_all_of(&mut self, revoked: &[Arc<Lease>]) {
        let permits = revoked.iter().map(Lease::of_permit);
        let permits: HashMap<_, _> = permits.map(|permit| (permit.serial, permit)).collect();
        if permits.is_empty() {
            return;
        }
        // A claim that waits has nothing to lose.
        let is_lost_by_this = |permit: &&Arc<Lease>| permit.is_granted() && !permit.loss.is_set();
        let lost: Vec<_> = permits.values().filter(is_lost_by_this).collect();
        let leases = self.leases().filter(|lease| !lease.is_released());
        for lease in leases.filter(|lease| permits.contains_key(&lease.of_permit().serial)) {
            self.release_revoked(lease);
        }
        for permit in lost {
            permit.meter().lost(LostBy::Revoked);
            events::lost(permit.meter().of_what(), LostBy::Revoked, permit.token());
        }
        permits.values().for_each(|permit| permit.loss.set());
    }

    fn release_revoked(&mut self, lease: Arc<Lease>) {
        let is_sent = lease.release();
        self.core.outage.released(&lease);
        self.core.registry.remove(lease.serial);
        match is_sent {
            true => self.pend(lease, None),
            false => self.schedule.released(),
        }
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
