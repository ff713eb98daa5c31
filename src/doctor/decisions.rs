//! Check of the listeners for decisions: keys that travel readably, and what the proxies that ask must see to.

use std::net::IpAddr;

use ipnet::IpNet;

use super::finding::Findings;
use crate::config::Listener;
use crate::gateway::{DecisionProtocol, DecisionSettings, DecisionSlots};

/// Judges the listeners that decide for other proxies.
pub(super) fn judge(listeners: &[Listener], findings: &mut Findings) {
    for listener in listeners {
        if let Some(decisions) = &listener.decisions {
            judge_listener(listener, decisions, findings);
        }
    }
}

fn judge_listener(listener: &Listener, decisions: &DecisionSettings, findings: &mut Findings) {
    let subject = format!("listener {}", listener.address);
    let elsewhere = decisions.peers.iter().find(|network| !is_loopback(network));
    if let Some(network) = elsewhere.filter(|_| listener.tls.is_none()) {
        let found = format!("proxies of {network} ask over plain HTTP");
        findings.warning(&*subject, found, "add `tls`: the questions have the keys of clients, readable on the way");
    }
    findings.note(
        &*subject,
        "decides on the request that the proxy shows: a path that is rewritten later was not decided",
        "let the proxy rewrite before it asks, or only to paths that every admitted caller may reach",
    );
    if decisions.protocol == DecisionProtocol::Envoy && decisions.slots == DecisionSlots::Stream {
        findings.note(
            subject,
            "Envoy refuses exchanges beyond the `max_requests` of its cluster, 1,024 by default",
            "raise it in the circuit breaker of the cluster of keygate, as deploy/proxies/envoy-ext-proc.yaml does",
        );
    }
}

/// Returns whether all addresses of a network are of this machine.
fn is_loopback(network: &IpNet) -> bool {
    match network {
        IpNet::V4(network) => network.network().is_loopback() && network.prefix_len() >= 8,
        IpNet::V6(network) => IpAddr::V6(network.network()).to_canonical().is_loopback() && network.prefix_len() == 128,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::finding::Severity::{Note, Warning};
    use super::*;
    use crate::config::Config;

    #[test]
    fn listener_for_decisions_is_judged_by_its_peers_and_its_slots() {
        let judged = |decisions: &str| {
            let text = format!(
                "listen: [{{ address: 127.0.0.1:8090, serves: decisions, decisions: {{ {decisions} }} }}]\n\
                 admin: {{ socket: admin.sock }}\n\
                 state: {{ embedded: {{ path: state.db }} }}\n\
                 audit: {{ path: audit }}\n"
            );
            let config = Config::parse(Path::new("keygate.yaml"), &text).unwrap();
            let mut findings = Findings::new("listeners");
            judge(&config.listen, &mut findings);
            findings.problems().into_iter().map(|(severity, _)| severity).collect::<Vec<_>>()
        };
        assert_eq!(judged("protocol: nginx, slots: none"), [Note], "a rewrite is the operator's");
        assert_eq!(judged("protocol: envoy, slots: none"), [Note]);
        assert_eq!(judged("protocol: envoy, slots: stream"), [Note, Note], "the circuit breaker");
        let cases = [("127.0.0.1, '::1'", 0), ("127.0.0.0/8", 0), ("127.0.0.1, 10.0.0.0/8", 1), ("'::/32'", 1)];
        for (peers, warnings) in cases {
            let severities = judged(&format!("protocol: nginx, slots: none, peers: [{peers}]"));
            assert_eq!(severities.iter().filter(|severity| **severity == Warning).count(), warnings, "{peers}");
        }
    }
}
