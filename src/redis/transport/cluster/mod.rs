//! A cluster: its nodes, which keep their numbers, and the slots of each.
//!
//! A node is an address. It keeps its number for as long as the process lives, and a new address gets the next number.
//! Each node has separate connections, so a dead node affects only its own keys. The map of slots is read when a node
//! reports that another node has a slot, when a node cannot be reached or does not work, and every ten seconds. It is
//! read a few times in a second at most.

mod view;

use super::{
    address::Address,
    attempt::{self, Inquiry, timed_out},
    connection::Connection,
    endpoint::Endpoint,
    topology::{ServerRole, Topology, slot_of},
};
use crate::{
    redis::{error::CallError, fault::Unfit},
    semaphore::{
        BoxFuture,
        timer::{Backoff, timeout_at},
    },
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use proto::core::SlotRanges;
use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Handle, Id},
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use view::View;

/// The shortest pause between two surveys.
const PAUSE: Duration = Duration::from_millis(200);

/// How long a survey may take. It queries nodes for their views of the cluster.
const SURVEY_TIME: Duration = Duration::from_secs(1);

/// The number of nodes that are queried first. The first good view counts.
const FIRST_NODES: usize = 3;

/// The time after which all other nodes are queried too, because the first nodes may all be silent.
const FIRST_ALONE: Duration = Duration::from_millis(250);

/// The greatest age of the map. A change may go unnoticed, because a node that has left may be silent.
const MAX_AGE: Duration = Duration::from_secs(10);

/// See the module docs.
pub(in crate::redis) struct Nodes {
    /// Queried if no node answers, and at the start.
    seeds: Vec<Endpoint>,
    /// The settings for connections to a node, except for its address.
    template: Endpoint,
    map: Mutex<Map>,
    /// Notified after a failure, which may mean that slots have moved.
    doubted: Notify,
    created: Instant,
    surveys: Mutex<Surveys>,
}

/// The history of surveys, which determines the pause before the next one.
#[derive(Default)]
struct Surveys {
    backoff: Backoff,
    /// The version of the map before the last survey.
    version: u64,
    /// True if the last survey had to make connections.
    is_wide: bool,
}

#[derive(Default)]
struct Map {
    /// The nodes by number.
    nodes: Vec<Node>,
    slots: SlotRanges,
    /// The latest known epoch. Each failover begins a new epoch.
    epoch: u64,
    /// Grows with each change of `slots`. 0: nothing is known yet.
    version: u64,
}

struct Node {
    address: Address,
    /// The connection of each runtime, for as long as it is used.
    connections: HashMap<Id, Weak<Connection>>,
    /// The tenure of the node, which ends when it leaves the cluster.
    tenure: watch::Sender<()>,
}

impl Nodes {
    /// Learns the map of slots from the seeds, by the deadline.
    pub(in crate::redis) async fn find(
        seeds: Vec<Endpoint>,
        deadline: Instant,
    ) -> Result<Self, CallError> {
        let nodes = Self {
            template: seeds.first().cloned().ok_or_else(unknown_node)?,
            seeds,
            map: Mutex::default(),
            doubted: Notify::new(),
            created: Instant::now(),
            surveys: Mutex::default(),
        };
        nodes.survey(deadline, Inquiry::Run).await?;
        Ok(nodes)
    }

    /// Takes the best view that a node returns by the deadline. If no node has any slots, the map stays, so that a
    /// cluster that is being set up again is found at its old addresses.
    async fn survey(&self, deadline: Instant, inquiry: Inquiry) -> Result<(), CallError> {
        let view = self.best_view(deadline, inquiry).await?;
        if !view.ranges.is_empty() {
            self.map.lock().apply(&view);
        }
        Ok(())
    }

    /// Queries some nodes with a connection first. If none of them returns a good view in time, queries all other nodes
    /// and the seeds too. A view with an old epoch is not good, because its node may be cut off.
    async fn best_view(&self, deadline: Instant, inquiry: Inquiry) -> Result<View, CallError> {
        let (epoch, [mut first, others]) = self.queries(inquiry);
        let others = first
            .split_off(first.len().min(FIRST_NODES))
            .into_iter()
            .chain(others)
            .collect();
        let alone = deadline.min(Instant::now() + FIRST_ALONE);
        let (mut running, mut answers) = (FuturesUnordered::new(), Vec::new());
        for (is_wide, more, until) in [(false, first, alone), (true, others, deadline)] {
            self.surveys.lock().is_wide = is_wide;
            running.extend(more);
            loop {
                let view = match timeout_at(until, running.next()).await {
                    Ok(Some(view)) => view,
                    Err(late) if late.is_early => return Err(CallError::PausedClock),
                    Ok(None) | Err(_) => break,
                };
                let is_good = |view: &View| view.is_ok && view.epoch >= epoch;
                if view.as_ref().is_ok_and(is_good) {
                    return view;
                }
                answers.push(view);
            }
        }
        let best = answers.into_iter().max_by_key(rank);
        // An error is not final while other nodes have not answered, because they may have a view.
        let best = best.filter(|best| best.is_ok() || running.is_empty());
        best.unwrap_or_else(|| Err(timed_out()))
    }

