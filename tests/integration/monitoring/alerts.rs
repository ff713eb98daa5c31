//! Alerts: each fires for its fault, in the unit tests of Prometheus and, for four of them, at a real gateway.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::prometheus::Prometheus;
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Upstream, eventually, free_address};

const RULES: &str = "deploy/prometheus/alerts.yaml";
const UNIT_TESTS: &str = "deploy/prometheus/alerts_test.yaml";

/// Names of the alerts, in the order of the file.
fn alerts() -> Vec<String> {
    let rules = fs::read_to_string(RULES).unwrap();
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect()
}

fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).output();
    let output = output.expect("promtool is installed, as `make setup` does");
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}: {out}{error}");
}

#[test]
fn rules_are_valid_and_pass_their_unit_tests() {
    promtool(&["check", "rules", RULES]);
    promtool(&["test", "rules", UNIT_TESTS]);
}

#[test]
fn every_alert_fires_in_a_unit_test_and_has_a_runbook() {
    let (tests, runbooks) =
        (fs::read_to_string(UNIT_TESTS).unwrap(), fs::read_to_string("docs/monitoring.md").unwrap());
    let rules = fs::read_to_string(RULES).unwrap();
    assert!(alerts().len() >= 20, "{:?}", alerts());
    for alert in alerts() {
        let cases = tests.split("alertname: ").skip(1).filter(|case| case.lines().next() == Some(&alert));
        assert!(cases.clone().any(|case| case.contains("exp_labels")), "{alert} fires in no unit test");
        assert!(cases.clone().any(|case| case.contains("exp_alerts: []")), "{alert} is silent in no unit test");
        assert!(runbooks.contains(&format!("\n### {alert}\n")), "{alert} has no runbook");
        let link = format!("runbook_url: https://runbooks.example.com/monitoring.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&link), "{alert} does not name its runbook");
    }
    let below = runbooks.split("\n## Alerts\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let headings: BTreeSet<String> =
        below.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_owned).collect();
    assert_eq!(headings, alerts().into_iter().collect(), "runbooks of alerts that do not exist");
}

/// The scrape configuration that is shipped is valid, and names the rules.
#[test]
fn scrape_configuration_loads_the_rules() {
    promtool(&["check", "config", "deploy/prometheus/prometheus.yaml"]);
    assert!(fs::read_to_string("deploy/prometheus/prometheus.yaml").unwrap().contains("alerts.yaml"));
}

/// The alerts as they are shipped, which fire at once: their delays are minutes.
pub fn without_delay() -> String {
    let rules = fs::read_to_string(RULES).unwrap();
    rules.lines().filter(|line| !line.trim().starts_with("for:")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn alerts_fire_for_real_faults_and_for_nothing_else() {
    let (redis, upstream, other, down) = (Redis::start(), Upstream::start(), Upstream::start(), free_address());
    let blocks = format!("state: {{ redis: {{ url: '{}', deadline: 2s }} }}\n", redis.url());
    let gateway = Gateway::with(&[upstream.address, other.address], &blocks);
    let prometheus = Prometheus::start(&[gateway.admin], &without_delay());
    let key = gateway.key();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/", &key.text).status, 200);
    eventually("a scrape has seen the request", || !prometheus.query("keygate_requests_total > 0").is_empty());
    assert_eq!(prometheus.firing(), Vec::<String>::new(), "a gateway in good order");

    gateway.reconfigure(|text| text.replace(&other.address.to_string(), &down.to_string()));
    eventually("an endpoint that is down is told", || {
        client.get("/", &key.text);
        prometheus.firing().contains(&"KeygateEndpointEjected".to_owned())
    });
    gateway.reconfigure(|text| format!("{text}nonsense: 1\n"));
    let fires = |alert: &str| prometheus.firing().iter().any(|firing| firing == alert);
    eventually("a refused reload is told", || fires("KeygateReloadRefused"));
    redis.kill();
    eventually("a Redis that is away is told", || fires("KeygateStateAway"));
    assert!(!fires("KeygateDiskLow"));
}

/// A gateway with one endpoint has nothing else to send requests to: the ticket for an endpoint is not enough.
#[test]
fn upstream_whose_only_endpoint_is_down_pages() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let prometheus = Prometheus::start(&[gateway.admin], &without_delay());
    let key = gateway.key();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/", &key.text).status, 200);
    eventually("a scrape has seen the endpoint", || !prometheus.query("keygate_upstream_endpoint_up == 1").is_empty());
    let down = free_address();
    gateway.reconfigure(|text| text.replace(&upstream.address.to_string(), &down.to_string()));
    eventually("an upstream that is down is told", || {
        client.get("/", &key.text);
        prometheus.firing().contains(&"KeygateUpstreamDown".to_owned())
    });
}

/// `/ready` names a required upstream for as long as its checks fail, and no longer.
#[test]
fn required_upstream_that_fails_its_checks_is_a_reason_of_ready() {
    let upstream = Upstream::start();
    let health = "health: { path: /, interval: 100ms, healthy: 1, unhealthy: 1, required: true }";
    let blocks = format!("upstream: {{ endpoints: ['http://{}'], {health} }}\n", upstream.address);
    let gateway = Gateway::with(&[], &blocks);
    let ready = || {
        let response = Client::connect(gateway.admin).get("/ready", "");
        (response.status, String::from_utf8(response.body).unwrap())
    };
    // On a busy machine a check may take longer than it may.
    eventually("the upstream is no reason", || ready().0 == 200);
    let down = free_address();
    gateway.reconfigure(|text| text.replace(&upstream.address.to_string(), &down.to_string()));
    eventually("the upstream is a reason", || {
        let (status, body) = ready();
        status == 503 && body.contains("\"upstream\"")
    });
    gateway.reconfigure(|text| text.replace("required: true", "required: false"));
    eventually("it is none where it is not required", || ready().0 == 200);
    gateway.reconfigure(|text| text.replace("required: false", "required: true"));
    eventually("it is one again", || ready().0 == 503);
    gateway.reconfigure(|text| text.replace(&down.to_string(), &upstream.address.to_string()));
    eventually("it ends with the failure, without a request", || ready().0 == 200);
}

#[test]
fn volume_below_its_low_water_mark_is_told() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::start(&upstream);
    // More than any disk has.
    gateway.restart_with(|text| text.replace("low_water: 0%", "low_water: 1024TiB"));
    let prometheus = Prometheus::start(&[gateway.admin], &without_delay());
    eventually("a low disk is told", || prometheus.firing().contains(&"KeygateDiskLow".to_owned()));
}
