//! A simulation of what tower-semaphore does over Redis, without real time.
//!
//! Some processes call servers. Each process is the core that ships (`proto`), with its own clock and some runtimes. The servers are
//! the shipped scripts in Lua 5.1 over the stand-in of the [model]. Connections delay, stall and break, lose an answer
//! but not the call, and deliver what was sent long ago; tasks that carry calls are dropped; messages are lost or late;
//! operators revoke permits and waiters; callers change the weights of what they hold; processes shut down; servers stop, start again empty or with old data, stand still, and have their clocks set; processes stand still and
//! are killed. One seed gives one [schedule](schedule::Schedule), and that one course of events, to the last one.
//!
//! ```text
//! search -> world -> schedule
//!       \         -> process -> shipped -> subject, the core
//!                 -> server -> wire -> subject, the model
//!                 -> judge: storage -> effect; callers -> record, weights; calls; questions
//! ```
//!
//! The [judge] shares no code with the core. It says which promise is broken:
//!
//! | promise | judged by |
//! |---|---|
//! | S1 at most `limit` units | each server's log; holders, as callers were told, while no server forgets or jumps ahead |
//! | S2 a holder is told in time that its permit is lost | its process's clock, from the sending of what was answered last |
//! | S3 tokens increase | the tokens of answers and messages |
//! | S4 nobody touches another's, S5 a permit counts once | each unit and waiter that comes, goes or is prolonged |
//! | L1, L3 nothing is left behind | the servers when all claims are over: well before a lease could end, and after; and when a process has forgotten the last of its claims |
//! | L2 a release is sent at once, in the same instant if its key is full as far as the process knows, as is what a server may have lost with another lease | calls |
//! | F1 first come, first served | arrivals, as the judge counts them |
//! | F5 flows take turns | who has come when, and what one flow was granted while another waited, by a model without tags |
//! | F3 each claim is answered within its budget | the process's clock |
//! | F4 what has room does not wait | each server's queue after each script |
//! | the truth | answers of scripts, level by level, and what callers are told, also of what they have given up |
//! | its own | no claim is refused because of what its process has given up before |
//! | too early, a loss, a return | a loss is told at the end, or when the server has refused, and only if it was refused or the server was silent; a lost permit comes back where there is room |
//! | a pause | each server's log, and what it was asked for: nothing is granted until the end, nobody moves, and the next one polls then; answers and callers are told for how long that is, and only if their waits are shorter |
//! | revocations | the holder is told by the message, or by the server when it asks next; nothing of the id comes back |
//! | limits | what is acquired is under the limits that its process was told last; what waits under others is acquired anew at once; each process asks in time, and says what it knows |
//! | the calls | nothing for a claim that is over, none without work, a lease in one call at a time, none too large, 16 in flight at most, nothing due for ever |
//! | the levels, a dead waiter | a claim of several leases that waits holds nothing wider than what it waits for, and nothing for longer than a waiter counts as alive |
//! | slots | a command names semaphores of one slot; what has moved is asked where it is, once all can know |
//! | the share | what is admitted without a server, or granted while one is not well, is within the share of its process, and no other claim is refused for want of a server |
//! | strict | no strict claim is admitted, and none goes on without its server |
//! | a panic | no core panics |
//! | weights | where all is answered, servers hold what callers were told, unit by unit |
//! | a shutdown | all claims are refused, all permits told as lost, at once |
//! | memory | a core remembers nothing of what is over, and its queues name few leases that are |
//! | a question | an operator's question ends by its deadline, is answered while its servers are well, is not given up before its deadline, and runs once if a second run would answer otherwise; `usage` lists all that is held |
//!
//! It excuses what nobody can keep: a process that stands still tells nothing; a server that has lost data or
//! jumped ahead has forgotten its holders; one whose clock was set back runs an acquire after its end, holds longer
//! what nobody released because it had ended, mixes up head starts, and may repeat tokens if it is then set forward, as may one whose clock is set forward by some leases a moment after that
//! of another server of its cluster;
//! one that started with old data has again what was released; where another program has written over a key of a
//! semaphore, a permit that has lost it comes back as a whole or not at all, so its units of other semaphores are free a
//! moment before its holder is told; a server that does not report its time to a process gets nothing else from it. A flow may have lost a turn, and be passed meanwhile, if a call had more
//! waiters to look at behind claims that have left than it may.
//!
//! Does it see? Bugs are planted one at a time: in the core (`tests/sim/planted.sh` plants each and prints
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
//! There are nine [workloads](schedule::Workload): claims whose levels are on one server; on several, whose clocks
//! differ by up to 30 s and drift, and whose slots move, as may those of the store's own keys, or be stuck; on one that stands still while claims are admitted up to a
//! share; on several, single ones of which stand still, stop or refuse connections, while each process has a policy; on one
//! server or a cluster with claims of flows, weights and shares, a crowd of which waits for one key; on one server or a
//! cluster whose operators set limits of semaphores, of their policy, and of a lock, which none of them changes; and all of
//! these, by the seed, with processes that pause semaphores, by messages that come late, twice or not at all; on several,
//! with operators who list, revoke, pause and resume while slots move and answers are lost; and a mixture, mostly on several,
//! of limits, pauses, claims that wait at several levels, servers that forget their scripts, and servers that do not report
//! their time. Left out as yet: a server that Sentinels have replaced and that goes on taking writes.
//!
//! A schedule has 1 to 5 limits of 1 to 3 units, 8 to 40 claims of 1 to 3 levels, one in 64 a crowd of 70 to 150 claims
//! beside them; up to 8 faults; leases of 1, 3 or 20 s; up to 3 processes of up to 3 runtimes; one or two servers. A
//! cluster has 2 or 3, with all semaphores of a server in one slot or each in its own; of the latter three in four move up
//! to five slots, at once or within a second, half of them to servers with other clocks. In outages of a cluster slots move
//! from servers that are away, half of the time without their help, and the last server may have joined without any. In an
//! outage each server stands still for 0.7 to 2.2 s, and claims are admitted up to half of their limits, or up to the limit divided by the number
//! of processes; one level in eight is strict. Unless there is a cluster, in one of eight schedules Sentinels replace servers
//! by ones with the same or old data, and one of two connections leads for a while to the old one, which says that it is a
//! replica. In some of them replicas lag and take over. In one of eight of the
//! other schedules, unless slots move, another program writes over keys. In one of four schedules a subscription comes up to
//! 1.5 s after its connection. Unless there are outages, in half of the clusters in which each semaphore has a slot one to
//! three moves of slots of the store's own keys begin, at the start or later, some of which do not end.
//!
//! While a slot moves, servers answer as nodes do: a script whose keys are all there runs, and ends midway where it names one
//! that it has emptied; one of no key is sent elsewhere; and one of some is to be sent again, there too if it has several.

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