    /// The latest epoch, and two lists of queries: to the nodes with a connection, and to all other nodes and seeds.
    fn queries(&self, inquiry: Inquiry) -> (u64, [Vec<ViewQuery>; 2]) {
        let (map, here) = (self.map.lock(), Handle::current().id());
        let (mut connected, mut others) = (Vec::new(), Vec::new());
        let primaries = map.primaries().into_iter();
        let nodes: Vec<_> = primaries.map(|number| &map.nodes[number]).collect();
        for node in &nodes {
            let own = node.connections.get(&here).and_then(Weak::upgrade);
            let queries = match own {
                Some(_) => &mut connected,
                None => &mut others,
            };
            queries.push(query_view(self.template.at(&node.address), own, inquiry));
        }
        let is_node = |seed: &&Endpoint| {
            let address = Address::from_info(seed.info());
            nodes
                .iter()
                .any(|node| Some(&node.address) == address.as_ref())
        };
        let seeds = self.seeds.iter().filter(|seed| !is_node(seed));
        others.extend(seeds.map(|seed| query_view(seed.clone(), None, inquiry)));
        (map.epoch, [connected, others])
    }

    /// The pause before the next survey. It grows while surveys have to make connections and change nothing.
    fn pause(&self) -> Duration {
        let (version, mut surveys) = (self.map.lock().version, self.surveys.lock());
        if version != surveys.version {
            *surveys = Surveys {
                version,
                ..Surveys::default()
            };
        }
        match surveys.is_wide {
            true => surveys.backoff.fail(self.created.elapsed()).max(PAUSE),
            false => PAUSE,
        }
    }
}

impl Map {
    fn primaries(&self) -> BTreeSet<usize> {
        self.slots.iter().map(|(_, number)| *number).collect()
    }

    /// Takes the slots of a view. The tenures of nodes that have lost all slots end.
    fn apply(&mut self, view: &View) {
        let before = self.primaries();
        let ranges = view.ranges.iter();
        let slots = ranges.map(|(slots, node)| (slots.clone(), self.number_of(node)));
        let mut slots: SlotRanges = slots.collect();
        slots.sort_by_key(|(range, _)| range.start);
        self.epoch = view.epoch;
        if slots != self.slots {
            (self.slots, self.version) = (slots, self.version + 1);
        }
        for number in before.difference(&self.primaries()) {
            self.nodes[*number].tenure = watch::Sender::default();
        }
    }

    /// The number of the node at an address. A new address gets the next number.
    fn number_of(&mut self, address: &Address) -> usize {
        let known = self.nodes.iter().position(|node| node.address == *address);
        known.unwrap_or_else(|| {
            self.nodes.push(Node {
                address: address.clone(),
                connections: HashMap::new(),
                tenure: watch::Sender::default(),
            });
            self.nodes.len() - 1
        })
    }
}

impl Topology for Nodes {
    fn role(&self) -> ServerRole {
        ServerRole::Node
    }

    fn servers(&self) -> Vec<usize> {
        self.map.lock().primaries().into_iter().collect()
    }

    fn slot(&self, key: &str) -> u16 {
        slot_of(key)
    }

    fn address(&self, server: usize) -> String {
        let map = self.map.lock();
        let node = map.nodes.get(server);
        node.map_or_else(String::new, |node| node.address.to_string())
    }

    fn connect(
        self: Arc<Self>,
        server: usize,
        inquiry: Inquiry,
    ) -> BoxFuture<Result<Arc<Connection>, CallError>> {
        Box::pin(async move {
            let (endpoint, tenure) = {
                let map = self.map.lock();
                let node = map.nodes.get(server).ok_or_else(unknown_node)?;
                (self.template.at(&node.address), node.tenure.subscribe())
            };
            let connection = attempt::connect(&endpoint, inquiry).await?;
            let connection = connection.during(tenure)?;
            let all = &mut self.map.lock().nodes[server].connections;
            all.retain(|_, other| other.strong_count() > 0);
            all.insert(Handle::current().id(), Arc::downgrade(&connection));
            Ok(connection)
        })
    }

