//! The durations of the model. All times of a state count from now.

/// The step of all clocks, in ms. Every duration is a multiple of it, so that leases end and deadlines pass in the same
/// millisecond as calls run.
pub const TICK: i64 = 100;

/// The length of a lease, in ms.
pub const LEASE: i64 = 3 * TICK;

/// How long a revocation is stored, in ms. Longer than any other key lasts.
pub const REMEMBER: i64 = 12 * LEASE;

/// How long a waiter counts as alive after its last heartbeat, in ms.
pub const ALIVE: i64 = 2 * TICK;

/// The interval of a waiter's polls, in ms.
pub const HEARTBEAT: i64 = TICK;

/// The time after which a call is out of date, in ms.
pub const TIMEOUT: i64 = TICK;

/// The clock of the stand-in during every call, in ms.
pub const NOW_MS: i64 = 1_700_000_000_000;
/// The same clock in microseconds. It is odd, so that the first token is not a multiple of four.
pub const NOW: i64 = NOW_MS * 1_000 + 1;

/// A value that lies at most this number of microseconds ahead is in the past for the next call. A clock that was set
/// back leaves values that lie further ahead.
pub const CALL: i64 = 1_000;

/// No time.
pub const NEVER: i64 = i64::MIN;
