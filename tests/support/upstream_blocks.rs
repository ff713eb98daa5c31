//! Blocks of configuration for gateways in front of several endpoints, and the names of their metrics.

use std::net::SocketAddr;

/// Limits that no test reaches.
pub const PLENTY: &str = "limits: { key: { requests: 1000000, per: 1s }, org: { concurrent: 1000 } }\n";

/// Endpoints of an upstream, without TLS: `endpoints: […]`.
pub fn endpoints(addresses: &[SocketAddr]) -> String {
    let urls: Vec<String> = addresses.iter().map(|address| format!("'http://{address}'")).collect();
    format!("endpoints: [{}]", urls.join(", "))
}

/// Name of a metric of an endpoint, with its labels. `metric` is the name behind `keygate_upstream_`.
pub fn of_endpoint(metric: &str, upstream: &str, endpoint: SocketAddr) -> String {
    format!("keygate_upstream_{metric}{{endpoint=\"{endpoint}\",upstream=\"{upstream}\"}}")
}
