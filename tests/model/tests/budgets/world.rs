//! A server with the shipped scripts, and the oracle of one budget.

use testing::rng::Rng;
use tower_semaphore_model::{
    budget::{Oracle, stored},
    lua::Runner,
    scripts::{Scripts, Verb},
    stand_in::{Reply, StandIn, Value},
    unit::base36,
};

/// In ms, as all times here. In an id it is `7ps`, because ids have numbers in base 36.
pub(crate) const LEASE: i64 = 10_000;
/// The length of a lease whose claim is not granted at all levels yet.
pub(crate) const PROVISIONAL: i64 = 1_000;
pub(crate) const DAY: i64 = 24 * 60 * 60 * 1_000;

/// Much longer than any window.
const ALWAYS: i64 = 20 * 400 * DAY;

pub(crate) struct World {
    pub(crate) rng: Rng,
    runner: Runner,
    pub(crate) server: StandIn,
    /// The `KEYS` of the scripts: `held`, `queue`, `alive` and `budget`.
    pub(crate) keys: Vec<String>,
    pub(crate) window: i64,
    pub(crate) limit: i64,
    pub(crate) oracle: Oracle,
    /// Each id with its limit, its weight, and true for a rate, whose units are spent when they are granted instead of
    /// when the holder settles them.
    pub(crate) ids: Vec<(String, i64, i64, bool)>,
}

/// The keys of the budget of a window.
pub(crate) fn keys_of(window: i64) -> Vec<String> {
    let keys = ["held", "queue", "alive"].map(|key| format!("s:{{t:a}}{window}:{key}"));
    keys.into_iter()
        .chain(["s:{t:a}:budget".to_owned()])
        .collect()
}

/// The id of a reservation, with the lease `LEASE`.
pub(crate) fn id(permit: usize, limit: i64, weight: i64) -> String {
    let [limit, weight] = [limit, weight].map(|number| base36(number as u32));
    format!("p.{}.0.0.{limit}.{weight}.7ps.0...", base36(permit as u32))
}

/// The arguments of an acquire of claims with these terms, which are granted for `lasts`.
pub(crate) fn claims(now: i64, terms: &str, ids: &[&str], lasts: i64) -> Vec<String> {
    // Lease, deadline, floor, length of the grant, levels of each claim, and claims.
    let numbers = [LEASE, now + 500, 1_000, lasts, 1, ids.len() as i64];
    let mut args: Vec<_> = numbers.iter().map(i64::to_string).collect();
    args.push(terms.to_owned());
    args.extend(ids.iter().flat_map(|id| ["1", id].map(str::to_owned)));
    args
}

impl World {
    pub(crate) fn new(rng: Rng, window: i64, limit: i64) -> Self {
        // Any time in ms.
        let now = 1_795_345_200_000;
        Self {
            rng,
            runner: Runner::new(&Scripts::shipped()).expect("the scripts are Lua"),
            server: StandIn::at(now * 1_000),
            keys: keys_of(window),
            window,
            limit,
            oracle: Oracle::new(window, now),
            ids: Vec::new(),
        }
    }

    /// A window of a minute, and a limit of 100.
    pub(crate) fn with_minute() -> Self {
        Self::new(Rng::new(1), 60_000, 100)
    }

    pub(crate) fn now(&self) -> i64 {
        self.server.now / 1_000
    }

    pub(crate) fn run(&mut self, verb: Verb, args: &[String]) -> Vec<Reply> {
        let keys = self.keys.clone();
        self.try_to_run(verb, &keys, args).expect("no script fails")
    }

    /// Runs a script on these keys. The error is that of the script.
    pub(crate) fn try_to_run(
        &mut self,
        verb: Verb,
        keys: &[String],
        args: &[String],
    ) -> Result<Vec<Reply>, String> {
        run_on(&self.runner, &mut self.server, verb, keys, args)
    }

    pub(crate) fn acquire_with(&mut self, terms: &str, id: &str, lasts: i64) -> Vec<Reply> {
        self.run(
            Verb::AcquireBudgets,
            &claims(self.now(), terms, &[id], lasts),
        )
    }

    /// The number of fields in the hash.
    pub(crate) fn fields(&self) -> usize {
        match self.server.key(&self.keys[3]).map(|entry| &entry.value) {
            Some(Value::Hash(fields)) => fields.len(),
            None => 0,
            other => panic!("{other:?}"),
        }
    }

    /// The units that the hash counts as reserved.
    pub(crate) fn reserved(&self) -> i64 {
        stored(&self.server, &self.keys[3], self.window).1
    }

    /// On a server on which a call fails after any number of writes: if the call is sent again, the result is that of a
    /// call that has not failed, which `self` has taken. If it is never sent again, everything comes back with time.
    pub(crate) fn check_failures(&self, before: &StandIn, verb: Verb, args: &[String]) {
        for writes in 0.. {
            let mut server = before.clone();
            server.writes_left = Some(writes);
            let answer = run_on(&self.runner, &mut server, verb, &self.keys, args);
            if answer.is_ok() {
                return;
            }
            server.writes_left = None;
            let mut later = server.clone();
            let again = run_on(
                &self.runner,
                &mut server,
                verb,
                &self.keys,
                &again(verb, args),
            );
            again.expect("the call does not fail again");
            let [seen, expected] =
                [&server, &self.server].map(|server| stored(server, &self.keys[3], self.window));
            let case = format!("{verb:?} {args:?} after {writes} writes");
            assert_eq!(seen, expected, "{case}");

            let mut claim_all = |permit| {
                later.now += ALWAYS * 1_000;
                let id = id(permit, self.limit, self.limit);
                let args = claims(later.now / 1_000, &self.limit.to_string(), &[&id], LEASE);
                let verb = Verb::AcquireBudgets;
                run_on(&self.runner, &mut later, verb, &self.keys, &args)
                    .expect("the call does not fail again")
            };
            // The first call may count units as spent that were lost.
            claim_all(self.ids.len() + 1);
            let answer = claim_all(self.ids.len() + 2);
            assert_eq!(answer[1..], [1, self.limit].map(Reply::Int), "{case}");
        }
    }
}

fn run_on(
    runner: &Runner,
    server: &mut StandIn,
    verb: Verb,
    keys: &[String],
    args: &[String],
) -> Result<Vec<Reply>, String> {
    match runner.run(verb, server, keys, args) {
        Ok(Reply::List(items)) => Ok(items),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

/// The arguments of a call that is sent once more.
fn again(verb: Verb, args: &[String]) -> Vec<String> {
    let mut args = args.to_vec();
    if verb == Verb::AcquireBudgets {
        // The first word of the terms notes that the claim was sent before.
        let rest = args[6].split_once(' ').map(|(_, rest)| rest.to_owned());
        args[6] = rest.map_or("-1".to_owned(), |rest| format!("-1 {rest}"));
    }
    args
}
