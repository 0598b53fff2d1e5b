//! The state that all connections of a proxy share: the active faults, and the log.

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::{End, Seen};

/// The directions in which bytes are dropped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hole {
    #[default]
    Off,
    Replies,
    Both,
}

/// The faults that stay until they are switched off.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Faults {
    pub(super) hole: Hole,
    pub(super) drop_messages: bool,
    pub(super) drop_pushes: bool,
    pub(super) one_byte_replies: bool,
    pub(super) to_server: Duration,
    pub(super) to_client: Duration,
}

/// A predicate on commands, by name and arguments.
pub(super) type Matches = Box<dyn Fn(&[Vec<u8>]) -> bool + Send>;

/// The replies that are lost.
struct Drops {
    /// How many more replies are lost.
    left: usize,
    /// The commands to which replies are lost.
    matches: Matches,
}

/// The shared state of a proxy.
pub(super) struct Wire {
    /// The port of the server behind the proxy.
    server: AtomicU16,
    faults: watch::Sender<Faults>,
    /// Ends the open connections.
    ends: broadcast::Sender<End>,
    drops: Mutex<Drops>,
    /// The commands that are withheld from the server.
    cuts: Mutex<Option<Matches>>,
    log: Mutex<Vec<Seen>>,
}

impl Wire {
    /// A wire without faults.
    pub(super) fn to(server: u16) -> Self {
        Self {
            server: AtomicU16::new(server),
            faults: watch::Sender::default(),
            ends: broadcast::Sender::new(16),
            drops: Mutex::new(Drops {
                left: 0,
                matches: Box::new(|_| false),
            }),
            cuts: Mutex::default(),
            log: Mutex::default(),
        }
    }

    pub(super) fn server(&self) -> u16 {
        self.server.load(Ordering::Relaxed)
    }

    /// Replaces the server behind the proxy.
    pub(super) fn replace(&self, server: u16) {
        self.server.store(server, Ordering::Relaxed);
    }

    /// The active faults.
    pub(super) fn faults(&self) -> Faults {
        *self.faults.borrow()
    }

    /// Changes the faults.
    pub(super) fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.faults.send_modify(change);
    }

    /// Switches off all faults.
    pub(super) fn forward(&self) {
        lock(&self.drops).left = 0;
        *lock(&self.cuts) = None;
        self.faults.send_replace(Faults::default());
    }

    /// Returns once no black hole is active and `condition` is true. Checks both whenever the faults change.
    pub(super) async fn until_no_hole_and(&self, condition: impl Fn() -> bool) {
        let is_over = |faults: &Faults| faults.hole == Hole::Off && condition();
        let mut faults = self.faults.subscribe();
        faults
            .wait_for(is_over)
            .await
            .expect("the wire owns the sender");
    }

    /// Loses the replies to the next `count` matching commands.
    pub(super) fn drop_replies_to(&self, count: usize, matches: Matches) {
        *lock(&self.drops) = Drops {
            left: count,
            matches,
        };
    }

    /// Returns true if the reply to this command is lost, and counts it.
    pub(super) fn drops_reply_to(&self, command: &[Vec<u8>]) -> bool {
        let mut drops = lock(&self.drops);
        let is_lost = drops.left > 0 && (drops.matches)(command);
        drops.left -= usize::from(is_lost);
        is_lost
    }

    /// Loses all matching commands.
    pub(super) fn cut_before(&self, matches: Matches) {
        *lock(&self.cuts) = Some(matches);
    }

    /// Returns true if this command is lost.
    pub(super) fn cuts_before(&self, command: &[Vec<u8>]) -> bool {
        lock(&self.cuts)
            .as_ref()
            .is_some_and(|matches| matches(command))
    }

    /// Ends every open connection.
    pub(super) fn kill(&self, end: End) {
        // An error only means that no connection is open.
        let _ = self.ends.send(end);
    }

    /// Registers an open connection. The receiver yields the way in which the connection must end.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<End> {
        self.ends.subscribe()
    }

    /// The number of open connections.
    pub(super) fn connections(&self) -> usize {
        self.ends.receiver_count()
    }

    pub(super) fn record(&self, args: Vec<Vec<u8>>) {
        let at = Instant::now();
        lock(&self.log).push(Seen { at, args });
    }

    pub(super) fn log(&self) -> Vec<Seen> {
        lock(&self.log).clone()
    }

    pub(super) fn clear_log(&self) {
        lock(&self.log).clear();
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("server", &self.server())
            .field("faults", &self.faults())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
