//! Deploy Redis: rights, memory, processor, topology.
//!
//! Redis 6.2 or newer, or Valkey; `tests/matrix.sh` has passed on Redis 6.2.14 and 7.0.15, Valkey 8.1.8 and 9.1.2.
//! [`redis`](crate::redis) describes how the store uses the server. This chapter lists the settings, in the order in
//! which you will need them.
//!
//! # A separate user
//!
//! The store needs these rights and no others. In the console of `redis-cli`, for the default prefix
//! `semaphore:`:
//!
//! ```text
//! ACL SETUSER limits on >PASSWORD resetchannels ~semaphore:* &semaphore:* +eval +evalsha +time +ping +subscribe +publish +exists +get +hget +hgetall +incr +set +pexpire +pttl +zadd +zcard +zrange +zrangebyscore +zrem +zremrangebyscore +zscore +info
//! ```
//!
//! | where | in addition |
//! |---|---|
//! | a database number in the URL | `+select` |
//! | a cluster, each node | `+cluster\|slots +cluster\|info +asking` |
//! | a primary that Sentinels name | `+role` |
//! | the Sentinels themselves | `+sentinel\|get-master-addr-by-name +sentinel\|master` |
//! | [`min_replicas`](crate::redis::Builder::min_replicas) | `+wait` |
//! | claims with a [window](crate::Claim::with_window) | `+hdel +hmget +hset` |
//! | [`Operate::usage`](crate::Operate::usage) | `+zscan`, and `+hmget` for an [operator's](crate::redis::Builder::operator) store |
//! | `Operate::keys` | `+scan` |
//! | `Operate::counts` | `+zcount` |
//! | [`Operate::set_limit`](crate::Operate::set_limit), of an [operator's user](super::terminal#rights) | `+hdel +hexists +hlen +hset` |
//!
//! Without `+info` the server's version, role and eviction policy are not checked, and
//! [`check`](crate::RedisSemaphore::check) reports that as a [risk](crate::redis::Risk). Connecting fails if another
//! right that claims need is missing, or if the server refuses the password. The [error](crate::redis::ConnectError)
//! names the right, or the setting with the password. `check` reports a missing right of `Operate` as
//! [`Risk::NoOperate`](crate::redis::Risk): for an application that is expected. The user cannot read or write keys
//! with another prefix, but with `+scan` it sees the names of all keys. Without the rights of the last line an
//! application follows the limits that operators set, and cannot set limits itself.
//!
//! ```no_run
//! # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
//! use tower_semaphore::RedisSemaphore;
//!
//! let url = "rediss://limits:PASSWORD@redis.internal:6379/";
//! let semaphore = RedisSemaphore::builder().prefix("semaphore:").connect(url).await?;
//! # drop(semaphore); Ok(()) }
//! ```
//!
//! TLS needs one of the features `tls-rustls` and `tls-native-tls`.
//!
//! # One Redis for two services
//!
//! Two services with one prefix share the limits of each policy and key: an account with five streams at the shop
//! has none left at the search. To separate them, give each a [prefix](crate::redis::Builder::prefix), and a user whose
//! `~` and `&` name that prefix:
//!
//! ```no_run
//! # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
//! use tower_semaphore::RedisSemaphore;
//!
//! let shop = RedisSemaphore::builder().prefix("shop:").connect("redis://redis.internal/").await?;
//! let search = RedisSemaphore::builder().prefix("search:").connect("redis://redis.internal/").await?;
//! # drop((shop, search)); Ok(()) }
//! ```
//!
//! # Settings of the server
//!
//! | setting | value | why |
//! |---|---|---|
//! | `maxmemory-policy` | `noeviction` | another policy may evict permits: up to *limit* more are then granted. With `noeviction` acquire, refresh and release go on when memory is full |
//! | persistence (`save`, `appendonly`) | as you like | permits come back by their refreshes, within a third of a lease; until then a restart without data admits up to *limit* more |
//! | `min-replicas-to-write` | 0 | it makes claims fail with too few replicas, and does not bound what a failover forgets: use [`min_replicas`](crate::redis::Builder::min_replicas) |
//! | `cluster-require-full-coverage` | `no` | otherwise all nodes refuse commands while one primary is down |
//! | `cluster-announce-hostname` | set, if `cluster-preferred-endpoint-type` is `hostname` | otherwise redirects name no host: a slot is served again only after its move, and permits are lost if that takes longer than a lease |
//! | the clock | NTP that slews | leases are measured by it. A jump forward ends leases early; after a step back a dead holder's place is free a lease later at most |
//!
//! Tokens keep growing after a loss of all data, because a new counter begins at the server's time.
//!
//! A server for limits alone is the simplest: nothing else fills its memory, blocks it with a long script or needs it
//! to be persistent. If limits share a server with other data, it must have no eviction policy. So do not share a
//! cache's server.
//!
//! # Schema
//!
//! The names and the meaning of the keys are a schema. Its number follows the prefix in each name, as in
//! `semaphore:2:{concurrency:ann}:held`, and the CHANGELOG names it. Processes of two releases share limits and queues if
//! both have the same schema.
//!
//! Releases with different schemas share nothing on one Redis, even under the same prefix. During the deploy each limit
//! counts twice: once for the old processes, and once for the new ones. Deploy with half of each limit, or stop the old
//! processes first. Operators must set their limits again. Keys of the old schema expire by themselves, but its limits
//! do not: delete the key `PREFIXlimits{PREFIXprocesses}` of schema 1 once no old process runs
//! (`tests/redis/schema.rs`).
//!
//! # Memory
//!
//! | 1,000 permits | `MEMORY USAGE` of all their keys |
//! |---|---|
//! | of one key | 151 kB |
//! | of 200 keys, five each | 100 kB |
//! | of 1,000 keys | 256 kB |
//! | of 1,000 keys, with a label of 18 characters | 1,109 kB |
//!
//! (BENCHMARKS.md, "Permits that are held"; keys of 9 to 11 bytes, weight 1.) Reckon with 260 bytes for each key in use
//! and 150 for each further permit of it. A permit of weight *w* takes as much as *w* permits. A
//! [label](crate::Claim::with_label) is part of each permit's name, and Redis packs small sets only while their names
//! have at most 64 bytes (`zset-max-listpack-value`). So keep labels short, or raise that setting. A key is stored
//! percent-encoded, or as its SHA-256 if the encoded key has more than 64 characters. So a client cannot fill the
//! memory with long keys. All keys expire eight leases after their last use, with two exceptions. A revoked permit's id
//! is kept for an hour at least. The limits that operators have set do not expire. They are one hash, of 5,000 limits
//! at most, which only a policy of the kind `allkeys-…` may evict.
//!
//! # Processor
//!
//! | what | processor time of Redis |
//! |---|---|
//! | 1,000 permits of one key that are *held*, lease 10 s | 0.2 % of a core |
//! | 1,000 permits of 1,000 keys that are held | 0.4 % |
//! | 100,000 permits of 20,000 keys that are held | 4.9 % |
//! | 1,000 permits acquired and released in each second, one at a time | 57 ms/s: 5.7 % |
//! | the same, 16 at a time | 12.8 ms/s: 1.3 % |
//! | the same, 256 at a time | 8.0 ms/s: 0.8 % |
//!
//! (BENCHMARKS.md, "Permits that are held", and "A cluster" for one server.) Redis runs scripts on one core, so these
//! rows also show the capacity of one server: 256 tasks made 122,000 pairs of acquire and release per second, while
//! they shared two cores with it. A busy process sends fewer commands, because claims then travel in batches. Each
//! process has a connection for each of its runtimes, one for the keeper and one for messages.
//!
//! # Addresses
//!
//! [`connect`](crate::RedisSemaphore::connect) takes the URLs of redis-rs, and [`builder`](crate::RedisSemaphore::builder) has further
//! settings: the prefix of all keys, the lease, the timeout, certificates.
//!
//! | URL | |
//! |---|---|
//! | `redis://USER:PASSWORD@HOST:PORT/DATABASE` | TCP; all but the host may be left out |
//! | `rediss://…` | the same over TLS: enable the feature `tls-rustls` or `tls-native-tls` |
//! | `unix:///PATH?user=USER&pass=PASSWORD&db=DATABASE` | a Unix socket; the query may be left out |
//!
//! The builder's `root_certificate` sets a private CA, and `client_certificate` the certificate and key
//! of a client.
//!
//! # Tokens that change
//!
//! With AWS IAM or Microsoft Entra a password is a token that expires after minutes or hours.
//! [`credentials`](crate::redis::Builder::credentials) takes an async function that returns the user and a valid token,
//! and calls it for each new connection. Let the function cache the token until it expires: a fleet that reconnects at
//! once would otherwise request a token for each connection.
//!
//! # Custom connections
//!
//! The store makes its connections itself. It takes neither a `MultiplexedConnection` nor a `ConnectionManager`, a cluster's
//! connection or a pool: [why](crate::redis#connections). A
//! [`connector`](crate::redis::Builder::connector) is a function that it calls for each connection to each server,
//! in each topology: through a tunnel or a Unix socket, with a custom resolver, or to count connections:
//!
//! ```no_run
//! # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//! use tower_semaphore::{RedisSemaphore, redis::client::Client};
//!
//! static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
//!
//! let semaphore = RedisSemaphore::builder()
//!     .connector(|info, config| async move {
//!         let connection = Client::open(info)?
//!             .get_multiplexed_async_connection_with_config(&config)
//!             .await?;
//!         CONNECTIONS.fetch_add(1, Relaxed);
//!         Ok(connection)
//!     })
//!     .connect("redis://127.0.0.1/")
//!     .await?;
//! # drop(semaphore); Ok(()) }
//! ```
//!
//! # Topology
//!
//! | servers | how | choose it for |
//! |---|---|---|
//! | one | [`connect`](crate::redis::Builder::connect) | most services. While it is away, [a policy](super::outages) decides |
//! | a primary that Sentinels name | [`connect_sentinel`](crate::redis::Builder::connect_sentinel) | a replica that takes over by itself |
//! | a cluster | [`connect_cluster`](crate::redis::Builder::connect_cluster) | more load than one core can serve; each key lives on one node |
//!
//! Three primaries on the two cores of one machine made 0.45 of the pairs per second of one server (BENCHMARKS.md, "A
//! cluster"): a cluster pays only if each node has separate cores. The limits of one request may live on several nodes,
//! which then take a round trip each.
//!
//! # Failover
//!
//! Replication is asynchronous. A replica that is promoted may lack the last grants, which are then granted again, up
//! to the limit. TESTING.md, "Failovers", counts them, with a replica 5 ms behind and 200 failovers under load for each
//! row:
//!
//! | | failovers with more permits than the limit | most permits above a limit of 5 | first grant after the promotion, median |
//! |---|---|---|---|
//! | a replica that is promoted | 61 | 5 | 108 ms |
//! | Sentinels | 89 | 5 | 760 ms |
//! | a cluster | 118 | 5 | 169 ms |
//! | each of them with `min_replicas(1)` | 0 | 0 | 118 to 820 ms |
//!
//! [`min_replicas`](crate::redis::Builder::min_replicas) makes a grant count only once that number of replicas has it.
//! It costs a round trip to the replica: with a link of 1 ms an idle claim took 2.5 ms instead of 0.13, and 256 tasks
//! made 0.28 of the pairs per second (BENCHMARKS.md, "Grants that a failover keeps"). Most limits do not need it: in
//! these runs a key was over its limit for half a second at most, and its holders were notified. For work that must not
//! happen twice, use the [fencing token](super::recipes::locks), with or without `min_replicas`.
//!
//! # Managed services
//!
//! Give the store the service's endpoint, its TLS feature and a user with the rights above. The store uses no command
//! for administrators, no key that a call does not name, and no request of more than 3,999 arguments.
//! `tests/redis/managed.rs` runs it on servers that forbid the same commands as the services; the services themselves
//! were not tested. According to their documentation:
//!
//! | service | what differs | what to do |
//! |---|---|---|
//! | [ElastiCache], serverless | always in cluster mode; at most 3,999 arguments; settings are fixed | [`connect_cluster`](crate::redis::Builder::connect_cluster) with its endpoint |
//! | [ElastiCache][restricted] | without `CONFIG`, `DEBUG`, `SAVE` and their like | nothing: the store needs none of them |
//! | [MemoryDB] | what it has acknowledged survives a failover | nothing: no `min_replicas` |
//! | [Memorystore] for Redis, and [its cluster][cluster] | `maxmemory-policy` is `volatile-lru` by default | set `noeviction` |
//! | a service without `EVAL` | | [not supported](crate::redis#managed-services) |
//!
//! [ElastiCache]: https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/RedisConfiguration.html
//! [restricted]: https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/ClientConfig.RestrictedCommands.html
//! [MemoryDB]: https://docs.aws.amazon.com/memorydb/latest/devguide/consistency.html
//! [Memorystore]: https://cloud.google.com/memorystore/docs/redis/supported-redis-configurations
//! [cluster]: https://cloud.google.com/memorystore/docs/cluster/supported-instance-configurations
//!
//! `check` reports the remaining risks: [`Risk::ClusterNode`](crate::redis::Risk) if you connected to the only node of
//! a cluster, [`Risk::Eviction`](crate::redis::Risk), and [`Risk::NoOperate`](crate::redis::Risk). If the eviction
//! policy cannot be changed, keep well below the memory limit.
//!
//! ```no_run
//! # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
//! # use tower_semaphore::RedisSemaphore;
//! let semaphore = RedisSemaphore::builder().connect_cluster(["rediss://limits:PASSWORD@cluster.internal:6379/"]).await?;
//! for risk in semaphore.check().await? {
//!     eprintln!("warning: {risk}");
//! }
//! # Ok(()) }
//! ```
