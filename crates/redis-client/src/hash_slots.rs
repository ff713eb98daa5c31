//! Hash slots of a Cluster, and the map from slots to nodes.

use std::ops::RangeInclusive;
use std::sync::Arc;

use redis::Value;

use super::link::ServerLink;
use super::settings::Address;
use domain::clock::{self, Micros};

/// Number of hash slots of a Cluster.
const HASH_SLOTS: u16 = 16384;
/// Hash tags that are tried until every node has one.
const MAX_TAGS: u32 = 10_000;

/// The hash slot of a key: CRC-16/XMODEM of its hash tag, in braces, or of all of it when it has none, modulo 16384
/// (Redis Cluster specification).
pub fn hash_slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0)).filter(|tag| !tag.is_empty());
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key).as_bytes()) % HASH_SLOTS
}

/// Map from hash slots to links.
#[derive(Default)]
pub(super) struct HashSlotMap {
    /// Sorted by slot.
    ranges: Vec<LinkedRange>,
    /// Steady time at which a hash slot was last found on another server than before; 0 before the first time.
    moved: Micros,
}

struct LinkedRange {
    first: u16,
    last: u16,
    link: Arc<ServerLink>,
}

/// A range of hash slots and its primary, from the reply to `CLUSTER SLOTS`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) primary: Address,
}

impl HashSlotMap {
    /// One server for all hash slots.
    pub(super) fn with_one(link: Arc<ServerLink>) -> Self {
        Self { ranges: vec![LinkedRange { first: 0, last: u16::MAX, link }], moved: Micros(0) }
    }

    /// The map of a Cluster that follows this one, with the link to each primary.
    pub(super) fn updated(&self, mut ranges: Vec<SlotRange>, link_to: impl Fn(Address) -> Arc<ServerLink>) -> Self {
        ranges.sort_unstable_by_key(|range| range.first);
        let linked = |SlotRange { first, last, primary }| LinkedRange { first, last, link: link_to(primary) };
        let mut new = Self { ranges: ranges.into_iter().map(linked).collect(), moved: self.moved };
        if self.has_moved_slots(&new) {
            new.moved = clock::steady();
        }
        new
    }

    /// The link to the node that serves a hash slot, if one does.
    pub(super) fn link(&self, slot: u16) -> Option<Arc<ServerLink>> {
        let at = self.ranges.partition_point(|range| range.last < slot);
        self.ranges.get(at).filter(|range| range.first <= slot).map(|range| Arc::clone(&range.link))
    }

    /// Hash tags with their slots, one for each node that serves any; of one that serves very few there may be none.
    pub(super) fn tags(&self) -> Vec<(u16, String)> {
        let mut left: Vec<*const ServerLink> = self.links().map(Arc::as_ptr).collect();
        let mut tags = Vec::new();
        for tag in (0..MAX_TAGS).map(|number| number.to_string()) {
            let slot = hash_slot(&tag);
            let Some(node) = self.link(slot).map(|link| Arc::as_ptr(&link)).filter(|node| left.contains(node)) else {
                continue;
            };
            left.retain(|other| *other != node);
            tags.push((slot, tag));
            if left.is_empty() {
                break;
            }
        }
        tags
    }

    /// Steady time since which the server of a hash slot is not connected, or from which on another one than before was
    /// known to serve it: an outage of the slot began no earlier.
    pub(super) fn down_since(&self, slot: u16) -> Option<Micros> {
        Some(self.link(slot)?.down_since()?.max(self.moved))
    }

    /// The links of all ranges; a node with several ranges comes several times.
    pub(super) fn links(&self) -> impl Iterator<Item = &Arc<ServerLink>> {
        self.ranges.iter().map(|range| &range.link)
    }

    /// The hash slots of each node.
    pub(super) fn by_server(&self) -> Vec<Vec<RangeInclusive<u16>>> {
        let mut servers: Vec<(&Arc<ServerLink>, Vec<RangeInclusive<u16>>)> = Vec::new();
        for LinkedRange { first, last, link } in &self.ranges {
            match servers.iter_mut().find(|(other, _)| Arc::ptr_eq(other, link)) {
                Some((_, ranges)) => ranges.push(*first..=*last),
                None => servers.push((link, vec![*first..=*last])),
            }
        }
        servers.into_iter().map(|(_, ranges)| ranges).collect()
    }

