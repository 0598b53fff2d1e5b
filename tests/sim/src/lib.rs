//! A simulation of what tower-semaphore does over Redis, without real time.
//!
//! Some processes call servers. Each process runs the shipped core (`proto`), and has its own clock and some runtimes.
//! Each server runs the shipped scripts in Lua 5.1, over the stand-in for Redis of the [model]. Everything in between
//! can fail:
//!
//! - Connections delay, stall and break. They lose the answer to a call that has run, and deliver calls that were sent
//!   long ago.
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
//! The [judge] shares no code with the core. It reports which promise is broken, by the first words of a row. The
//! numbers are those of the [model]:
//!
//! | promise | judged by |
//! |---|---|
//! | S1 at most `limit` units are held | each server's log; the permits that callers hold, while no server loses data or jumps ahead |
//! | S2 a holder is notified in time that its permit is lost | its process's clock, counted from the sending of the last answered call |
//! | S3 tokens increase | the tokens of answers and messages |
//! | S4 no process touches the permits of others, S5 a permit counts once | each unit and waiter that a script adds, removes or prolongs |
//! | L1, L3 nothing is left behind | the servers' data when all claims are over, both before and after leases end by themselves, and when a process has forgotten its last claim |
//! | L2 a release is sent within some ms, and in the same instant if the process knows that its key is full; so are refreshes after a server has lost another lease | the calls |
//! | F1 first come, first served | the order of arrivals, as the judge sees them |
//! | F5 flows take turns | the order of arrivals, and the grants to one flow while another waited; the judge does not compute tags |
//! | F3 each claim is answered within its wait and two timeouts | the process's clock |
//! | F4 a claim that has room does not wait | each server's queue after each script |
//! | the truth: answers and events report what is so | answers of scripts, level by level, and the events for callers, also for permits that they have given up |
//! | its own | no claim is refused because of units that its own process has given up before |
//! | too early, a loss, a return | a loss is reported when the permit ends or the server has refused it, not before, and only if the server refused or was silent; a lost permit comes back if the limit has room |
//! | a pause | each server's log, and the calls to it: nothing is granted and no waiter moves until the pause ends, and the first waiter polls then; answers and refusals name the rest of the pause, and callers are refused only if their waits end earlier |
//! | a revocation | the holder is notified by the message, or by the server at the next call; nothing of the id comes back |
//! | limits | claims are acquired under the limits that their process received last; claims that wait under other limits are acquired again at once; each process asks in time, and names the version that it knows |
//! | the calls, work, size, flow, one call, an end, ids, busy | no call for a claim that is over, none without work, none too large, a lease in one call at a time, at most 16 in flight; and no process that always has something due |
//! | the levels, a dead waiter | a waiting claim of several leases (each has the neighbouring levels that one script may name) holds nothing wider than the level at which it waits, and nothing for longer than a waiter counts as alive |
//! | slots | a command names semaphores of one slot; a process that knows of a move sends commands to the new server |
//! | the share | claims that are admitted without a server, or granted while one is unavailable, fit into the share of their process; no claim that fits is refused as unavailable |
//! | strict | no strict claim is admitted without its server, and no strict permit goes on without it |
//! | a panic | no core panics |
//! | weights | once a process has all answers, servers hold exactly the units that its callers have |
//! | a shutdown | all claims are refused, and all permits reported as lost, at once |
//! | memory | in the end, a core remembers nothing that is over; while a server does not report its time, the core's queues name few finished leases |
//! | budgets | each server's log, by separate arithmetic: the spent, reserved and settled units after each script, their sum at each grant, and the bound on used units over any time; each permit's use counts once; the first waiter is notified once it fits, and is granted soon; in the end nothing is reserved, and all units have come back |
//! | a question | an operator's question ends by its deadline, is answered while its servers are well, is not given up before its deadline, and runs once if a second run would answer otherwise; `usage` lists all units that are held |
//!
//! The judge excuses faults that no core can prevent:
//!
//! - A process that is suspended reports nothing in time.
//! - A server that has lost data or jumped ahead has forgotten its holders.
//! - A server whose clock was set back runs acquires that are over, and mixes up the order of claims with head starts.
//!   Units that had ended by its old clock, so that no process released them, are held again.
//! - A server may repeat tokens if its clock is set back and then forward, or if its clock is set forward by several
//!   times the lease just after another server's clock was.
//! - A server that starts with old data holds units again that were released.
//! - If another program has overwritten a key of a semaphore, a permit that has lost units there comes back as a whole
//!   or not at all. So its units of other semaphores may be free a moment before its holder is notified.
//! - Before a server has reported its time, a process sends nothing else to it, so it releases nothing there.
//! - If claims leave a queue and more waiters of their flow are behind them than one call may move up, the flow may
//!   lose a turn.
//!
//! Does the judge see bugs? They are planted one at a time: in the core (`tests/sim/planted.sh` plants each and prints
//! after how many schedules it is found) and in the scripts (`tests/simulation.rs`). `tests/sim/planted.md` lists them.
//!
//! ```text
//! cargo test -p tower-semaphore-sim
//! SCHEDULES=100000 cargo test --release -p tower-semaphore-sim passes
//! SEED=7 cargo test -p tower-semaphore-sim one
//! WORKLOAD=cluster-outage SEED=7 cargo test -p tower-semaphore-sim one
//! tests/sim/planted.sh "a return is not reported"
//! ```
//!
//! The simulation has ten [workloads](schedule::Workload):
//!
//! - `server`: the levels of a claim are on one server.
//! - `cluster`: the levels are on several servers, whose clocks differ by up to 30 s and drift. Slots move. Slots of
//!   the store's own keys may move too, or be stuck in a move.
//! - `outage`: the levels are on one server, which stalls. In that time, claims are admitted up to a share.
//! - `cluster-outage`: the levels are on several servers. Some of these stall, stop or refuse connections, and each
//!   process has a policy for claims in that time.
//! - `fair`: on one server or a cluster, claims have flows, weights and shares, and a crowd of them waits for one key.
//! - `limits`: on one server or a cluster, operators set limits of semaphores and of their policy. Claims of a lock are
//!   not affected.
//! - `pauses`: one of the workloads above, by the seed. Processes pause semaphores by messages that come late, twice or
//!   not at all.
//! - `questions`: on several servers, operators list, revoke, pause and resume while slots move and answers are lost.
//! - `mixed`: a mixture, mostly on several servers, of limits, pauses, claims that wait at several levels, servers that
//!   forget their scripts, and servers that do not report their time, because the process may not run that script.
//! - `budgets`: one of the first four or `limits`, by the seed. Claims have budgets with windows of 53 ms to 3 s in
//!   addition to limits. Holders settle what they use, which is more than they have estimated in a third of the
//!   schedules. In a third nothing fails. Only the judge of budgets watches. It also checks S1, F3, F4 and L1.
//!
//! Not simulated yet: a server that Sentinels have replaced and that still takes writes.
//!
//! A schedule has 1 to 5 limits of 1 to 3 units, and 8 to 40 claims of 1 to 3 levels. In one schedule in 64, a crowd of
//! 70 to 150 claims is added. A schedule has up to 8 faults, leases of 1, 3 or 20 s, up to 3 processes of up to 3
//! runtimes, and one or two servers. In detail:
//!
//! - A cluster has 2 or 3 servers, with all semaphores of a server in one slot, or each in a separate slot. With
//!   separate slots, three schedules in four move up to five slots, at once or within a second. In half of these, the
//!   servers have different clocks.
//! - In outages of a cluster, slots move away from servers that do not run. In half of the schedules, their keys then
//!   come from a replica. The last server may have joined without any slots.
//! - In an outage, each server stalls for 0.7 to 2.2 s. Claims are admitted up to half of their limits, or up to the
//!   limit divided by the number of processes. One level in eight is strict.
//! - Unless the servers are a cluster, in one of eight schedules Sentinels replace servers by others with the same or
//!   old data. For a while, every second connection leads to the old server, which reports that it is a replica.
//! - In some schedules without a cluster or outages, replicas lag and take over.
//! - In one of eight schedules without outages or separate slots, another program overwrites keys.
//! - In one of four schedules, a subscription comes up to 1.5 s after its connection.
//! - In half of the clusters with separate slots and without outages, one to three slots of the store's own keys begin
//!   to move, at the start or later. Some of these moves do not end.
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
