//! The slots of a Cluster: which node has which, and following them when they move.
//!
//! Asked for when a node says `MOVED` or `CLUSTERDOWN`, when a link goes down, and now and then.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Value, cmd};
use tokio::time::{sleep, timeout};

use super::connect::Target;
use super::link::{Link, Message, jittered};
use super::{Common, Inner, Servers};
use crate::state::redis::settings::Address;

/// How often the slots are asked for without a reason.
const NOW_AND_THEN: Duration = Duration::from_secs(10);
/// How long to wait between two questions while something is amiss: a failover is noticed soon after it is over.
const AMISS: Duration = Duration::from_millis(100);

/// Which link leads to which slots.
#[derive(Default)]
pub(super) struct Slots(Vec<Range>);

struct Range {
    first: u16,
    last: u16,
    link: Arc<Link>,
}

/// A range of slots and its primary, as a node tells.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    first: u16,
    last: u16,
    primary: Address,
}

impl Slots {
    /// One server for all.
    pub(super) fn one(link: Arc<Link>) -> Self {
        Self(vec![Range { first: 0, last: u16::MAX, link }])
    }

    /// The link to the node that has the slot, if any has.
    pub(super) fn link(&self, slot: u16) -> Option<Arc<Link>> {
        let at = self.0.partition_point(|range| range.last < slot);
        self.0.get(at).filter(|range| range.first <= slot).map(|range| Arc::clone(&range.link))
    }

    /// Whether a slot that was somewhere is somewhere else.
    fn differ(&self, from: &Self) -> bool {
        let same = |(one, other): (&Range, &Range)| {
            (one.first, one.last, one.link.target()) == (other.first, other.last, other.link.target())
        };
        let unchanged = self.0.len() == from.0.len() && self.0.iter().zip(&from.0).all(same);
        !self.0.is_empty() && !unchanged
    }

    pub(super) fn complete(&self) -> bool {
        self.0.iter().map(|range| u32::from(range.last) - u32::from(range.first) + 1).sum::<u32>() >= 16384
            && self.0.iter().all(|range| range.link.is_up())
    }
}

/// Follows the slots for as long as the servers are used.
pub(super) async fn follow(servers: Weak<Inner>, common: Arc<Common>) {
    let mut changed = common.changed.subscribe();
    loop {
        let pause = match servers.upgrade().map(Servers) {
            None => return,
            Some(_) if !common.is_cluster() => Duration::MAX,
            Some(servers) => {
                servers.learn().await;
                if servers.0.slots.load().complete() { NOW_AND_THEN } else { AMISS }
            }
        };
        // That it is time, or that something changed, is a reason to ask again; the sender lives as long as `common`.
        if pause == Duration::MAX {
            let _ = changed.changed().await;
        } else {
            let _ = timeout(jittered(pause), changed.changed()).await;
            sleep(AMISS / 4).await;
        }
    }
}

impl Servers {
    /// Asks the nodes, one after the other, which slots are where.
    async fn learn(&self) {
        let mut links = self.all_links();
        links.retain(|link| link.is_up());
        // Another one first each time: one that is cut off from the others knows only what was.
        let first = self.0.asked.fetch_add(1, Ordering::Relaxed) % links.len().max(1);
        links.rotate_left(first);
        for link in links {
            let Target::Server(asked) = link.target() else { continue };
            let mut question = cmd("CLUSTER");
            question.arg("SLOTS");
            let message = Message { command: &question, asking: false, durability: None };
            if let Ok((answer, _)) = link.send(message).await
                && let Some(told) = read(&answer, asked)
                && !told.is_empty()
            {
                return self.adopt(told);
            }
        }
    }

    fn adopt(&self, mut told: Vec<Told>) {
        told.sort_unstable_by_key(|range| range.first);
        let ranges = told.into_iter().map(|Told { first, last, primary }| Range {
            first,
            last,
            link: self.link_to(Target::Server(primary)),
        });
        let slots = Slots(ranges.collect());
        if self.0.slots.load().differ(&slots) {
            self.0.common.succeeded();
        }
        let used: Vec<Target> = slots.0.iter().map(|range| range.link.target().clone()).collect();
        self.0.slots.store(Arc::new(slots));
        self.keep_only(&used);
    }
}

/// The answer to `CLUSTER SLOTS`: for each range its first and last slot, its primary and its replicas. A node without
/// a host is the one that was asked.
fn read(answer: &Value, asked: &Address) -> Option<Vec<Told>> {
    let Value::Array(ranges) = answer else { return None };
    ranges.iter().map(|range| told(range, asked)).collect()
}

fn told(range: &Value, asked: &Address) -> Option<Told> {
    let Value::Array(fields) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &**fields else { return None };
    let [host, Value::Int(port), ..] = &**primary else { return None };
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::SimpleString(host) => host.clone(),
        _ => String::new(),
    };
    let host = if host.is_empty() || host == "?" { asked.host.clone() } else { host };
    let port = u16::try_from(*port).ok()?;
    Some(Told { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, primary: Address { host, port } })
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
    fn reads_what_nodes_tell() {
        let range =
            |first, last, primary| Value::Array(vec![Value::Int(first), Value::Int(last), primary, node("r", 9)]);
        let answer = Value::Array(vec![range(0, 5460, node("a", 1)), range(5461, 16383, node("", 2))]);
        let told = read(&answer, &address("asked", 7)).unwrap();
        assert_eq!(told[0], Told { first: 0, last: 5460, primary: address("a", 1) });
        assert_eq!(told[1], Told { first: 5461, last: 16383, primary: address("asked", 2) });
        assert_eq!(read(&Value::Nil, &address("asked", 7)), None);
        assert_eq!(read(&Value::Array(vec![Value::Int(1)]), &address("asked", 7)), None);
    }
}
