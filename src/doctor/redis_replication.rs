//! Judgement of a Redis server's replication: replicas, their lag, what a failover may undo, and how long a primary
//! goes on without replicas (split brain).

use super::finding::{Findings, rounded};
use state::redis::ServerDescription;

/// Seconds since a replica last confirmed: it does so once a second.
const LAG: u64 = 5;
/// Bytes that a replica may be behind: some seconds of decisions at full load.
const BEHIND: u64 = 16 << 20;

/// A replica, as the primary describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Replica {
    address: String,
    is_online: bool,
    behind: u64,
    lag: u64,
}

/// Judges replicas. `awaited` is the number that a change waits for.
pub(super) fn judge_replication(name: &str, server: &ServerDescription, awaited: u32, findings: &mut Findings) {
    let replicas = replicas(server);
    judge_number(name, replicas.len(), awaited, findings);
    for replica in &replicas {
        judge_replica(name, replica, findings);
    }
    if !replicas.is_empty() {
        judge_min_replicas(name, server.setting("min-replicas-to-write"), findings);
    }
}

fn replicas(server: &ServerDescription) -> Vec<Replica> {
    let sent = server.number("master_repl_offset");
    // slave0:ip=127.0.0.1,port=6380,state=online,offset=1234,lag=0
    let described = (0..server.number("connected_slaves")).map(|number| server.field(&format!("slave{number}")));
    described
        .map(|fields| {
            let field = |name: &str| {
                let found = fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
                found.unwrap_or_default()
            };
            Replica {
                address: format!("{}:{}", field("ip"), field("port")),
                is_online: field("state") == "online",
                behind: sent.saturating_sub(field("offset").parse().unwrap_or(0)),
                lag: field("lag").parse().unwrap_or(0),
            }
        })
        .collect()
}

fn judge_number(name: &str, connected: usize, awaited: u32, findings: &mut Findings) {
    let subject = format!("{name}: replicas");
    let found = format!("{connected} connected, state.redis.durability.replicas is {awaited}");
    if (awaited as usize) > connected {
        findings.error(subject, found, "connect as many replicas, or lower it: every change fails without them");
    } else if connected == 0 {
        let advice = "add a replica and Sentinel, or a Cluster, if the gateway must survive the loss of this server";
        findings.note(subject, found, advice);
    } else if awaited == 0 {
        let advice = "set state.redis.durability.replicas: 1: else a failover may undo acknowledged changes";
        findings.warning(subject, found, advice);
    } else {
        findings.ok(subject, found);
    }
}

fn judge_replica(name: &str, replica: &Replica, findings: &mut Findings) {
    let subject = format!("{name}: replica {}", replica.address);
    let found = format!("{} behind, last heard of {} s ago", rounded(replica.behind), replica.lag);
    let advice = "look at its log, its load and its network: a failover to it undoes what it lacks";
    if !replica.is_online {
        findings.warning(subject, "not in step yet", advice);
    } else if replica.lag > LAG || replica.behind > BEHIND {
        findings.warning(subject, found, advice);
    } else {
        findings.ok(subject, found);
    }
}

fn judge_min_replicas(name: &str, setting: Option<&str>, findings: &mut Findings) {
    let subject = format!("{name}: min-replicas-to-write");
    match setting {
        Some("0") => {
            let advice = "set min-replicas-to-write 1 and min-replicas-max-lag 10: a primary that is cut off then \
                          stops admitting requests that its successor admits as well";
            findings.warning(subject, "0", advice);
        }
        Some(number) => findings.ok(subject, number),
        None => findings.note(subject, "may not be read", "permit `config|get`, or look at redis.conf: it should be 1"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{self, Error, Note, Warning};
    use super::super::redis::tests::{server, worst};
    use super::*;

    #[test]
    fn replicas_are_judged() {
        let info = |state: &str, offset: &str, lag: &str| {
            let replica = format!("ip=10.0.0.2,port=6379,state={state},offset={offset},lag={lag}");
            server(
                &[("connected_slaves", "1"), ("slave0", &replica), ("master_repl_offset", "100000000")],
                Some(&[("min-replicas-to-write", "1")]),
            )
        };
        let judged = |server: &ServerDescription, awaited| worst(|f| judge_replication("r", server, awaited, f));
        assert_eq!(judged(&info("online", "99999999", "1"), 1), Severity::Ok);
        assert_eq!(judged(&info("online", "99999999", "1"), 0), Warning);
        assert_eq!(judged(&info("online", "99999999", "1"), 2), Error);
        assert_eq!(judged(&info("online", "99999999", "6"), 1), Warning);
        assert_eq!(judged(&info("online", "80000000", "0"), 1), Warning);
        assert_eq!(judged(&info("wait_bgsave", "99999999", "0"), 1), Warning);
        assert_eq!(judged(&server(&[("connected_slaves", "0")], None), 0), Note);
        assert_eq!(judged(&server(&[("connected_slaves", "0")], None), 1), Error);
    }

    #[test]
    fn min_replicas_are_judged() {
        for (setting, expected) in [(Some("0"), Warning), (Some("1"), Severity::Ok), (None, Note)] {
            assert_eq!(worst(|findings| judge_min_replicas("r", setting, findings)), expected);
        }
    }
}
