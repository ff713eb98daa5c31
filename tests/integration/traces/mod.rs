//! Traces: what reaches a real receiver of OTLP, the upstream, the audit and the client.

mod context;
mod export;
mod kinds;
mod reload;
mod sampling;
mod secrets;

use crate::support::upstream::Received;
use crate::support::{Collector, Gateway, ReceivedSpan, Upstream};

/// A caller's trace.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

const ROUTES: &str = "
routes:
  - { name: item, path: '/items/{id}' }
  - { name: socket, path: /socket, upgrade: [websocket] }
  - { name: secret, path: /secret, permission: 'secret:read' }
";

/// This machine is a trusted proxy.
const TRUSTED: &str = "trusted_proxies: [127.0.0.0/8]\n";

fn gateway(upstream: &Upstream, collector: &Collector, traces: &str) -> Gateway {
    gateway_with(upstream, collector, traces, "")
}

fn gateway_with(upstream: &Upstream, collector: &Collector, traces: &str, blocks: &str) -> Gateway {
    Gateway::with(&[upstream.address], &format!("{}{ROUTES}{blocks}", collector.telemetry(traces)))
}

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{SPAN}-{flags}")
}

/// Trace, span and flags of the `traceparent` that the upstream has received.
fn parent_at(received: &Received) -> (String, String, String) {
    let parts: Vec<String> = received.header("traceparent").unwrap().split('-').map(str::to_owned).collect();
    let [_, trace, span, flags] = <[String; 4]>::try_from(parts).unwrap();
    (trace, span, flags)
}

/// The server spans.
fn servers(spans: &[ReceivedSpan]) -> Vec<&ReceivedSpan> {
    spans.iter().filter(|span| span.is_server()).collect()
}

/// The client spans, in the order of their tries.
fn clients(spans: &[ReceivedSpan]) -> Vec<&ReceivedSpan> {
    spans.iter().filter(|span| !span.is_server()).collect()
}
