//! A real proxy in front of an upstream, with the gateway that it asks.

use std::io::Write as _;
use std::net::SocketAddr;

use super::{Kind, Proxy};
use crate::support::upstream::Received;
use crate::support::{Gateway, Key, Upstream, free_address};

/// Identity fields.
pub const IDENTITY: [&str; 6] = ["X-User-Id", "X-Org-Id", "X-Key-Id", "X-Permissions", "X-Auth-Method", "X-Request-Id"];

/// Limits that refuse nothing here.
pub(super) const LIMITS: &str = "{ key: { requests: 1000000, per: 1h }, bad_keys: { requests: 1000000, per: 1h }, \
                      public: { requests: 1000000, per: 1h } }";
const ROUTES: &str = "routes:\n  \
                      - { name: reads, path: '/reads/**', permission: 'queries:read', query_in_audit: true }\n  \
                      - { name: writes, path: '/writes/**', permission: 'queries:write' }\n  \
                      - { name: open, path: '/open/**', access: public }\n";

/// A proxy with the gateway that decides, in front of an upstream.
pub struct Setup {
    pub gateway: Gateway,
    /// A key that may read.
    pub key: Key,
    pub upstream: Upstream,
    pub proxy: Proxy,
}

impl Setup {
    pub fn start(kind: Kind) -> Self {
        Self::with(kind, &blocks(kind))
    }

    /// The same, with these blocks of configuration.
    pub fn with(kind: Kind, blocks: &str) -> Self {
        let upstream = upstream();
        let (gateway, key) = gateway(blocks);
        let proxy = Proxy::start(kind, gateway.address, upstream.address);
        Self { gateway, key, upstream, proxy }
    }

    /// In front of another upstream, with a change to the files of the proxy.
    pub fn before(kind: Kind, address: SocketAddr, change: impl Fn(String) -> String) -> (Gateway, Key, Proxy) {
        let (gateway, key) = gateway(&blocks(kind));
        let proxy = Proxy::start_changed(kind, gateway.address, address, change);
        (gateway, key, proxy)
    }

    /// The value of an identity field of the key's requests; none of `X-Request-Id`, which each request has anew.
    pub fn value(&self, name: &str) -> Option<String> {
        match name {
            "X-User-Id" => Some(self.key.user.to_string()),
            "X-Org-Id" => Some(self.key.org.to_string()),
            "X-Key-Id" => Some(self.key.id.to_string()),
            "X-Permissions" => Some("queries:read".to_owned()),
            "X-Auth-Method" => Some("api-key".to_owned()),
            _ => None,
        }
    }

    /// Sends a request by a connection of its own.
    pub fn request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> crate::support::Response {
        self.proxy.client().request(method, target, &self.key.text, headers, body)
    }
}

/// A gateway that needs no upstream, and a key of it.
fn gateway(blocks: &str) -> (Gateway, Key) {
    let gateway = Gateway::with(&[free_address()], blocks);
    let key = gateway.key_with(&["queries:read"]);
    (gateway, key)
}

/// The listener that a proxy asks, with routes and limits.
pub fn blocks(kind: Kind) -> String {
    blocks_with(kind, ROUTES)
}

/// The same with other routes.
pub(super) fn blocks_with(kind: Kind, routes: &str) -> String {
    format!("{}{routes}limits: {LIMITS}\naudit: {{ low_water: 0%, path: audit, refusals: each }}\n", listen(kind))
}

fn listen(kind: Kind) -> String {
    let (protocol, slots) = kind.asks();
    // All streams are of one worker, which knows from the first response that it is shown responses.
    format!(
        "workers: 1\nlisten: [{{ address: 127.0.0.1:0, serves: decisions, decisions: {{ protocol: {protocol}, slots: \
         {slots} }} }}]\n"
    )
}

/// An upstream that refuses requests for a path with `/own/NNN` with that status, and serves others.
pub fn upstream() -> Upstream {
    Upstream::answering(|received: &Received, stream| {
        let status = received.path().split_once("/own/").and_then(|(_, rest)| rest.parse().ok()).unwrap_or(200);
        let body = if received.line.starts_with("HEAD ") { "" } else { "ok" };
        let response = format!("HTTP/1.1 {status} Own\r\nContent-Length: 2\r\n\r\n{body}");
        // A proxy that has gone away needs no answer.
        stream.write_all(response.as_bytes()).ok();
    })
}

/// A configuration of Envoy whose circuit breaker of the upstream does not count.
pub fn with_many_requests(text: String) -> String {
    let breaker =
        "circuit_breakers: { thresholds: [{ max_connections: 9999, max_requests: 9999, max_pending_requests: 9999 }] }";
    let begin = "    - name: protected\n      connect";
    assert!(text.contains(begin), "the upstream is not found");
    text.replacen(begin, &format!("    - name: protected\n      {breaker}\n      connect"), 1)
}
