//! The arithmetic of budgets, against exact fractions: random calls of the shipped scripts, over years and with a clock
//! that is set back.
//!
//! Promises: P26.

use testing::rng::Rng;
use tower_semaphore_model::{
    budget::{Oracle, Reserved, stored},
    lua::Runner,
    scripts::{Scripts, Verb},
    stand_in::{Entry, Reply, StandIn, Value},
};

/// In ms, as all times here. In an id it is `7ps`, because ids have numbers in base 36.
const LEASE: i64 = 10_000;
/// The length of a lease whose claim is not granted at all levels yet.
const PROVISIONAL: i64 = 1_000;
const DAY: i64 = 24 * 60 * 60 * 1_000;
const LONGEST: i64 = 31 * DAY;
const LIMITS: [i64; 9] = [1, 2, 3, 10, 100, 65_535, 65_536, 1_000_003, u32::MAX as i64];
const WINDOWS: [i64; 8] = [1, 2, 7, 100, 1_000, 60_000, 3_600_000, LONGEST];

struct World {
    rng: Rng,
    runner: Runner,
    server: StandIn,
    /// The `KEYS` of the scripts: `held`, `queue`, `alive` and `budget`.
    keys: Vec<String>,
    window: i64,
    limit: i64,
    oracle: Oracle,
    /// Each id with its limit, its weight, and true for a rate, whose units are spent when they are granted instead of
    /// when the holder settles them.
    ids: Vec<(String, i64, i64, bool)>,
}

