//! The management API of the real program: from another network, through kills, and by Terraform.

use std::net::SocketAddr;

use serde_json::Value;

use crate::support::{Client, Response, Setup, Upstream, free_address};

mod namespace;
mod network;
mod deaths;
mod terraform;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A gateway with a listener for the management API on loopback.
struct Managed {
    setup: Setup,
    api: SocketAddr,
    _upstream: Upstream,
}

impl Managed {
    /// A gateway with this state.
    fn new(state: &str) -> Self {
        let upstream = Upstream::start();
        let setup = Setup::with_state(upstream.address, state, "");
        let api = free_address();
        add_listener(&setup, &format!("address: '{api}'"));
        Self { setup, api, _upstream: upstream }
    }

    fn embedded() -> Self {
        Self::new("{ embedded: { path: state.db } }")
    }

    /// Creates a token; the gateway must run.
    fn token(&self, allow: &str) -> String {
        self.setup.ok(&["token", "create", "pipeline", "--allow", allow])
    }

    fn call(&self, token: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Response {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [&[JSON], headers].concat();
        Client::connect(self.api).request(method, &format!("/v1{path}"), token, &headers, body.as_bytes())
    }
}

/// Adds a listener for the management API to a configuration.
fn add_listener(setup: &Setup, settings: &str) {
    let listener = format!("listen: [{{ {settings}, serves: management }}, ");
    setup.write(&setup.text().replacen("listen: [", &listener, 1));
}
