//! What several Sentinels have answered.

use super::answer::{Named, Unnamed};
use crate::redis::transport::{address::Address, connection::timed_out};

/// The answers so far.
#[derive(Default)]
pub(super) struct Heard {
    named: Vec<Named>,
    /// How many have refused to name one.
    refusals: usize,
    /// The refusal that says most.
    refusal: Option<Unnamed>,
    /// Why one has not answered.
    silence: Option<Unnamed>,
}

impl Heard {
    pub(super) fn add(&mut self, answer: Result<Named, Unnamed>) {
        match answer {
            Ok(named) => self.named.push(named),
            Err(silence) if silence.says() == 0 => self.silence = Some(silence),
            Err(error) => {
                self.refusals += 1;
                let says_more = |known: &Unnamed| error.says() > known.says();
                if self.refusal.as_ref().is_none_or(says_more) {
                    self.refusal = Some(error);
                }
            }
        }
    }

    /// Why no primary will be named by most of so many Sentinels, however long the others take.
    pub(super) fn refusal(&mut self, of: usize, most: usize) -> Option<Unnamed> {
        let refused = self.refusals + most > of;
        self.refusal.take_if(|_| refused)
    }

    /// How many Sentinels have named a primary.
    pub(super) fn count(&self) -> usize {
        self.named.len()
    }

    /// The primary of the latest failover. If Sentinels disagree about that, it is the one that more of
    /// them name, or else the one that is known.
    pub(super) fn best(&self, known: Option<&Address>) -> Option<&Named> {
        let rank = |named: &&Named| {
            let is_known = Some(&named.address) == known;
            (named.epoch, self.votes(named), is_known)
        };
        self.named.iter().max_by_key(rank)
    }

    /// Whether so many Sentinels name this primary, or none another one of the same failover.
    pub(super) fn is_settled(&self, best: &Named, most: usize) -> bool {
        let of_epoch = |named: &&Named| named.epoch == best.epoch;
        let votes = self.votes(best);
        votes >= most || votes == self.named.iter().filter(of_epoch).count()
    }

    /// The same of so many Sentinels, or why there is none: while others might name one, because they have
    /// not answered.
    pub(super) fn into_best(
        mut self,
        known: Option<&Address>,
        of: usize,
        most: usize,
    ) -> Result<Named, Unnamed> {
        let best = self.best(known).cloned();
        let refusal = self.refusal(of, most);
        let error = refusal.or(self.silence).or(self.refusal);
        best.ok_or_else(|| error.unwrap_or_else(|| Unnamed::Unavailable(timed_out())))
    }

    fn votes(&self, one: &Named) -> usize {
        let is_same = |named: &&Named| named.epoch == one.epoch && named.address == one.address;
        self.named.iter().filter(is_same).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        let host = "here".to_owned();
        Address { host, port }
    }

    fn best(answers: &[(u16, u64)], known: u16) -> (Option<u16>, bool) {
        let mut heard = Heard::default();
        for (port, epoch) in answers {
            let (address, epoch) = (address(*port), *epoch);
            heard.add(Ok(Named { address, epoch }));
        }
        let best = heard.best(Some(&address(known)));
        let is_settled = best.is_some_and(|best| heard.is_settled(best, 2));
        (best.map(|best| best.address.port), is_settled)
    }

    #[test]
    fn the_latest_failover_counts_then_most_sentinels_then_the_primary_that_is_known() {
        assert_eq!(best(&[], 1), (None, false));
        assert_eq!(best(&[(1, 5), (1, 5), (2, 7)], 1), (Some(2), true));
        assert_eq!(best(&[(2, 5), (1, 5), (2, 5)], 1), (Some(2), true));
        assert_eq!(best(&[(1, 5), (2, 5)], 1), (Some(1), false));
        assert_eq!(best(&[(1, 5), (2, 5)], 2), (Some(2), false));
    }
}
