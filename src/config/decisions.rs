//! The block `decisions` of a listener: which proxies ask, how, and what becomes of slots.

use std::time::Duration;

use ipnet::IpNet;

use super::networks::networks;
use crate::gateway::{DecisionProtocol, DecisionSettings, DecisionSlots};
use platform::settings::{Reported, Section, Value};

/// Networks from which proxies may ask unless others are named: this machine.
const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];
/// Shortest prefixes of networks of proxies, of IPv4 and of IPv6.
const WIDEST: (u8, u8) = (8, 32);
/// Times for which slots can be held: longer ones would refuse most requests, whatever became of the first.
const LEASE: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// Reads the block `decisions`.
pub(super) fn decisions(section: &mut Section<'_>) -> Result<DecisionSettings, Reported> {
    let protocol = section.required("protocol", protocol);
    let local = || LOOPBACK.map(|network| network.parse().expect("a constant")).to_vec();
    let peers = section.value_or_else("peers", local, peers);
    let slots = section.required("slots", slots);
    let protocol = protocol?;
    let slots = slots?;
    if slots == DecisionSlots::Stream && protocol != DecisionProtocol::Envoy {
        section.report("slots", "stream is for `protocol: envoy`, by ext_proc; give `none` or `{ lease: 30s }`");
    }
    Ok(DecisionSettings { protocol, peers, slots })
}

/// Reads the protocol of the proxies that ask.
fn protocol(value: &Value<'_>) -> Result<DecisionProtocol, Reported> {
    if value.text()? == "envoy_http" {
        return value.reject(
            "`envoy_http` is no protocol any more: give envoy, and let Envoy ask by gRPC, as \
             deploy/proxies/envoy-ext-authz.yaml does",
        );
    }
    value.choice(&[
        ("nginx", DecisionProtocol::Nginx),
        ("forward_auth", DecisionProtocol::ForwardAuth),
        ("envoy", DecisionProtocol::Envoy),
    ])
}

/// Reads networks of proxies, which are believed on the address of the client.
fn peers(value: &Value<'_>) -> Result<Vec<IpNet>, Reported> {
    let peers = networks(value)?;
    let is_wide = |network: &&IpNet| match network {
        IpNet::V4(network) => network.prefix_len() < WIDEST.0,
        IpNet::V6(network) => network.prefix_len() < WIDEST.1,
    };
    match peers.iter().find(is_wide) {
        Some(network) => value.reject(format_args!(
            "{network} is wider than /{} (IPv4) or /{} (IPv6): clients in it could ask as a proxy; list the addresses \
             of your proxies",
            WIDEST.0, WIDEST.1
        )),
        None if peers.is_empty() => value.reject("is empty; list the addresses of your proxies"),
        None => Ok(peers),
    }
}

/// Reads `stream`, `none`, or `{ lease: TIME }`.
fn slots(value: &Value<'_>) -> Result<DecisionSlots, Reported> {
    if value.is_block() {
        let lease = value.section(|section| section.required("lease", |value| value.duration(LEASE)))?;
        return Ok(DecisionSlots::Lease(lease));
    }
    value.choice(&[("stream", DecisionSlots::Stream), ("none", DecisionSlots::None)])
}
