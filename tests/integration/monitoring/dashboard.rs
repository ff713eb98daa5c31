//! The Grafana dashboard: each of its queries gives data when a Prometheus has scraped a gateway under load.

use std::fs;

use serde_json::Value;

use super::prometheus::Prometheus;
use crate::support::{Client, Gateway, Upstream, eventually};

/// Series that exist only after faults that this test does not make, or with a Redis (`redis_replicas`).
const RARE: [&str; 2] = ["keygate_tls_certificate_not_after_timestamp_seconds", "keygate_redis_replica"];

/// The queries of all panels, with the dashboard's variables replaced.
pub fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_slice(&fs::read("deploy/grafana/keygate.json").unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    let expression = |target: Value| target["expr"].as_str().unwrap().to_owned();
    targets.map(expression).map(|text| text.replace("$__rate_interval", "1m").replace("$instance", ".*")).collect()
}

#[test]
fn every_query_of_the_dashboard_gives_data() {
    let upstream = Upstream::start();
    let keys = tempfile::tempdir().unwrap();
    let signing_key = keys.path().join("audit.key");
    fs::write(&signing_key, &*journal::audit::generate_key("example.org/gw").unwrap().0).unwrap();
    let blocks = format!(
        "limits: {{ key: {{ requests: 5, per: 1h, burst: 5 }} }}\naudit: {{ low_water: 0%, path: audit, \
         checkpoints: {{ key_file: {} }}, ship: [{{ name: archive, files: {{ path: shipped }} }}] }}\n",
        signing_key.display()
    );
    let gateway = Gateway::with(&[upstream.address], &blocks);
    let prometheus = Prometheus::start(&[gateway.admin], "groups: []\n");
    let key = gateway.key();
    let load = || {
        let mut client = Client::connect(gateway.address);
        for credential in [key.text.as_str(), "kg_unknown"] {
            client.get("/", credential);
        }
    };
    load();
    eventually("a scrape has seen the first requests", || {
        !prometheus.query("keygate_requests_total{code=\"200\"} > 0").is_empty()
    });
    let queries = queries();
    assert!(queries.len() > 40, "{} queries", queries.len());
    for query in queries.iter().filter(|query| !RARE.iter().any(|rare| query.contains(rare))) {
        eventually(query, || {
            load();
            let series = prometheus.query(query);
            series.iter().any(|series| series["value"][1].as_str().is_some_and(|value| value != "NaN"))
        });
    }
}

/// A dashboard that shows a metric that does not exist shows nothing: the rare ones are valid, too.
#[test]
fn dashboard_names_metrics_that_the_documentation_has() {
    let documented = fs::read_to_string("docs/monitoring.md").unwrap();
    for query in queries() {
        let names = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in names.filter(|name| name.starts_with("keygate_") || name.starts_with("process_")) {
            let name = name.strip_suffix("_bucket").unwrap_or(name);
            assert!(documented.contains(&format!("| `{name}` |")), "{query}: {name}");
        }
    }
}
