//! A limit in shadow admits every request, and counts the requests that it would have refused. Beside each request runs
//! a *trial*: the request's claims to the store, which hold and wait as under a limit in force.

mod admitted;
mod beside;
mod predicted;
mod rig;
mod slots;
