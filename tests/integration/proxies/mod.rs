//! Real proxies that ask for a decision before they forward a request, each with its configuration of `deploy/proxies`.

mod admitted;
mod by_grpc;
mod decisions;
mod described;
mod envoy_messages;
mod envoy_peer;
mod files;
mod program;
mod refused;
mod unanswered;

pub use decisions::{ABSENT, Decisions, Described, IDENTITY, fold};
pub use program::{Kind, Proxy, validate_envoy};

use std::io::Write as _;

use crate::support::Upstream;
use crate::support::upstream::Received;

/// A proxy with the peer that decides, in front of an upstream.
pub struct Setup {
    pub decisions: Decisions,
    pub upstream: Upstream,
    pub proxy: Proxy,
}

impl Setup {
    pub fn start(kind: Kind) -> Self {
        let (decisions, upstream) = (Decisions::start(kind), upstream());
        let proxy = Proxy::start(kind, decisions.address(), upstream.address);
        Self { decisions, upstream, proxy }
    }
}

/// An upstream that refuses requests for `/own/NNN` with that status, and serves others.
fn upstream() -> Upstream {
    Upstream::answering(|received, stream| {
        let status = received.path().strip_prefix("/own/").and_then(|rest| rest.parse().ok()).unwrap_or(200);
        let body = if received.line.starts_with("HEAD ") { "" } else { "ok" };
        let response = format!("HTTP/1.1 {status} Own\r\nContent-Length: 2\r\n\r\n{body}");
        // A proxy that has gone away needs no answer.
        stream.write_all(response.as_bytes()).ok();
    })
}

/// Method and target of a request that has reached the upstream.
pub fn described(received: &Received) -> Described {
    let mut words = received.line.split(' ').map(str::to_owned);
    Described { method: words.next().unwrap(), target: words.next().unwrap() }
}
