//! Operate from a terminal: the command `semaphore` shows who holds what in Redis, frees it, and sets limits and
//! pauses for the whole fleet.
//!
//! ```sh
//! cargo install tower-semaphore-cli
//! export REDIS_URL=rediss://look@redis.internal/       # or --url, --cluster, --sentinel NAME, --ca, --prefix
//! export REDIS_PASSWORD=…                              # or --password-file
//! semaphore usage concurrency ann
//! ```
//!
//! A password in `--url` is refused, because each user of the machine can read the arguments of a process. The command is
//! [`Operate`](crate::Operate) over Redis and no more: it holds no permits, and does not count among the processes that
//! share a limit. `semaphore help` lists all options, `semaphore completions bash` prints the completions of a shell, and
//! `semaphore man` the manual page.
//!
//! # Look
//!
//! `usage POLICY KEY` shows who holds units of a key, and who waits, in order. [`Lock`](crate::Lock)s are under the
//! policy `lock`. `watch` shows the same live, until you press `q` or Ctrl-C.
//!
//! ```text
//! $ semaphore usage concurrency ann
//! concurrency ann: limit 5, held 3, waiting 2
//!
//! PERMIT               UNITS  HELD FOR  LEASE   PROCESS            LABEL
//! 00000000000000a1.1f      2       2 h  30 min  web-1 4711 market  GET /market/export
//! 00000000000000b2.3       1       2 h  30 min  web-2 99 exports
//!
//! WAITER               UNITS  WAITS FOR  ALIVE   PROCESS            LABEL
//! 00000000000000b2.4       1      5 min  30 min  web-2 99 exports   nightly
//! 00000000000000a1.20      1      5 min  30 min  web-1 4711 market  flow team-7
//! ```
//!
//! A second line shows the pause of a key:
//!
//! ```text
//! $ semaphore usage concurrency carl
//! concurrency carl: limit -, held 0, waiting 0
//! paused 5 min ago, ends in 31 min: 429: Retry-After
//! ```
//!
//! In a narrow terminal long names are wrapped, and ids are not:
//!
//! ```text
//! concurrency ann: limit 5, held 3, waiting 2
//!
//! PERMIT               UNITS  HELD FOR  LEASE   PROCESS     LABEL
//! 00000000000000a1.1f      2       2 h  30 min  web-1 4711  GET /market/export
//!                                               market
//! 00000000000000b2.3       1       2 h  30 min  web-2 99
//!                                               exports
//!
//! WAITER               UNITS  WAITS FOR  ALIVE   PROCESS            LABEL
//! 00000000000000b2.4       1      5 min  30 min  web-2 99 exports   nightly
//! 00000000000000a1.20      1      5 min  30 min  web-1 4711 market  flow team-7
//! ```
//!
//! `top [POLICY]` shows the fullest keys and the longest queues, live on one screen. If the output is not a terminal,
//! or is a dumb one, it prints them once.
//!
//! ```text
//! $ semaphore top | cat
//! concurrency: keys 3, held 4, waiting 2, paused 1
//!
//! UNITS  LIMIT  WAITING   PAUSED  FULLEST
//!     3      5        2        -  ann
//!     1      5        0        -  bob
//!     0      -        0   31 min  carl
//!
//! UNITS  LIMIT  WAITING   PAUSED  LONGEST QUEUES
//!     3      5        2        -  ann
//! ```
//!
//! `keys POLICY` lists each key that has permits or waiters or is paused, in the order in which the keys are found.
//! `PAUSED` is the time until the pause ends, by this machine's clock. For a long key only the hash is known, and is
//! shown as `#…`.
//!
//! ```text
//! $ semaphore keys concurrency
//! UNITS  WAITING   PAUSED  KEY
//!     0        0   31 min  carl
//!     1        0        -  bob
//!     3        2        -  ann
//! ```
//!
//! `processes` lists the processes that are alive. `check` reports whether the server has what an application needs,
//! and permits it to this user: run it as the application's user. Settings that work but may cause failures later are
//! listed as risks.
//!
//! ```text
//! $ semaphore processes
//! PROCESS           HOST   PID   NAME     VERSION
//! 00000000000000a1  web-1  4711  market   0.1.0
//! 00000000000000b2  web-2    99  exports  0.1.0
//!
//! $ semaphore check
//! The server has all that an application needs.
//! ```
//!
//! The output for many keys, or for a key with more than 1,000 permits, is no snapshot. It is read in pages, so that no
//! script blocks the server for long. Control characters in keys, labels, names and notes are escaped, as `\x1b`.
//!
//! # Act
//!
//! `revoke POLICY KEY ID` [ends](super::operate#take-a-permit-back) a permit, or a wait, by the id that the table shows
//! or by the whole id, which `--json` prints. `--all` ends all permits of the key, after a question or with `--yes`.
//!
//! ```text
//! $ semaphore revoke concurrency bob 00000000000000a1.21
//! revoked 00000000000000a1.21
//! ```
//!
//! `set-limit POLICY [KEY] N` [overrides](crate::Operate::set_limit) the limits of claims for a key, or for all keys of
//! a policy. All processes follow within a third of a lease. 0 closes a key, and `default` removes the limit. `limits`
//! lists the limits that are set, with the note from `--note`, or else the user's name. `usage` marks such a limit as
//! `(set)`.
//!
//! ```text
//! $ semaphore set-limit concurrency ann 3 --note stuck-exports
//! concurrency ann: the limit is 3
//!
//! $ semaphore set-limit concurrency 20
//! concurrency all keys: the limit is 20
//!
//! $ semaphore limits
//! POLICY       KEY         LIMIT  SET      NOTE
//! concurrency  (all keys)     20  2 h ago
//! concurrency  ann             3  2 h ago  carol: stuck exports
//! ```
//!
//! `pause POLICY KEY TIME` [pauses](crate::Operate::pause) a key in all processes: no claim of it is granted until the
//! pause ends, and waiters keep their places. `TIME` is like `30s`, `5m`, `1h30m` or `250ms`, at most `31d`. A pause is
//! never shortened, so the command prints the end of the pause that is in force. `resume POLICY KEY` ends the pause
//! early. `--note` works as for limits.
//!
//! ```text
//! $ semaphore pause concurrency ann 30m --note upstream-429
//! concurrency ann: the pause ends in 30 min
//!
//! $ semaphore resume concurrency ann
//! concurrency ann: the pause has ended
//! ```
//!
//! # For programs
//!
//! With `--json` each command prints JSON, one value per line. Fields may be added; none is renamed or removed within a
//! major version. Times are milliseconds of Unix time by the server's clock, and unknown values are `null`.
//!
//! | command | a line |
//! |---|---|
//! | `keys` | for each key `{"key","units","waiting","pause"}` |
//! | `usage`, `watch` | [`Usage::to_json`](crate::semaphore::Usage::to_json); `watch` prints one for each update |
//! | `top` | `{"keys","units","waiting","paused","fullest","longest"}`, the lists of `{"key","units","waiting","pause","limit"}` |
//! | `processes` | for each process `{"id","host","pid","name","version"}` |
//! | `limits` | for each limit `{"policy","key","limit","since","note"}`; `key` is `null` for all keys |
//! | `set-limit` | `{"policy","key","limit"}` |
//! | `pause`, `resume` | `{"policy","key","pause"}`: the pause that is in force |
//! | `revoke` | `{"revoked"}`: whole ids |
//! | `check` | `{"risks"}`: texts |
//!
//! A key that is not UTF-8 is `key_hex` instead of `key`, and a long key is `hash`. A `pause` is
//! `{"since","until","note"}`, or `null`.
//!
//! | status | means |
//! |---|---|
//! | 0 | done |
//! | 1 | nothing was found: no such permit, key, limit, pause or process |
//! | 2 | the arguments are wrong |
//! | 3 | the store failed, or what was printed could not be written |
//! | 130 | Ctrl-C |
//!
//! ```sh
//! semaphore --json usage concurrency ann | jq -r '.held[] | select(.label == "GET /market/export") | .id' |
//!     while read -r id; do semaphore revoke concurrency ann "$id"; done
//! ```
//!
//! # Rights
//!
//! A user who may only look, for the prefix `semaphore:`:
//!
//! ```text
//! ACL SETUSER look on >PASSWORD resetchannels ~semaphore:* +eval +time +get +hget +hgetall +hmget +scan +zcount +zrange +zscan
//! ```
//!
//! A user who may act too:
//!
//! ```text
//! ACL SETUSER act on >PASSWORD resetchannels ~semaphore:* &semaphore:* +eval +time +get +hget +hgetall +hmget +scan +zcount +zrange +zscan +exists +hdel +hexists +hlen +hset +incr +pexpire +pttl +publish +set +zadd +zcard +zrangebyscore +zrem +zremrangebyscore +zscore
//! ```
//!
//! On a cluster both users also need `+cluster|slots +cluster|info +asking`. With Sentinels they need `+role`, and for
//! a database number in the URL `+select`. Both see the names of all keys of the server. The [user of an
//! application](super::deploy#a-separate-user) can neither list keys nor set limits.
//!
//! In Rust, [`Builder::operator`](crate::redis::Builder::operator) makes a store for such a user.