fn base36(mut number: i64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit((number % 36) as u32, 36).expect("it is a digit"));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let window = match rng.once_in(4) {
            true => 1 + between(&mut rng, LONGEST),
            false => rng.one_of(&WINDOWS),
        };
        let limit = match rng.once_in(4) {
            true => 1 + between(&mut rng, u32::MAX.into()),
            false => rng.one_of(&LIMITS),
        };
        // Any time in ms.
        let now = 1_795_345_200_000;
        let keys = ["held", "queue", "alive"].map(|key| format!("s:{{t:a}}{window}:{key}"));
        let keys = keys.into_iter().chain(["s:{t:a}:budget".to_owned()]);
        Self {
            rng,
            runner: Runner::new(&Scripts::shipped()).expect("the scripts are Lua"),
            server: StandIn::at(now * 1_000),
            keys: keys.collect(),
            window,
            limit,
            oracle: Oracle::new(window, now),
            ids: Vec::new(),
        }
    }

    fn now(&self) -> i64 {
        self.server.now / 1_000
    }

    fn up_to(&mut self, most: i64) -> i64 {
        between(&mut self.rng, most + 1)
    }

    fn run(&mut self, verb: Verb, args: &[String]) -> Vec<Reply> {
        let reply = self.runner.run(verb, &mut self.server, &self.keys, args);
        match reply.expect("no script fails") {
            Reply::List(items) => items,
            other => panic!("{other:?}"),
        }
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
                let permit = base36(self.ids.len() as i64);
                let (limit36, weight36) = (base36(limit), base36(weight));
                let id = format!("p.{permit}.0.0.{limit36}.{weight36}.7ps.0...");
                (id, limit, weight, self.rng.once_in(3))
            }
        };
        let lasts = self.rng.one_of(&[LEASE, LEASE, LEASE, LEASE, PROVISIONAL]);
        let terms = if is_rate { "1 rate" } else { "1" };
        // Lease, deadline, floor, length of the grant, levels of each claim, and claims.
        let numbers = [LEASE, self.now() + 500, 1_000, lasts, 1, 1];
        let mut args: Vec<_> = numbers.iter().map(i64::to_string).collect();
        args.extend([terms, "1", &id].map(str::to_owned));
        let (now, was_set_back) = (self.now(), self.oracle.was_set_back);
        self.oracle.move_to(now);
        let is_held = self.oracle.reserved.contains_key(&id);
        let fits = self.oracle.fits_in(0, weight, limit);
        let answer = self.run(Verb::AcquireBudgets, &args);
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
        if !is_held {
            self.oracle.limit = limit;
            let new = Reserved {
                weight,
                settled: None,
                ends: 0,
                is_done: false,
            };
            self.oracle.reserved.insert(id.clone(), new);
        }
        let own = self.oracle.reserved.get_mut(&id).expect("it is there");
        own.ends = own.ends.max(now + lasts);
        if lasts == LEASE {
            self.oracle.settle(&id, if is_rate { weight } else { 0 });
        }
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
        let is_held = self.oracle.reserved.contains_key(&id);
        if self.rng.once_in(2) {
            let lasts = self.rng.one_of(&[LEASE, LEASE, LEASE, PROVISIONAL]);
            let args = [lasts.to_string(), "1".to_owned(), format!("{id} {total}")];
            let answer = self.run(Verb::RefreshBudgets, &args);
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
            let answer = self.run(Verb::ReleaseBudgets, &args);
            assert_eq!(answer[1], Reply::Int(is_held.into()));
            self.oracle.settle(&id, total);
            match self.oracle.reserved.get_mut(&id) {
                Some(own) if stays => own.is_done = true,
                _ => drop(self.oracle.reserved.remove(&id)),
            }
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
        let mut world = World::new(seed);
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

/// A process with many permits has died. One call counts all of them as used, each at its end.
#[test]
fn however_many_reservations_have_ended_each_is_spent_at_its_end() {
    // More than `CHUNK` in budget.lua.
    const COUNT: i64 = 520;
    let mut world = World::new(1);
    (world.window, world.limit) = (60_000, 2_000);
    world.keys = ["held", "queue", "alive"]
        .map(|key| format!("s:{{t:a}}60000:{key}"))
        .into_iter()
        .chain(["s:{t:a}:budget".to_owned()])
        .collect();
    let acquire = |world: &mut World, id: String| {
        let numbers = [LEASE, world.now() + 500, 1_000, LEASE, 1, 1];
        let mut args: Vec<_> = numbers.iter().map(i64::to_string).collect();
        args.extend(["1".to_owned(), "1".to_owned(), id]);
        world.run(Verb::AcquireBudgets, &args)
    };
    for permit in 0..COUNT {
        // A limit of 2,000, and one unit.
        let id = format!("p.{}.0.0.1jk.1.7ps.0...", base36(permit));
        assert_eq!(acquire(&mut world, id)[1], Reply::Int(1));
    }
    // 6 s after the ends a tenth of the limit has come back: 200 units.
    world.server.now += (LEASE + 6_000) * 1_000;
    let whole_limit = "q.1.0.0.1jk.1jk.7ps.0...".to_owned();
    let refused = acquire(&mut world, whole_limit);
    // Full at level 1 with 320 units, and the time until these have come back too.
    let ms = (COUNT * 60_000 - 6_000 * 2_000) / 2_000;
    let expected = [0, 1, 320, ms].map(Reply::Int).to_vec();
    assert_eq!(refused[1], Reply::List(expected));
    assert!(world.server.key(&world.keys[0]).is_none(), "none is left");
    let fields = world.server.key(&world.keys[3]).map(|entry| &entry.value);
    assert!(matches!(fields, Some(Value::Hash(fields)) if fields.len() == 1));
}

/// Claims of one call are decided one after the other.
#[test]
fn two_claims_in_one_call_do_not_share_the_same_units() {
    let mut world = World::new(1);
    let numbers = [LEASE, world.now() + 500, 1_000, LEASE, 1, 2];
    let mut args: Vec<_> = numbers.iter().map(i64::to_string).collect();
    // Each claim needs three units of a limit of five.
    let ids = ["p.1.0.0.5.3.7ps.0...", "p.2.0.0.5.3.7ps.0..."];
    args.extend(["1", "1", ids[0], "1", ids[1]].map(str::to_owned));
    let answer = world.run(Verb::AcquireBudgets, &args);
    // The first is granted, and three units are held. The second finds level 1 full with these.
    assert_eq!(answer[1..3], [1, 3].map(Reply::Int));
    assert!(
        matches!(&answer[3], Reply::List(refusal) if refusal[..3] == [0, 1, 3].map(Reply::Int))
    );
}

impl World {
    /// Runs an acquire of one claim with these terms.
    fn acquire_with(&mut self, terms: &str, id: &str, lasts: i64) -> Vec<Reply> {
        let numbers = [LEASE, self.now() + 500, 1_000, lasts, 1, 1];
        let mut args: Vec<_> = numbers.iter().map(i64::to_string).collect();
        args.extend([terms, "1", id].map(str::to_owned));
        self.run(Verb::AcquireBudgets, &args)
    }

    /// A world with a window of a minute.
    fn with_minute() -> Self {
        let mut world = Self::new(1);
        world.window = 60_000;
        let keys = ["held", "queue", "alive"].map(|key| format!("s:{{t:a}}60000:{key}"));
        let keys = keys.into_iter().chain(["s:{t:a}:budget".to_owned()]);
        world.keys = keys.collect();
        world
    }

    fn reserved(&self) -> String {
        let entry = self.server.key(&self.keys[3]).expect("it is in use");
        let Value::Hash(fields) = &entry.value else {
            panic!("{entry:?}")
        };
        let state = fields["60000"].split(' ').nth(2);
        state.expect("the third number").to_owned()
    }
}

/// The reservation of the claim with the head start has ended. The call in which this claim joins the queue, before the
/// head, removes the reservation. All limits are 100.
#[test]
fn a_head_start_reserves_nothing_beyond_the_limit() {
    let mut world = World::with_minute();
    // 40 and 60 units.
    let early = "x.1.0.0.2s.14.7ps.0...";
    let other = "l.3.0.0.2s.1o.7ps.0...";
    assert_eq!(
        world.acquire_with("100", early, PROVISIONAL)[1],
        Reply::Int(1)
    );
    assert_eq!(world.acquire_with("100", other, LEASE)[1], Reply::Int(1));
    world.server.now += 500_000;
    // 90 units, which wait.
    let head = world.acquire_with("100 8000 10 0 0", "h.2.0.0.2s.2i.7ps.0...", LEASE);
    assert!(matches!(&head[1], Reply::List(queued) if queued[0] == Reply::Int(-2)));
    // The holder of 60 units settles 360, so nothing of it is reserved any more.
    let args = [LEASE.to_string(), "1".to_owned(), format!("{other} 360")];
    world.run(Verb::RefreshBudgets, &args);
    world.server.now += 600_000;
    // It was sent before, and has a head start of 5 s.
    let again = world.acquire_with("-1 2000 10 0 5000000", early, LEASE);
    assert!(matches!(&again[1], Reply::List(queued) if queued[0] == Reply::Int(-2)));
    assert_eq!(world.reserved(), "0");
}

/// Another program has overwritten a key that the script names late. Two claims have 50 units each, and a third waits.
#[test]
fn a_release_that_fails_midway_frees_its_units_once() {
    let mut world = World::with_minute();
    let (released, stays) = ("a.1.0.0.2s.1e.go.0...", "b.2.0.0.2s.1e.7ps.0...");
    for id in [released, stays] {
        assert_eq!(world.acquire_with("100", id, LEASE)[1], Reply::Int(1));
    }
    world.acquire_with("100 8000 10 0 0", "w.9.0.0.2s.2i.7ps.0...", LEASE);
    let strange = Value::Text("strange".to_owned());
    let strange = Entry {
        value: strange,
        expires_at: None,
    };
    world.server.insert(world.keys[2].clone(), strange);
    let args = ["1", "5", "1", &format!("{released} 0")].map(str::to_owned);
    for _ in 0..3 {
        let keys = world.keys.clone();
        let failed = world
            .runner
            .run(Verb::ReleaseBudgets, &mut world.server, &keys, &args);
        assert!(failed.is_err(), "{failed:?}");
        assert_eq!(world.reserved(), "50");
    }
}
