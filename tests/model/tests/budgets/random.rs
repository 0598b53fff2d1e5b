//! The arithmetic of budgets, against exact fractions: random calls of the shipped scripts, over years and with a clock
//! that is set back.
//!
//! Promises: P26.

use super::world::{DAY, LEASE, PROVISIONAL, World, claims, id};
use testing::rng::Rng;
use tower_semaphore_model::{budget::stored, scripts::Verb, stand_in::Reply};

const LONGEST: i64 = 31 * DAY;
const LIMITS: [i64; 9] = [1, 2, 3, 10, 100, 65_535, 65_536, 1_000_003, u32::MAX as i64];
const WINDOWS: [i64; 8] = [1, 2, 7, 100, 1_000, 60_000, 3_600_000, LONGEST];

impl World {
    fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let window = match rng.once_in(4) {
            true => 1 + between(&mut rng, LONGEST),
            false => rng.one_of(&WINDOWS),
        };
        let limit = match rng.once_in(4) {
            true => 1 + between(&mut rng, u32::MAX.into()),
            false => rng.one_of(&LIMITS),
        };
        Self::new(rng, window, limit)
    }

    fn up_to(&mut self, most: i64) -> i64 {
        between(&mut self.rng, most + 1)
    }

    /// Runs a script. Every fourth time it also fails midway on copies of the server.
    fn run_checked(&mut self, verb: Verb, args: &[String]) -> Vec<Reply> {
        let before = self.server.clone();
        let answer = self.run(verb, args);
        if self.rng.once_in(4) {
            self.check_failures(&before, verb, args);
        }
        answer
    }

    fn pass_time(&mut self) {
        let window = self.window;
        let long = self.up_to(400 * DAY);
        let (short, windows) = (self.up_to(50), self.up_to(3 * window));
        let ms = self
            .rng
            .one_of(&[0, 1, 2, short, windows, LEASE - 1, LEASE, LEASE + 1, long]);
        self.server.now += ms * 1_000;
        if self.rng.once_in(10) {
            self.server.now -= self.up_to(ms + 1_000) * 1_000;
            self.oracle.was_set_back = true;
        }
    }

    fn acquire(&mut self) {
        let is_known = !self.ids.is_empty() && self.rng.once_in(4);
        let (id, limit, weight, is_rate) = match is_known {
            true => {
                let at = self.rng.below(self.ids.len());
                self.ids[at].clone()
            }
            false => {
                let limit = match self.rng.once_in(3) {
                    true => 1 + self.up_to(self.limit - 1),
                    false => self.limit,
                };
                let some = 1 + self.up_to(limit - 1);
                let weight = self.rng.one_of(&[1, limit, some]);
                let id = id(self.ids.len(), limit, weight);
                (id, limit, weight, self.rng.once_in(3))
            }
        };
        let lasts = self.rng.one_of(&[LEASE, LEASE, LEASE, LEASE, PROVISIONAL]);
        let terms = if is_rate { "1 rate" } else { "1" };
        let args = claims(self.now(), terms, &[&id], lasts);
        let (now, was_set_back) = (self.now(), self.oracle.was_set_back);
        self.oracle.move_to(now);
        let is_held = self.oracle.has(&id);
        let fits = self.oracle.fits_in(0, weight, limit);
        let answer = self.run_checked(Verb::AcquireBudgets, &args);
        if let Reply::List(refusal) = &answer[1] {
            assert!(
                !is_held && (!fits || was_set_back),
                "{refusal:?} {:?}",
                self.oracle
            );
            if !was_set_back {
                self.check_retry(refusal.get(3), weight, limit);
            }
            for reserved in self.oracle.reserved.values_mut() {
                reserved.ends = reserved.ends.min(now + LEASE);
            }
            return;
        }
        assert_eq!(answer[1], Reply::Int(1));
        assert!(is_held || fits, "{:?}", self.oracle);
        let spent = if is_rate { weight } else { 0 };
        let spent = (lasts == LEASE).then_some(spent);
        self.oracle.grant(&id, weight, limit, now + lasts, spent);
        if !is_known {
            self.ids.push((id, limit, weight, is_rate));
        }
    }

    /// The time that a refusal reports is the first at which the units fit.
    fn check_retry(&self, retry: Option<&Reply>, weight: i64, limit: i64) {
        match retry {
            Some(Reply::Int(ms)) => {
                let fits = |ms| self.oracle.fits_in(ms, weight, limit);
                assert!(fits(*ms) && !fits(ms - 1), "{ms} {:?}", self.oracle);
            }
            None => assert!(self.oracle.all_reserved() + weight > limit),
            other => panic!("{other:?}"),
        }
    }

    fn end_or_refresh(&mut self) {
        let at = self.rng.below(self.ids.len());
        let (id, _, weight, is_rate) = self.ids[at].clone();
        let some = self.up_to(2 * weight);
        let total = match is_rate {
            true => weight,
            false => self.rng.one_of(&[0, weight, weight / 2, some]),
        };
        let now = self.now();
        self.oracle.move_to(now);
        let is_held = self.oracle.has(&id);
        if self.rng.once_in(2) {
            let lasts = self.rng.one_of(&[LEASE, LEASE, LEASE, PROVISIONAL]);
            let args = [lasts.to_string(), "1".to_owned(), format!("{id} {total}")];
            let answer = self.run_checked(Verb::RefreshBudgets, &args);
            let is_whole = lasts == LEASE;
            assert_eq!(answer[1], Reply::Int((is_held || is_whole).into()));
            if let Some(own) = self.oracle.reserved.get_mut(&id) {
                own.ends = if is_whole {
                    now + lasts
                } else {
                    own.ends.max(now + lasts)
                };
            }
            if is_whole {
                self.oracle.settle(&id, total);
            }
        } else {
            let stays = self.rng.once_in(3);
            let keep = if stays { " keep" } else { "" };
            // An answer is wanted; the floor; one unit.
            let args = ["1", "5", "1", &format!("{id} {total}{keep}")].map(str::to_owned);
            let answer = self.run_checked(Verb::ReleaseBudgets, &args);
            assert_eq!(answer[1], Reply::Int(is_held.into()));
            self.oracle.release(&id, total, stays);
        }
    }

    /// The server's state equals the oracle's.
    fn check(&mut self) {
        let (parts, reserved) = stored(&self.server, &self.keys[3], self.window);
        assert_eq!(reserved, self.oracle.all_reserved(), "{:?}", self.oracle);
        let is_more = self.oracle.was_set_back && parts > self.oracle.parts;
        assert!(
            parts == self.oracle.parts || is_more,
            "{parts} {:?}",
            self.oracle
        );
        self.oracle.parts = parts;
    }

    fn step(&mut self) {
        match self.rng.below(10) {
            0..3 => return self.pass_time(),
            3..7 => self.acquire(),
            _ if self.ids.is_empty() => self.acquire(),
            _ => self.end_or_refresh(),
        }
        self.check();
    }
}

fn between(rng: &mut Rng, end: i64) -> i64 {
    let high = rng.below(1 << 31) as i64;
    let low = rng.below(1 << 31) as i64;
    ((high << 31) | low) % end
}

/// Limits from 1 to 2³² − 1, windows from 1 ms to 31 days, jumps of up to 400 days.
#[test]
fn no_unit_is_granted_twice_and_none_is_lost_for_good() {
    for seed in 0..600 {
        let mut world = World::random(seed);
        for _ in 0..40 {
            world.step();
        }
        // In the end everything has come back. 8,000 days are much longer than any window.
        world.server.now += 20 * 400 * DAY * 1_000;
        let now = world.now();
        world.oracle.move_to(now);
        assert_eq!(
            (world.oracle.spent_in(0), world.oracle.all_reserved()),
            (0, 0),
            "{seed}"
        );
        world.ids.clear();
        world.acquire();
        world.check();
    }
}
