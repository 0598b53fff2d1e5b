//! The view that one node has of the cluster.

use crate::redis::{
    error::CallError,
    transport::{
        address::Address,
        connection::{Connection, Replies, field},
        topology::SLOTS,
    },
};
use redis::{Value, cmd};
use std::ops::Range;

/// A node's view of the cluster.
#[derive(Debug)]
pub(super) struct View {
    /// The latest epoch that the node knows: each failover begins a new one.
    pub(super) epoch: u64,
    /// True if the node can reach most of the others, and serves claims.
    pub(super) is_ok: bool,
    /// Slots, and the primary that has them.
    pub(super) ranges: Vec<(Range<usize>, Address)>,
}

impl View {
    /// Queries the node on `host` for its view.
    pub(super) async fn query(node: &Connection, host: &str) -> Result<Self, CallError> {
        let commands = ["INFO", "SLOTS"].map(|name| cmd("CLUSTER").arg(name).take());
        Self::read(node.call(commands.into()).await, host)
    }

    fn read(replies: Replies, host: &str) -> Result<Self, CallError> {
        let mut replies = replies.into_iter();
        let (Some(info), Some(slots)) = (replies.next(), replies.next()) else {
            return Err(CallError::Reply);
        };
        let Value::Array(ranges) = slots? else {
            return Err(CallError::Reply);
        };
        // A service may forbid `CLUSTER INFO`.
        let info = info.ok().and_then(text).unwrap_or_default();
        let epoch = field(&info, "cluster_current_epoch").and_then(|epoch| epoch.parse().ok());
        let ranges = ranges.iter().map(|range| self::range(range, host));
        Ok(Self {
            epoch: epoch.unwrap_or_default(),
            is_ok: field(&info, "cluster_state").is_none_or(|state| state == "ok"),
            ranges: ranges.collect::<Option<_>>().ok_or(CallError::Reply)?,
        })
    }
}

fn range(range: &Value, host: &str) -> Option<(Range<usize>, Address)> {
    let [Value::Int(first), Value::Int(last), primary, ..] = range.as_sequence()? else {
        return None;
    };
    let [first, last] = [*first, *last].map(|slot| usize::try_from(slot).ok());
    let (first, last) = (first?, last.filter(|last| *last < SLOTS)?);
    (first <= last).then_some((first..last + 1, address(primary, host)?))
}

/// The address of a node. Without a host, the node is on the host that answers. The host `?` means that its name is
/// unknown, and that a further field has its IP address.
fn address(node: &Value, host: &str) -> Option<Address> {
    let [own, Value::Int(port), rest @ ..] = node.as_sequence()? else {
        return None;
    };
    let host = match text(own.clone()) {
        Some(unknown) if unknown == "?" => ip_of(rest.get(1)?)?,
        Some(own) if !own.is_empty() => own,
        _ => host.to_owned(),
    };
    let port = u16::try_from(*port).ok()?;
    Some(Address { host, port })
}

/// The IP address among a node's further fields.
fn ip_of(fields: &Value) -> Option<String> {
    let mut fields = fields.as_map_iter()?;
    let (_, ip) = fields.find(|(name, _)| text((*name).clone()).as_deref() == Some("ip"))?;
    text(ip.clone())
}

fn text(value: Value) -> Option<String> {
    redis::from_redis_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn view(node: Vec<Value>) -> Result<View, CallError> {
        let info = bulk("cluster_state:fail\r\ncluster_current_epoch:7\r\n");
        let range = vec![Value::Int(0), Value::Int(99), Value::Array(node)];
        let slots = Value::Array(vec![Value::Array(range)]);
        View::read(vec![Ok(info), Ok(slots)], "here")
    }

    fn host(node: Vec<Value>) -> String {
        view(node).expect("it is a view").ranges[0].1.host.clone()
    }

    #[test]
    fn a_view_has_an_epoch_a_state_and_ranges() {
        let view = view(vec![bulk("10.0.0.1"), Value::Int(7_001)]).expect("it is a view");
        assert!(view.epoch == 7 && !view.is_ok);
        assert_eq!(view.ranges[0].0, 0..100);
    }

    #[test]
    fn a_node_that_does_not_know_its_name_is_found_all_the_same() {
        let port = Value::Int(7_001);
        let fields = Value::Array(vec![bulk("ip"), bulk("10.0.0.2")]);
        assert_eq!(host(vec![bulk(""), port.clone()]), "here");
        assert_eq!(host(vec![Value::Nil, port.clone()]), "here");
        assert_eq!(host(vec![bulk("?"), port, bulk("id"), fields]), "10.0.0.2");
    }

    #[test]
    fn a_view_with_slots_that_no_cluster_has_is_an_error() {
        let node = || vec![bulk("here"), Value::Int(7_001)];
        for (first, last) in [(-1, 5), (7, 5), (0, 16_384), (0, i64::MAX)] {
            let range = vec![Value::Int(first), Value::Int(last), Value::Array(node())];
            let slots = Value::Array(vec![Value::Array(range)]);
            let view = View::read(vec![Ok(Value::Nil), Ok(slots)], "here");
            assert!(view.is_err(), "{first} to {last}: {view:?}");
        }
    }

    #[test]
    fn replies_that_are_no_view_are_an_error() {
        assert!(view(vec![]).is_err());
        assert!(View::read(vec![Ok(Value::Nil), Ok(Value::Nil)], "here").is_err());
        assert!(View::read(vec![], "here").is_err());
    }
}
