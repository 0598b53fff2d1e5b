//! The command `semaphore`, as a process, against real servers.

mod acting;
mod failures;
mod fleet;
mod golden;
mod hostile;
mod many;
mod program;
mod rights;
mod servers;
mod terminal;