    fn slots(&self) -> (u64, SlotRanges) {
        let map = self.map.lock();
        (map.version, map.slots.clone())
    }

    fn watch(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            sleep(self.pause()).await;
            let _ = timeout(MAX_AGE, self.doubted.notified()).await;
            // A failure is ignored: the call that made the survey necessary will fail again.
            let deadline = Instant::now() + SURVEY_TIME;
            let _ = self.survey(deadline, Inquiry::Skip).await;
        })
    }

    fn server_at(&self, address: &str, by: usize) -> Option<usize> {
        let mut map = self.map.lock();
        let host = map.nodes.get(by)?.address.host.clone();
        let address = Address::parse(address, &host)?;
        Some(map.number_of(&address))
    }

    fn note_failure(&self, error: &CallError) {
        let is_late = matches!(error, CallError::Timeout(_) | CallError::Unavailable(_));
        let codes = &["CLUSTERDOWN", "MOVED", "READONLY"];
        if is_late || error.is_disconnect() || error.is_code(codes) {
            self.doubted.notify_one();
        }
    }
}

/// The error of a cluster without a known node.
fn unknown_node() -> CallError {
    CallError::unconnected(io::Error::from(io::ErrorKind::NotConnected))
}

/// A running query for the view of a node.
type ViewQuery = BoxFuture<Result<View, CallError>>;

/// Queries a node for its view. Without a connection, makes one for this call only, because a seed may be a name for
/// all nodes together.
fn query_view(node: Endpoint, connection: Option<Arc<Connection>>, inquiry: Inquiry) -> ViewQuery {
    Box::pin(async move {
        let address = Address::from_info(node.info()).ok_or(CallError::Reply)?;
        let connection = match connection {
            Some(connection) => connection,
            None => Arc::new(attempt::connect(&node, inquiry).await?),
        };
        View::query(&connection, &address.host).await
    })
}

/// Ranks answers of nodes. The best is the newest view of a node that is not cut off. Without any view, an error that
/// may pass is better than another.
fn rank(answer: &Result<View, CallError>) -> (bool, bool, u64) {
    match answer {
        Ok(view) => (true, view.is_ok, view.epoch),
        Err(error) => (false, may_pass(error), 0),
    }
}

fn may_pass(error: &CallError) -> bool {
    let is_unfit =
        matches!(error, CallError::Unavailable(error) if Unfit::find_in(error).is_some());
    matches!(error, CallError::PausedClock) || !is_unfit && error.may_pass()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        let host = "here".to_owned();
        Address { host, port }
    }

    /// A view. Each range is its first slot, its last slot, and the port of its node.
    fn view(epoch: u64, ranges: &[(usize, usize, u16)]) -> View {
        let range = |&(first, last, port): &_| (first..last + 1, address(port));
        View {
            epoch,
            is_ok: true,
            ranges: ranges.iter().map(range).collect(),
        }
    }

    #[test]
    fn a_node_keeps_its_number_and_a_new_one_gets_the_next() {
        let mut map = Map::default();
        map.apply(&view(1, &[(100, 199, 2), (0, 99, 1)]));
        assert_eq!(map.slots, [(0..100, 1), (100..200, 0)]);
        // A replica takes the place of the first node, which comes back later.
        map.apply(&view(2, &[(0, 99, 1), (100, 199, 1_002)]));
        assert_eq!(map.slots, [(0..100, 1), (100..200, 2)]);
        map.apply(&view(3, &[(0, 149, 1), (150, 199, 2)]));
        assert_eq!(map.slots, [(0..150, 1), (150..200, 0)]);
        assert_eq!((map.version, map.epoch), (3, 3));
        map.apply(&view(4, &[(0, 149, 1), (150, 199, 2)]));
        assert_eq!(map.version, 3, "nothing has moved");
    }

    #[test]
    fn connections_to_a_node_without_slots_end_unless_it_never_had_any() {
        let mut map = Map::default();
        map.apply(&view(1, &[(0, 99, 1), (100, 199, 2)]));
        // A redirect has named this node, which has no slots yet.
        let without_slots = map.number_of(&address(3));
        let tenures = [0, 1, without_slots].map(|node| map.nodes[node].tenure.subscribe());
        let have_left = || {
            tenures
                .each_ref()
                .map(|tenure| tenure.has_changed().is_err())
        };
        map.apply(&view(2, &[(0, 199, 1)]));
        assert_eq!(have_left(), [false, true, false]);
        map.apply(&view(3, &[(0, 99, 1), (100, 199, 3)]));
        assert_eq!(have_left(), [false, true, false]);
    }
}
