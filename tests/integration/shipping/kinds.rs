//! `records` of a sink: changes alone, or refusals alone.

use control::management;
use serde_json::Value;

use crate::support::gateway::OPERATOR;
use crate::support::{Client, Gateway, Upstream, eventually};

/// The records that a receiver of webhooks has got.
fn records(receiver: &Upstream) -> Vec<Value> {
    let messages = receiver.received();
    let lines = messages.iter().flat_map(|message| message.body.split(|byte| *byte == b'\n'));
    lines.filter(|line| !line.is_empty()).map(|line| serde_json::from_slice(line).unwrap()).collect()
}

#[test]
fn sink_gets_the_records_that_it_asks_for_and_keeps_up() {
    let (upstream, people, watch) = (Upstream::start(), Upstream::start(), Upstream::start());
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let sink = |name: &str, records: &str, receiver: &Upstream| {
        let http = format!("{{ url: 'http://{}', secret: {secret} }}", receiver.address);
        format!("{{ name: {name}, records: {records}, http: {http} }}")
    };
    let sinks = [sink("people", "changes", &people), sink("watch", "refusals", &watch)].join(", ");
    let (gateway, key) =
        Gateway::with(&[upstream.address], &format!("audit: {{ path: audit, ship: [{sinks}] }}\n")).and_key();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/x", &key.text).status, 200);
    gateway.perform(async |to, now| management::disable_key(to, OPERATOR, key.id, false, now).await);
    assert_eq!(client.get("/x", &key.text).status, 401);
    gateway.perform(async |to, now| management::enable_key(to, OPERATOR, key.id, now).await);
    for _ in 0..20 {
        assert_eq!(client.get("/x", &key.text).status, 200);
    }
    eventually("the change is told", || records(&people).iter().any(|record| record["action"] == "key.enable"));
    eventually("the refusal is told", || !records(&watch).is_empty());
    assert!(records(&people).iter().all(|record| record["method"] == "ADMIN"), "{:?}", records(&people));
    let refused: Vec<Value> = records(&watch).iter().map(|record| record["outcome"].clone()).collect();
    assert_eq!(refused, ["key_disabled"]);
    for name in ["people", "watch"] {
        let lag = format!("keygate_audit_ship_lag_records{{sink=\"{name}\"}}");
        eventually("what is left out is not waited for", || gateway.metric(&lag) == 0.0);
    }
}