    /// Returns whether a hash slot that was served by one node is served by another now. The first map that is learned
    /// differs from nothing.
    pub(super) fn has_moved_slots(&self, new: &Self) -> bool {
        let same = |(one, other): (&LinkedRange, &LinkedRange)| {
            (one.first, one.last, one.link.target()) == (other.first, other.last, other.link.target())
        };
        let unchanged = self.ranges.len() == new.ranges.len() && self.ranges.iter().zip(&new.ranges).all(same);
        !self.ranges.is_empty() && !unchanged
    }

    /// Returns whether every hash slot has a node whose link is up.
    pub(super) fn is_complete(&self) -> bool {
        self.covers_all() && self.ranges.iter().all(|range| range.link.is_up())
    }

    /// Returns whether every hash slot has a node, connected or not.
    pub(super) fn covers_all(&self) -> bool {
        let slots: u32 = self.ranges.iter().map(|range| u32::from(range.last) - u32::from(range.first) + 1).sum();
        slots >= u32::from(HASH_SLOTS)
    }
}

/// Parses the reply to `CLUSTER SLOTS`: for each range its first and last slot, its primary and its replicas. A node
/// without a host is the one that was asked.
pub(super) fn parse_slots(reply: &Value, asked: &Address) -> Option<Vec<SlotRange>> {
    let Value::Array(ranges) = reply else { return None };
    ranges.iter().map(|range| parse_range(range, asked)).collect()
}

fn parse_range(range: &Value, asked: &Address) -> Option<SlotRange> {
    let Value::Array(fields) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &**fields else { return None };
    let [host, Value::Int(port), ..] = &**primary else { return None };
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::SimpleString(host) => host.clone(),
        _ => String::new(),
    };
    let host = if host.is_empty() || host == "?" { asked.host.clone() } else { host };
    let primary = Address { host, port: u16::try_from(*port).ok()? };
    Some(SlotRange { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, primary })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    fn node(host: &str, port: i64) -> Value {
        let id = Value::BulkString(b"0123".to_vec());
        Value::Array(vec![Value::BulkString(host.into()), Value::Int(port), id])
    }

    #[test]
    fn hash_slots_match_those_of_a_cluster() {
        // `CLUSTER KEYSLOT 123456789` and the example of the specification.
        assert_eq!(hash_slot("123456789"), 0x31C3);
        assert_eq!(hash_slot("foo"), 12182);
        // The specification's examples of hash tags.
        assert_eq!(hash_slot("{user1000}.following"), hash_slot("user1000"));
        assert_eq!(hash_slot("foo{}{bar}"), crc16::State::<crc16::XMODEM>::calculate(b"foo{}{bar}") % HASH_SLOTS);
        assert_eq!(hash_slot("foo{{bar}}zap"), hash_slot("{bar"));
        assert_eq!(hash_slot("foo{bar}{zap}"), hash_slot("bar"));
    }

    #[test]
    fn slot_ranges_are_parsed() {
        let range =
            |first, last, primary| Value::Array(vec![Value::Int(first), Value::Int(last), primary, node("r", 9)]);
        let reply = Value::Array(vec![range(0, 5460, node("a", 1)), range(5461, 16383, node("", 2))]);
        let ranges = parse_slots(&reply, &address("asked", 7)).unwrap();
        assert_eq!(ranges[0], SlotRange { first: 0, last: 5460, primary: address("a", 1) });
        assert_eq!(ranges[1], SlotRange { first: 5461, last: 16383, primary: address("asked", 2) });
        assert_eq!(parse_slots(&Value::Nil, &address("asked", 7)), None);
        assert_eq!(parse_slots(&Value::Array(vec![Value::Int(1)]), &address("asked", 7)), None);
    }
}
