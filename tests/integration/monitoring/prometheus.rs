//! A real Prometheus server, which scrapes gateways of a test.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Client, free_port, until};

/// Time between two scrapes. Rates need two of them in their range.
const INTERVAL: &str = "300ms";

pub struct Prometheus {
    address: SocketAddr,
    server: Child,
    _dir: TempDir,
}

impl Prometheus {
    /// Scrapes these admin listeners, and evaluates the rules.
    pub fn start(targets: &[SocketAddr], rules: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let targets: Vec<String> = targets.iter().map(|target| format!("\"{target}\"")).collect();
        let config = format!(
            "global: {{ scrape_interval: {INTERVAL}, scrape_timeout: {INTERVAL}, evaluation_interval: {INTERVAL} }}\n\
             rule_files: [rules.yaml]\n\
             scrape_configs: [{{ job_name: keygate, static_configs: [{{ targets: [{}] }}] }}]\n",
            targets.join(", ")
        );
        std::fs::write(dir.path().join("prometheus.yml"), config).unwrap();
        std::fs::write(dir.path().join("rules.yaml"), rules).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let server = Command::new("prometheus")
            .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .spawn()
            .expect("prometheus is installed, as `make setup` does");
        let started = Self { address, server, _dir: dir };
        until("Prometheus responds", || {
            let mut client = Client::try_connect(address).ok()?;
            client.try_send("GET /-/ready HTTP/1.1\r\nHost: prometheus\r\n\r\n").ok()?;
            client.try_response_to("GET").ok().filter(|response| response.status == 200)
        });
        started
    }

    /// Result of a query: its series.
    ///
    /// # Panics
    /// When the query is not valid.
    pub fn query(&self, query: &str) -> Vec<Value> {
        let encoded = percent_encoding::utf8_percent_encode(query, percent_encoding::NON_ALPHANUMERIC);
        let response = Client::connect(self.address).get(&format!("/api/v1/query?query={encoded}"), "");
        let answer = response.json();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// Names of the alerts that fire.
    pub fn firing(&self) -> Vec<String> {
        let series = self.query("ALERTS{alertstate=\"firing\"}");
        series.iter().map(|alert| alert["metric"]["alertname"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        drop(self.server.kill());
        drop(self.server.wait());
    }
}
