//! A model of the scripts that tower-semaphore sends to Redis.
//!
//! The very script files run in Lua 5.1 over a [stand-in](stand_in) for the commands that they use.
//! A [walk](walk::walk) visits every state that a few [clients](client) can reach with them: every
//! interleaving of claims, polls, refreshes, releases and revocations, of lost, late and repeated
//! requests, of crashes and of steps of the clocks. In each state, and for each call, it checks the invariants
//! that TESTING.md lists.
//!
//! ```text
//! walk -> liveness -> steps -> model -> state, client -> server -> check -> call -> semaphore
//!                                                              \-> lua -> stand_in, scripts
//!     \-> inspect -> server
//! ```

mod batch_scenarios;
mod batches;
pub mod call;
pub mod check;
pub mod client;
mod clock_scenarios;
mod conduct;
mod inspect;
pub mod liveness;
pub mod lua;
mod messages;
pub mod model;
mod operating;
mod replies;
mod request;
mod revoke_scenarios;
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
