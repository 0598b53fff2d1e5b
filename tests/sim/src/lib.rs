//! A simulation of what tower-semaphore does over Redis, without real time.
//!
//! Some processes call servers. Each process is the core that ships (`proto`), with its own clock and some runtimes.
//! The servers are the shipped scripts in Lua 5.1 over the stand-in of the [model]. Everything in between can fail:
//!
//! - Connections delay, stall and break. They lose an answer but not the call, and deliver calls that were sent long
//!   ago.
//! - Tasks that carry calls are dropped. Messages are lost or late.
//! - Operators revoke permits and waiters. Callers change the weights of their permits.
//! - Servers stop, start again empty or with old data, stall, and have their clocks set.
//! - Processes are shut down, suspended and killed.
//!
//! A seed determines the [schedule](schedule::Schedule), and the schedule determines every event.
//!
//! ```text
//! search -> world -> schedule
//!       \         -> process -> shipped -> subject, the core
//!                 -> server -> wire -> subject, the model
//!                 -> judge: storage -> effect; callers -> record, weights; calls; questions
//! ```
//!
//! The [judge] shares no code with the core. It reports which promise is broken:
//!
//! | promise | judged by |
//! |---|---|
//! | S1 at most `limit` units | each server's log; the holders that callers know, while no server forgets or jumps ahead |
//! | S2 a holder is notified in time that its permit is lost | its process's clock, from the sending of the last answered call |
//! | S3 tokens increase | the tokens of answers and messages |
//! | S4 no process touches the permits of others, S5 a permit counts once | each unit and waiter that comes, goes or is prolonged |
//! | L1, L3 nothing is left behind | the servers when all claims are over: well before a lease could end, and after; and when a process has forgotten the last of its claims |
//! | L2 a release is sent at once, in the same instant if the process knows its key to be full; so are calls for leases that a server may have lost with another one | calls |
//! | F1 first come, first served | arrivals, as the judge counts them |
//! | F5 flows take turns | the order of arrivals, and the grants to one flow while another waited, by a model without tags |
//! | F3 each claim is answered within its budget | the process's clock |
//! | F4 a claim that has room does not wait | each server's queue after each script |
//! | the truth | answers of scripts, level by level, and the events for callers, also for permits that they have given up |
//! | its own | no claim is refused because of units that its process has given up before |
//! | too early, a loss, a return | a loss is reported at the end of the permit, or when the server has refused, and only if it was refused or the server was silent; a lost permit comes back where the limit has room |
//! | a pause | each server's log, and the requests to it: nothing is granted until the end, no waiter moves, and the next one polls then; answers and refusals name the rest of the pause, and callers are refused only if their waits are shorter |
//! | revocations | the holder is notified by the message, or by the server at the next call; nothing of the id comes back |
//! | limits | claims are acquired under the limits that their process received last; claims that wait under others are acquired again at once; each process asks in time, and names the version that it knows |
//! | the calls | no call for a claim that is over, none without work, a lease in one call at a time, none too large, 16 in flight at most, nothing due without end |
//! | the levels, a dead waiter | a waiting claim of several leases holds nothing wider than the level that it waits for, and nothing for longer than a waiter counts as alive |
//! | slots | a command names semaphores of one slot; once all processes can know of a move, they send commands to the new server |
//! | the share | claims that are admitted without a server, or granted while one is unwell, are within the share of their process; no claim that has room in the share is refused as unavailable |
//! | strict | no strict claim is admitted without its server, and none goes on without it |
//! | a panic | no core panics |
//! | weights | once everything is answered, servers hold what callers know, unit by unit |
//! | a shutdown | all claims are refused, and all permits reported as lost, at once |
//! | memory | a core remembers nothing that is over, and its queues name few finished leases |
//! | budgets | each server's log, by a judge with separate arithmetic: what is spent, reserved and settled after each script, the sum at each grant, the bound on used units over any time; each permit's use counts once; the first waiter is notified once it fits, and is granted soon; in the end nothing is reserved, and everything has come back |
//! | a question | an operator's question ends by its deadline, is answered while its servers are well, is not given up before its deadline, and runs once if a second run would answer otherwise; `usage` lists all units that are held |
//!
//! The judge excuses faults that no core can prevent:
//!
//! - A suspended process reports nothing.
//! - A server that has lost data or jumped ahead has forgotten its holders.
//! - A server whose clock was set back runs an acquire after its end. It also mixes up head starts, and holds units
//!   longer that were not released because they had ended. If its clock is then set forward, it may repeat tokens. So
//!   may a server whose clock is set forward by some leases a moment after that of another server of its cluster.
//! - A server that started with old data has units again that were released.
//! - If another program has overwritten a key of a semaphore, a permit that has lost it comes back as a whole or not at
//!   all. So its units of other semaphores are free a moment before its holder is notified.
//! - A server that does not report its time to a process gets nothing else from it.
//! - A flow may have lost a turn, and may be passed, if claims have left and a call had more waiters behind them than
//!   it may look at.
//!
//! Does the judge see bugs? They are planted one at a time: in the core (`tests/sim/planted.sh` plants each and prints
//! after how many schedules it is found) and in the scripts (`tests/simulation.rs`). `tests/sim/planted.md` lists them.
//!
//! ```text
//! cargo test -p tower-semaphore-sim
//! SCHEDULES=100000 cargo test --release -p tower-semaphore-sim passes
//! SEED=7 cargo test -p tower-semaphore-sim one
//! WORKLOAD=cluster-outage SEED=7 cargo test -p tower-semaphore-sim one
//! tests/sim/planted.sh "a return is not told"
//! ```
//!
//! The simulation has ten [workloads](schedule::Workload):
//!
//! - `server`: the levels of a claim are on one server.
//! - `cluster`: they are on several, whose clocks differ by up to 30 s and drift. Slots move. Those of the store's own
//!   keys may move too, or be stuck.
//! - `outage`: they are on one, which stalls while claims are admitted up to a share.
//! - `cluster-outage`: they are on several. Some of these stall, stop or refuse connections, and each process has a
//!   policy.
//! - `fair`: on one server or a cluster, claims have flows, weights and shares, and a crowd of them waits for one key.
//! - `limits`: on one server or a cluster, operators set limits of semaphores and of their policy. Claims of a lock are
//!   not affected.
//! - `pauses`: any of these, by the seed. Processes pause semaphores by messages that come late, twice or not at all.
//! - `questions`: on several servers, operators list, revoke, pause and resume while slots move and answers are lost.
//! - `mixed`: a mixture, mostly on several servers, of limits, pauses, claims that wait at several levels, servers that
//!   forget their scripts, and servers that do not report their time.
//! - `budgets`: any of the first four or `limits`, by the seed. Claims have budgets with windows of 53 ms to 3 s behind
//!   their permits. Holders settle what they use, and in a third of the schedules more than they have estimated. In a
//!   third nothing fails. Only the judge of budgets watches, and of the others' promises S1, F3, F4 and L1.
//!
//! Not simulated yet: a server that Sentinels have replaced and that goes on taking writes.
//!
//! A schedule has 1 to 5 limits of 1 to 3 units, and 8 to 40 claims of 1 to 3 levels. In one schedule in 64, a crowd of
//! 70 to 150 claims is added. A schedule has up to 8 faults, leases of 1, 3 or 20 s, up to 3 processes of up to 3
//! runtimes, and one or two servers. In detail:
//!
//! - A cluster has 2 or 3 servers, with all semaphores of a server in one slot, or each in a separate slot. With
//!   separate slots, three schedules in four move up to five slots, at once or within a second. In half of these, the
//!   servers have different clocks.
//! - In outages of a cluster, slots move from servers that are away, half of the time without their help. The last
//!   server may have joined without any slots.
//! - In an outage, each server stalls for 0.7 to 2.2 s. Claims are admitted up to half of their limits, or up to the
//!   limit divided by the number of processes. One level in eight is strict.
//! - Unless the servers are a cluster, in one of eight schedules Sentinels replace servers by ones with the same or old
//!   data. For a while, one of two connections leads to the old server, which reports that it is a replica.
//! - In some schedules without a cluster or outages, replicas lag and take over.
//! - In one of eight schedules without outages or separate slots, another program overwrites keys.
//! - In one of four schedules, a subscription comes up to 1.5 s after its connection.
//! - Without outages, half of the clusters with separate slots begin one to three moves of slots of the store's own
//!   keys, at the start or later. Some of these moves do not end.
//!
//! While a slot moves, servers answer as nodes of a cluster do. The old server runs a script if it has all of its keys,
//! and the script ends midway if it names a key that it has emptied. If the server has none of the keys, it sends the
//! client to the new server. If it has some, the client must send the script again. The new server answers likewise if
//! the script has several keys and some are missing.

pub mod judge;
pub mod planted;
pub mod process;
pub mod schedule;
pub mod search;
pub mod server;
mod shipped;
pub mod slots;
pub mod subject;
pub mod wire;
pub mod world;
