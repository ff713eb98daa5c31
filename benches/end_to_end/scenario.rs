//! The scenarios: circumstances in which the gateway and its peers do the job.

use crate::load::Shape;
use crate::peers::{Frontend, Peer};

/// One row of circumstances.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) peers: &'static [Peer],
    /// The peer that all are compared with, where it is installed.
    reference: Peer,
    pub(crate) cores: Cores,
    pub(crate) workers: usize,
    pub(crate) frontend: Frontend,
    /// True when the rate is counted in a Redis, by one script call for each request.
    pub(crate) redis: bool,
    pub(crate) shape: Shape,
    /// Rate of an open loop, as a share of the reference's rate when it is saturated. None: a closed loop, in which
    /// each connection sends its next request when it has the answer.
    pub(crate) open_loop: Option<f64>,
    pub(crate) connections: usize,
    /// Requests in flight on each connection; more than one with HTTP/2 only.
    pub(crate) streams: usize,
    /// Requests of each peer in each round: about a second.
    pub(crate) requests: usize,
    /// Size at which the gateway closes a segment of its journal, and packs it.
    pub(crate) segment: &'static str,
}

impl Scenario {
    /// The peer that all are compared with: without the intended one the smallest proxy, which is always there.
    pub(crate) fn reference(&self) -> Peer {
        if self.reference.is_installed() { self.reference } else { Peer::Hyper }
    }
}

/// Cores of the processes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cores {
    /// Proxy, load, upstream and Redis share one core.
    One,
    /// The proxy has a core of its own, and the others share another one.
    OwnForProxy,
    /// All share two cores.
    Two,
}

/// Values of most scenarios.
const LOCAL: Scenario = Scenario {
    name: "one request in flight",
    peers: &[Peer::Keygate, Peer::NginxLua, Peer::Hyper, Peer::Haproxy],
    reference: Peer::Haproxy,
    cores: Cores::One,
    workers: 1,
    frontend: Frontend::Plain,
    redis: false,
    shape: Shape::Small,
    open_loop: None,
    connections: 1,
    streams: 1,
    requests: 40_000,
    segment: "64MiB",
};

/// Values of those in which segments are closed: two or more in each round.
const CLOSES: Scenario =
    Scenario { peers: &[Peer::Keygate, Peer::Haproxy], requests: 80_000, segment: "8MiB", ..LOCAL };

/// Values of those in an open loop.
const OPEN_LOOP: Scenario = Scenario {
    peers: &[Peer::Keygate, Peer::Hyper, Peer::Haproxy],
    cores: Cores::OwnForProxy,
    connections: 256,
    requests: 60_000,
    ..LOCAL
};

/// The peers of the scenarios with Redis.
const WITH_REDIS: &[Peer] = &[Peer::Keygate, Peer::NginxLua, Peer::Hyper, Peer::Pingora];

/// Those of the figures, in their order.
pub(crate) const SCENARIOS: &[Scenario] = &[
    LOCAL,
    Scenario { name: "64 connections", cores: Cores::OwnForProxy, connections: 64, ..LOCAL },
    Scenario { name: "two workers, 64 connections", cores: Cores::Two, workers: 2, connections: 64, ..LOCAL },
    Scenario { name: "open loop, half of saturation", open_loop: Some(0.5), ..OPEN_LOOP },
    Scenario { name: "open loop, 80 % of saturation", open_loop: Some(0.8), ..OPEN_LOOP },
    Scenario { name: "closed segments, one request in flight", ..CLOSES },
    Scenario { name: "closed segments, 64 connections", cores: Cores::OwnForProxy, connections: 64, ..CLOSES },
    Scenario {
        name: "synced audit, one request in flight",
        peers: &[Peer::KeygateSynced, Peer::Haproxy],
        requests: 4_000,
        ..LOCAL
    },
    Scenario {
        name: "smallest proxies, one request in flight",
        peers: &[Peer::Direct, Peer::Hyper],
        reference: Peer::Hyper,
        ..LOCAL
    },
    Scenario { name: "a new connection for each request", shape: Shape::NewConnections, requests: 10_000, ..LOCAL },
    Scenario { name: "bodies of 1 MiB, both ways", shape: Shape::Large, requests: 500, ..LOCAL },
    Scenario {
        name: "TLS 1.3, one request in flight",
        peers: &[Peer::Keygate, Peer::Hyper, Peer::Haproxy, Peer::NginxPure],
        reference: Peer::NginxPure,
        frontend: Frontend::Tls,
        ..LOCAL
    },
    Scenario {
        name: "TLS 1.3, a new connection for each request",
        peers: &[Peer::Keygate, Peer::Hyper, Peer::Haproxy],
        frontend: Frontend::Tls,
        shape: Shape::NewConnections,
        requests: 2_000,
        ..LOCAL
    },
    Scenario {
        name: "HTTP/2, 16 connections with 8 requests each",
        peers: &[Peer::Keygate, Peer::Hyper, Peer::Haproxy, Peer::NginxPure],
        reference: Peer::NginxPure,
        cores: Cores::OwnForProxy,
        frontend: Frontend::Http2,
        connections: 16,
        streams: 8,
        ..LOCAL
    },
    Scenario {
        name: "Redis, one request in flight",
        peers: WITH_REDIS,
        reference: Peer::Pingora,
        redis: true,
        requests: 20_000,
        ..LOCAL
    },
    Scenario {
        name: "Redis, 64 connections",
        peers: WITH_REDIS,
        reference: Peer::Pingora,
        cores: Cores::OwnForProxy,
        redis: true,
        connections: 64,
        requests: 20_000,
        ..LOCAL
    },
];
