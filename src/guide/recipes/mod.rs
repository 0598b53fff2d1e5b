//! Recipes: short, complete, to copy.
//!
//! | recipe | contents |
//! |---|---|
//! | [`servers`] | axum, a limit that can be switched off, CORS, OpenAI's headers, connections of an address, hyper, tonic, actix-web |
//! | [`keys`] | plans that are looked up, an account or else an address, routes, addresses behind proxies |
//! | [`streams`] | server-sent events, `EventSource`, a new stream that ends the oldest, WebSockets, downloads, uploads, bytes to a client that waits |
//! | [`mcp`] | servers of the Model Context Protocol, limits for each tool |
//! | [`calls`] | limits for the requests that you send: one host, many hosts, one of several upstreams, refusals as errors, a call inside a handler, a service that calls itself, reqwest |
//! | [`jobs`] | work without HTTP: background jobs, jobs that run once, a database protected from a dogpile |
//! | [`locks`] | locks with fencing tokens |
//! | [`changes`] | limits that change while they are in use: by an operator, by the load of an upstream, by configuration |
//! | [`languages`] | callers in other languages: a permit that an HTTP response holds |
//! | [`stores`] | custom stores, and wrappers that delay, fail, or choose between stores |

pub mod calls;
pub mod changes;
pub mod jobs;
pub mod keys;
pub mod languages;
pub mod locks;
pub mod mcp;
pub mod servers;
pub mod stores;
pub mod streams;
