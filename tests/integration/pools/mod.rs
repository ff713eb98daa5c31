//! Pools of connections to the upstream: bounds over all workers, the queue behind them, and connections ahead of requests.

mod counting;
mod bounds;
mod queue;
mod spares;

use std::net::SocketAddr;

use crate::support::Gateway;

/// Gateway of four workers with these endpoints and this block `connections`. Connecting may take so long that a slow
/// machine refuses no request.
fn gateway(endpoints: &[SocketAddr], connections: &str, more: &str) -> Gateway {
    Gateway::with(&[], &blocks(endpoints, connections, more))
}

fn blocks(endpoints: &[SocketAddr], connections: &str, more: &str) -> String {
    let endpoints: Vec<String> = endpoints.iter().map(|address| format!("'http://{address}'")).collect();
    format!(
        "upstream: {{ endpoints: [{}], connections: {{ {connections} }}, {more} }}\n\
         limits: {{ key: {{ requests: 1000000, per: 1s }}, org: {{ concurrent: 1000 }} }}\n\
         timeouts: {{ connect: 120s }}\n\
         workers: 4\n",
        endpoints.join(", ")
    )
}

/// A metric of an endpoint.
fn labelled(metric: &str, endpoint: SocketAddr) -> String {
    format!("keygate_upstream_{metric}{{endpoint=\"{endpoint}\",upstream=\"default\"}}")
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
