//! A simulation of what tower-semaphore does over Redis, without real time.
//!
//! Some processes, each a [core](subject::Subject) with a clock of its own, call servers: the shipped scripts in
//! Lua 5.1 over the stand-in of the [model]. Connections delay, stall and break, lose an answer but not the call,
//! and deliver what was sent long ago; messages are lost or late; servers stop, start again empty or with old
//! data, stand still, and have their clocks set; processes stand still and are killed. One seed gives one
//! [schedule](schedule::Schedule), and that one course of events, to the last one.
//!
//! ```text
//! search -> world -> schedule
//!       \         -> process -> subject
//!        naive    -> server -> wire -> subject, the model
//!                 -> judge: storage -> effect; callers; calls
//! ```
//!
//! The [judge] shares no code with a core. It says which promise is broken:
//!
//! | promise | judged by |
//! |---|---|
//! | S1 at most `limit` units | each server's log; holders, as callers were told, while no server forgets or jumps ahead |
//! | S2 a holder is told in time that its permit is lost | its process's clock, from the sending of what was answered last |
//! | S3 tokens increase | the tokens of answers and messages |
//! | S4 nobody touches another's, S5 a permit counts once | each unit and waiter that comes, goes or is prolonged |
//! | L1, L3 nothing is left behind | the servers when all claims are over: well before a lease could end, and after |
//! | L2 a release is sent at once | calls |
//! | F1 first come, first served | arrivals, as the judge counts them |
//! | F3 each claim is answered within its budget | the process's clock |
//! | F4 what has room does not wait | each server's queue after each script |
//! | the truth | answers of scripts, and what callers are told |
//! | the calls | nothing for a claim that is over, none without work, a lease in one call at a time, nothing due for ever |
//!
//! It excuses what nobody can keep: a process that stands still tells nothing; a server that has lost data or
//! jumped ahead has forgotten its holders; one whose clock was set back runs an acquire after its end, and mixes
//! up head starts, and may repeat tokens if it is then set forward; one that started with old data has again what
//! was released.
//!
//! Does it see? The [naive core](naive::Naive) has [bugs](bug::Bug), which are planted one at a time, and so have the
//! scripts. Schedules from the first seed until each is found, and the promise that it breaks first:
//!
//! | bug | schedules | |
//! |---|---|---|
//! | an unanswered acquire is forgotten | 1 | L2 |
//! | a retry has a new id | 8 | S5 |
//! | a release without an answer is not sent again | 49 | L3 |
//! | a release is given up while an acquire may run | 1,224 | L3 |
//! | lost is told at an answer, not at the end | 26 | S2 |
//! | a refresh after the release | 2 | an end |
//! | a waiter that gives up stays in the queue | 1 | L2 |
//! | a waiter polls after its refusal | 1 | an end |
//! | a stale message is believed | 39 | S2 |
//! | a grant by a message lasts a whole lease | 3 | S2 |
//! | a lease counts from the answer | 148 | S2 |
//! | an acquire may run at any time | 111 | L3 |
//! | the last claim of a batch is dropped | 2 | work |
//! | a claim without a budget | 2 | F3 |
//! | an outage is called "full" | 2 | the truth |
//! | a claim is sent while its call is in flight | 1 | one call |
//! | what is due stays due without a connection | 2 | busy |
//! | a poll comes with a new id | 1 | L3 |
//! | a lease that is not found is refreshed on | 50 | S2 |
//! | a release waits for a tick | 1 | L2 |
//! | `acquire.lua` grants one unit more | 1 | the truth |
//! | `acquire.lua` runs after its end | 111 | L3 |
//! | `acquire.lua` passes the queue | 1 | F1 |
//! | `acquire.lua` holds for two leases | 1 | L1 |
//! | `queue.lua` grants past the head | 1 | F1 |
//! | `queue.lua` gives negative arrivals | 1 | script |
//! | `queue.lua` revives nobody | 96 | F1 |
//! | `grant.lua` grants to the dead | 3 | F4 |
//! | `grant.lua` grants without room | 1 | S1 |
//! | `grant.lua` repeats a token | 1 | S3 |
//! | `refresh.lua` resurrects | 2 | S4 |
//! | `release.lua` wakes nobody | 1 | F4 |
//! | `release.lua` leaves a waiter in the queue | 237 | L3 |
//!
//! Without bugs the core passes. A schedule takes 5 to 10 ms.
//!
//! ```text
//! cargo test -p tower-semaphore-sim
//! SCHEDULES=100000 cargo test -p tower-semaphore-sim a_core
//! SEED=7 cargo test -p tower-semaphore-sim one
//! ```
//!
//! Left out as yet: claims of several levels, resizes, revocations, shares, shutdown, clusters and Sentinels.

mod redis {
    include!(concat!(env!("OUT_DIR"), "/redis.rs"));
}

pub mod judge;
pub mod process;
pub mod schedule;
pub mod search;
pub mod server;
pub mod subject;
pub mod wire;
pub mod world;
