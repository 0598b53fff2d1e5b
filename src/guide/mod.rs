//! The guide: from the first limit to years of service.
//!
//! Each chapter is read in a few minutes, and each example in it is compiled and tested. A chapter explains what to do
//! and why; the items that it links to have the details.
//!
//! | chapter | answers |
//! |---|---|
//! | [`adopt`] | How do I limit an axum service in five minutes, and what do I look at afterwards? |
//! | [`choose`] | Which limit? Wait or refuse? How long may a queue be, how long a lease? |
//! | [`order`] | Who goes first: first come, fair shares, head starts? How do an account's and the fleet's limit work together? |
//! | [`deploy`] | Which rights, memory, CPU and topology does Redis need? |
//! | [`outages`] | What happens when Redis fails, when a process stops, when I deploy? |
//! | [`pauses`] | How does my fleet obey an upstream's `Retry-After`? How do I stop a key for a while? |
//! | [`budgets`] | How do I limit tokens or requests per minute, together with requests in flight? |
//! | [`proxies`] | What do nginx, HAProxy and platforms that freeze processes do to limits, waits and streams? |
//! | [`promises`] | What is guaranteed, and what is not? |
//! | [`clients`] | What does a client see, and what should it retry? |
//! | [`recipes`] | axum, CORS, hyper, tonic, actix-web, keys and plans, streams, WebSockets, downloads, uploads, MCP, clients, jobs, locks, other languages, custom stores |
//! | [`operate`] | How do I try a limit out, what do I measure, who holds what? |
//! | [`terminal`] | How do I see and free permits from a terminal, and set limits for the whole fleet? |
//! | [`test`](mod@test) | How do I test my service: paused time, a store that is down or full, a handler's permit? |
//! | [`moving`] | What replaces what in tower's limit, tower_governor, nginx and redis-semaphore? |
//!
//! The words of the guide are those of the [crate's docs](crate#words). Figures are from the files `BENCHMARKS.md` and
//! `TESTING.md` of the repository, which describe how they were measured. Trust their ratios more than their absolute
//! values.

pub mod adopt;
pub mod budgets;
pub mod choose;
pub mod clients;
pub mod deploy;
pub mod moving;
pub mod operate;
pub mod order;
pub mod outages;
pub mod pauses;
pub mod promises;
pub mod proxies;
pub mod recipes;
pub mod terminal;
pub mod test;
