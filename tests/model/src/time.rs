//! The lengths of time of the model. All times of a state count from now.

/// The step of all clocks, ms. Every length of time is a multiple, so that leases end and deadlines
/// pass in the very millisecond of a call.
pub const TICK: i64 = 100;

/// How long a lease lasts, ms.
pub const LEASE: i64 = 3 * TICK;

/// For how long the id of a revoked permit is remembered, ms: longer than any other key lasts.
pub const REMEMBER: i64 = 12 * LEASE;

/// How long a waiter counts as alive after its last heartbeat, ms.
pub const ALIVE: i64 = 2 * TICK;

/// How often a waiter polls, ms.
pub const HEARTBEAT: i64 = TICK;

/// After how long a call is out of date, ms.
pub const TIMEOUT: i64 = TICK;

/// The clock of the stand-in during every call: ms, and microseconds. An odd number, so that the
/// first token is no multiple of four.
pub const NOW_MS: i64 = 1_700_000_000_000;
/// See [`NOW_MS`].
pub const NOW: i64 = NOW_MS * 1_000 + 1;

/// A value that lies so few microseconds ahead is in the past of the next call. A clock that was
/// set back leaves values that lie further ahead.
pub const CALL: i64 = 1_000;

/// No time.
pub const NEVER: i64 = i64::MIN;
