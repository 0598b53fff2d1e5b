//! The store in Redis: a semaphore for each policy and key, for all processes that share a server.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tower_semaphore::{Claim, RedisSemaphore, Semaphore};
//!
//! let semaphore = RedisSemaphore::connect("redis://127.0.0.1/").await?;
//! let claim = Claim::new("account-42").with_limit(5).with_wait(Duration::from_secs(2));
//!
//! let permit = semaphore.acquire(claim).await?;
//! // The permit is refreshed in the background until it is dropped.
//! drop(permit);
//! # Ok(()) }
//! ```
//!
//! # How it works
//!
//! The store grew from the fair semaphore in chapter 6 of *Redis in Action*. The semaphore of a
//! policy and key has four keys in Redis, under one hash tag so that a cluster keeps them together:
//!
//! | key | type | holds |
//! |---|---|---|
//! | `PREFIX{POLICY:KEY}:held` | sorted set | unit of a permit → end of its lease, ms |
//! | `PREFIX{POLICY:KEY}:queue` | sorted set | waiter's permit → its arrival, µs |
//! | `PREFIX{POLICY:KEY}:alive` | sorted set | waiter's permit → until when it counts as alive, ms |
//! | `PREFIX{POLICY:KEY}:token` | string | the last token |
//!
//! The first three keys of a [budget](crate::Claim::with_window) have its window in ms in their names:
//! `PREFIX{POLICY:KEY}60000:held` for a minute. Instead of the key for the token, the budgets of all windows of a
//! policy and key share one hash:
//!
//! | key | type | holds |
//! |---|---|---|
//! | `PREFIX{POLICY:KEY}:budget` | hash | window → spent, reserved and returned units; reservation → settled units |
//!
//! A permit reserves all its units of a budget with one member of `held`. A settlement travels with the next refresh or
//! with the release. The units of a lost reservation count as used, and its permit goes on without them.
//!
//! PREFIX is the configured [prefix](Builder::prefix) and the number of the schema: `semaphore:2:`. A permit's id is
//! `PROCESS.PERMIT.LEASE.GENERATION.LIMIT.WEIGHT.LEASE_MS.SINCE.SHARE.FLOW.LABEL`, with numbers in base 36, and for
//! each unit after the first `:UNIT` follows. SHARE, FLOW and LABEL may be empty. Units that
//! [`resize`](crate::Permit::resize) adds to a permit have the same PERMIT and another LEASE.
//!
//! The key `PREFIXclock` holds the highest time that any process has seen on the server, so that tokens grow even if
//! the server's clock is set back. The sorted set `PREFIXprocesses` holds the processes that are alive, and the time
//! until which each counts as alive. Each process calls once per refresh interval, and at least every 5 s.
//!
//! Three scripts work on a semaphore: *acquire* is the one round trip of a request, *refresh* and
//! *release* follow. Each script is atomic and takes the time from the server. Each may be repeated,
//! because this process chooses a permit's id, and an id counts once.
//!
//! A script works on one semaphore after the other, so that one call serves many. One state machine decides for the
//! whole process which semaphores a call names, and when it is sent. Without load, a claim is sent at once by the task
//! that makes it. Under load, claims gather until as many claims wait as are in flight, 64 at most, so that calls are
//! few and large. A release is sent with the next call, or alone after one to three milliseconds. If the key was full
//! within the last ten seconds, the release is sent at once, over the connection of the runtime that drops the permit.
//! On a cluster one call names semaphores of one slot, and the calls for one node travel together.
//!
//! An acquire carries a deadline by the server's clock, which this process knows because every answer carries the
//! server's time. After the deadline the script refuses to run, so a command that was delayed on its way grants
//! nothing. An acquire without an answer may have run, so the process sends releases for it until the server has
//! answered a release that ran after the deadline.
//!
//! All keys expire eight leases after their last use. The keys of a budget also stay until all of its units have come
//! back, and a key that stores a revocation stays for at least an hour.
//!
//! A waiter that is granted is notified by `PUBLISH` on a channel of its process. In case a message is lost, each
//! waiter also polls at every twelfth of a lease, or every five seconds if that is sooner.
//!
//! # When the server is unavailable
//!
//! An outage begins when three calls in a row of the [keeper](#threads-and-runtimes) have failed, over at least a
//! timeout. From then on this process decides claims by [`WhenUnavailable`]. Until a probe is answered, it sends only
//! probes, one at a time and with the pending releases. Claims that already wait are decided when the outage begins.
//! If a call of a caller's task fails, the keeper sends a probe, because perhaps only the task's runtime has stalled.
//!
//! Permits that were held or admitted during the outage are acquired as soon as the server has answered.
//!
//! The pauses between attempts to connect are random, and grow to at most 2 s. If a call is not answered in time, the
//! process sends a short probe over the same connection. If that is not answered either, the process makes a second
//! connection. A second connection that works replaces the silent one, and calls without an answer are sent again. A
//! stalled server answers on both or on neither, so each process makes only one more connection to it at a time.
//!
//! # Threads and runtimes
//!
//! The keeper is a thread with a separate runtime and connection. It refreshes permits, polls for waiters, and sends
//! the commands that no caller sends. So handlers that block every worker of a runtime lose no permit, and several
//! runtimes may share a store and end in any order. A claim travels over a connection of the runtime that polls it, or
//! over the keeper's if that runtime has none yet. The state of held permits is not in the thread. If the thread ends
//! by a panic, for example of a waker, the next call restarts it with all held permits, and logs an event. Another
//! thread calls subscribers and recorders, so that none of them can delay a refresh.
//!
//! The store needs real time, because its servers use it. While Tokio's time is paused (`tokio::time::pause`,
//! `start_paused`), each wait for an answer ends at once, so connecting and claims fail with [`Kind::Misconfigured`].
//! Use a [`MemorySemaphore`](crate::MemorySemaphore) in such tests.
//!
//! # Connections
//!
//! URLs are those of redis-rs:
//!
//! | URL | |
//! |---|---|
//! | `redis://USER:PASSWORD@HOST:PORT/DATABASE` | all but the host may be left out |
//! | `rediss://…` | the same over TLS, with the feature `tls-rustls` or `tls-native-tls` |
//! | `unix:///PATH?user=USER&pass=PASSWORD&db=DATABASE` | a Unix socket; the query may be left out |
//!
//! Percent-encode characters of a password that have a meaning in URLs. Neither a password nor a private key appears in
//! an error or in `Debug` output.
//!
//! Over TLS the server's certificate is verified against `Builder::root_certificate` if it is set, or else against the
//! system's root certificates. With `tls-rustls`, [`Builder::connect`] reads the system's certificates once, and the
//! process's default `CryptoProvider` does the cryptography. If the process has no default, [`Builder::connect`]
//! installs the provider of ring. redis-rs reads the system's certificates again for each connection, and makes no
//! connection while one of the certificates cannot be read. With `tls-native-tls`, the platform's library does both. If
//! both features are enabled, rustls is used.
//!
//! Connections use RESP2 unless the URL ends in `?protocol=resp3`. Over a connection of a [`Builder::connector`],
//! messages arrive as pushes, which only RESP3 has. So the connection for messages always uses RESP3, and `HELLO` must
//! not be renamed.
//!
//! [`Builder::connector`] makes connections in another way, and [`Builder::credentials`] logs them in with tokens that
//! change. The store does not accept a connection that was made elsewhere. A `MultiplexedConnection` brings no messages
//! and cannot be made again after it ends. A `ConnectionManager` lets calls wait while it reconnects. A
//! `ClusterConnection` sends calls again after their time is over. A pool has no use, because one connection carries
//! all calls of a runtime.
//!
//! # Several servers
//!
//! [`Builder::connect_sentinel`] asks the Sentinels for the primary before every connection and once a second, and uses
//! no server that reports to be a replica. A failover is noticed when calls fail, when the old primary refuses writes,
//! or when the Sentinels name another one.
//!
//! [`Builder::connect_cluster`] keeps connections to each node. A claim goes to the node of its key's slot. If a node
//! reports that the slot is on another node, the claim is sent there at once. A claim whose keys are moving is sent
//! again until its time is over. The map of slots is read again when a node reports a move or cannot be reached, at
//! most five times in a second. If a node is down, only claims for its own keys fail. Messages go through any node that
//! lives.
//!
//! Replication is asynchronous: a replica that is promoted may lack the last grants. Then permits up to the limit may
//! be granted again. Use the fencing token to protect actions that must not happen twice.
//!
//! # redis-rs
//!
//! redis-rs itself is re-exported as [`client`], in the version that this crate uses. Only these of its types are part
//! of this crate's API:
//!
//! | of redis-rs | here |
//! |---|---|
//! | [`ConnectionInfo`](client::ConnectionInfo), [`AsyncConnectionConfig`](client::AsyncConnectionConfig) | the arguments of a [`Builder::connector`] |
//! | [`MultiplexedConnection`](client::aio::MultiplexedConnection) | what it returns |
//! | [`RedisError`](client::RedisError) | [`Error::redis_error`], [`ConnectError::redis_error`], and the error of a connector |
//!
//! So the next major version of redis-rs is a breaking version of this crate too. Until then, code that names these
//! types through [`client`] always uses the same version as this crate. Code that only passes URLs and displays errors
//! names none of these types, and needs no change.
//!
//! # Requirements of the server
//!
//! Redis 6.2 or newer. A user whom an access control list restricts needs `~PREFIX* &PREFIX* +eval +evalsha +time +ping
//! +subscribe +publish +exists +get +hget +hgetall +incr +set +pexpire +pttl +zadd +zcard +zrange +zrangebyscore +zrem
//! +zremrangebyscore +zscore`, and `+select` for a database number in the URL. Redis 6.2 takes `&PREFIX*` only after
//! `resetchannels`. With `+info`, the server's version, role and eviction policy are checked too. On a cluster the user
//! also needs `+cluster|slots +cluster|info +asking`. With Sentinels the user of the primary also needs `+role`, and
//! the user of the Sentinels needs `+sentinel|get-master-addr-by-name +sentinel|master`. [`Builder::min_replicas`]
//! needs `+wait`, and a claim with a [window](crate::Claim::with_window) `+hdel +hmget +hset`. An eviction policy that
//! may evict keys with a time to live may evict permits, so use `noeviction`.
//!
//! If a right is missing, [`Builder::connect`] and [`RedisSemaphore::check`] fail and name it. Some calls of
//! [`Operate`](crate::Operate) need further rights: `usage` `+zscan` (and `+hmget` in a store that [only
//! operates](Builder::operator)), `keys` `+scan`, `counts` `+zcount`, and `set_limit` `+hdel +hexists +hlen +hset`.
//! Without its right only that call fails, and a claim without a window needs none of these rights. `check` reports the
//! missing ones as [`Risk::NoOperate`].
//!
//! A proxy in front of the server has to pass on `EVALSHA`, `EVAL` and `SUBSCRIBE`. `CLIENT SETINFO`, `HELLO` and
//! `INFO` are optional: if a proxy closes the connection at one of them, as twemproxy does, the store sends it none of
//! them from then on. With a [`Builder::connector`] `HELLO` is needed. twemproxy does not know `SUBSCRIBE`, so
//! [`Builder::connect`] fails through it, and names the command.
//!
//! # Limits that operators set
//!
//! [`Operate::set_limit`](crate::Operate::set_limit) writes one hash, which no claim touches: its name is
//! `PREFIXlimits{PREFIXprocesses}`, and it never expires. A process reads the limits in the call that announces the
//! process: before its first claim is sent, if the server answers, and then three times per lease and at least every 5
//! s. Later calls return the limits only after a change. A claim costs one lookup in a map, which is empty if no limit
//! is set. At most 5,000 limits can be set.
//!
//! # Listing and revoking permits
//!
//! [`Operate`](crate::Operate) lists the permits of all processes, and can revoke any of them. For that a claim carries
//! only its time and its label, at the end of the permit's id. The time takes 9 bytes. The label takes three bytes for
//! each character that is not a letter, digit, `-` or `_`, and one for each other character. A heavy permit stores both
//! once for each unit, so give it a short label.
//!
//! Each process that claims describes itself in `PREFIXprocess:ID` with each of its announcements, and subscribes to
//! messages about revocations. If a message is lost, the next refresh finds the revocation. The server stores a
//! revocation with its key for an hour, or for eight leases if that is longer. So a holder that could not be reached
//! does not get the permit back, unless the server has lost its data since. Permits that a process admits while Redis
//! is unavailable are not listed, and cannot be revoked until they are granted by Redis.
//!
//! # Managed services
//!
//! The store uses no commands for administrators or that count as dangerous, no keys that a call does not name, and no
//! requests of more than 3,999 arguments. So it works under the restrictions of managed services, with one exception:
//! it needs `EVAL`. OCI's sharded service does not have `EVAL`, and [`Builder::connect`] reports that. Many services
//! evict keys by default: set `maxmemory-policy` to `noeviction`. After a failover a service may have forgotten the
//! last permits that it granted, unless it acknowledges a write only once its log has it, as MemoryDB does, or
//! [`Builder::min_replicas`] is set.

mod acquire;
mod ask;
mod budgets;
mod builder;
mod check;
mod connect;
mod counts;
mod driver;
mod error;
mod fault;
mod operate;
mod protocol;
mod report;
mod reserved;
mod risk;
mod store;
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
mod tls;
mod transport;
mod turns;
mod when_unavailable;

/// redis-rs, in the version that this crate uses. Its types appear in the arguments of a [`Builder::connector`] and in
/// the sources of [`Error`] and [`ConnectError`].
pub use ::redis as client;
pub use builder::Builder;
pub use fault::{ConnectError, Error, Kind};
pub use risk::Risk;
pub use store::{RedisSemaphore, Unreleased};
pub use transport::Credentials;
pub use when_unavailable::WhenUnavailable;
