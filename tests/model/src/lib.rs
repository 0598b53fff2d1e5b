//! A model of the scripts that tower-semaphore sends to Redis.
//!
//! The script files themselves run in Lua 5.1 over a [stand-in](stand_in) for the commands that they use. A
//! [walk](walk::walk) visits every state that a few [clients](client) can reach with them. It covers every interleaving
//! of claims, polls, refreshes, releases and revocations, lost, late and repeated requests, crashes, and steps of the
//! clocks. In each state, and for each call, it checks the invariants of this table:
//!
//! | | invariant |
//! |---|---|
//! | S1 | after a grant at most `limit` units are held |
//! | S2 | a client that counts as holding a permit holds it on the server, unless an operator has revoked it |
//! | S3 | tokens strictly grow per key, also after a clock was set back; the highest time never falls |
//! | S4 | a call touches only what it names, what has ended, and what it grants |
//! | S5 | a permit has each of its units once, all with one end; a late call changes nothing |
//! | F1 | no waiter is passed by a later claim; a position is kept |
//! | F2 | a poll is a heartbeat |
//! | F3 | a claim joins a queue only if fewer waiters are ahead than it allows |
//! | F4 | exactly the granted waiters are notified |
//! | F5 | in a fair queue each waiter has a separate tag as its score: the finish of its flow, or the virtual time if that is later; a flow's finish grows by weight ÷ share; the virtual time is the head's tag and never falls; if a waiter leaves, the waiters of its flow behind it move up; finished flows are forgotten |
//! | L | if every message is lost and no new client comes, no waiter stays beside free room |
//! | L1 | the units and the waiters of dead clients are removed |
//! | L3 | a refused or released claim leaves nothing behind |
//! | W | after an acquire or a release the head of the queue is alive and does not fit |
//! | A | an answer describes the state of the server, except for changes by later claims of the call; a late acquire brings back no released unit |
//! | R | a revoked permit is free; its owner is notified, also as the owner of added units; the holder finds out if the message is lost; the revocation is stored for its time, and only a delayed first acquire gets anything for it; a forged id changes nothing |
//! | U | usage shows an operator each held unit and its end, and the live waiters in order; it changes nothing |
//! | T | every key expires, but not before its contents have ended |
//! | M | the first write of a script needs no memory |
//! | E | no script fails, names an undeclared key, or sets a global; if all keys of a script exist at its start, it names no key that it has emptied, because that fails while a slot moves |
//!
//! A lease lasts three ticks, a waiter counts as alive for two, and a call is out of date after one. So leases end in
//! the same millisecond as other calls run. Times count from now; of past tokens and arrivals only the order
//! matters. Out of 1,900,000 states, 640,000 have two keys and every kind of message under way, to a depth of 8 steps.
//! All walks together take little more than a minute of one core. The modules, each before those that it uses:
//!
//! ```text
//! walk -> liveness -> steps -> model -> state, client -> server -> check -> call -> semaphore
//!                                                              \-> lua -> stand_in, scripts
//!     \-> inspect -> server
//! ```

pub mod budget;
pub mod call;
pub mod check;
pub mod client;
mod conduct;
mod inspect;
pub mod liveness;
pub mod lua;
mod messages;
pub mod model;
mod replies;
mod request;
pub mod scenario;
pub mod scenarios;
pub mod scripts;
pub mod semaphore;
pub mod server;
pub mod stand_in;
pub mod state;
pub mod steps;
mod taking;
pub mod time;
pub mod unit;
pub mod walk;
