//! Gateway as a process, with its log.

use std::net::SocketAddr;

use super::PLENTY;
use crate::support::{Running, Setup, metric};

/// Gateway as a process, in front of several endpoints.
pub struct Logged {
    pub setup: Setup,
    pub key: String,
    pub running: Running,
}

impl Logged {
    /// Endpoints are URLs; `upstream` is the rest of that block.
    pub fn start(endpoints: &[String], upstream: &str) -> Self {
        let unused = SocketAddr::from(([127, 0, 0, 1], 1));
        let setup = Setup::new(unused, PLENTY);
        setup.write(&setup.text().replace(&format!("['http://{unused}']"), &format!("{endpoints:?}{upstream}")));
        let key = setup.key();
        let running = setup.start_logged();
        Self { setup, key, running }
    }

    /// Lines of the log that contain this text.
    pub fn lines(&self, text: &str) -> Vec<String> {
        let log = std::fs::read_to_string(self.setup.path().join("log")).unwrap();
        log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    pub fn metric(&self, name: &str) -> f64 {
        metric(self.setup.admin, name)
    }

    /// Endpoint as `keygate upstreams` shows it.
    pub fn shown(&self, endpoint: SocketAddr) -> serde_json::Value {
        let list: serde_json::Value = serde_json::from_str(&self.setup.ok(&["upstreams", "--json"])).unwrap();
        let items = list["items"].as_array().unwrap();
        items.iter().find(|item| item["endpoint"] == endpoint.to_string()).unwrap().clone()
    }
}
