//! Decisions for other proxies, as a proxy asks for them.

mod answers;
mod envoy;
mod grpc;
mod settings;
mod slots;
mod verdicts;

use std::net::SocketAddr;

use crate::support::{Client, Gateway, Response, Upstream};

/// Protocols over HTTP, in the order of the listeners behind that of the API.
pub const PROTOCOLS: [Protocol; 2] = [Protocol::Nginx, Protocol::ForwardAuth];

/// Protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Nginx,
    ForwardAuth,
}

/// A request that a proxy has.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub key: &'a str,
    pub fields: &'a [(&'a str, &'a str)],
}

const CLIENT: &str = "192.0.2.9";

impl<'a> Asked<'a> {
    pub fn get(target: &'a str, key: &'a str) -> Self {
        Self { method: "GET", target, key, fields: &[] }
    }
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::ForwardAuth => "forward_auth",
        }
    }

    /// Place of its listener.
    pub fn place(self) -> usize {
        PROTOCOLS.iter().position(|protocol| *protocol == self).unwrap() + 1
    }

    /// Asks as the proxy does, over a connection of its own.
    pub fn ask(self, address: SocketAddr, asked: Asked<'_>) -> Response {
        self.ask_over(&mut Client::connect(address), asked)
    }

    /// Asks as the proxy does.
    pub fn ask_over(self, connection: &mut Client, asked: Asked<'_>) -> Response {
        let Asked { method, target, key, fields } = asked;
        let mut fields = fields.to_vec();
        fields.push(("X-Forwarded-For", CLIENT));
        match self {
            Self::Nginx => connection.request("GET", &format!("/v1/nginx/{method}{target}"), key, &fields, b""),
            Self::ForwardAuth => {
                fields.extend([("X-Forwarded-Method", method), ("X-Forwarded-Uri", target), ("X-Forwarded-Host", "h")]);
                connection.request("GET", "/", key, &fields, b"")
            }
        }
    }

    /// The code of a refusal.
    pub fn code(answer: &Response) -> String {
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The status that the proxy's client gets.
    pub fn status(self, answer: &Response) -> u16 {
        let told = answer.header("x-keygate-status").map(|status| status.parse().unwrap());
        if self == Self::Nginx { told.unwrap_or(answer.status) } else { answer.status }
    }
}

/// A gateway that forwards, and decides in each protocol.
pub fn gateway(upstream: &Upstream, slots: &str, blocks: &str) -> Gateway {
    Gateway::with(&[upstream.address], &format!("{}{blocks}", listen(slots)))
}

/// Listeners of the API, of each protocol over HTTP, and of Envoy by gRPC: first `ext_authz`, then `ext_proc`.
pub fn listen(slots: &str) -> String {
    let decisions = |protocol: &Protocol| {
        let protocol = protocol.name();
        format!(
            ", {{ address: 127.0.0.1:0, serves: decisions, decisions: {{ protocol: {protocol}, slots: {slots} }} }}"
        )
    };
    let over_http: String = PROTOCOLS.iter().map(decisions).collect();
    let by_grpc = |slots: &str| {
        format!(", {{ address: 127.0.0.1:0, serves: decisions, decisions: {{ protocol: envoy, slots: {slots} }} }}")
    };
    let by_grpc = format!("{}{}", by_grpc(slots), by_grpc("stream"));
    format!("\nlisten: [{{ address: 127.0.0.1:0 }}{over_http}{by_grpc}]\n")
}
