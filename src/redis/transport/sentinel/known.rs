//! The primary that is known, and which of the Sentinels to follow.

use super::{
    answer::{Named, Unnamed, too_few},
    server_info::ServerInfo,
};
use crate::redis::{error::Error, transport::address::Address};
use parking_lot::Mutex;
use std::io;
use tokio::sync::watch;

/// The last primary that was named.
#[derive(Default)]
pub(super) struct Known {
    primary: Mutex<Option<Primary>>,
    /// Grows with each change of the primary.
    generation: watch::Sender<u64>,
}

#[derive(Clone)]
pub(super) struct Primary {
    pub(super) address: Address,
    epoch: u64,
    pub(super) generation: u64,
    /// What it said of itself when Sentinels had named it.
    run_id: Option<String>,
}

impl Known {
    pub(super) fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Tells when another primary takes the place of this one. It fails if one has.
    pub(super) fn replaced(&self, primary: &Primary) -> Result<watch::Receiver<u64>, Error> {
        let replaced = self.generation.subscribe();
        let is_current = *replaced.borrow() == primary.generation;
        let gone = || Error::unconnected(io::Error::other(REPLACED));
        is_current.then_some(replaced).ok_or_else(gone)
    }

    pub(super) fn primary(&self) -> Option<Primary> {
        self.primary.lock().clone()
    }

    /// Whether the failover of an answer is at least as late as the last one that is known.
    pub(super) fn is_news(&self, answer: &Named) -> bool {
        let known = self.primary.lock().as_ref().map(|primary| primary.epoch);
        Some(answer.epoch) >= known
    }

    /// Takes the best answer of the Sentinels, of which most have answered or not. Most are followed,
    /// even if they know of fewer failovers, because they may have been set up anew. Fewer are only if
    /// they know of a later one. Returns whether Sentinels have named the primary that is known now; fewer
    /// than most count as that only until it has said who it is.
    pub(super) fn learn(
        &self,
        answer: Result<Named, Unnamed>,
        is_of_most: bool,
    ) -> Result<bool, Unnamed> {
        let mut known = self.primary.lock();
        match (answer, &mut *known) {
            (Ok(named), Some(primary)) if named.address == primary.address => {
                let epoch = if is_of_most { 0 } else { primary.epoch };
                primary.epoch = named.epoch.max(epoch);
                Ok(is_of_most || primary.run_id.is_none())
            }
            (Ok(named), Some(primary)) if !is_of_most && named.epoch <= primary.epoch => Ok(false),
            (Ok(_), None) if !is_of_most => Err(too_few()),
            (Ok(named), primary) => {
                *primary = Some(self.succeeded(named));
                Ok(true)
            }
            (Err(Unnamed::Unavailable(_)), Some(_)) => Ok(false),
            (Err(error), _) => Err(error),
        }
    }

    fn succeeded(&self, named: Named) -> Primary {
        self.generation.send_modify(|generation| *generation += 1);
        Primary {
            address: named.address,
            epoch: named.epoch,
            generation: self.generation(),
            run_id: None,
        }
    }

    /// Judges what the primary says of itself: it has to be one. If too few Sentinels have answered, it
    /// must not have been started again since they did, because it may be empty then, and another one
    /// may have taken its place.
    pub(super) fn check(
        &self,
        primary: &Primary,
        is_named: bool,
        info: ServerInfo,
    ) -> Result<(), Error> {
        if !info.is_primary {
            return Err(Error::unconnected(io::Error::other(NO_PRIMARY)));
        }
        if !is_named && (info.run_id.is_none() || info.run_id != primary.run_id) {
            return Err(Error::unconnected(io::Error::other(UNKNOWN)));
        }
        let mut known = self.primary.lock();
        let known = known
            .as_mut()
            .filter(|known| known.generation == primary.generation);
        if let Some(known) = known {
            known.run_id = info.run_id;
        }
        Ok(())
    }
}

const REPLACED: &str = "another primary has taken the place of this one meanwhile";
const NO_PRIMARY: &str = "the server that the Sentinels name is no primary";
const UNKNOWN: &str = "too few Sentinels answer, and the server was started again since they did";

#[cfg(test)]
mod tests {
    use super::*;

    fn name(port: u16, epoch: u64) -> Named {
        let host = "here".to_owned();
        let address = Address { host, port };
        Named { address, epoch }
    }

    fn named(port: u16, epoch: u64) -> Result<Named, Unnamed> {
        Ok(name(port, epoch))
    }

    /// A primary that most Sentinels have named.
    fn known() -> Known {
        let known = Known::default();
        assert!(matches!(known.learn(named(1, 5), true), Ok(true)));
        known
    }

    fn port(known: &Known) -> Option<u16> {
        known.primary().map(|primary| primary.address.port)
    }

    #[test]
    fn few_sentinels_are_followed_only_if_they_know_of_a_later_failover() {
        let known = known();
        assert!(matches!(known.learn(named(2, 5), false), Ok(false)));
        assert!(matches!(known.learn(named(1, 2), false), Ok(true)));
        assert!(matches!(known.learn(named(2, 4), false), Ok(false)));
        assert_eq!((port(&known), known.generation()), (Some(1), 1));
        assert!(matches!(known.learn(named(2, 6), false), Ok(true)));
        assert_eq!((port(&known), known.generation()), (Some(2), 2));
        assert!(Known::default().learn(named(1, 5), false).is_err());
    }

    #[test]
    fn most_sentinels_are_followed_but_those_with_a_later_failover_are_waited_for() {
        let known = known();
        assert!(!known.is_news(&name(2, 4)) && known.is_news(&name(2, 5)));
        assert!(matches!(known.learn(named(2, 1), true), Ok(true)));
        assert_eq!(port(&known), Some(2));
        assert!(known.is_news(&name(2, 1)));
    }

    fn info(run_id: Option<&str>) -> ServerInfo {
        ServerInfo {
            is_primary: true,
            run_id: run_id.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn without_sentinels_a_server_must_not_have_been_started_again() {
        let known = known();
        let check = |is_named, run_id| {
            let primary = known.primary().expect("it is known");
            known.check(&primary, is_named, info(run_id)).is_ok()
        };
        assert!(!check(false, None) && !check(false, Some("a")));
        assert!(check(true, Some("a")) && check(false, Some("a")));
        assert!(!check(false, Some("b")) && !check(false, None));
        assert!(check(true, Some("b")) && !check(false, Some("a")));
    }
}
