//! Pools of connections to the upstream: bounds over all workers, and the queue behind them.

mod counting;
mod bounds;
mod queue;

use std::net::SocketAddr;

use crate::support::Gateway;
use crate::support::upstream_blocks::{PLENTY, endpoints as endpoints_at, of_endpoint};

/// Gateway of four workers with these endpoints and this block `connections`. Connecting may take so long that a slow
/// machine refuses no request.
fn gateway(endpoints: &[SocketAddr], connections: &str, more: &str) -> Gateway {
    Gateway::with(&[], &blocks(endpoints, connections, more))
}

fn blocks(endpoints: &[SocketAddr], connections: &str, more: &str) -> String {
    let endpoints = endpoints_at(endpoints);
    let upstream = format!("upstream: {{ {endpoints}, connections: {{ {connections} }}, {more} }}\n");
    format!("{upstream}{PLENTY}timeouts: {{ connect: 120s }}\nworkers: 4\n")
}

/// A metric of an endpoint.
fn labelled(metric: &str, endpoint: SocketAddr) -> String {
    of_endpoint(metric, "default", endpoint)
}

/// Requests that wait, by their first endpoint.
fn waiting(gateway: &Gateway, endpoint: SocketAddr) -> f64 {
    gateway.metric(&labelled("waiting", endpoint))
}

fn refusals(gateway: &Gateway, endpoint: SocketAddr, reason: &str) -> f64 {
    gateway.metric(&format!(
        "keygate_upstream_wait_refusals_total{{endpoint=\"{endpoint}\",reason=\"{reason}\",upstream=\"default\"}}"
    ))
}
