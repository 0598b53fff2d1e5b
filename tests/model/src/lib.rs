//! A model of the scripts that tower-semaphore sends to Redis.
//!
//! The very script files run in Lua 5.1 over a [stand-in](stand_in) for the commands that they use.
//! A [walk](walk::walk) visits every state that a few [clients](client) can reach with them: every
//! interleaving of claims, polls, refreshes, releases and revocations, of lost, late and repeated
//! requests, of crashes and of steps of the clocks. In each state, and for each call, it checks the invariants
//! of this table:
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
//! | F5 | in a fair queue each waiter has a tag of its own: that of the finish of its flow, which adds weight ÷ share, or the virtual time, which is the head's and never falls; behind one that leaves the others of its flow move up; what has finished is forgotten |
//! | L | when every message is lost and no client comes, no waiter waits beside free room for ever |
//! | L1 | the units and the waiters of the dead go |
//! | L3 | a refused or released claim leaves nothing behind |
//! | W | after an acquire or a release the head of the queue lives and does not fit |
//! | A | an answer says what the server has, except for what a later claim of the call changes; a late acquire brings back no released unit |
//! | R | a revoked permit is free; its owner is notified, also as the owner of added units; the holder finds out if the message is lost; the revocation is stored for its time, and only a delayed first acquire gets anything for it; a forged id changes nothing |
//! | U | an operator is shown each held unit and its end, and the live waiters in order; that changes nothing |
//! | T | every key expires, and none before its content has ended |
//! | M | the first write of a script needs no memory |
//! | E | no script fails, names an undeclared key, or sets a global; one whose keys were all there at its start names none that it has emptied, as while a slot moves |
//!
//! A lease lasts three ticks, a waiter counts as alive for two, and a call is out of date after one, so leases end in the
//! very millisecond of other calls. Times count from now, and only the order of past tokens and arrivals matters. Of the
//! 1,900,000 states 640,000 have two keys and everything under way, to a depth of 8 steps. All take little more than a
//! minute of one core.
//!
//! ```text
//! walk -> liveness -> steps -> model -> state, client -> server -> check -> call -> semaphore
//!                                                              \-> lua -> stand_in, scripts
//!     \-> inspect -> server
//! ```

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
