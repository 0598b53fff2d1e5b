//! The way of commands to the nodes of their slots, also while slots move.
//!
//! A node that does not have a slot refuses the whole command and says where the slot is, so the
//! command is sent there at once. A slot that no node serves for the moment is its caller's business:
//! waiting here would delay the answers to what travels with it.

use super::{slot::slot_of_command, slot_map::Node, topology::Topology};
use crate::redis::{
    error::Error,
    transport::{address::Address, connection::Replies, contract::Terms},
};
use futures_util::future::join_all;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use std::{io, sync::Arc, time::Instant};

/// How often a command is sent elsewhere. While a slot moves two are usual: to the new node, and back.
const MAX_HOPS: usize = 5;

/// A command on its way.
struct Errand {
    /// Its place among the commands of the call.
    at: usize,
    slot: usize,
    command: Cmd,
    /// Where it is sent.
    node: Arc<Node>,
    /// The `ASK` of the slot's node, if the slot is still moving to this one. This one has to serve it all
    /// the same.
    ask: Option<Error>,
}

type Reply = Result<Value, Error>;

/// What became of an errand.
enum Outcome {
    Answered(Reply),
    /// It is sent again, and this is the reply if that was once too often.
    Elsewhere(Errand, Reply),
}

/// Sends each command to the node of its slot, and those of one node together. As many replies, in
/// their order.
pub(super) async fn send(
    topology: &Arc<Topology>,
    commands: Vec<Cmd>,
    terms: Terms,
) -> Result<Replies, Error> {
    let mut replies: Replies = vec![Err(nowhere()); commands.len()];
    let mut errands = errands(topology, commands);
    for _ in 0..=MAX_HOPS {
        let groups = by_node(errands);
        let groups = groups
            .into_iter()
            .map(|(node, errands)| send_together(topology, node, errands, terms));
        errands = Vec::new();
        for (at, outcome) in join_all(groups).await.into_iter().flatten() {
            match outcome {
                Outcome::Answered(reply) => replies[at] = reply,
                Outcome::Elsewhere(errand, reply) => {
                    replies[at] = reply;
                    errands.push(errand);
                }
            }
        }
        if errands.is_empty() {
            break;
        }
    }
    Ok(replies)
}

fn errands(topology: &Topology, commands: Vec<Cmd>) -> Vec<Errand> {
    let map = topology.map();
    let errands = commands
        .into_iter()
        .enumerate()
        .filter_map(|(at, command)| {
            let slot = slot_of_command(&command);
            let node = Arc::clone(map.node(slot)?);
            Some(Errand {
                at,
                slot,
                command,
                node,
                ask: None,
            })
        });
    errands.collect()
}

fn by_node(errands: Vec<Errand>) -> Vec<(Arc<Node>, Vec<Errand>)> {
    let mut groups: Vec<(Arc<Node>, Vec<Errand>)> = Vec::new();
    for errand in errands {
        let is_own = |(node, _): &&mut (Arc<Node>, _)| Arc::ptr_eq(node, &errand.node);
        match groups.iter_mut().find(is_own) {
            Some((_, group)) => group.push(errand),
            None => groups.push((Arc::clone(&errand.node), vec![errand])),
        }
    }
    groups
}

/// Sends errands to a node in one pipeline.
async fn send_together(
    topology: &Arc<Topology>,
    node: Arc<Node>,
    errands: Vec<Errand>,
    terms: Terms,
) -> Vec<(usize, Outcome)> {
    let commands = errands.iter().flat_map(|errand| {
        let asking = errand.ask.iter().map(|_| redis::cmd("ASKING"));
        asking.chain([errand.command.clone()])
    });
    let replies = match node.server.call(commands.collect(), terms).await {
        Ok(replies) => replies,
        Err(error) => return unreached(topology, &node, errands, &error, terms.deadline).await,
    };
    let mut replies = replies.into_iter();
    let answered = errands.into_iter().map(|errand| {
        // The reply to `ASKING` says nothing.
        let reply = replies.nth(usize::from(errand.ask.is_some()));
        let reply = reply.unwrap_or(Err(Error::Reply));
        (errand.at, answered(topology, &node, errand, reply))
    });
    answered.collect()
}

/// A node could not be reached, or has not answered. What was not sent goes to the node that has
/// replaced it, if one has. If the slot is still moving to this one, the slot's own node has answered.
async fn unreached(
    topology: &Arc<Topology>,
    node: &Arc<Node>,
    errands: Vec<Errand>,
    error: &Error,
    deadline: Instant,
) -> Vec<(usize, Outcome)> {
    match errands.first() {
        Some(first) if error.was_not_sent() => {
            topology.successor(first.slot, node, deadline).await;
        }
        _ => {
            topology.start_update();
        }
    }
    let next = |errand: &Errand| {
        let next = topology.node(errand.slot).filter(|_| error.was_not_sent());
        next.filter(|next| next.address != node.address)
    };
    let outcomes = errands.into_iter().map(|errand| {
        let outcome = match (&errand.ask, next(&errand)) {
            (Some(ask), _) if error.was_not_sent() => Outcome::Answered(Err(ask.clone())),
            (None, Some(node)) => Outcome::Elsewhere(Errand { node, ..errand }, Err(error.clone())),
            _ => Outcome::Answered(Err(error.clone())),
        };
        (errand.at, outcome)
    });
    outcomes.collect()
}

/// Follows a node that says where the slot is.
fn answered(topology: &Arc<Topology>, node: &Node, errand: Errand, reply: Reply) -> Outcome {
    let Err(error) = &reply else {
        return Outcome::Answered(reply);
    };
    if error.is_of_the_topology() {
        topology.start_update();
    }
    let next = match error {
        Error::Redis(error) => elsewhere(topology, node, errand.slot, error),
        _ => None,
    };
    let Some((node, is_asking)) = next else {
        return Outcome::Answered(reply);
    };
    let ask = is_asking.then(|| error.clone());
    let errand = Errand {
        node,
        ask,
        ..errand
    };
    Outcome::Elsewhere(errand, reply)
}

/// The node that an error names, and whether the slot is still moving there.
fn elsewhere(
    topology: &Topology,
    node: &Node,
    slot: usize,
    error: &RedisError,
) -> Option<(Arc<Node>, bool)> {
    let (address, _) = error.redirect_node()?;
    let address = Address::parse(address, &node.address.host)?;
    match error.kind() == ErrorKind::Server(ServerErrorKind::Ask) {
        true => Some((topology.moving(slot, &address)?, true)),
        false => Some((topology.moved(slot, &address)?, false)),
    }
}

/// No node is known.
pub(super) fn nowhere() -> Error {
    Error::Unavailable(io::Error::from(io::ErrorKind::NotConnected).into())
}
